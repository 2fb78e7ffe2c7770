"""Keep with plans and jobs what their request carries along, with plans the form of documents."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0005"
branch_labels = None
depends_on = None

DOCUMENT = sa.JSON(none_as_null=True)


def upgrade() -> None:
    op.add_column("plans", sa.Column("origin", DOCUMENT, nullable=True))
    op.add_column("plans", sa.Column("written_as", sa.String(length=16), nullable=True))
    op.add_column("jobs", sa.Column("origin", DOCUMENT, nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "origin")
    op.drop_column("plans", "written_as")
    op.drop_column("plans", "origin")
