"""Create measured profiles, one of each device type the default."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TIMESTAMP = sa.DateTime(timezone=True)
DOCUMENT = sa.JSON(none_as_null=True)


def upgrade() -> None:
    op.create_table(
        "profiles",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("version", sa.String(length=12), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.Column("device_type", sa.String(length=64), nullable=False),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("shapes", DOCUMENT, nullable=False),
        sa.Column("fingerprint", DOCUMENT, nullable=False),
        sa.Column("measurements", DOCUMENT, nullable=False),
        sa.Column("corrections", DOCUMENT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profiles")),
        sa.UniqueConstraint("version", name=op.f("uq_profiles_version")),
    )
    op.create_index(op.f("ix_profiles_created_at_id"), "profiles", ["created_at", "id"])
    op.create_index(op.f("ix_profiles_device_type"), "profiles", ["device_type"])
    op.create_index(
        "uq_profiles_default",
        "profiles",
        ["device_type"],
        unique=True,
        sqlite_where=sa.text("is_default"),
        postgresql_where=sa.text("is_default"),
    )


def downgrade() -> None:
    op.drop_table("profiles")
