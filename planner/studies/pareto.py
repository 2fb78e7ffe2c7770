"""The Pareto front of a job: time against price, over the numbers of nodes."""

import time
from collections.abc import Callable

from automap.planner.assembly.plan import sound
from automap.planner.errors import InfeasibleError, NoSolutionInTimeError, SpecError
from automap.planner.infeasible.reasons import explain_infeasible
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.planning import LEAST_PRICING_SECONDS, end_of_pricing, plan_of
from automap.planner.search import (
    STARTS,
    FrontPoint,
    ParetoFront,
    SearchSpace,
    limits_of,
    pareto_front,
    price_candidates,
)
from automap.planner.spec import ClusterSpec, JobSpec, need_spec
from automap.planner.studies.result import Front, OpenNodes

MOST_TOLERANCE = 1.0


def _silent(_: str) -> None:
    """The listener of progress where the caller has none."""


def pareto(
    spec: JobSpec, *, tolerance: float = 0.0, tell: Callable[[str], None] = _silent
) -> Front:
    """Every plan that none beats in both the seconds and the price of an iteration.

    With a `tolerance` plans that others beat up to that share are left out, which saves searches.
    `tell` hears how far it is.

    Raises:
        SpecError: as `make_plan`; also for a named strategy or `robust`, which have no front.
        InfeasibleError: no placement fits; the reasons say why.
        NoSolutionInTimeError: the limit ended the search before it found anything.
    """
    started = time.perf_counter()
    need_spec(spec)
    _check(spec, tolerance)
    job = resolve(_fastest(spec))
    tell("pricing")
    tables = price_candidates(job, deadline=end_of_pricing(job, started))
    priced = time.perf_counter()
    limits = limits_of(job, started, least_seconds=LEAST_PRICING_SECONDS)
    space = SearchSpace.of(job, tables)
    found = pareto_front(space, STARTS, limits, tolerance=tolerance, tell=tell)
    if not found.points and found.undecided:
        raise NoSolutionInTimeError(min(each.lower_bound_seconds for each in found.undecided))
    if not found.points:
        raise InfeasibleError(explain_infeasible(job))
    plans = []
    for point in found.points:
        part = _job_of(job, point)
        plan = plan_of(
            job,
            tables,
            point.best,
            pricing_seconds=priced - started,
            searched_since=time.perf_counter() - point.searched_seconds,
            part=part,
        )
        plans.append(sound(part, plan))
    return Front(
        spec=spec,
        tolerance=tolerance,
        plans=plans,
        proven=not found.undecided,
        undecided=_undecided(job, found),
        node_numbers=found.choices,
        searches=found.searches,
        seconds=time.perf_counter() - started,
    )


def _check(spec: JobSpec, tolerance: float) -> None:
    if not 0.0 <= tolerance <= MOST_TOLERANCE:
        raise SpecError("tolerance", f"{tolerance:g} is not a share", remedy="use 0 to 1")
    if spec.search.strategy is not None:
        raise SpecError(
            "search.strategy",
            "a strategy makes a single placement, not a front",
            remedy="leave it out",
        )
    if spec.search.robust:
        raise SpecError(
            "search.robust",
            "true, but a front has the plans that are best if all estimates are right",
            remedy="set it to false",
        )


def _fastest(spec: JobSpec) -> JobSpec:
    """The spec with throughput as its objective: a front holds the best plans of every other.

    It asks for no target of time, and for plans that are proven and not given up for simpler ones,
    since the front has a tolerance of its own: planned again, its specs give the same plans.
    """
    asked = {
        "objective": "throughput",
        "target_iteration_seconds": None,
        "optimality_gap": 0.0,
        "simplicity_tolerance": 0.0,
    }
    return spec.model_copy(update={"search": spec.search.model_copy(update=asked)})


def _job_of(job: Job, point: FrontPoint) -> Job:
    """The job with all nodes beyond those of the point kept free, pools without any left out."""
    assert isinstance(job.spec.cluster, ClusterSpec)
    usable = dict(zip((pool.name for pool in job.pools), point.usable, strict=True))
    pools = [pool for pool in job.spec.cluster.pools if usable[pool.name]]
    total = {pool.name: pool.num_gpus for pool in job.pools}
    free = {pool.name: total[pool.name] - usable[pool.name] for pool in pools}
    constraints = job.spec.constraints.model_copy(
        update={"keep_free_gpus": {name: count for name, count in free.items() if count}}
    )
    cluster = ClusterSpec(pools=pools)
    return resolve(job.spec.model_copy(update={"cluster": cluster, "constraints": constraints}))


def _undecided(job: Job, found: ParetoFront) -> list[OpenNodes]:
    return [
        OpenNodes(gpus=_by_pool(job, each.usable), lower_bound_seconds=each.lower_bound_seconds)
        for each in found.undecided
    ]


def _by_pool(job: Job, usable: tuple[int, ...]) -> dict[str, int]:
    return {pool.name: gpus for pool, gpus in zip(job.pools, usable, strict=True)}
