"""Indices of lists of many plans; what runs have cost whose jobs are gone; budgets."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INDICES = (
    ("owner", "name", "id"),
    ("algorithm", "created_at", "id"),
    ("cluster_name", "created_at", "id"),
)


def upgrade() -> None:
    for columns in INDICES:
        op.create_index(op.f(f"ix_plans_{'_'.join(columns)}"), "plans", list(columns))
    op.create_table(
        "past_runs",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("labels", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("plan_name", sa.String(length=200), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("price_per_second", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_past_runs")),
    )
    op.create_index(op.f("ix_past_runs_finished_at"), "past_runs", ["finished_at"])
    op.create_table(
        "budgets",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("of", sa.String(length=200), nullable=False),
        sa.Column("unit", sa.String(length=16), nullable=False),
        sa.Column("amount", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budgets")),
        sa.UniqueConstraint("of", "unit", name=op.f("uq_budgets_of_unit")),
    )
    op.create_index(op.f("ix_budgets_created_at_id"), "budgets", ["created_at", "id"])


def downgrade() -> None:
    op.drop_table("budgets")
    op.drop_table("past_runs")
    for columns in INDICES:
        op.drop_index(op.f(f"ix_plans_{'_'.join(columns)}"), table_name="plans")
