"""The tables. Specs, plans and reports are JSON documents beside the columns we filter by."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from automap.service.schemas.documents import JsonObject
from automap.service.schemas.jobs import JobStatus
from automap.service.storage.database import Base, UtcDateTime, utc_now

# Plain JSON on PostgreSQL too: JSONB sorts keys, and a spec must come back with its roles in their
# order to be planned the same again. A missing document is SQL's NULL, never JSON's null.
Document = JSON(none_as_null=True)


class Described:
    """The columns of what people say of plans and jobs."""

    name: Mapped[str] = mapped_column(String(200), default="", server_default="")
    owner: Mapped[str] = mapped_column(String(64), default="local", server_default="local")
    """Who posted it."""
    labels: Mapped[dict[str, str]] = mapped_column(Document, default=dict, server_default="{}")
    notes: Mapped[str | None] = mapped_column(Text)


class PlanRow(Described, Base):
    """A plan, or the job that will make it: this table is also the queue."""

    __tablename__ = "plans"
    __table_args__ = (
        CheckConstraint(
            "status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="status"
        ),
        CheckConstraint("(status = 'running') = (lease_token IS NOT NULL)", name="lease"),
        CheckConstraint("(lease_token IS NULL) = (lease_expires_at IS NULL)", name="lease_expiry"),
        CheckConstraint("(status = 'succeeded') = (plan IS NOT NULL)", name="plan"),
        CheckConstraint("(status = 'failed') = (problem IS NOT NULL)", name="problem"),
        CheckConstraint(
            "(status IN ('queued', 'running')) = (finished_at IS NULL)", name="finished"
        ),
        Index(None, "created_at", "id"),
        Index(None, "status", "created_at"),
        Index(None, "owner", "created_at", "id"),
        Index(None, "owner", "name", "id"),
        Index(None, "algorithm", "created_at", "id"),
        Index(None, "cluster_name", "created_at", "id"),
        Index(None, "name", "id"),
        Index(None, "iteration_seconds", "id"),
        Index(None, "price_per_iteration", "id"),
        Index(None, "gpus_used", "id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    status: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    spec_name: Mapped[str] = mapped_column(String(200))
    algorithm: Mapped[str | None] = mapped_column(String(64))
    cluster_name: Mapped[str | None] = mapped_column(String(64))
    """The stored cluster that the spec named; its definition then is in the spec."""
    objective: Mapped[str] = mapped_column(String(32))
    iteration_seconds: Mapped[float | None]
    lower_bound_seconds: Mapped[float | None]
    relative_gap: Mapped[float | None]
    gpus_used: Mapped[int | None]
    price_per_iteration: Mapped[float | None]
    code_version: Mapped[str | None] = mapped_column(String(64))
    catalogue_version: Mapped[str | None] = mapped_column(String(64))
    profile_versions: Mapped[JsonObject | None] = mapped_column(Document)

    spec: Mapped[JsonObject] = mapped_column(Document)
    plan: Mapped[JsonObject | None] = mapped_column(Document)
    problem: Mapped[JsonObject | None] = mapped_column(Document)

    attempts: Mapped[int] = mapped_column(default=0)
    lease_token: Mapped[UUID | None]
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    origin: Mapped[dict[str, str] | None] = mapped_column(Document)
    """What `telemetry.context` carries from the request that made it to logs and spans."""
    written_as: Mapped[str | None] = mapped_column(String(16))
    """Which form of spec, plan and problem this is: readers of the same need not parse them."""

    models: Mapped[list["PlanModelRow"]] = relationship(
        lazy="raise", cascade="all, delete-orphan", passive_deletes=True
    )
    text: Mapped["PlanTextRow"] = relationship(cascade="all, delete-orphan", passive_deletes=True)


class PlanModelRow(Base):
    """Which catalogue model plays which role in a plan, to filter by."""

    __tablename__ = "plan_models"

    plan_id: Mapped[UUID] = mapped_column(
        ForeignKey("plans.id", ondelete="CASCADE"), primary_key=True
    )
    role: Mapped[str] = mapped_column(String(64), primary_key=True)
    architecture: Mapped[str] = mapped_column(String(200), index=True)


class PlanTextRow(Base):
    """What a plan is found by: its text in lower case, apart from the long documents."""

    __tablename__ = "plan_texts"

    plan_id: Mapped[UUID] = mapped_column(
        ForeignKey("plans.id", ondelete="CASCADE"), primary_key=True
    )
    text: Mapped[str] = mapped_column(Text)


class ClusterRow(Base):
    """A named cluster that specs may refer to."""

    __tablename__ = "clusters"
    __table_args__ = (Index(None, "created_at", "id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    spec: Mapped[JsonObject] = mapped_column(Document)


class ProfileRow(Base):
    """A measured profile that pools may be priced with."""

    __tablename__ = "profiles"
    __table_args__ = (
        Index(None, "created_at", "id"),
        Index(
            "uq_profiles_default",
            "device_type",
            unique=True,
            sqlite_where=text("is_default"),
            postgresql_where=text("is_default"),
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    version: Mapped[str] = mapped_column(String(12), unique=True)
    """Hash of what was measured and on what: the name that specs know it by."""
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    device_type: Mapped[str] = mapped_column(String(64), index=True)
    is_default: Mapped[bool] = mapped_column(default=False)
    """At most one per device type: pools that name no profile are priced with it."""
    shapes: Mapped[JsonObject] = mapped_column(Document)
    """How many shapes were measured, by table."""
    fingerprint: Mapped[JsonObject] = mapped_column(Document)
    measurements: Mapped[list[JsonObject]] = mapped_column(Document)
    corrections: Mapped[JsonObject | None] = mapped_column(Document)
    """What runs have taught about it."""
    job_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("jobs.id", ondelete="SET NULL"), index=True
    )
    """The job that measured it; none: a client brought it."""


class JobRow(Described, Base):
    """A run of a plan, or a measurement of the cluster: also the queue of the workers."""

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(
            "status IN ('queued', 'starting', 'running', 'succeeded', 'failed', 'cancelled')",
            name="status",
        ),
        CheckConstraint("lease_token IS NULL OR status IN ('starting', 'running')", name="lease"),
        CheckConstraint("(lease_token IS NULL) = (lease_expires_at IS NULL)", name="lease_expiry"),
        CheckConstraint(
            "status NOT IN ('starting', 'running', 'succeeded') OR submission_id IS NOT NULL",
            name="submission",
        ),
        CheckConstraint("(submission_id IS NULL) = (attempts = 0)", name="attempts"),
        CheckConstraint("(submission_id IS NULL) = (output IS NULL)", name="output"),
        CheckConstraint("status <> 'succeeded' OR report IS NOT NULL", name="report"),
        CheckConstraint("(status = 'failed') = (problem IS NOT NULL)", name="problem"),
        CheckConstraint(
            "(status IN ('queued', 'starting', 'running')) = (finished_at IS NULL)",
            name="finished",
        ),
        CheckConstraint("iteration BETWEEN 0 AND iterations", name="progress"),
        CheckConstraint("kind IN ('run', 'profile')", name="kind"),
        CheckConstraint("(kind = 'run') = (plan_id IS NOT NULL)", name="plan"),
        Index(None, "created_at", "id"),
        Index(None, "status", "created_at"),
        Index(None, "owner", "created_at", "id"),
        Index(None, "name", "id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    kind: Mapped[str] = mapped_column(String(16), default="run", server_default="run")
    """`run` of a plan, or `profile`: measure the cluster."""
    plan_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("plans.id", ondelete="CASCADE"), index=True
    )
    status: Mapped[JobStatus] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """When its first attempt held its devices; of a measurement, when it ran."""
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """When it says itself that it ended; else when a worker noticed."""
    cancel_requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    settings: Mapped[JsonObject] = mapped_column(Document)
    iteration: Mapped[int] = mapped_column(default=0)
    """Iterations that are done."""
    iterations: Mapped[int]
    """Iterations that a run has; 0 of a measurement."""
    measured: Mapped[JsonObject] = mapped_column(Document)
    """What `runs.call_seconds`, or `queues.measurement_events`, keeps of the events."""
    report: Mapped[JsonObject | None] = mapped_column(Document)
    problem: Mapped[JsonObject | None] = mapped_column(Document)

    attempts: Mapped[int] = mapped_column(default=0)
    """How often it was submitted to Ray."""
    submission_id: Mapped[str | None] = mapped_column(String(64))
    """The last attempt's name in Ray, made of the job's id: none can be submitted twice."""
    output: Mapped[str | None] = mapped_column(String(1000))
    """Folder on the cluster, shared by all attempts."""
    log_offset: Mapped[int] = mapped_column(BigInteger, default=0)
    """Bytes of the last attempt's log that are in the tables below."""
    lease_token: Mapped[UUID | None]
    lease_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    origin: Mapped[dict[str, str] | None] = mapped_column(Document)
    """What is carried from the request that made it."""

    priority: Mapped[int] = mapped_column(default=0, server_default="0")
    """Jobs with more are run first."""
    retry_of: Mapped[UUID | None]
    """The job that it repeats, which may be deleted."""

    plan: Mapped[PlanRow | None] = relationship(lazy="raise")
    text: Mapped["JobTextRow"] = relationship(cascade="all, delete-orphan", passive_deletes=True)


