"""One job and the ways to place it: priced once, placed by each, the calls' seconds taken down."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from automap.planner.assembly.parts import PricedCall, price_call, price_copy, pricing_of
from automap.planner.assembly.plan import placement_of
from automap.planner.cost.rollout_engines import EngineProfile
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Parallelism, Placement
from automap.planner.search.candidates.tables import Tables
from automap.planner.search.candidates.tabulate import price_candidates
from automap.planner.search.model.solve import Limits
from automap.planner.search.search import best_placement
from automap.planner.search.space.rows import Rows, Selected
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies import STARTS
from automap.planner.search.strategies.attempts import attempt
from automap.planner.spec import JobSpec
from benchmarks.reproduction.software import generating_as

SEARCH = "search"
"""The way that is the plan itself."""


@dataclass(frozen=True)
class Case:
    """A job, the ways to place it, and which layouts all of them but the search may use."""

    spec: JobSpec
    ways: tuple[str, ...]
    layouts: Callable[[Tables], Rows] | None = None
    engine: EngineProfile | None = None
    """What generates; None: what the job says."""


@dataclass(frozen=True)
class CallSeconds:
    """One call of a placement."""

    kind: str
    seconds: float
    transition_seconds: float
    communication_seconds: float
    layout: Parallelism | None


@dataclass(frozen=True)
class Outcome:
    """What one way of placing a job came to; without `seconds` it has no placement."""

    seconds: float | None
    reason: str = ""
    proven: bool = False
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Copy → (first GPU, GPUs)."""
    layouts: Mapping[str, Parallelism] = field(default_factory=dict)
    """Copy → how it is stored."""
    calls: Mapping[str, CallSeconds] = field(default_factory=dict)
    sync_seconds: float = 0.0

    def kind_seconds(self, *kinds: str) -> float:
        """Seconds of all calls of these kinds, as if one after another."""
        return sum(call.seconds for call in self.calls.values() if call.kind in kinds)

    def communication_seconds(self, kind: str) -> float:
        """Of the calls of one kind."""
        calls = (call for call in self.calls.values() if call.kind == kind)
        return sum(call.communication_seconds for call in calls)


def outcomes(case: Case) -> dict[str, Outcome]:
    """Place the job in every way of the case."""
    with generating_as(case.engine):
        return _outcomes(case)


def _outcomes(case: Case) -> dict[str, Outcome]:
    job = resolve(case.spec)
    tables = price_candidates(job)
    space = SearchSpace.of(job, tables)
    if case.layouts is not None:
        space = replace(space, rows=space.rows.both(case.layouts(tables)))
    limits = Limits.within(case.spec.search.time_limit_seconds, seed=case.spec.search.seed)
    found = {}
    for way in case.ways:
        if way == SEARCH:
            found[way] = _searched(job, tables)
            continue
        (placed,) = attempt(space, [way], limits=limits)
        found[way] = _outcome(job, tables, placed.selected, placed.reason)
    return found


def _searched(job: Job, tables: Tables) -> Outcome:
    best = best_placement(job, SearchSpace.of(job, tables), STARTS)
    return _outcome(job, tables, best.solution, "no placement fits", proven=best.is_proven)


def _outcome(
    job: Job, tables: Tables, selected: Selected | None, reason: str, *, proven: bool = False
) -> Outcome:
    if selected is None:
        return Outcome(None, reason)
    placement = placement_of(job, tables, selected)
    pricing = pricing_of(job, placement.copies)
    copies = {copy.id: price_copy(pricing, copy) for copy in placement.copies}
    calls = {call.id: call for call in job.dataflow.calls}
    priced = [
        price_call(
            pricing,
            calls[call.id],
            call,
            None if call.copy_id is None else copies[call.copy_id],
        )
        for call in placement.calls
    ]
    shadows = [copy for copy in copies.values() if copy.placement.kind == "shadow"]
    homes = {copy.placement.role: copy for copy in copies.values() if copy not in shadows}
    syncs = [max(copy.sync_seconds, homes[copy.placement.role].sync_seconds) for copy in shadows]
    return Outcome(
        seconds=selected.timing.period,
        proven=proven,
        ranges=_ranges(placement),
        layouts={copy.id: copy.layout for copy in placement.copies},
        calls={call.placement.id: _call(call) for call in priced},
        sync_seconds=sum(syncs),
    )


def _ranges(placement: Placement) -> dict[str, tuple[int, int]]:
    return {copy.id: (copy.first_gpu, copy.num_gpus) for copy in placement.copies}


def _call(call: PricedCall) -> CallSeconds:
    return CallSeconds(
        kind=call.placement.kind,
        seconds=call.seconds,
        transition_seconds=call.seconds_by_part.transition,
        communication_seconds=call.seconds_by_part.communication,
        layout=call.placement.parallelism,
    )
