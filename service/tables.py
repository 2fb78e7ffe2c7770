"""The tables. Specs, plans and problems are JSON documents beside the columns we filter by."""

from datetime import datetime
from uuid import UUID, uuid4

from pydantic import JsonValue
from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from service.database import Base, UtcDateTime, utc_now

# Plain JSON on PostgreSQL too: JSONB sorts keys, and a spec must come back with its roles in their
# order to be planned the same again. A missing document is SQL's NULL, never JSON's null.
Document = JSON(none_as_null=True)
JsonObject = dict[str, JsonValue]


class PlanRow(Base):
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

    models: Mapped[list["PlanModelRow"]] = relationship(
        lazy="raise", cascade="all, delete-orphan", passive_deletes=True
    )


class PlanModelRow(Base):
    """Which catalogue model plays which role in a plan, to filter by."""

    __tablename__ = "plan_models"

    plan_id: Mapped[UUID] = mapped_column(
        ForeignKey("plans.id", ondelete="CASCADE"), primary_key=True
    )
    role: Mapped[str] = mapped_column(String(64), primary_key=True)
    architecture: Mapped[str] = mapped_column(String(200), index=True)


class ClusterRow(Base):
    """A named cluster that specs may refer to."""

    __tablename__ = "clusters"
    __table_args__ = (Index(None, "created_at", "id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    spec: Mapped[JsonObject] = mapped_column(Document)


class IdempotencyRow(Base):
    """What a client's Idempotency-Key stands for: a plan, or a request still being answered."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        CheckConstraint("(plan_id IS NULL) = (lease_token IS NOT NULL)", name="plan_or_lease"),
    )

    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the request's data."""
    plan_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("plans.id", ondelete="CASCADE"), index=True
    )
    lease_token: Mapped[UUID | None]
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
