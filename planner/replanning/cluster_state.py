"""The cluster that a running plan is on now, and how measured seconds correct the plan's prices."""

from dataclasses import dataclass, replace

from automap.planner.errors import InfeasibleError, Reason, SpecError
from automap.planner.explanation.factors import Factors
from automap.planner.explanation.locating import locate, timing_of
from automap.planner.explanation.study import Study, TableCache
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CallPlan, Placement, Plan
from automap.planner.replanning.result import CallCorrection, ReplanOptions
from automap.planner.search import Selected, shares_candidates
from automap.planner.spec import MAX_NODES, JobSpec, PoolSpec

SLOWER = 1.25
"""Times what the lost GPUs would account for: how slow a first plan without them may be."""


def changed_spec(spec: JobSpec, options: ReplanOptions) -> JobSpec:
    """The spec of the job on the changed cluster; of a pool without nodes nothing is left.

    Raises:
        SpecError: a pool that the job does not have, or more nodes than there are or may be.
    """
    assert not isinstance(spec.cluster, str), "a plan has its pools"
    pools = {pool.name: pool for pool in spec.cluster.pools}
    for field, nodes in (("lose_nodes", options.lose_nodes), ("add_nodes", options.add_nodes)):
        for name in nodes:
            if name not in pools:
                known = ", ".join(pools)
                raise SpecError(
                    f"{field}.{name}", "the cluster has no such pool", remedy=f"use {known}"
                )
    left = {name: _nodes_left(pool, options) for name, pool in pools.items()}
    if max(left.values()) <= 0:
        name, pool = next((n, pool) for n, pool in pools.items() if n in options.lose_nodes)
        raise SpecError(
            f"lose_nodes.{name}",
            f"the pool has {_nodes(pool.num_nodes)}, without {options.lose_nodes[name]} of them "
            "nothing is left",
            remedy="plan the job anew on other pools",
        )
    for name, lost in options.lose_nodes.items():
        if lost > pools[name].num_nodes:
            raise SpecError(
                f"lose_nodes.{name}",
                f"{lost} are lost, but the pool has {_nodes(pools[name].num_nodes)}",
                remedy=f"lose at most {pools[name].num_nodes}",
            )
    there = [p.model_copy(update={"num_nodes": left[n]}) for n, p in pools.items() if left[n]]
    cluster = spec.cluster.model_copy(update={"pools": there})
    return spec.model_copy(update={"cluster": cluster})


