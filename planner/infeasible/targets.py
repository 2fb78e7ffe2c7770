"""Which limits of a framework keep a job from fitting, and what it would need without them."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from automap.planner.errors import Reason
from automap.planner.infeasible.memory import least_need
from automap.planner.job.job import Job
from automap.planner.job.resolution import with_table
from automap.planner.search import MemoryNeed
from automap.planner.targets import ANY, AUTOMAP
from automap.planner.targets.limits import limits
from automap.planner.units import GIB

LIMIT_SECONDS = 3.0
"""Seconds of work in which single limits are lifted: whoever asked has waited for the search."""
REMEDY = "plan it for another target (automap compare SPEC --targets all), or without one"


def target_to_blame(job: Job, calls: Sequence[str]) -> Iterator[Reason]:
    """Why a call that fits nowhere inside a framework would fit without its limits, with bytes.

    Nothing where the job would not fit without them either.

    Args:
        job: Planned inside a target.
        calls: Ids of calls that do not fit by themselves, or have no layout.
    """
    if job.target.name in (ANY.name, AUTOMAP.name):
        return
    probability = job.max_out_of_memory_probability
    free = with_table(job, replace(ANY, max_out_of_memory_probability=probability))
    for call in free.dataflow.calls:
        need = least_need(free, call) if call.id in calls else None
        if need is None or need.over_bytes > 0:
            continue
        found = _enough(job, call.id)
        alone = f"; without this limit alone it would fit: {found}" if found else ""
        summary = (
            f"the limits of {job.target.name} keep {call.id} from fitting: without them its "
            f"leanest layout needs {need.required_bytes / GIB:.2f} of the "
            f"{need.capacity_bytes / GIB:.2f} GiB per GPU that may be filled{alone}"
        )
        yield Reason(summary=summary, phase=call.id, remedy=REMEDY)
        return


def _enough(job: Job, call_id: str) -> str:
    """The first limit without which alone a call would fit, in words; empty: none is found."""
    deadline = time.process_time() + LIMIT_SECONDS
    for words, lifted in limits(job.target):
        if time.process_time() > deadline:
            return ""
        without = with_table(job, lifted)
        [call] = [each for each in without.dataflow.calls if each.id == call_id]
        need: MemoryNeed | None = least_need(without, call)
        if need is not None and need.over_bytes <= 0:
            return words
    return ""
