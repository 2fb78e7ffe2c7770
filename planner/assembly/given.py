"""Schedule a placement that the caller gives, or say why it is nonsense or does not fit."""

from dataclasses import replace
from typing import Any

from automap.planner.assembly.memory_violations import overflows
from automap.planner.assembly.parts import (
    PricedCall,
    PricedCopy,
    price_call,
    price_copy,
    pricing_of,
)
from automap.planner.check.continuous import rollouts_on_other_gpus
from automap.planner.check.layout import broken_layouts
from automap.planner.check.prices import caches_too_small, impossible_tails
from automap.planner.check.spec import broken_constraints
from automap.planner.check.structure import broken_references
from automap.planner.check.subject import Subject
from automap.planner.dataflow.graph import weights_edge
from automap.planner.errors import InfeasibleError, SpecError
from automap.planner.job.job import Job
from automap.planner.plan.types import (
    BytesByKind,
    CallPlan,
    CopyPlan,
    Placement,
    Plan,
    SecondsByPart,
    WeightSync,
)
from automap.planner.search import Limits, problem_structure, schedule
from automap.planner.search.model.problem import (
    Assignment,
    CallOption,
    CopyChoice,
    CopyOption,
    Precedence,
    Problem,
    Tail,
    Timing,
)


def scheduled(job: Job, placement: Placement) -> tuple[Placement, Timing]:
    """The placement with its calls in starting order, and its shortest schedule.

    Under the barrier, calls on shared GPUs keep the placement's order; a cyclic schedule is free
    to turn it.

    Raises:
        SpecError: the placement contradicts the job or itself.
        InfeasibleError: some GPU or host would run out of memory.
    """
    refuse_nonsense(job, placement)
    pricing = pricing_of(job, placement.copies)
    copies = [price_copy(pricing, copy) for copy in placement.copies]
    by_id = {copy.placement.id: copy for copy in copies}
    flow = {call.id: call for call in job.dataflow.calls}
    calls = [
        price_call(pricing, flow[call.id], call, by_id.get(call.copy_id or ""))
        for call in placement.calls
    ]
    found = overflows(job, copies, calls)
    if found:
        raise InfeasibleError(found)
    limits = Limits.within(job.spec.search.time_limit_seconds, seed=job.spec.search.seed)
    problem, assignment = _problem(job, copies, calls)
    solution = schedule(problem, assignment, limits=limits)
    if solution is None:
        raise SpecError(
            "placement",
            "no schedule keeps this order of calls",
            remedy="list calls in the order of the dataflow",
        )
    return placement, solution.timing


def refuse_nonsense(job: Job, placement: Placement) -> None:
    """Raise SpecError for the first rule that the placement breaks."""
    draft = _draft(job, placement)
    found = next(iter(broken_references(job, draft)), None)
    if found is None:
        subject = Subject(job, draft)
        found = next(iter(broken_layouts(subject)), None)
        found = found or next(iter(broken_constraints(subject)), None)
        found = found or next(iter(rollouts_on_other_gpus(subject)), None)
        found = found or next(iter(caches_too_small(subject)), None)
        found = found or next(iter(impossible_tails(subject)), None)
    if found is not None:
        raise SpecError("placement", found)
    for copy in placement.copies:
        if copy.kind == "shadow" and weights_edge(job.dataflow, copy.role) is None:
            raise SpecError(
                "placement.copies",
                f"{copy.id} is a shadow, but the rollouts of {copy.role} do not all follow the "
                "same training of an earlier iteration",
                remedy="generate on the home",
            )
    position = {call.id: place for place, call in enumerate(placement.calls)}
    for edge in job.dataflow.edges:
        if edge.distance == 0 and position[edge.source] > position[edge.target]:
            raise SpecError(
                "placement.calls",
                f"{edge.target} is listed before {edge.source}, whose result it needs",
                remedy="list calls in the order in which they run",
            )