def _nodes_left(pool: PoolSpec, options: ReplanOptions) -> int:
    come = options.add_nodes.get(pool.name, 0)
    left = pool.num_nodes - options.lose_nodes.get(pool.name, 0) + come
    if left > MAX_NODES:
        raise SpecError(
            f"add_nodes.{pool.name}",
            f"the pool would have {_nodes(left)}, more than a pool can have",
            remedy=f"add at most {MAX_NODES - left + come}",
        )
    return left


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A running plan on the cluster as it is now, with the tables that price it there."""

    study: Study
    before: Job
    """The job on the cluster that the plan was made for."""
    running: Selected | None
    """The running plan by rows of the tables; None: its GPUs are gone."""
    planned: Placement
    sizes: dict[str, tuple[str, int]]
    """Copy → pool and GPUs in the running plan."""
    first_limit: float
    """Seconds within which a first plan is looked for."""
    tables_kept: bool
    candidates_proven: bool
    """True: every candidate is one that the plan was searched among, at the same price."""


def cluster_state_of(
    plan: Plan, spec: JobSpec, options: ReplanOptions, tables: TableCache
) -> ClusterState:
    """Tables that are kept serve where they can: those of the whole cluster without lost nodes.

    On a smaller cluster ranges may step and syncs may cost otherwise: then it is priced by itself.
    """
    placement = plan.placement()
    kept, before, after = tables.holds(spec), resolve(plan.spec), resolve(spec)
    gone = len(after.pools) < len(before.pools)
    if options.add_nodes or kept or gone or not shares_candidates(before, after):
        given = tables.study(spec)
    else:
        kept = tables.holds(plan.spec)
        whole = tables.study(plan.spec)
        given = _without_nodes(whole, options.lose_nodes)
    sizes = {copy.id: (copy.pool, copy.num_gpus) for copy in placement.copies}
    usable = {pool.name: pool.num_gpus for pool in given.problem.pools}
    running = None
    if all(copy.first_gpu + copy.num_gpus <= usable.get(copy.pool, 0) for copy in placement.copies):
        given, running = locate(given, placement, timing_of(given, plan))
    lost = (
        sum(usable.values()) / sum(pool.usable_gpus for pool in before.pools)
        if options.lose_nodes
        else 1.0
    )
    first_limit = SLOWER * plan.iteration_seconds / min(lost, 1.0)
    proven = not options.add_nodes and _still_there(before, after)
    return ClusterState(given, before, running, placement, sizes, first_limit, kept, proven)


def _still_there(before: Job, after: Job) -> bool:
    """True when all candidates on the pools that are left were candidates before."""
    names = {pool.name for pool in after.pools}
    left = tuple(pool for pool in before.pools if pool.name in names)
    return shares_candidates(replace(before, pools=left), after)


def _without_nodes(given: Study, lose_nodes: dict[str, int]) -> Study:
    """The study on the first nodes of every pool: nodes of a pool are as good as each other."""
    if not lose_nodes:
        return given
    left = given.space.on_gpus(
        tuple(
            pool.num_gpus - lose_nodes.get(pool.name, 0) * pool.gpus_per_node
            for pool in given.problem.pools
        )
    )
    if not left.is_complete():
        raise InfeasibleError(
            [Reason(summary="no layout of some model fits on the GPUs that are left")]
        )
    return given.on(left.restrict(left.rows))


def corrections_of(plan: Plan, options: ReplanOptions) -> list[CallCorrection]:
    """What each measured call or weight sync takes beside what the plan says.

    Raises:
        SpecError: the plan has no such call, or estimates 0 seconds for it.
    """
    calls = {call.id: call for call in plan.calls}
    syncs = {f"{sync.role}.sync": sync for sync in plan.transitions}
    found = []
    for name, measured in options.measured.items():
        event = calls.get(name) or syncs.get(name)
        if event is None:
            raise SpecError(
                f"measured.{name}",
                "the plan has no such call",
                remedy=f"use some of {', '.join([*calls, *syncs])}",
            )
        predicted = event.end_seconds - event.start_seconds
        if isinstance(event, CallPlan):  # what lies after it is as long as it was
            measured += event.seconds_by_part.between
        if predicted <= 0:
            raise SpecError(
                f"measured.{name}", "the plan estimates 0 seconds for it", remedy="leave it out"
            )
        kind = calls[name].kind if name in calls else "sync"
        found.append(
            CallCorrection(
                role=event.role,
                kind=kind,
                measured_seconds=measured,
                predicted_seconds=predicted,
                ratio=measured / predicted,
            )
        )
    return found


def correction_factors(given: Study, corrections: list[CallCorrection]) -> Factors:
    """Measured over predicted seconds, for every call and weight sync that has a correction.

    Calls of one role and kind share a factor: the ratio of the sums of their seconds.
    """
    factors = Factors.ones(given)
    measured: dict[tuple[str, str], list[CallCorrection]] = {}
    for each in corrections:
        measured.setdefault((each.role, each.kind), []).append(each)
    for (role, kind), group in measured.items():
        ratio = sum(c.measured_seconds for c in group) / sum(c.predicted_seconds for c in group)
        for index, call in enumerate(given.job.dataflow.calls):
            if (call.role, call.kind) == (role, kind):
                factors.work[index] = factors.transition[index] = factors.host[index] = ratio
        for index, copy in enumerate(given.tables.copies):
            if kind == "sync" and copy.role == role:
                factors.sync[index] = ratio
    return factors
