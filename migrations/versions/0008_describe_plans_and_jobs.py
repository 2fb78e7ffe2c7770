"""Give plans and jobs a name, an owner, labels and notes, and jobs a priority."""

from uuid import UUID

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
    """In Python: lower() of SQLite knows ASCII alone."""
    connection = op.get_bind()
    texts = {
        row.id: [row.name, row.owner, row.algorithm or ""]
        for row in connection.execute(sa.select(*_columns("plans", "id", "algorithm")))
    }
    models = sa.table("plan_models", sa.column("plan_id", sa.Uuid()), sa.column("architecture"))
    for plan_id, model in connection.execute(sa.select(models)):
        texts[plan_id].append(model)
    of_plans = {plan_id: "\n".join(parts).lower() for plan_id, parts in texts.items()}
    _insert("plan", of_plans)
    jobs = connection.execute(sa.select(*_columns("jobs", "id", "plan_id")))
    _insert(
        "job",
        {
            row.id: f"{row.name}\n{row.owner}\n".lower() + of_plans.get(row.plan_id, "")
            for row in jobs
        },
    )


def _columns(table: str, *more: str) -> list[sa.ColumnClause[object]]:
    uuids = ("id", "plan_id")
    columns = [sa.column(name, sa.Uuid() if name in uuids else None) for name in more]
    return list(sa.table(table, sa.column("name"), sa.column("owner"), *columns).c)


def _insert(what: str, texts: dict[UUID, str]) -> None:
    table = sa.table(f"{what}_texts", sa.column(f"{what}_id", sa.Uuid()), sa.column("text"))
    if texts:
        op.bulk_insert(table, [{f"{what}_id": key, "text": text} for key, text in texts.items()])
