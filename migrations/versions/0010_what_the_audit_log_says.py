"""What a request has changed, in the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("audit_log", sa.Column("change", sa.String(length=200), nullable=True))


def downgrade() -> None:
    op.drop_column("audit_log", "change")
