"""Create plans, clusters and idempotency keys."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Types are spelled out: a migration keeps its meaning when the code's own types change.
TIMESTAMP = sa.DateTime(timezone=True)
DOCUMENT = sa.JSON(none_as_null=True)


def upgrade() -> None:
    op.create_table(
        "clusters",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.Column("spec", DOCUMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clusters")),
        sa.UniqueConstraint("name", name=op.f("uq_clusters_name")),
    )
    op.create_index(op.f("ix_clusters_created_at_id"), "clusters", ["created_at", "id"])
    _create_plans()
    op.create_table(
        "plan_models",
        sa.Column("plan_id", sa.Uuid(), nullable=False),
        sa.Column("role", sa.String(length=64), nullable=False),
        sa.Column("architecture", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(
            ["plan_id"],
            ["plans.id"],
            name=op.f("fk_plan_models_plan_id_plans"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("plan_id", "role", name=op.f("pk_plan_models")),
    )
    op.create_index(op.f("ix_plan_models_architecture"), "plan_models", ["architecture"])
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("plan_id", sa.Uuid(), nullable=True),
        sa.Column("lease_token", sa.Uuid(), nullable=True),
        sa.Column("expires_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint(
            "(plan_id IS NULL) = (lease_token IS NOT NULL)",
            name=op.f("ck_idempotency_keys_plan_or_lease"),
        ),
        sa.ForeignKeyConstraint(
            ["plan_id"],
            ["plans.id"],
            name=op.f("fk_idempotency_keys_plan_id_plans"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(op.f("ix_idempotency_keys_expires_at"), "idempotency_keys", ["expires_at"])
    op.create_index(op.f("ix_idempotency_keys_plan_id"), "idempotency_keys", ["plan_id"])


def _create_plans() -> None:
    op.create_table(
        "plans",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.Column("started_at", TIMESTAMP, nullable=True),
        sa.Column("finished_at", TIMESTAMP, nullable=True),
        sa.Column("spec_name", sa.String(length=200), nullable=False),
        sa.Column("algorithm", sa.String(length=64), nullable=True),
        sa.Column("cluster_name", sa.String(length=64), nullable=True),
        sa.Column("objective", sa.String(length=32), nullable=False),
        sa.Column("iteration_seconds", sa.Double(), nullable=True),
        sa.Column("lower_bound_seconds", sa.Double(), nullable=True),
        sa.Column("relative_gap", sa.Double(), nullable=True),
        sa.Column("gpus_used", sa.Integer(), nullable=True),
        sa.Column("price_per_iteration", sa.Double(), nullable=True),
        sa.Column("code_version", sa.String(length=64), nullable=True),
        sa.Column("catalogue_version", sa.String(length=64), nullable=True),
        sa.Column("profile_versions", DOCUMENT, nullable=True),
        sa.Column("spec", DOCUMENT, nullable=False),
        sa.Column("plan", DOCUMENT, nullable=True),
        sa.Column("problem", DOCUMENT, nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("lease_token", sa.Uuid(), nullable=True),
        sa.Column("lease_expires_at", TIMESTAMP, nullable=True),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_plans_status"),
        ),
        sa.CheckConstraint(
            "(status = 'running') = (lease_token IS NOT NULL)", name=op.f("ck_plans_lease")
        ),
        sa.CheckConstraint(
            "(lease_token IS NULL) = (lease_expires_at IS NULL)",
            name=op.f("ck_plans_lease_expiry"),
        ),
        sa.CheckConstraint(
            "(status = 'succeeded') = (plan IS NOT NULL)", name=op.f("ck_plans_plan")
        ),
        sa.CheckConstraint(
            "(status = 'failed') = (problem IS NOT NULL)", name=op.f("ck_plans_problem")
        ),
        sa.CheckConstraint(
            "(status IN ('queued', 'running')) = (finished_at IS NULL)",
            name=op.f("ck_plans_finished"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plans")),
    )
    op.create_index(op.f("ix_plans_created_at_id"), "plans", ["created_at", "id"])
    op.create_index(op.f("ix_plans_status_created_at"), "plans", ["status", "created_at"])


def downgrade() -> None:
    op.drop_table("idempotency_keys")
    op.drop_table("plan_models")
    op.drop_table("plans")
    op.drop_table("clusters")