class JobTextRow(Base):
    """What a job is found by, as a plan by its own."""

    __tablename__ = "job_texts"

    job_id: Mapped[UUID] = mapped_column(
        ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
    )
    text: Mapped[str] = mapped_column(Text)


class JobEventRow(Base):
    """What happened in a job, in order, from 1 without gaps."""

    __tablename__ = "job_events"

    job_id: Mapped[UUID] = mapped_column(
        ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
    )
    sequence: Mapped[int] = mapped_column(primary_key=True)
    time: Mapped[datetime] = mapped_column(UtcDateTime)
    document: Mapped[JsonObject] = mapped_column(Document)


class JobLogRow(Base):
    """A stretch of what a job has printed; the oldest go when there is too much."""

    __tablename__ = "job_logs"

    job_id: Mapped[UUID] = mapped_column(
        ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
    )
    end_position: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    """Characters printed up to the end of this stretch, over all attempts."""
    text: Mapped[str] = mapped_column(Text)


class PastRunRow(Base):
    """What a run has used whose job was deleted: what was spent stays spent."""

    __tablename__ = "past_runs"

    job_id: Mapped[UUID] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(String(64))
    labels: Mapped[dict[str, str]] = mapped_column(Document)
    plan_id: Mapped[UUID | None]
    """The plan may be deleted; none: an earlier version noted the run."""
    plan_name: Mapped[str] = mapped_column(String(200))
    model: Mapped[str | None] = mapped_column(String(200))
    """The actor's."""
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    gpus: Mapped[int]
    price_per_second: Mapped[float | None]
    """What all its GPUs cost in a second; none: they have no price."""


