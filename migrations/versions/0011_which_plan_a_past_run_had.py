"""Which plan a past run had, as names of plans repeat."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("past_runs", sa.Column("plan_id", sa.Uuid(), nullable=True))


def downgrade() -> None:
    op.drop_column("past_runs", "plan_id")
