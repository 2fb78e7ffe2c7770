"""Re-planning: what is asked, and what is answered."""

from typing import Annotated, Literal

from pydantic import Field

from automap.planner.explanation.result import CallDifference
from automap.planner.plan.types import Bytes, Placement, ResultModel
from automap.planner.spec import Name, PositiveFloat, PositiveInt


class ReplanOptions(ResultModel, strict=True):
    """What has become of a running plan."""

    measured: dict[str, PositiveFloat] = Field(default={}, max_length=128)
    """Call id (or ROLE.sync) → seconds as measured; the ratio to the plan's own seconds corrects
    that role and kind of call in every option."""
    lose_nodes: dict[Name, PositiveInt] = Field(default={}, max_length=16)
    """Pool → nodes that are gone."""
    add_nodes: dict[Name, PositiveInt] = Field(default={}, max_length=16)
    """Pool → nodes that have come."""
    iterations_left: PositiveInt | None = None
    """Default: workload.iterations of the spec if that is more than 1; else it is not known."""
    checkpoint_seconds: Annotated[float, Field(ge=0, le=1e7)] | None = None
    """How long a restart waits for a checkpoint. Default: workload.checkpoint_seconds of the spec
    if that is not 0; else estimated from what is written."""
    startup_seconds: Annotated[float, Field(ge=0, le=1e7)] | None = None
    """How long the start-up after a restart takes. Default: workload.startup_seconds of the spec if
    that is not 0; else estimated from what is read."""
    move_by: Literal["restart", "reshard"] = "restart"
    """restart: write a checkpoint and start anew from it; reshard: only the bytes that GPUs lack
    go over the links, for systems that can."""
    search_seconds: Annotated[float, Field(gt=0, le=600)] = 0.15
    """Time limit of the search, in the unit of search.time_limit_seconds."""


class CallCorrection(ResultModel):
    """How wrong the estimates of one role and kind of call have turned out."""

    role: str
    kind: str
    # Both with what lies between the call and the next, by the plan.
    measured_seconds: float
    predicted_seconds: float
    ratio: float


class Restart(ResultModel):
    """Stopping and starting anew from a checkpoint."""

    checkpoint_seconds: float
    startup_seconds: float
    checkpoint_estimated: bool
    """True: neither the spec nor the request gives it; from bytes and a usual rate of storage."""
    startup_estimated: bool

    @property
    def seconds(self) -> float:
        """Seconds of the checkpoint and the start-up together."""
        return self.checkpoint_seconds + self.startup_seconds

    @property
    def estimated(self) -> bool:
        """True where either number of seconds is an estimate."""
        return self.checkpoint_estimated or self.startup_estimated


class MoveCost(ResultModel):
    """What it takes to get from the running placement to the new one."""

    copies: list[str]
    """Homes that lie or are laid out otherwise."""
    total_bytes: Bytes
    """Weights and optimizer state that GPUs lack."""
    most_bytes_per_gpu: Bytes
    reshard_seconds: float
    """Least seconds that moving these bytes over the links takes."""
    restart_seconds: float
    """Seconds of a checkpoint and a start-up."""
    restart: Restart | None = None
    """The seconds of the checkpoint and of the start-up; null in results of earlier versions, which
    said only their sum."""
    seconds: float
    """What moving in the requested way (`move_by`) takes beyond what keeping the plan takes too."""


class Replan(ResultModel):
    """Keep the running plan, or move to another one."""

    verdict: Literal["keep", "move", "undecided"]
    """undecided: how many iterations are left is not known; move if they are more than
    break_even_iterations."""
    answer: str
    """The verdict and its numbers in a sentence."""
    keep_seconds: float | None
    """An iteration of the running plan with corrected prices; null: it cannot go on, its GPUs are
    gone."""
    move_seconds: float | None
    """An iteration of the best plan found; null: none is better than the running one."""
    lower_bound_seconds: float | None
    """No plan is faster: the search proved it or stopped at its limit; null: the job's objective is
    not throughput."""
    relative_gap: float
    """How far the objective of the better plan, running or new, is above the bound, as a share."""
    proven: bool
    """True: nothing is better than the answer by more than `margin`."""
    margin: float
    target_missed: bool = False
    """True: the running plan no longer meets the spec's target_iteration_seconds."""
    gain_seconds: float
    """Seconds per iteration that moving gains."""
    gain_share: float
    cost: MoveCost | None = None
    break_even_iterations: int | None = None
    """Iterations after which the move has paid for itself; null: there is nothing to move for."""
    iterations_left: int | None
    """Null: not given; then a move pays if more than break_even_iterations are left."""
    saved_seconds: float | None
    """Seconds that moving saves over the iterations left, its own cost taken off; null: how many
    are left is not known."""
    changes: str = ""
    """What the new plan does otherwise."""
    calls: list[CallDifference] = Field(default=[])
    corrections: list[CallCorrection] = Field(default=[])
    placement: Placement | None = None
    """The new plan's placement, as `estimate` and `run` take it."""
    tables_kept: bool
    """False: the candidates had to be priced first."""
    replanned_in_seconds: float
    """Wall seconds that re-planning took."""
