"""Let a job measure profiles instead of running a plan; keep with a profile the job it is of."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TIMESTAMP = sa.DateTime(timezone=True)
DOCUMENT = sa.JSON(none_as_null=True)
KIND = "kind IN ('run', 'profile')"
PLAN = "(kind = 'run') = (plan_id IS NOT NULL)"


def upgrade() -> None:
    # SQLite builds a table anew to alter it, and does not see check constraints by itself.
    with op.batch_alter_table("jobs", copy_from=_jobs(with_kind=False)) as batch:
        batch.add_column(
            sa.Column("kind", sa.String(length=16), nullable=False, server_default="run")
        )
        batch.alter_column("plan_id", existing_type=sa.Uuid(), nullable=True)
        batch.create_check_constraint(op.f("ck_jobs_kind"), sa.text(KIND))
        batch.create_check_constraint(op.f("ck_jobs_plan"), sa.text(PLAN))
    with op.batch_alter_table("profiles") as batch:
        batch.add_column(sa.Column("job_id", sa.Uuid(), nullable=True))
        batch.create_foreign_key(
            op.f("fk_profiles_job_id_jobs"), "jobs", ["job_id"], ["id"], ondelete="SET NULL"
        )
        batch.create_index(op.f("ix_profiles_job_id"), ["job_id"])


def downgrade() -> None:
    with op.batch_alter_table("profiles") as batch:
        batch.drop_index(op.f("ix_profiles_job_id"))
        batch.drop_constraint(op.f("fk_profiles_job_id_jobs"), type_="foreignkey")
        batch.drop_column("job_id")
    op.execute("DELETE FROM jobs WHERE kind = 'profile'")
    with op.batch_alter_table("jobs", copy_from=_jobs(with_kind=True)) as batch:
        batch.drop_constraint(op.f("ck_jobs_plan"), type_="check")
        batch.drop_constraint(op.f("ck_jobs_kind"), type_="check")
        batch.alter_column("plan_id", existing_type=sa.Uuid(), nullable=False)
        batch.drop_column("kind")


def _jobs(*, with_kind: bool) -> sa.Table:
    """The table as it is before a change, for SQLite."""
    kind: list[sa.schema.SchemaItem] = []
    if with_kind:
        kind = [
            sa.Column("kind", sa.String(length=16), nullable=False, server_default="run"),
            sa.CheckConstraint(KIND, name=op.f("ck_jobs_kind")),
            sa.CheckConstraint(PLAN, name=op.f("ck_jobs_plan")),
        ]
    return sa.Table(
        "jobs",
        sa.MetaData(),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("plan_id", sa.Uuid(), nullable=with_kind),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.Column("started_at", TIMESTAMP, nullable=True),
        sa.Column("finished_at", TIMESTAMP, nullable=True),
        sa.Column("cancel_requested_at", TIMESTAMP, nullable=True),
        sa.Column("settings", DOCUMENT, nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("iterations", sa.Integer(), nullable=False),
        sa.Column("measured", DOCUMENT, nullable=False),
        sa.Column("report", DOCUMENT, nullable=True),
        sa.Column("problem", DOCUMENT, nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.String(length=64), nullable=True),
        sa.Column("output", sa.String(length=1000), nullable=True),
        sa.Column("log_offset", sa.BigInteger(), nullable=False),
        sa.Column("lease_token", sa.Uuid(), nullable=True),
        sa.Column("lease_expires_at", TIMESTAMP, nullable=True),
        *kind,
        *_checks(),
        sa.ForeignKeyConstraint(
            ["plan_id"], ["plans.id"], name=op.f("fk_jobs_plan_id_plans"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.Index(op.f("ix_jobs_created_at_id"), "created_at", "id"),
        sa.Index(op.f("ix_jobs_status_created_at"), "status", "created_at"),
        sa.Index(op.f("ix_jobs_plan_id"), "plan_id"),
    )


def _checks() -> list[sa.CheckConstraint]:
    checks = {
        "status": (
            "status IN ('queued', 'starting', 'running', 'succeeded', 'failed', 'cancelled')"
        ),
        "lease": "lease_token IS NULL OR status IN ('starting', 'running')",
        "lease_expiry": "(lease_token IS NULL) = (lease_expires_at IS NULL)",
        "submission": (
            "status NOT IN ('starting', 'running', 'succeeded') OR submission_id IS NOT NULL"
        ),
        "attempts": "(submission_id IS NULL) = (attempts = 0)",
        "output": "(submission_id IS NULL) = (output IS NULL)",
        "report": "status <> 'succeeded' OR report IS NOT NULL",
        "problem": "(status = 'failed') = (problem IS NOT NULL)",
        "finished": "(status IN ('queued', 'starting', 'running')) = (finished_at IS NULL)",
        "progress": "iteration BETWEEN 0 AND iterations",
    }
    return [
        sa.CheckConstraint(condition, name=op.f(f"ck_jobs_{name}"))
        for name, condition in checks.items()
    ]
