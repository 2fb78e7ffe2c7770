"""The placement problem as a CP-SAT model: the Gantt chart is the model.

Sets
    C copies (homes and shadows), O_c options of copy c; K calls, J_k options of call k;
    S weight syncs (home h_s, shadow w_s); E precedences (u, v, δ).
Constants
    n_o GPUs, r_o resident MiB, b_o host MiB, y_o sync ticks of copy option o;
    d_j ticks, m_j transient MiB, r_jk ticks until chunk k is out, of call option j; M capacity;
    N GPUs. Seconds are rounded up to ticks and bytes up to MiB; the caller subtracts the rounding
    from the proven bound.
Variables
    x_co ∈ {0, 1}        copy c takes option o            Σ_o x_co = 1 (home), ≤ 1 (shadow)
    f_c, n_c, e_c        first GPU, GPUs, end             n_c = Σ_o n_o x_co, e_c = f_c + n_c
    z_kj ∈ {0, 1}        call k takes option j            Σ_j z_kj = 1, Σ_{j of o} z_kj ≤ x_co
    s_k, d_k             start, duration                  d_k = Σ_j d_j z_kj
    P                    the period, minimised
Constraints
    (1) alignment        f_c inside a node at a multiple of n_c, or at the first GPU of a node
    (2) no overlap       of two calls on copies that share a GPU, one ends before the other starts;
                         or has ended its main phase, and the other's ranges lie outside its tail
    (3) weight syncs     the same, against every call on one of their two ranges
    (4) memory           for every call k a Cumulative over the GPU axis:
                         Σ_{c over g} r_c + [g in range of k] m_k ≤ M_g
    (5) host memory      a Cumulative over the GPU axis: Σ_{c over g} b_c ≤ B_g
    (6) barrier          s_v ≥ s_u + d_u for δ = 0; every end ≤ P
    (7) cyclic           phases s ∈ [0, P), stages q: s_v + (q_v + δ) P ≥ s_u + d_u + q_u P;
                         of two on a shared GPU, the later ends before the first returns; d_k ≤ P
    (8) streamed edges   in place of s_v ≥ s_u + d_u, for k = 1 … K chunks, r_uK = d_u:
                         K s_v ≥ K (s_u + r_uk) − (k − 1) d_v;  on shared GPUs (2) holds as well
    (9) colocated pairs  f_c = f_c', n_c = n_c';  separated pairs: e_c ≤ f_c' or e_c' ≤ f_c
    (10) ranges          of two copies that share a GPU, equal: f_c = f_c', n_c = n_c';
                         nested: f_c ≤ f_c', e_c' ≤ e_c or the other way around
Redundant (they only speed up the proof): automap.planner.search.model.strengthening.
"""

from automap.planner.search.model.bounds import Bounds
from automap.planner.search.model.cp_sat import cp_model
from automap.planner.search.model.problem import Problem
from automap.planner.search.model.variables import (
    CallVariables,
    CopyVariables,
    Formulation,
    LinearExpr,
    SyncVariables,
    add_call,
    add_copy,
    add_sync,
    align,
    bytes_to_mib,
    largest_unit,
    seconds_to_ticks,
    timed_nodes,
)
from automap.planner.units import MIB


def formulate(problem: Problem, *, tick_seconds: float, cutoff_seconds: float) -> Formulation:
    """Build the model; its period is at most `cutoff_seconds`. No objective is set."""
    formulation = Formulation(
        problem=problem,
        tick_seconds=tick_seconds,
        horizon=seconds_to_ticks(cutoff_seconds, tick_seconds),
        unit=largest_unit(problem),
    )
    _add_copies_and_calls(formulation)
    for index in range(len(problem.syncs)):
        formulation.syncs.append(add_sync(formulation, index))
    _sharing(formulation)
    _orders(formulation)
    _memory(formulation)
    _host_memory(formulation)
    if problem.barrier:
        _barrier(formulation)
    else:
        _cyclic(formulation)
    _pairs(formulation)
    return formulation


def memory_formulation(problem: Problem) -> tuple[Formulation, cp_model.IntVar]:
    """Copies, calls and memory without time, and the MiB by which capacities may be exceeded."""
    formulation = Formulation(
        problem=problem, tick_seconds=1.0, horizon=1, unit=largest_unit(problem)
    )
    _add_copies_and_calls(formulation)
    if problem.ranges != "any":
        _sharing(formulation)
    excess = formulation.model.new_int_var(0, 2**40, "excess")
    _memory(formulation, excess)
    _host_memory(formulation)
    _pairs(formulation)
    return formulation, excess


