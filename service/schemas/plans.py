"""What the API sends and takes beside specs, placements and plans."""

from datetime import UTC, datetime
from typing import Annotated, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    WrapValidator,
)

from automap.executor.settings import RunSettings
from automap.planner.catalogue.hardware import GpuType, NodeType
from automap.planner.errors import Reason
from automap.planner.plan.types import Placement, Plan, Strategy
from automap.planner.runs.drift import Drift
from automap.planner.runs.iterations import ObservedLengths
from automap.planner.runs.suggestion import Suggestion
from automap.planner.simulation.result import Iterations
from automap.planner.spec import MAX_NODES, AlgorithmName, ClusterSpec, JobSpec, Name
from automap.planner.studies.result import OpenNodes
from automap.service.errors.problems import Problem
from automap.service.schemas.placements import placement_of

PlanStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]
JobKind = Literal["run", "profile"]
JobStatus = Literal["queued", "starting", "running", "succeeded", "failed", "cancelled"]
Item = TypeVar("Item")


class ApiModel(BaseModel):
    """Frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanSummary(ApiModel):
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


class JobState(ApiModel):
    """What every job has, whatever its kind."""

    id: UUID
    status: JobStatus
    cancelling: bool = Field(description="Its end was asked for and is not reached yet")
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: int = Field(description="How often it was submitted to Ray")


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
    """That a running job had drifted from its plan, and whether another plan pays."""

    event: int = Field(description="Its number among the job's events")
    time: datetime
    over_after_iteration: int | None = Field(
        default=None,
        description="When the run was as planned again; null: it stands, or the job ended with it",
    )
    suggestion: Suggestion


class JobRecord(PlanJob):
    """A job: what it runs with, how far it is, and the report or the problem once it is over."""

    settings: RunSettings
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


class PlanRecord(PlanSummary):
    """A stored plan: the spec as it was planned, and the plan or the problem once there is one."""

    attempts: int = Field(description="How often the job was taken up")
    spec: JobSpec
    plan: Plan | None = None
    problem: Problem | None = None
    jobs: list[PlanJob] = Field(default=[], description="The latest runs of the plan, at most 20")


class Page(ApiModel, Generic[Item]):
    """Newest first; `next_cursor` is null on the last page."""

    items: list[Item]
    next_cursor: str | None = None


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("this moment is outside the years 1 to 9999 in UTC") from None


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
# No control characters: a database's text cannot hold all of them.
ModelName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Cursor = Annotated[str, Field(min_length=1, max_length=200, description="next_cursor of a page")]


class PageQuery(ApiModel):
    """Which page of a list."""

    cursor: Cursor | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class PlanQuery(PageQuery):
    """Which plans; all given filters hold together."""

    status: PlanStatus | None = None
    algorithm: AlgorithmName | None = None
    model: ModelName | None = Field(default=None, description="Some role uses this model")
    cluster: Name | None = None
    created_after: Moment | None = Field(default=None, description="With time zone, exclusive")
    created_before: Moment | None = Field(default=None, description="With time zone, exclusive")


class JobRequest(ApiModel):
    """What to run, a stored plan or a spec that is planned first, and how."""

    plan_id: UUID | None = Field(default=None, description="Either this or a spec")
    spec: JobSpec | None = None
    settings: RunSettings


class JobQuery(PageQuery):
    """Which jobs; all given filters hold together."""

    kind: JobKind | None = None
    status: JobStatus | None = None
    plan_id: UUID | None = Field(default=None, description="Runs of this plan")
    algorithm: AlgorithmName | None = Field(default=None, description="Runs of such plans")
    created_after: Moment | None = Field(default=None, description="With time zone, exclusive")
    created_before: Moment | None = Field(default=None, description="With time zone, exclusive")


class EstimateRequest(ApiModel):
    """A job and a placement of the caller's own."""

    spec: JobSpec
    placement: Annotated[
        Placement, WrapValidator(placement_of, json_schema_input_type=Placement | Plan | PlanRecord)
    ] = Field(description="A placement; a whole plan and the record of a plan stand for theirs")


class CompareRequest(ApiModel):
    """Strategies to put beside a plan."""

    strategies: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=64)]],
        Field(min_length=1, max_length=32),
    ]


class SimulateRequest(ApiModel):
    """How to simulate a plan."""

    iterations: Iterations = 100
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Of the lengths that are drawn."""
    trace: bool = False
    """Also answer with the timeline, as a Chrome trace for chrome://tracing and Perfetto."""


class Comparison(ApiModel):
    """What each strategy would cost beside the plan."""

    plan_id: UUID
    iteration_seconds: float
    strategies: list[Strategy]


class FrontRequest(ApiModel):
    """A job whose Pareto front of time against price is wanted."""

    spec: JobSpec
    tolerance: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="A share: leave out what others beat up to so much"
    )


class FrontRecord(ApiModel):
    """The plans that no other beats in both seconds and price, each stored."""

    tolerance: float
    plans: list[PlanRecord] = Field(description="Fastest first, each cheaper than the one before")
    proven: bool = Field(description="True: nothing was left open")
    undecided: list[OpenNodes]
    node_numbers: int = Field(description="Numbers of nodes, over all pools, that a plan may use")
    searches: int = Field(description="Of these those that had to be searched")
    seconds: float


class WhatIfRequest(ApiModel):
    """A job and the clusters to plan it on: other nodes, other GPUs, of one pool."""

    spec: JobSpec
    nodes: Annotated[list[Annotated[int, Field(ge=1, le=MAX_NODES)]], Field(max_length=64)] = Field(
        default=[], description="Numbers of nodes; none: those of the spec"
    )
    gpus: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=64)
    ] = Field(default=[], description="GPU types; none: that of the spec")
    pool: Name | None = Field(default=None, description="Needed where the cluster has several")


class VariantRecord(ApiModel):
    """The job on one cluster: its stored plan, or why there is none."""

    pool: str
    gpu: str
    num_nodes: int
    num_gpus: int
    scaling_efficiency: float | None = Field(
        default=None,
        description="Tokens per second and paid GPU over those of the smallest cluster with the "
        "same type of GPU; null: no plan (yet)",
    )
    reasons: list[Reason] = Field(default=[], description="Why there is no plan")
    plan: PlanRecord | None = None


class WhatIfRecord(ApiModel):
    """One job on several clusters."""

    variants: list[VariantRecord]


class StrategyDescription(ApiModel):
    """A named way to place a job."""

    name: str
    description: str
    reference: str


class NewCluster(ClusterSpec):
    """A cluster to store under a name that specs can use."""

    name: Name


class ClusterRecord(ClusterSpec):
    """A stored cluster."""

    name: str
    created_at: datetime


class GpuDescription(ApiModel):
    """A GPU type, and the node type that a pool of it defaults to."""

    gpu: GpuType
    default_node: NodeType


class Health(ApiModel):
    """The answer of the health checks."""

    status: Literal["ok"] = "ok"
