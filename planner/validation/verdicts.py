"""Feasibility: runs that ran but would be refused, and runs that failed but would be admitted.

Every training run is a measurement of memory from one side: it ran, so it fits.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from automap.planner.validation.predictions import Prediction
from automap.planner.validation.ran_runs import ran_run
from automap.planner.validation.rows import TrainingRow


@dataclass(frozen=True, slots=True)
class Feasibility:
    """Counts of runs by what happened, and of those about which a plan would be wrong."""

    ran: int
    refused: int
    """Among those that ran: a plan with the whole device's usable memory would refuse them."""
    failed: int
    admitted: int
    """Among those that ran out of memory: a plan would admit them."""


def feasibility(predictions: Iterable[Prediction]) -> Feasibility | None:
    """The counts over training and memory runs; None without a run.

    Predictions of `out_of_memory` count as they are; a training row without one ran, and is priced
    for its memory here.
    """
    verdicts: dict[str, tuple[bool, bool]] = {}
    timed: list[TrainingRow] = []
    for one in predictions:
        if one.predicted is None:
            continue
        if one.is_verdict:
            verdicts[one.row.row_id] = (one.measured > 0.5, one.predicted > 0.5)
        elif isinstance(one.row, TrainingRow):
            timed.append(one.row)
    for row in timed:
        if row.row_id not in verdicts and (run := ran_run(row)) is not None:
            verdicts[row.row_id] = (False, run.refused)
    if not verdicts:
        return None
    found = list(verdicts.values())
    return Feasibility(
        ran=sum(not failed for failed, _ in found),
        refused=sum(refused and not failed for failed, refused in found),
        failed=sum(failed for failed, _ in found),
        admitted=sum(failed and not refused for failed, refused in found),
    )
