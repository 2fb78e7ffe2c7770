"""How long planning may take by the clock before it counts as lost."""

from automap.planner.spec import JobSpec

SLOWEST_MACHINE = 2.0
"""Clock seconds that are allowed per second of a spec's time limit. The limit counts the solver's
work at a fixed pace: a slower machine takes longer, and what it finds must not be thrown away."""


def planning_deadline_seconds(spec: JobSpec, *, overhead_seconds: float) -> float:
    """Clock seconds for the search of `spec` on a slow machine, and `overhead_seconds` on top.

    Remedies may take a time limit, and the last of them that is planned another one; a robust plan
    takes one more for the scenarios.
    """
    searches = (3 if spec.search.explain_infeasible else 1) + spec.search.robust
    return SLOWEST_MACHINE * searches * spec.search.time_limit_seconds + overhead_seconds