def _add_copies_and_calls(formulation: Formulation) -> None:
    formulation.period = formulation.model.new_int_var(0, formulation.horizon, "P")
    for index in range(len(formulation.problem.copies)):
        formulation.copies.append(add_copy(formulation, index))
        align(formulation, index)
    for index in range(len(formulation.problem.calls)):
        formulation.calls.append(add_call(formulation, index))
    _shadows_are_used(formulation)


def _shadows_are_used(formulation: Formulation) -> None:
    """A shadow is there only if a call runs on it."""
    for index, copy in enumerate(formulation.problem.copies):
        if copy.shadow_of is not None:
            users = [call.bound[index] for call in formulation.calls if index in call.bound]
            formulation.model.add_bool_or([*users, ~formulation.copies[index].present])


def _sharing(formulation: Formulation) -> None:
    """Per pair of copies a literal that is true where both are there and share a GPU."""
    model = formulation.model
    for one in range(len(formulation.copies)):
        for other in range(one):
            first, second = formulation.copies[one], formulation.copies[other]
            before, after, literal = (model.new_bool_var("") for _ in range(3))
            model.add_bool_or([before, after, literal, ~first.present, ~second.present])
            model.add(first.end <= second.first).only_enforce_if(before)
            model.add(second.end <= first.first).only_enforce_if(after)
            formulation.shared[one, other] = literal
            _range_relation(formulation, first, second, literal)


def _range_relation(
    formulation: Formulation, one: CopyVariables, two: CopyVariables, shared: cp_model.IntVar
) -> None:
    """(10) How two ranges lie that share a GPU."""
    model, relation = formulation.model, formulation.problem.ranges
    if relation == "equal":
        model.add(one.first == two.first).only_enforce_if(shared)
        model.add(one.count == two.count).only_enforce_if(shared)
    elif relation == "nested":
        inside, around = model.new_bool_var(""), model.new_bool_var("")
        for inner, outer, literal in ((one, two, inside), (two, one, around)):
            model.add(inner.first >= outer.first).only_enforce_if(literal)
            model.add(inner.end <= outer.end).only_enforce_if(literal)
        model.add_bool_or([inside, around, ~shared])


def _orders(formulation: Formulation) -> None:
    """(2), (3) Of two calls or syncs on a shared GPU one is first; in a cycle also around it."""
    following = Bounds(formulation.problem).following if formulation.problem.barrier else []
    nodes = _nodes(formulation)
    for later in range(len(nodes)):
        for earlier in range(later):
            if later < len(following) and (
                later in following[earlier] or earlier in following[later]
            ):
                continue  # the dataflow orders them
            reasons = _reasons(formulation, nodes[earlier][1], nodes[later][1])
            if reasons:
                _one_is_first(formulation, nodes[earlier], nodes[later], reasons)


_Node = tuple[CallVariables | SyncVariables, dict[int, cp_model.LiteralT]]
"""A call or sync, and the copies whose GPUs it takes, each with when it does."""


def _nodes(formulation: Formulation) -> list[_Node]:
    """Every call and sync."""
    calls: list[_Node]
    calls = [(call, call.bound) for call in formulation.calls]
    syncs: list[_Node]
    syncs = [
        (variables, dict.fromkeys((sync.home, sync.shadow), variables.present))
        for sync, variables in zip(formulation.problem.syncs, formulation.syncs, strict=True)
    ]
    return [*calls, *syncs]


def _reasons(
    formulation: Formulation, one: dict[int, cp_model.LiteralT], two: dict[int, cp_model.LiteralT]
) -> list[list[cp_model.LiteralT]]:
    """Literals that are all true where two nodes share a GPU, for every pair of their copies."""
    reasons = []
    for copy, bound in one.items():
        for other, bound_too in two.items():
            pair = max(copy, other), min(copy, other)
            shared = [] if copy == other else [formulation.shared[pair]]
            reasons.append([bound, bound_too, *shared])
    return reasons


def _one_is_first(
    formulation: Formulation,
    one: _Node,
    two: _Node,
    reasons: list[list[cp_model.LiteralT]],
) -> None:
    model = formulation.model
    before, after = model.new_bool_var(""), model.new_bool_var("")
    free = {0: _tail_is_elsewhere(formulation, one, two)}
    free[1] = _tail_is_elsewhere(formulation, two, one)
    for number, (first, second, literal) in enumerate(((one, two, before), (two, one, after))):
        for end, when in _ends(first[0], free[number]):
            model.add(end <= second[0].start).only_enforce_if([literal, *when])
        if not formulation.problem.barrier:
            around = first[0].start + formulation.period
            for end, when in _ends(second[0], free[1 - number]):
                model.add(end <= around).only_enforce_if([literal, *when])
    for reason in reasons:
        model.add_bool_or([before, after, *(~literal for literal in reason)])


