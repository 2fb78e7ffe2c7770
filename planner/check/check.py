"""The independent check of a plan: every rule once more, without the search's code.

Nothing here is shared with the formulation, the timing or the pruning: only the job, the plan and
the cost model, which prices each call as a single row. Rules live beside one another by subject:
structure, layout, constraints, target, stages, prices, efficiency, memory, time, continuous
generation, totals, intervals, networks.
"""

from automap.planner.check.continuous import wrong_continuous
from automap.planner.check.efficiency import wrong_efficiency
from automap.planner.check.flops import wrong_flops
from automap.planner.check.intervals import wrong_intervals
from automap.planner.check.layers import lost_layers
from automap.planner.check.layout import broken_layouts
from automap.planner.check.memory import exceeded_memory
from automap.planner.check.networks import wrong_networks
from automap.planner.check.prices import price_again, wrong_prices
from automap.planner.check.spec import broken_constraints
from automap.planner.check.stages import wrong_stages
from automap.planner.check.structure import broken_references
from automap.planner.check.subject import Subject
from automap.planner.check.target import wrong_target
from automap.planner.check.time import (
    broken_times,
    least_period,
    schedule_of,
    wrong_period,
    wrong_streams,
)
from automap.planner.check.totals import wrong_totals
from automap.planner.job.job import Job
from automap.planner.plan.types import Plan


def violations(job: Job, plan: Plan) -> list[str]:
    """Violations of a plan, one sentence with its numbers each; empty when it is sound.

    A plan whose references or layouts are broken has no price and no schedule, so those are said
    first and alone.
    """
    found = _malformed(job, plan)
    if found:
        return found
    subject = Subject(job, plan)
    prices = price_again(subject)
    schedule = schedule_of(subject, prices)
    return [
        *broken_constraints(subject),
        *wrong_target(subject),
        *wrong_stages(subject),
        *wrong_prices(subject, prices),
        *wrong_efficiency(subject),
        *lost_layers(subject),
        *wrong_flops(subject),
        *exceeded_memory(subject),
        *broken_times(schedule),
        *wrong_period(schedule),
        *wrong_streams(subject, schedule),
        *wrong_continuous(subject),
        *wrong_totals(subject),
        *wrong_intervals(subject, schedule, prices),
        *wrong_networks(subject),
    ]


def recomputed_iteration_seconds(job: Job, plan: Plan) -> float:
    """Seconds of an iteration from the calls' prices and the plan's order on shared GPUs.

    The starts of the plan give the order and nothing else: under the barrier the result is the
    longest chain of calls, in a cyclic schedule the least period.

    Raises:
        ValueError: the plan is malformed, or its order contradicts the dataflow.
    """
    found = _malformed(job, plan)
    if found:
        raise ValueError("; ".join(found))
    subject = Subject(job, plan)
    seconds = least_period(schedule_of(subject, price_again(subject)))
    if seconds is None:
        raise ValueError("the order of the calls on shared GPUs contradicts the dataflow")
    return seconds


def _malformed(job: Job, plan: Plan) -> list[str]:
    references = list(broken_references(job, plan))
    return references or list(broken_layouts(Subject(job, plan)))
