"""Runs that ran, against the memory that a plan may fill: would a plan of that layout be refused?

Every training run that ended is a one-sided measurement of memory: it fitted.
"""

from dataclasses import dataclass

from automap.planner.cost import memory
from automap.planner.targets.automap import AUTOMAP
from automap.planner.validation.predictions import Assumptions, CannotPredictError
from automap.planner.validation.rows import TrainingRow
from automap.planner.validation.subjects import framework
from automap.planner.validation.training import price_run

SEARCHED_PROBABILITY = AUTOMAP.max_out_of_memory_probability
"""Chance of running out of memory that a searched plan may have where the spec names none."""


@dataclass(frozen=True, slots=True)
class RanRun:
    """A run that ran, and what the cost model says of its memory; bytes are of one GPU."""

    row: TrainingRow
    framework: str
    """Name of the framework whose defaults fill in what the row does not state."""
    needed_bytes: int
    """Bytes by kind in sum, as a plan counts them."""
    usable_bytes: int
    """Bytes that a plan may fill."""
    searched_bytes: int
    """Bytes that a searched plan may fill: with the margin of the interval of a peak."""
    gpu_bytes: int
    default_bytes: int
    """Bytes with the framework's default recomputation where none is stated."""
    assumptions: tuple[str, ...]
    """Settings that were assumed, in words; inferred ones among them."""

    @property
    def refused(self) -> bool:
        """Whether the check of a plan would refuse it."""
        return self.needed_bytes > self.usable_bytes

    @property
    def refused_at_defaults(self) -> bool:
        """Whether it would be refused with nothing inferred."""
        return self.default_bytes > self.usable_bytes

    @property
    def beyond_margin(self) -> bool:
        """Whether a search would leave it out, its chance of running out of memory being larger."""
        return self.needed_bytes > self.searched_bytes

    @property
    def bytes_over(self) -> int:
        """Bytes beyond what is usable; 0 where it fits."""
        return max(self.needed_bytes - self.usable_bytes, 0)


def ran_run(row: TrainingRow) -> RanRun | None:
    """What the cost model says of the memory of a run that ran.

    None where it cannot price the row. Recomputation that the row does not state is the cheapest
    that fits.
    """
    assumptions = Assumptions()
    try:
        run = price_run(row, row.workload, assumptions, for_memory=True, infers=True)
        default = price_run(row, row.workload, Assumptions(), for_memory=True)
    except CannotPredictError:
        return None
    return RanRun(
        row=row,
        framework=framework(row, Assumptions()).name,
        needed_bytes=run.peak_bytes,
        usable_bytes=memory.usable_bytes(run.pool),
        searched_bytes=memory.fillable_bytes(
            run.pool, max_out_of_memory_probability=SEARCHED_PROBABILITY
        ),
        gpu_bytes=run.pool.gpu.memory_bytes,
        default_bytes=default.peak_bytes,
        assumptions=tuple(assumptions.texts),
    )
