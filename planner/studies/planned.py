"""The best plan of a job as one of several that are compared."""

import time

from automap.planner.job.job import Job
from automap.planner.plan.types import Plan
from automap.planner.planning import end_of_pricing, make_plan_of
from automap.planner.search import price_candidates


def best_plan(job: Job) -> Plan:
    """Price and search a job within its time limit.

    Raises:
        PlanningError: no placement fits, or none was found in time.
    """
    began = time.perf_counter()
    tables = price_candidates(job, deadline=end_of_pricing(job, began))
    return make_plan_of(job, tables, pricing_seconds=time.perf_counter() - began)
