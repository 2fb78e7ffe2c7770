"""Create jobs with their events and logs; let idempotency keys stand for jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Types are spelled out: a migration keeps its meaning when the code's own types change.
TIMESTAMP = sa.DateTime(timezone=True)
DOCUMENT = sa.JSON(none_as_null=True)

PLAN_OR_LEASE = "(plan_id IS NULL) = (lease_token IS NOT NULL)"
PLAN_JOB_OR_LEASE = (
    "(CASE WHEN plan_id IS NULL THEN 0 ELSE 1 END)"
    " + (CASE WHEN job_id IS NULL THEN 0 ELSE 1 END)"
    " + (CASE WHEN lease_token IS NULL THEN 0 ELSE 1 END) = 1"
)


def upgrade() -> None:
    _create_jobs()
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("time", TIMESTAMP, nullable=False),
        sa.Column("document", DOCUMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_events_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "sequence", name=op.f("pk_job_events")),
    )
    op.create_table(
        "job_logs",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("end_position", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_logs_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "end_position", name=op.f("pk_job_logs")),
    )
    # SQLite builds a table anew to alter it, and does not see check constraints by itself.
    before = _idempotency_keys(with_jobs=False)
    with op.batch_alter_table("idempotency_keys", copy_from=before) as batch:
        batch.add_column(sa.Column("job_id", sa.Uuid(), nullable=True))
        batch.create_foreign_key(
            op.f("fk_idempotency_keys_job_id_jobs"), "jobs", ["job_id"], ["id"], ondelete="CASCADE"
        )
        batch.drop_constraint(op.f("ck_idempotency_keys_plan_or_lease"), type_="check")
        batch.create_check_constraint(
            op.f("ck_idempotency_keys_plan_job_or_lease"), sa.text(PLAN_JOB_OR_LEASE)
        )
        batch.create_index(op.f("ix_idempotency_keys_job_id"), ["job_id"])


def downgrade() -> None:
    op.execute("DELETE FROM idempotency_keys WHERE job_id IS NOT NULL")
    before = _idempotency_keys(with_jobs=True)
    with op.batch_alter_table("idempotency_keys", copy_from=before) as batch:
        batch.drop_index(op.f("ix_idempotency_keys_job_id"))
        batch.drop_constraint(op.f("ck_idempotency_keys_plan_job_or_lease"), type_="check")
        batch.create_check_constraint(
            op.f("ck_idempotency_keys_plan_or_lease"), sa.text(PLAN_OR_LEASE)
        )
        batch.drop_constraint(op.f("fk_idempotency_keys_job_id_jobs"), type_="foreignkey")
        batch.drop_column("job_id")
    op.drop_table("job_logs")
    op.drop_table("job_events")
    op.drop_table("jobs")


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("plan_id", sa.Uuid(), nullable=False),
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
        *_job_checks(),
        sa.ForeignKeyConstraint(
            ["plan_id"], ["plans.id"], name=op.f("fk_jobs_plan_id_plans"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_created_at_id"), "jobs", ["created_at", "id"])
    op.create_index(op.f("ix_jobs_status_created_at"), "jobs", ["status", "created_at"])
    op.create_index(op.f("ix_jobs_plan_id"), "jobs", ["plan_id"])


def _job_checks() -> list[sa.CheckConstraint]:
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


def _idempotency_keys(*, with_jobs: bool) -> sa.Table:
    """The table as it is before the change, for SQLite."""
    name, condition = "plan_or_lease", PLAN_OR_LEASE
    jobs: list[sa.schema.SchemaItem] = []
    if with_jobs:
        name, condition = "plan_job_or_lease", PLAN_JOB_OR_LEASE
        jobs = [
            sa.Column("job_id", sa.Uuid(), nullable=True),
            sa.ForeignKeyConstraint(
                ["job_id"],
                ["jobs.id"],
                name=op.f("fk_idempotency_keys_job_id_jobs"),
                ondelete="CASCADE",
            ),
            sa.Index(op.f("ix_idempotency_keys_job_id"), "job_id"),
        ]
    return sa.Table(
        "idempotency_keys",
        sa.MetaData(),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("plan_id", sa.Uuid(), nullable=True),
        sa.Column("lease_token", sa.Uuid(), nullable=True),
        sa.Column("expires_at", TIMESTAMP, nullable=False),
        *jobs,
        sa.CheckConstraint(condition, name=op.f(f"ck_idempotency_keys_{name}")),
        sa.ForeignKeyConstraint(
            ["plan_id"],
            ["plans.id"],
            name=op.f("fk_idempotency_keys_plan_id_plans"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_idempotency_keys")),
        sa.Index(op.f("ix_idempotency_keys_expires_at"), "expires_at"),
        sa.Index(op.f("ix_idempotency_keys_plan_id"), "plan_id"),
    )