def _ends(
    node: CallVariables | SyncVariables, free: cp_model.IntVar | None
) -> list[tuple[cp_model.LinearExprT, list[cp_model.LiteralT]]]:
    """When a node frees the GPUs that another needs: at its end, or at that of its main phase."""
    if free is None:
        return [(node.end, [])]
    assert isinstance(node, CallVariables)
    assert node.main_phase is not None
    return [(node.end, [~free]), (node.start + node.main_phase, [free])]


def _tail_is_elsewhere(formulation: Formulation, one: _Node, two: _Node) -> cp_model.IntVar | None:
    """A literal that lets the GPUs of `two` lie outside the tail of `one`; None: it has no tail."""
    if not isinstance(one[0], CallVariables) or one[0].tail is None:
        return None
    model, free = formulation.model, formulation.model.new_bool_var("")
    for copy, bound in one[1].items():
        mine = formulation.copies[copy]
        for other, bound_too in two[1].items():
            if other == copy:
                model.add_bool_or([~free, ~bound, ~bound_too])
                continue
            theirs = formulation.copies[other]
            above, below = model.new_bool_var(""), model.new_bool_var("")
            model.add(theirs.first >= mine.first + one[0].tail).only_enforce_if(above)
            model.add(theirs.end <= mine.first).only_enforce_if(below)
            model.add_bool_or([above, below, ~free, ~bound, ~bound_too])
    return free


