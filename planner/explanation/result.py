"""What explanations say: JSON for files, HTTP and the command line."""

from typing import Annotated, Literal

from pydantic import Field

from automap.planner.plan.types import Bytes, Placement, ResultModel
from automap.planner.spec import Objective

Outcome = Literal["same", "slower", "faster", "as_fast", "does_not_fit", "no_layout", "undecided"]


class CallDifference(ResultModel):
    """One call in the plan and in an alternative."""

    id: str
    plan_seconds: float
    seconds: float
    plan_num_gpus: int
    num_gpus: int
    layout: str
    """The alternative's layout in short: tp8 pp2 dp4."""


class Alternative(ResultModel):
    """The best plan under one more constraint, solved, and what it loses against the plan."""

    question: str
    """The id of its question, such as `all_together` or `tensor_parallel_size:actor:16`."""
    text: str
    """The constraint in words."""
    outcome: Outcome
    iteration_seconds: float | None = None
    lower_bound_seconds: float | None = None
    """Proven: no plan under the constraint is faster. Equal to iteration_seconds where proven
    optimal."""
    slower_seconds: float | None = None
    """Seconds by which an iteration is slower than the plan's; negative where it is faster."""
    slower_share: float | None = None
    objective_value: float | None = None
    """Seconds, price units or GPUs, as the job's search.objective asks."""
    price_per_iteration: float | None = None
    gpus_used: int | None = None
    idle_share: float | None = None
    """The share of the GPU seconds of the nodes that are paid for in which no call runs."""
    calls: list[CallDifference] = Field(default=[])
    """Calls that take other seconds than in the plan, the largest difference first."""
    answer: str
    """The comparison in a sentence."""
    phase: str | None = None
    """The call whose memory does not fit."""
    required_bytes: Bytes | None = None
    capacity_bytes: Bytes | None = None
    over_bytes: Bytes | None = None
    placement: Placement | None = None


class Threshold(ResultModel):
    """The least error in one direction at which another plan wins."""

    error: float | None
    """True ÷ estimated seconds − 1. Null: none up to `searched`."""
    searched: float
    """The largest error that was looked at."""
    proven: bool
    """True: at this error a search proved that no plan wins by more than the margin; false: it was
    cut short, and another plan may win earlier."""
    excluded_share: float
    """Proven: at smaller errors no plan is better than this one by more than this share."""
    plan_value: float
    """The plan's objective at that error, or at `searched`."""
    winner_value: float | None = None
    winner: str = ""
    """What the other plan does otherwise."""


class Sensitivity(ResultModel):
    """How wrong one estimate may be before another plan wins."""

    subject: str
    """A call's id; `ID reshard` and `ROLE.sync` for what moves weights."""
    kind: Literal["call", "reshard", "weight_sync"]
    seconds: float
    """Seconds that the plan estimates."""
    spread: float
    """Half-width of its own 80 % interval, as a share: errors beyond are unlikely."""
    more: Threshold
    """How much longer than estimated it may take."""
    less: Threshold
    """How much shorter than estimated it may take."""


class ErrorGroup(ResultModel):
    """Estimates that are wrong together."""

    name: str
    spread: float
    """|ln(true ÷ estimate)| that 80 % do not exceed."""


class RegretShare(ResultModel):
    """What not knowing the true seconds costs, as a share of the best objective."""

    p50: Annotated[float, Field(ge=0)]
    p95: Annotated[float, Field(ge=0)]
    max: Annotated[float, Field(ge=0)]


class Regret(ResultModel):
    """The plan's objective minus the best one's, when the true seconds are others."""

    groups: list[ErrorGroup]
    scenarios: int
    """Number of scenarios drawn: each group's error is log-normal, its interval the middle 80 %."""
    sampled: RegretShare
    corners: int
    """Number of scenarios with every group at one end of its interval."""
    worst_corner: float
    """The largest share over the corners."""
    worst_errors: dict[str, float]
    """Group → true ÷ estimated seconds − 1 in that corner."""
    margin: float
    """A smaller share counts as none: no scenario was searched more closely."""
    unproven: int
    """Scenarios whose search was cut short: their regret may be larger."""


class Explanation(ResultModel):
    """Why this plan and no other, in numbers."""

    name: str
    objective: Objective
    iteration_seconds: float
    objective_value: float
    idle_share: float
    margin: float
    """Another plan wins only if it is better by more than this share."""
    alternatives: list[Alternative] = Field(default=[])
    sensitivity: list[Sensitivity] = Field(default=[])
    regret: Regret | None = None
    explained_in_seconds: float
    """Wall seconds that the explanation took."""


Part = Literal["alternatives", "sensitivity", "regret"]


class ExplainOptions(ResultModel, strict=True):
    """What to explain of a plan."""

    parts: list[Part] = Field(
        default=["alternatives", "sensitivity", "regret"], min_length=1, max_length=3
    )
    fewer_gpus: Annotated[int, Field(ge=1, le=10**7)] | None = None
    """Ask for so many fewer GPUs of each pool, instead of one node fewer and half of them."""
    scenarios: Annotated[int, Field(ge=1, le=1000)] = 32
    """Drawn true seconds over which the regret is taken, besides the corners of the intervals."""
    search_seconds: Annotated[float, Field(gt=0, le=600)] = 2.0
    """Time limit of every search, in the unit of search.time_limit_seconds."""
