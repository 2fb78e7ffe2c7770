"""What the API sends and takes of jobs that run a plan."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, JsonValue, field_validator

from automap.executor.settings import RunSettings
from automap.planner.runs import Drift, ObservedLengths, Suggestion
from automap.planner.spec import GivenAlgorithm, JobSpec
from automap.service.schemas.base import ApiModel, Moment, OlderDocument
from automap.service.schemas.descriptions import (
    Description,
    DescriptionPatch,
    Labels,
    ListQuery,
    Notes,
    Title,
)
from automap.service.schemas.problems import Problem

JobKind = Literal["run", "profile"]


JobStatus = Literal["queued", "starting", "running", "succeeded", "failed", "cancelled"]


UNFINISHED: tuple[JobStatus, ...] = ("queued", "starting", "running")


class CallSeconds(ApiModel):
    """What a call, or a weight sync, takes: as the plan says and as it was."""

    call: str
    predicted_seconds: float | None = Field(description="Null: the plan has no such call")
    measured_seconds: float | None = Field(
        description="The report's median once there is one; before, the median of the last 32"
    )
    measured_bytes: int | None = Field(
        default=None, description="Bytes that moved for it, the last time, where the run says so"
    )
    count: int = Field(description="How often it was measured")


Priority = Annotated[int, Field(ge=-1000, le=1000)]
JobSort = Literal["-created_at", "created_at", "name", "-name"]


class JobState(Description):
    """What every job has, whatever its kind."""

    id: UUID
    status: JobStatus
    cancelling: bool = Field(description="Its end was asked for and is not reached yet")
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: int = Field(description="How often it was submitted to Ray")
    priority: int = Field(default=0, description="Jobs with more are run first")
    retry_of: UUID | None = Field(default=None, description="The job that it repeats")


class JobSummary(JobState):
    """A job that is one run of a plan, without its documents: what a list shows."""

    kind: Literal["run"] = "run"
    plan_id: UUID
    spec_name: str
    algorithm: str | None
    iteration: int = Field(description="Iterations that are done")
    iterations: int
    predicted_iteration_seconds: float | None = Field(description="Null: the plan is not made yet")
    measured_iteration_seconds: float | None = Field(description="As of its calls")
    drifting: bool = Field(
        default=False, description="It runs otherwise than planned: see its suggestions"
    )


class PlanJob(JobSummary):
    """A run of a plan, beside the plan's prediction."""

    calls: list[CallSeconds]


class JobSuggestion(ApiModel):
    """A note that a running job had drifted from its plan, and whether another plan pays."""

    event: int = Field(description="Its number among the job's events")
    time: datetime
    over_after_iteration: int | None = Field(
        default=None,
        description="When the run was as planned again; null: it stands, or the job ended with it",
    )
    suggestion: Suggestion


class JobRecord(PlanJob):
    """A job: what it runs with, how far it is, and the report or the problem once it is over."""

    settings: RunSettings | OlderDocument
    submission_id: str | None = Field(default=None, description="Its name in Ray, last attempt")
    output: str | None = Field(default=None, description="Folder on the cluster, all attempts")
    report: dict[str, JsonValue] | None = Field(
        default=None, description="The executor's RunReport"
    )
    drift: Drift | None = Field(
        default=None, description="How far the run was from its plan, by its report"
    )
    response_lengths: ObservedLengths | None = Field(
        default=None, description="Of the latest 32 iterations, the warm-up left out"
    )
    suggestions: list[JobSuggestion] = Field(
        default=[], description="To plan it anew: what had drifted, keep or move; latest first"
    )
    problem: Problem | None = None
    waits_for: str | None = Field(
        default=None,
        description="What a queued job waits for, or a running one whose devices others hold; "
        "null: it waits no more",
    )
    warnings: list[str] = Field(
        default=[], description="While it is queued: of budgets that are used up, or will be"
    )


class JobPatch(DescriptionPatch):
    """A merge patch (RFC 7396) of a job; its priority may change for as long as it is queued."""

    priority: Priority | None = Field(default=None, description="Jobs with more are run first")

    @field_validator("priority")
    @classmethod
    def _some(cls, given: int | None) -> int:
        if given is None:
            raise ValueError("a job has some: 0 is that of a job that was given none")
        return given


class JobRequest(ApiModel):
    """What to run, a stored plan or a spec that is planned first, and how."""

    plan_id: Annotated[UUID, Field(strict=False)] | None = Field(
        default=None, description="Either this or a spec"
    )
    spec: JobSpec | None = None
    settings: RunSettings
    name: Title | None = Field(default=None, description="Null: the spec's name")
    labels: Labels = Field(default={})
    notes: Notes | None = None
    priority: Priority = Field(default=0, description="Jobs with more are run first")


class JobQuery(ListQuery):
    """Which jobs; all given filters hold together."""

    sort: JobSort = Field(default="-created_at", description="-: from the largest")
    kind: JobKind | None = None
    status: JobStatus | None = None
    plan_id: UUID | None = Field(default=None, description="Runs of this plan")
    algorithm: GivenAlgorithm | None = Field(default=None, description="Runs of such plans")
    created_after: Moment | None = Field(default=None, description="With time zone, exclusive")
    created_before: Moment | None = Field(default=None, description="With time zone, exclusive")
