"""What the API says of predictions beside what runs measured."""

from datetime import datetime
from uuid import UUID

from pydantic import Field

from automap.planner.spec import GivenAlgorithm, Name
from automap.service.schemas.base import ApiModel, Moment, Page, PageQuery
from automap.service.schemas.jobs import JobStatus


class CallAccuracy(ApiModel):
    """A call, a weight sync or an iteration: predicted against actual."""

    predicted_seconds: float
    measured_seconds: float
    relative_error: float | None = Field(
        description="Predicted over measured, less 1: below 0 it took longer; null: it took no time"
    )


class HistoryStretch(ApiModel):
    """Some iterations of a run in a row, as means; a run has at most 64 such."""

    first_iteration: int
    last_iteration: int
    ended_at: str | None = Field(description="When the last one ended, as the run says")
    iteration: CallAccuracy
    calls: dict[str, CallAccuracy] = Field(description="By call of the plan, or ROLE.sync")
    response_tokens: float | None = Field(description="Mean length of a response")


class JobHistory(ApiModel):
    """A run of a plan: predicted against actual, the warm-up left out where that is known."""

    job_id: UUID
    plan_id: UUID
    spec_name: str
    algorithm: str | None
    status: JobStatus
    created_at: datetime
    iterations: int = Field(description="That are done")
    iteration: CallAccuracy
    calls: dict[str, CallAccuracy] = Field(description="By call of the plan, or ROLE.sync")
    stretches: list[HistoryStretch] = Field(
        default=[], description="Over time; empty across plans, and of runs of older versions"
    )
    suggested: int = Field(description="How often another plan was suggested (of late)")


class PlanHistory(ApiModel):
    """What a plan predicted against what its runs measured, run by run and over time."""

    plan_id: UUID
    spec_name: str
    iteration_seconds: float
    jobs: list[JobHistory] = Field(description="The latest 20 that measured something, latest last")


class KindAccuracy(ApiModel):
    """How wrong predictions of one kind were, over the runs of a page."""

    kind: str = Field(description="iteration, generate, forward, train or sync")
    count: int
    median_error: float = Field(description="Of the absolute relative errors")
    mean_error: float = Field(description="Of the absolute relative errors")
    bias: float = Field(description="Median of the signed errors: below 0 runs took longer")


class HistoryPage(Page[JobHistory]):
    """Runs of all plans, newest first, and how wrong their predictions were."""

    accuracy: list[KindAccuracy]


class HistoryQuery(PageQuery):
    """Which runs; all given filters hold together."""

    algorithm: GivenAlgorithm | None = None
    cluster: Name | None = Field(default=None, description="The stored cluster that specs named")
    created_after: Moment | None = Field(default=None, description="With time zone, exclusive")
    created_before: Moment | None = Field(default=None, description="With time zone, exclusive")