class BudgetRow(Base):
    """What an owner, or all with a label, may use in a month before others are warned."""

    __tablename__ = "budgets"
    __table_args__ = (Index(None, "created_at", "id"), UniqueConstraint("of", "unit"))

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    of: Mapped[str] = mapped_column(String(200))
    """owner:NAME or label:KEY:VALUE."""
    unit: Mapped[str] = mapped_column(String(16))
    """price or gpu_hours."""
    amount: Mapped[float]
    """In a calendar month, by UTC."""


class IdempotencyRow(Base):
    """What a client's Idempotency-Key stands for: a plan, a job, or a request being answered."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        CheckConstraint(
            "(CASE WHEN plan_id IS NULL THEN 0 ELSE 1 END)"
            " + (CASE WHEN job_id IS NULL THEN 0 ELSE 1 END)"
            " + (CASE WHEN lease_token IS NULL THEN 0 ELSE 1 END) = 1",
            name="plan_job_or_lease",
        ),
    )

    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the request's data."""
    plan_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("plans.id", ondelete="CASCADE"), index=True
    )
    job_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("jobs.id", ondelete="CASCADE"), index=True
    )
    lease_token: Mapped[UUID | None]
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class ApiKeyRow(Base):
    """A key to the service. Never removed: once there has been one, the service asks for keys."""

    __tablename__ = "api_keys"
    __table_args__ = (Index(None, "created_at", "id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    digest: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the secret, which is 256 random bits and is not stored."""
    owner: Mapped[str] = mapped_column(String(64), index=True)
    note: Mapped[str] = mapped_column(String(200), default="")
    scopes: Mapped[list[str]] = mapped_column(Document)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """To the minute."""
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class AuditRow(Base):
    """A request that could change something, or was refused: who, what, and how it ended."""

    __tablename__ = "audit_log"
    __table_args__ = (Index(None, "created_at", "id"), Index(None, "owner", "created_at"))

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    owner: Mapped[str | None] = mapped_column(String(64))
    """Whoever has sent it; none: nobody whom the service knows."""
    key_id: Mapped[str | None] = mapped_column(String(64))
    """The key's id, or environment-N; none: no key was asked for, or known."""
    method: Mapped[str] = mapped_column(String(16))
    route: Mapped[str] = mapped_column(String(200))
    """With its parameters' names, such as /v1/plans/{plan_id}."""
    resource_id: Mapped[str | None] = mapped_column(String(200))
    """What it was about, or has made."""
    change: Mapped[str | None] = mapped_column(String(200))
    """What is no more to be seen of it: whose it was."""
    status: Mapped[int]
    remote_address: Mapped[str | None] = mapped_column(String(64))
    request_id: Mapped[str | None] = mapped_column(String(64))
    """The id that log lines have; none: a command, or written by an earlier version."""
