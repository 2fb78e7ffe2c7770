"""One job on several clusters: other numbers of nodes, other GPUs."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from automap.planner.catalogue import gpu_type
from automap.planner.errors import InfeasibleError, NoSolutionInTimeError, Reason, SpecError
from automap.planner.infeasible.changes import NO_PROFILES, pool_with_gpu, with_nodes
from automap.planner.infeasible.reasons import causes
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import end_of_pricing, make_plan_of
from automap.planner.search import Tables, price_candidates, shares_candidates
from automap.planner.spec import MAX_NODES, ClusterSpec, JobSpec, PoolSpec, need_spec
from automap.planner.studies.result import Variant, WhatIf

MOST_VARIANTS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A cluster to try: `pool` with other nodes."""

    pool: str
    gpu: str
    num_nodes: int
    job: Job

    @property
    def num_gpus(self) -> int:
        """GPUs of the cluster that a plan may use."""
        return sum(pool.usable_gpus for pool in self.job.pools)


def what_if(
    spec: JobSpec,
    *,
    nodes: Sequence[int] = (),
    gpus: Sequence[str] = (),
    pool: str | None = None,
    profiles: Mapping[str, str] = NO_PROFILES,
    tell: Callable[[str], None] = lambda _: None,
) -> WhatIf:
    """The best plan of a job for every given number of nodes and type of GPU of one pool.

    What is not given stays as the spec has it. A pool with another GPU keeps its name, its
    nodes and the GPUs of each; all else of it is then the catalogue's, but for its profile, which
    is that of its GPU type in `profiles`. `tell` hears how far it is.

    Raises:
        SpecError: as make_plan, or what is asked for makes no sense.
    """
    started = time.perf_counter()
    need_spec(spec)
    cases = cases_of(spec, nodes=nodes, gpus=gpus, pool=pool, profiles=profiles)
    variants: dict[Case, Variant] = {}
    for _, group in itertools.groupby(cases, key=lambda case: case.gpu):
        tables: tuple[Case, Tables, float] | None = None
        # The largest first: its candidates are those of the smaller ones too.
        for case in sorted(group, key=lambda case: -case.num_nodes):
            tell(f"{case.num_nodes} nodes of {case.gpu}, {len(variants)} of {len(cases)} done")
            if tables is None or not shares_candidates(tables[0].job, case.job):
                before, tables = time.perf_counter(), None
                try:
                    priced = price_candidates(case.job, deadline=end_of_pricing(case.job, before))
                except NoSolutionInTimeError as error:
                    variants[case] = _variant(case, None, [Reason(summary=str(error))])
                    continue
                tables = case, priced, time.perf_counter() - before
            variants[case] = _variant(case, *_planned(case.job, tables[1], tables[2]))
    return WhatIf(
        spec=spec,
        variants=_with_efficiency([variants[case] for case in cases]),
        seconds=time.perf_counter() - started,
    )


def _pool(spec: JobSpec, name: str | None) -> PoolSpec:
    """The pool that is varied: the named one, or the only one."""
    if not isinstance(spec.cluster, ClusterSpec):
        resolve(spec)  # says that a stored cluster is unknown here
    assert isinstance(spec.cluster, ClusterSpec)
    pools = {pool.name: pool for pool in spec.cluster.pools}
    if name is None and len(pools) == 1:
        return spec.cluster.pools[0]
    if name in pools:
        return pools[name]
    raise SpecError(
        "pool",
        "the cluster has several pools" if name is None else f"the cluster has no pool {name!r}",
        remedy=f"name one of {', '.join(pools)}",
    )


def cases_of(
    spec: JobSpec,
    *,
    nodes: Sequence[int],
    gpus: Sequence[str],
    pool: str | None,
    profiles: Mapping[str, str] = NO_PROFILES,
    with_profiles: bool = True,
) -> list[Case]:
    """Every type of GPU with every number of nodes, each once, in the order given.

    Without `with_profiles` the folders of measured profiles are not looked at: nothing is priced.

    Raises:
        SpecError: as what_if.
    """
    varied = _pool(spec, pool)
    if not nodes and not gpus:
        raise SpecError("nodes", "nothing is varied", remedy="give numbers of nodes, or GPU types")
    for number in nodes:
        if not 1 <= number <= MAX_NODES:
            raise SpecError(
                "nodes", f"{number} is not a number of nodes", remedy=f"use 1 to {MAX_NODES}"
            )
    numbers = dict.fromkeys(nodes or [varied.num_nodes])
    own = gpu_type(varied.gpu, field="cluster.pools").name
    types = dict.fromkeys(gpu_type(name, field="gpus").name for name in gpus or [varied.gpu])
    if len(types) * len(numbers) > MOST_VARIANTS:
        raise SpecError(
            "nodes",
            f"{len(types) * len(numbers)} clusters are too many for one request",
            remedy=f"ask for at most {MOST_VARIANTS}",
        )
    pools = [
        varied if gpu == own else pool_with_gpu(varied, gpu, profile=profiles.get(gpu))
        for gpu in types
    ]
    return [_case(spec, each, number, with_profiles) for each in pools for number in numbers]


def _case(spec: JobSpec, pool: PoolSpec, num_nodes: int, with_profiles: bool) -> Case:
    job = resolve(with_nodes(spec, pool, num_nodes), with_profiles=with_profiles)
    gpu = next(each.gpu.name for each in job.pools if each.name == pool.name)
    return Case(pool.name, gpu, num_nodes, job)


def _variant(case: Case, plan: Plan | None, reasons: list[Reason]) -> Variant:
    return Variant(
        pool=case.pool,
        gpu=case.gpu,
        num_nodes=case.num_nodes,
        num_gpus=case.num_gpus,
        plan=plan,
        reasons=reasons,
    )


def _planned(job: Job, tables: Tables, pricing_seconds: float) -> tuple[Plan | None, list[Reason]]:
    try:
        plan = make_plan_of(job, tables, pricing_seconds=pricing_seconds, explain=causes)
    except InfeasibleError as error:
        return None, error.reasons
    except NoSolutionInTimeError as error:
        return None, [Reason(summary=str(error))]
    return plan, []


def _with_efficiency(variants: Sequence[Variant]) -> list[Variant]:
    """The variants, each beside the smallest one of its type of GPU that has a plan."""
    smallest: dict[str, tuple[int, float]] = {}
    for each in variants:
        if each.plan is not None:
            here = (each.num_gpus, _per_gpu(each.plan))
            smallest[each.gpu] = min(smallest.get(each.gpu, here), here)
    return [
        each
        if each.plan is None
        else each.model_copy(
            update={"scaling_efficiency": _per_gpu(each.plan) / smallest[each.gpu][1]}
        )
        for each in variants
    ]


def _per_gpu(plan: Plan) -> float:
    return plan.tokens_per_second / plan.gpus_used