def _fillers(
    formulation: Formulation, capacities: list[int]
) -> tuple[list[cp_model.IntervalVar], list[int]]:
    """Fixed intervals where a pool has less than the largest capacity, or the axis has no GPU."""
    largest, unit = max(capacities), formulation.unit
    intervals, demands, position = [], [], 0
    for pool, capacity in zip(formulation.problem.pools, capacities, strict=True):
        for first, last, missing in (
            (position, pool.first_gpu, largest),
            (pool.first_gpu, pool.first_gpu + pool.num_gpus, largest - capacity),
        ):
            if last > first and missing > 0:
                size = (last - first) // unit
                intervals.append(
                    formulation.model.new_fixed_size_interval_var(first // unit, size, "")
                )
                demands.append(missing)
        position = pool.first_gpu + pool.num_gpus
    return intervals, demands


def _memory(formulation: Formulation, excess: LinearExpr = 0) -> None:
    """(4) One Cumulative per call and per sync; left out where memory can never bind.

    `excess` is what may be exceeded, where it is the question by how much.
    """
    problem = formulation.problem
    capacities = [pool.capacity_bytes // MIB for pool in problem.pools]
    fillers, missing = _fillers(formulation, capacities)
    residents = [copy.range for copy in formulation.copies]
    demands: list[LinearExpr] = [copy.resident for copy in formulation.copies]
    largest = sum(
        max((bytes_to_mib(o.resident_bytes) for o in copy.options), default=0)
        for copy in problem.copies
    )

    def cumulative(spans: list[cp_model.IntervalVar], transient: LinearExpr, most: int) -> None:
        if largest + most > min(capacities):
            formulation.model.add_cumulative(
                [*residents, *spans, *fillers],
                [*demands, *([transient] * len(spans)), *missing],
                max(capacities) + excess,
            )

    for call, variables in zip(problem.calls, formulation.calls, strict=True):
        most = max((bytes_to_mib(o.transient_bytes) for o in call.options), default=0)
        cumulative(_call_spans(formulation, variables), variables.transient, most)
    for sync in problem.syncs if formulation.syncs else ():
        bucket = bytes_to_mib(sync.bucket_bytes)
        shadow = formulation.copies[sync.shadow]
        home = formulation.copies[sync.home]
        span = formulation.model.new_optional_interval_var(
            home.first, home.count, home.end, shadow.present, ""
        )
        cumulative([span, shadow.range], bucket, 2 * bucket)


def _call_spans(formulation: Formulation, call: CallVariables) -> list[cp_model.IntervalVar]:
    """The range of a call on each copy that it may run on."""
    spans = []
    for copy, bound in call.bound.items():
        variables = formulation.copies[copy]
        spans.append(
            formulation.model.new_optional_interval_var(
                variables.first, variables.count, variables.end, bound, ""
            )
        )
    return spans


def _host_memory(formulation: Formulation) -> None:
    """(5) Bytes on the host, spread over the GPUs of a node."""
    problem = formulation.problem
    capacities = [pool.host_bytes // MIB for pool in problem.pools]
    most = sum(
        max((bytes_to_mib(option.host_bytes) for option in copy.options), default=0)
        for copy in problem.copies
    )
    if most > min(capacities):
        fillers, missing = _fillers(formulation, capacities)
        formulation.model.add_cumulative(
            [*(copy.range for copy in formulation.copies), *fillers],
            [*(copy.host for copy in formulation.copies), *missing],
            max(capacities),
        )


def _barrier(formulation: Formulation) -> None:
    """(6) Edges inside the iteration; the end of everything is at most P."""
    model, problem = formulation.model, formulation.problem
    for edge in problem.precedences:
        if edge.distance == 0:
            source, target = formulation.calls[edge.source], formulation.calls[edge.target]
            for late in _waits(source, target, edge.chunks):
                model.add(late <= 0)
    for index, sync in enumerate(problem.syncs):
        for call in formulation.calls:
            bound = call.bound.get(sync.shadow)
            if bound is not None:
                model.add(call.start >= formulation.syncs[index].end).only_enforce_if(bound)
    for timed in timed_nodes(formulation):
        model.add(timed.end <= formulation.period)


def _waits(
    source: "CallVariables | SyncVariables", target: "CallVariables | SyncVariables", chunks: int
) -> list[cp_model.LinearExpr]:
    """(6), (8) Expressions that are at most 0 where the target starts late enough.

    Without chunks one, the source's end; with chunks one for each of them. All count in ticks of
    the target's start times `max(chunks, 1)`.
    """
    if not chunks:
        return [source.end - target.start]
    assert isinstance(source, CallVariables)
    outs = [*source.chunk_ready, source.duration]
    return [
        chunks * (source.start + out) - k * target.duration - chunks * target.start
        for k, out in enumerate(outs)
    ]


def _cyclic(formulation: Formulation) -> None:
    """(7) Phases and stages. A stage is at most the number of calls and syncs."""
    model, problem = formulation.model, formulation.problem
    most = len(problem.calls) + len(problem.syncs)
    for timed in timed_nodes(formulation):
        model.add(timed.duration <= formulation.period)
        model.add(timed.start + 1 <= formulation.period)
        timed.stage = model.new_int_var(0, most, "")
    for edge in problem.precedences:
        source, target = formulation.calls[edge.source], formulation.calls[edge.target]
        _cyclic_edge(formulation, source, target, edge.distance, [], chunks=edge.chunks)
    for sync, variables in zip(problem.syncs, formulation.syncs, strict=True):
        train = formulation.calls[sync.train]
        _cyclic_edge(formulation, train, variables, sync.distance, [variables.present])
        for call in formulation.calls:
            bound = call.bound.get(sync.shadow)
            if bound is not None:
                _cyclic_edge(formulation, variables, call, 0, [bound])


def _cyclic_edge(
    formulation: Formulation,
    source: "CallVariables | SyncVariables",
    target: "CallVariables | SyncVariables",
    distance: int,
    when: list[cp_model.LiteralT],
    *,
    chunks: int = 0,
) -> None:
    """s_v + (q_v − q_u + δ) P ≥ s_u + d_u, linear under the value of q_v − q_u + δ.

    As ends are at most 2P, a difference of 2 or more always holds, one below 0 never.
    """
    model = formulation.model
    assert source.stage is not None
    assert target.stage is not None
    shift = target.stage - source.stage + distance
    model.add(shift >= 0).only_enforce_if(when)
    same, next_one, later = (model.new_bool_var("") for _ in range(3))
    model.add_exactly_one([same, next_one, later])
    model.add(shift <= 0).only_enforce_if([*when, same])
    model.add(shift >= 1).only_enforce_if([*when, next_one])
    model.add(shift >= 2).only_enforce_if([*when, later])
    around = max(chunks, 1) * formulation.period
    for late in _waits(source, target, chunks):
        model.add(late <= 0).only_enforce_if([*when, same])
        model.add(late <= around).only_enforce_if([*when, next_one])


def _pairs(formulation: Formulation) -> None:
    """(9) What the spec forces together or apart."""
    model = formulation.model
    for one, other in formulation.problem.colocate:
        first, second = formulation.copies[one], formulation.copies[other]
        present = [first.present, second.present]
        model.add(first.first == second.first).only_enforce_if(present)
        model.add(first.count == second.count).only_enforce_if(present)
    for one, other in formulation.problem.separate:
        first, second = formulation.copies[one], formulation.copies[other]
        before = model.new_bool_var("")
        present = [first.present, second.present]
        model.add(first.end <= second.first).only_enforce_if([*present, before])
        model.add(second.end <= first.first).only_enforce_if([*present, ~before])
