"""Keys with owner, scopes and expiry, and the log of what was done with them."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TIMESTAMP = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("note", sa.String(length=200), nullable=False),
        sa.Column("scopes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.Column("expires_at", TIMESTAMP, nullable=True),
        sa.Column("last_used_at", TIMESTAMP, nullable=True),
        sa.Column("revoked_at", TIMESTAMP, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    op.create_index(op.f("ix_api_keys_created_at_id"), "api_keys", ["created_at", "id"])
    op.create_index(op.f("ix_api_keys_owner"), "api_keys", ["owner"])
    op.create_table(
        "audit_log",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("key_id", sa.String(length=64), nullable=True),
        sa.Column("method", sa.String(length=16), nullable=False),
        sa.Column("route", sa.String(length=200), nullable=False),
        sa.Column("resource_id", sa.String(length=200), nullable=True),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("remote_address", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
    op.create_index(op.f("ix_audit_log_created_at_id"), "audit_log", ["created_at", "id"])
    op.create_index(op.f("ix_audit_log_owner_created_at"), "audit_log", ["owner", "created_at"])


def downgrade() -> None:
    op.drop_table("audit_log")
    op.drop_table("api_keys")
