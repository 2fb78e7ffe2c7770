"""Brute force over tiny placement problems, independent of the search: enumerate and evaluate."""

import itertools
from collections.abc import Iterator

from automap.planner.search.model.problem import (
    Assignment,
    Problem,
    chosen,
    copy_range,
    sync_seconds,
)

# Edges of the schedule below are (source, target, distance, least time between the two starts).

MIB = 2**20


def best_period(problem: Problem, *, longest: int) -> int | None:
    """Least whole period of the problem, durations being whole seconds; None when impossible."""
    best: int | None = None
    for assignment in assignments(problem):
        if not fits(problem, assignment):
            continue
        limit = longest if best is None else best - 1
        period = least_period(problem, assignment, limit=limit)
        if period is not None:
            best = period
    return best


def assignments(problem: Problem) -> Iterator[Assignment]:
    """Every choice of options and aligned first GPUs."""
    per_copy = [list(_copy_choices(problem, index)) for index in range(len(problem.copies))]
    for choices in itertools.product(*per_copy):
        options, firsts = [c[0] for c in choices], [c[1] for c in choices]
        per_call = []
        for call in problem.calls:
            usable = [
                j
                for j, option in enumerate(call.options)
                if options[option.copy] == option.copy_option
            ]
            per_call.append(usable if call.options else [None])
        for call_options in itertools.product(*per_call):
            assignment = Assignment(tuple(options), tuple(firsts), tuple(call_options))
            if _shadows_used(problem, assignment) and _pairs_hold(problem, assignment):
                yield assignment


def _copy_choices(problem: Problem, index: int) -> Iterator[tuple[int | None, int | None]]:
    copy = problem.copies[index]
    if copy.shadow_of is not None:
        yield None, None
    for o, option in enumerate(copy.options):
        pool = problem.pools[option.pool]
        for local in range(pool.num_gpus - option.num_gpus + 1):
            offset = local % pool.gpus_per_node
            if option.num_gpus < pool.gpus_per_node:
                inside = offset + option.num_gpus <= pool.gpus_per_node
                aligned = inside and offset % option.num_gpus == 0
            else:
                aligned = offset == 0
            if aligned:
                yield o, pool.first_gpu + local


def _shadows_used(problem: Problem, assignment: Assignment) -> bool:
    used = {
        option.copy
        for call in range(len(problem.calls))
        if (option := chosen(problem, assignment, call)) is not None
    }
    return all(
        copy.shadow_of is None or assignment.copy_options[index] is None or index in used
        for index, copy in enumerate(problem.copies)
    )


def _pairs_hold(problem: Problem, assignment: Assignment) -> bool:
    for pairs, together in ((problem.colocate, True), (problem.separate, False)):
        for one, other in pairs:
            a, b = copy_range(problem, assignment, one), copy_range(problem, assignment, other)
            if a is None or b is None:
                continue
            if together and a != b:
                return False
            if not together and a.overlaps(b):
                return False
    spans = _spans(problem, assignment)
    return all(_lie_as_allowed(problem, a, b) for a, b in itertools.combinations(spans, 2))


def _spans(problem: Problem, assignment: Assignment) -> list[set[int]]:
    """The GPUs of every copy that is there."""
    spans = [copy_range(problem, assignment, copy) for copy in range(len(problem.copies))]
    return [set(range(span.first, span.end)) for span in spans if span is not None]


def _lie_as_allowed(problem: Problem, one: set[int], other: set[int]) -> bool:
    allowed = not (one & other) or one == other or problem.ranges == "any"
    return allowed or (problem.ranges == "nested" and (one <= other or other <= one))


def fits(problem: Problem, assignment: Assignment) -> bool:
    """Memory on every single GPU during every single call and sync; host memory too."""
    for pool in problem.pools:
        for gpu in range(pool.first_gpu, pool.first_gpu + pool.num_gpus):
            residents, host = _held(problem, assignment, gpu)
            most = max(_transients(problem, assignment, gpu), default=0)
            if residents + most > pool.capacity_bytes // MIB or host > pool.host_bytes // MIB:
                return False
    return True


