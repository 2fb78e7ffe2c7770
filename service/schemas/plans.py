"""What the API sends and takes of stored plans."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import (
    Field,
)

from automap.planner import Plan
from automap.planner.spec import GivenAlgorithm, JobSpec, Name
from automap.service.schemas.base import ModelName, Moment, OlderDocument
from automap.service.schemas.descriptions import Description, ListQuery
from automap.service.schemas.jobs import PlanJob
from automap.service.schemas.problems import Problem

PlanStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]


PlanSort = Literal[
    "-created_at",
    "created_at",
    "name",
    "-name",
    "iteration_seconds",
    "-iteration_seconds",
    "price_per_iteration",
    "-price_per_iteration",
    "gpus_used",
    "-gpus_used",
]


class PlanSummary(Description):
    """A stored plan without its documents: what a list shows."""

    id: UUID
    status: PlanStatus
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    spec_name: str
    algorithm: str | None = Field(description="Null: the spec brought its own dataflow")
    cluster: str | None = Field(description="The stored cluster that the spec named")
    models: dict[str, str] = Field(description="Role to catalogue name; inline sizes are left out")
    objective: str
    iteration_seconds: float | None = None
    lower_bound_seconds: float | None = None
    relative_gap: float | None = None
    gpus_used: int | None = None
    price_per_iteration: float | None = None
    runs: int = Field(default=0, description="Jobs of it that have measured an iteration")
    measured_iteration_seconds: float | None = Field(
        default=None, description="Of the latest of them"
    )


class PlanRecord(PlanSummary):
    """A stored plan: the spec as it was planned, and the plan or the problem once there is one."""

    attempts: int = Field(description="How often the job was taken up")
    spec: JobSpec | OlderDocument
    plan: Plan | OlderDocument | None = None
    problem: Problem | None = None
    jobs: list[PlanJob] = Field(default=[], description="The latest runs of the plan, at most 20")


class PlanQuery(ListQuery):
    """Which plans; all given filters hold together."""

    sort: PlanSort = Field(
        default="-created_at",
        description="-: from the largest. By seconds, price or GPUs, plans without are left out",
    )
    status: PlanStatus | None = None
    algorithm: GivenAlgorithm | None = None
    model: ModelName | None = Field(default=None, description="Some role uses this model")
    cluster: Name | None = None
    created_after: Moment | None = Field(default=None, description="With time zone, exclusive")
    created_before: Moment | None = Field(default=None, description="With time zone, exclusive")
