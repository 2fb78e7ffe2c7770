"""Give plans and jobs a name, an owner, labels and notes, and jobs a priority."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True)
INDICES = {
    "plans": (
        ("owner", "created_at", "id"),
        ("name", "id"),
        ("iteration_seconds", "id"),
        ("price_per_iteration", "id"),
        ("gpus_used", "id"),
    ),
    "jobs": (("owner", "created_at", "id"), ("name", "id")),
}


def upgrade() -> None:
    for table in INDICES:
        for column in (
            sa.Column("name", sa.String(length=200), nullable=False, server_default=""),
            sa.Column("owner", sa.String(length=64), nullable=False, server_default="local"),
            sa.Column("labels", DOCUMENT, nullable=False, server_default="{}"),
            sa.Column("notes", sa.Text(), nullable=True),
        ):
            op.add_column(table, column)
    op.add_column("jobs", sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("retry_of", sa.Uuid(), nullable=True))
    _name_those_there_are()
    for table, indices in INDICES.items():
        for columns in indices:
            op.create_index(op.f(f"ix_{table}_{'_'.join(columns)}"), table, list(columns))
    for what in ("plan", "job"):
        op.create_table(
            f"{what}_texts",
            sa.Column(f"{what}_id", sa.Uuid(), nullable=False),
            sa.Column("text", sa.Text(), nullable=False),
            sa.ForeignKeyConstraint(
                [f"{what}_id"],
                [f"{what}s.id"],
                name=op.f(f"fk_{what}_texts_{what}_id_{what}s"),
                ondelete="CASCADE",
            ),
            sa.PrimaryKeyConstraint(f"{what}_id", name=op.f(f"pk_{what}_texts")),
        )
    _describe_those_there_are()


def downgrade() -> None:
    op.drop_table("job_texts")
    op.drop_table("plan_texts")
    for table, indices in INDICES.items():
        for columns in indices:
            op.drop_index(op.f(f"ix_{table}_{'_'.join(columns)}"), table)
    op.drop_column("jobs", "retry_of")
    op.drop_column("jobs", "priority")
    for table in INDICES:
        for name in ("notes", "labels", "owner", "name"):
            op.drop_column(table, name)


def _name_those_there_are() -> None:
    op.execute("UPDATE plans SET name = spec_name")
    op.execute(
        "UPDATE jobs SET name = coalesce("
        "(SELECT plans.name FROM plans WHERE plans.id = jobs.plan_id), 'profile')"
    )


def _describe_those_there_are() -> None:
    op.execute(
        "INSERT INTO plan_texts (plan_id, text)"
        " SELECT id, lower(name || '\n' || owner || '\n' || coalesce(algorithm, '')) FROM plans"
    )
    models = sa.text("SELECT plan_id, architecture FROM plan_models")
    add = sa.text("UPDATE plan_texts SET text = text || '\n' || lower(:model) WHERE plan_id = :id")
    for plan_id, model in op.get_bind().execute(models).all():
        op.get_bind().execute(add, {"id": plan_id, "model": model})
    op.execute(
        "INSERT INTO job_texts (job_id, text)"
        " SELECT jobs.id, lower(jobs.name || '\n' || jobs.owner)"
        " || coalesce('\n' || plan_texts.text, '')"
        " FROM jobs LEFT JOIN plan_texts ON plan_texts.plan_id = jobs.plan_id"
    )