def _held(problem: Problem, assignment: Assignment, gpu: int) -> tuple[int, int]:
    """MiB that copies hold on a GPU and on its host."""
    residents, host = 0, 0
    for index, copy in enumerate(problem.copies):
        span = copy_range(problem, assignment, index)
        if span is not None and span.first <= gpu < span.end:
            option = copy.options[assignment.copy_options[index]]
            residents += -(-option.resident_bytes // MIB)
            host += -(-option.host_bytes // MIB)
    return residents, host


def _transients(problem: Problem, assignment: Assignment, gpu: int):
    """MiB that each call and sync adds on a GPU while it runs."""
    for call in range(len(problem.calls)):
        option = chosen(problem, assignment, call)
        if option is None:
            continue
        span = copy_range(problem, assignment, option.copy)
        if span.first <= gpu < span.end:
            yield -(-option.transient_bytes // MIB)
    for sync in problem.syncs:
        sides = [copy_range(problem, assignment, c) for c in (sync.home, sync.shadow)]
        if sides[1] is not None:
            on = sum(side.first <= gpu < side.end for side in sides)
            yield on * -(-sync.bucket_bytes // MIB)


def _events(problem: Problem, assignment: Assignment):
    """(durations, GPU → seconds that it is held, edges) over calls then present syncs."""
    durations, gpus, edges = [], [], []
    for call in range(len(problem.calls)):
        option = chosen(problem, assignment, call)
        if option is None:
            durations.append(int(problem.calls[call].fixed_seconds))
            gpus.append({})
        else:
            span = copy_range(problem, assignment, option.copy)
            durations.append(int(option.seconds))
            held = dict.fromkeys(range(span.first, span.end), int(option.seconds))
            if option.tail is not None:
                freed = range(span.first + option.tail.num_gpus, span.end)
                held |= dict.fromkeys(freed, int(option.tail.main_phase_seconds))
            gpus.append(held)
    edges = [
        (e.source, e.target, e.distance, _lag(problem, assignment, e, durations))
        for e in problem.precedences
    ]
    for sync in problem.syncs:
        seconds = sync_seconds(problem, assignment, sync)
        if seconds is None:
            continue
        home, shadow = (copy_range(problem, assignment, c) for c in (sync.home, sync.shadow))
        node = len(durations)
        durations.append(int(seconds))
        both = [*range(home.first, home.end), *range(shadow.first, shadow.end)]
        gpus.append(dict.fromkeys(both, int(seconds)))
        edges.append((sync.train, node, sync.distance, durations[sync.train]))
        for call in range(len(problem.calls)):
            option = chosen(problem, assignment, call)
            if option is not None and option.copy == sync.shadow:
                edges.append((node, call, 0, int(seconds)))
    return durations, gpus, edges


def _lag(problem: Problem, assignment: Assignment, edge, durations) -> int:
    """The least delay with which a target of several chunks never waits, by trying all delays."""
    whole = durations[edge.source]
    if edge.chunks == 0:
        return whole
    outs = [*chosen(problem, assignment, edge.source).chunk_ready_seconds, whole]
    each = durations[edge.target] / edge.chunks

    def on_time(delay: int) -> bool:
        return all(delay + taken * each >= out - 1e-9 for taken, out in enumerate(outs))

    return next(delay for delay in range(whole + 1) if on_time(delay))


def least_period(problem: Problem, assignment: Assignment, *, limit: int) -> int | None:
    """Least whole period of a fixed assignment."""
    durations, gpus, edges = _events(problem, assignment)
    if problem.barrier:
        makespan = _least_makespan(durations, gpus, edges)
        return makespan if makespan <= limit else None
    loads = [sum(on.get(g, 0) for on in gpus) for g in range(16)]
    for period in range(max(1, *durations, *loads), limit + 1):
        if _cyclic_schedule_exists(durations, gpus, edges, period):
            return period
    return None


def _least_makespan(durations, gpus, edges) -> int:
    """Every order of the calls, each as early as it can be: one of them is optimal."""
    inside = [(u, v, lag) for u, v, distance, lag in edges if distance == 0]
    count, best = len(durations), sum(durations)
    for order in itertools.permutations(range(count)):
        position = {node: i for i, node in enumerate(order)}
        if any(position[u] > position[v] for u, v, _ in inside):
            continue
        ends = [0] * count
        for i, node in enumerate(order):
            start = max(
                (ends[u] - durations[u] + lag for u, v, lag in inside if v == node), default=0
            )
            for other in order[:i]:
                for gpu in gpus[other].keys() & gpus[node].keys():
                    start = max(start, ends[other] - durations[other] + gpus[other][gpu])
            ends[node] = start + durations[node]
        best = min(best, max(ends))
    return best


def _cyclic_schedule_exists(durations, gpus, edges, period: int) -> bool:
    """Phases in 0 … period − 1 without overlap on a GPU, and stages that satisfy the edges."""
    count = len(durations)

    def place(phases: list[int]) -> bool:
        node = len(phases)
        if node == count:
            return _stages_exist(durations, edges, phases, period)
        for phase in range(period if node else 1):  # turning the whole schedule changes nothing
            if all(
                _disjoint_modulo(phase, gpus[node][gpu], phases[other], gpus[other][gpu], period)
                for other in range(node)
                for gpu in gpus[node].keys() & gpus[other].keys()
            ) and place([*phases, phase]):
                return True
        return False

    return place([])


def _disjoint_modulo(a: int, length_a: int, b: int, length_b: int, period: int) -> bool:
    return not (
        {(a + i) % period for i in range(length_a)} & {(b + i) % period for i in range(length_b)}
    )


def _stages_exist(durations, edges, phases, period) -> bool:
    """Longest paths over q_v ≥ q_u + ⌈(φ_u + lag − φ_v) / P⌉ − δ: no positive cycle."""
    count = len(durations)
    stages = [0] * count
    for _ in range(count + 1):
        changed = False
        for u, v, distance, lag in edges:
            need = stages[u] + -((phases[v] - phases[u] - lag) // period) - distance
            if stages[v] < need:
                stages[v], changed = need, True
        if not changed:
            return True
    return False