def _draft(job: Job, placement: Placement) -> Plan:
    """The placement as a plan without prices, in which form the check's rules can read it."""
    copies = [
        CopyPlan(**copy.model_dump(), resident_bytes=0, host_bytes=0, bytes_by_kind=BytesByKind())
        for copy in placement.copies
    ]
    calls = [
        CallPlan(
            **call.model_dump(),
            start_seconds=0.0,
            end_seconds=0.0,
            seconds_by_part=SecondsByPart(),
            bytes_by_kind=BytesByKind(),
            peak_bytes=0,
            capacity_bytes=0,
            source="analytical",
        )
        for call in placement.calls
    ]
    homes = {copy.role: copy.id for copy in copies if copy.kind == "home"}
    syncs = [
        WeightSync(
            role=copy.role,
            source_copy=homes.get(copy.role, ""),
            target_copy=copy.id,
            start_seconds=0.0,
            end_seconds=0.0,
            bytes_per_receiver=0,
        )
        for copy in copies
        if copy.kind == "shadow"
    ]
    values: dict[str, Any] = {  # the draft lacks fields on purpose
        "name": job.spec.name,
        "copies": copies,
        "calls": calls,
        "transitions": syncs,
        "iteration_seconds": 1.0,
    }
    totals = ("lower_bound_seconds", "relative_gap", "tokens_per_second", "run_seconds")
    prices = ("price_per_iteration", "price_per_million_tokens", "run_price")
    values |= dict.fromkeys((*totals, *prices), 0.0)
    return Plan.model_construct(None, **values)


def _problem(
    job: Job, copies: list[PricedCopy], calls: list[PricedCall]
) -> tuple[Problem, Assignment]:
    """A problem with one option for everything, and the assignment that takes it."""
    homes = {c.placement.role: i for i, c in enumerate(copies) if c.placement.kind == "home"}
    positions = {copy.placement.id: i for i, copy in enumerate(copies)}
    pools = {pool.name: i for i, pool in enumerate(job.pools)}
    choices = tuple(
        CopyChoice(
            copy.placement.id,
            copy.placement.role,
            homes[copy.placement.role] if copy.placement.kind == "shadow" else None,
            (
                CopyOption(
                    pools[copy.pool.name],
                    copy.placement.num_gpus,
                    copy.resident_bytes,
                    copy.host_bytes,
                    copy.sync_seconds if _is_synced(copies, copy) else 0.0,
                    0,
                ),
            ),
        )
        for copy in copies
    )
    structure = problem_structure(job.without_margin(), choices)  # only the capacity binds it
    by_id = {call.placement.id: call for call in calls}
    problem = replace(
        structure,
        calls=tuple(
            replace(choice, options=_options(by_id[choice.id], positions))
            for choice in structure.calls
        ),
        precedences=(*structure.precedences, *_kept_order(job, copies, calls)),
        # Already checked, and the ranges are given.
        colocate=(),
        separate=(),
        ranges="any",
        forms=(),
    )
    assignment = Assignment(
        tuple(0 for _ in copies),
        tuple(copy.span.start for copy in copies),
        tuple(0 if choice.options else None for choice in problem.calls),
    )
    return problem, assignment


def _options(call: PricedCall, positions: dict[str, int]) -> tuple[CallOption, ...]:
    """A call's settings as its only option; none for a call without GPUs."""
    copy_id = call.placement.copy_id
    if copy_id is None:
        return ()
    tail = None
    if call.main_phase_seconds is not None:
        assert call.placement.tail is not None
        tail = Tail(call.placement.tail.num_gpus, call.main_phase_seconds)
    transient = call.bytes_by_kind.total
    position = positions[copy_id]
    return (CallOption(position, 0, call.seconds, transient, 0, call.chunk_ready_seconds, tail),)


def _is_synced(copies: list[PricedCopy], copy: PricedCopy) -> bool:
    return any(
        other.placement.kind == "shadow" and other.placement.role == copy.placement.role
        for other in copies
    )


def _kept_order(job: Job, copies: list[PricedCopy], calls: list[PricedCall]) -> list[Precedence]:
    """Keep the listed order, under the barrier, of every two calls that share a GPU.

    A call beside the tail of another is free: only the dataflow orders the two.
    """
    if job.spec.search.cyclic:
        return []
    numbers = {call.id: number for number, call in enumerate(job.dataflow.calls)}
    spans = {copy.placement.id: copy.span for copy in copies}
    order = []
    for place, later in enumerate(calls):
        for earlier in calls[:place]:
            one = spans.get(earlier.placement.copy_id or "")
            other = spans.get(later.placement.copy_id or "")
            if earlier.placement.tail is not None and one and other and one != other:
                one = range(one.start, one.start + earlier.placement.tail.num_gpus)
            if one and other and one.start < other.stop and other.start < one.stop:
                pair = numbers[earlier.placement.id], numbers[later.placement.id]
                order.append(Precedence(*pair, 0))
    return order
