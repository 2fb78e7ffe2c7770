"""From sets of homes on sizes to an assignment; the ways in which a strategy cannot be placed."""

from collections.abc import Sequence
from dataclasses import dataclass

from automap.planner.search.model.problem import Assignment, PoolSlice, Problem
from automap.planner.search.strategies.groups import Shared, Slot
from automap.planner.search.strategies.index import Index
from automap.planner.search.strategies.stages import NUM_STAGES
from automap.planner.search.strategies.together import least_bytes_together
from automap.planner.units import GIB


class DoesNotFit(Exception):  # noqa: N818 - an outcome, not a failure of the program
    """A strategy cannot place this problem; `reason` is a sentence with the numbers."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Placed:
    """What a strategy chose."""

    assignment: Assignment
    claimed_seconds: float | None
    """What the strategy takes an iteration to last, by the cost that it minimises (of most:
    HybridFlow's Σ over stages of the maximum over sets of the sum inside a set); None: it has no
    cost of its own."""
    note: str = ""
    """What is not as its description says: it had nothing to decide, or was cut short."""


@dataclass(frozen=True, slots=True)
class PlacedSet:
    """Homes that share one range: how large it is, and what they chose there."""

    slot: int
    shared: Shared


def stage_seconds(index: Index, sets: Sequence[PlacedSet]) -> float:
    """Σ over stages of the maximum over sets; functions of the host run beside the sets."""
    slowest = index.function_seconds.copy()
    for placed in sets:
        for stage, seconds in enumerate(stage_sums(index, placed.shared)):
            slowest[stage] = max(slowest[stage], seconds)
    return float(slowest.sum())


def stage_sums(index: Index, shared: Shared) -> list[float]:
    """Per stage the seconds of a set's calls, which run one after another."""
    sums = [0.0] * NUM_STAGES
    for call, option in shared.call_options.items():
        sums[index.stages[call]] += index.problem.calls[call].options[option].seconds
    return sums


def assignment_of(index: Index, sets: Sequence[PlacedSet], firsts: Sequence[int]) -> Assignment:
    """The assignment without shadows."""
    problem = index.problem
    copies: list[int | None] = [None] * len(problem.copies)
    starts: list[int | None] = [None] * len(problem.copies)
    calls: list[int | None] = [None] * len(problem.calls)
    for placed, first in zip(sets, firsts, strict=True):
        for copy, option in placed.shared.copy_options.items():
            copies[copy], starts[copy] = option, first
        for call, option in placed.shared.call_options.items():
            calls[call] = option
    return Assignment(tuple(copies), tuple(starts), tuple(calls))


def packed(problem: Problem, slots: Sequence[Slot]) -> list[int] | None:
    """First GPUs of disjoint aligned ranges, largest first from the left; None when it fails.

    For sizes that divide one another, as powers of two and whole nodes do, it never fails while
    their sum is within the pool.
    """
    firsts: dict[int, int] = {}
    taken: dict[int, list[tuple[int, int]]] = {}
    for number in sorted(range(len(slots)), key=lambda i: (-slots[i].count, i)):
        slot = slots[number]
        pool, used = problem.pools[slot.pool], taken.setdefault(slot.pool, [])
        local = _first_free(pool, slot.count, used)
        if local is None:
            return None
        used.append((local, local + slot.count))
        firsts[number] = pool.first_gpu + local
    return [firsts[number] for number in range(len(slots))]


def _first_free(pool: PoolSlice, count: int, used: list[tuple[int, int]]) -> int | None:
    """Least aligned offset in the pool at which `count` GPUs are free."""
    ends = [0, *(end for _, end in used)]
    free = []
    for end in ends:
        local = _aligned_from(pool, count, end)
        if local + count <= pool.num_gpus and all(
            local + count <= begin or local >= stop for begin, stop in used
        ):
            free.append(local)
    return min(free, default=None)


def _aligned_from(pool: PoolSlice, count: int, local: int) -> int:
    """Least offset ≥ `local`: whole nodes at a node's start, others at multiples inside one."""
    node, inside = divmod(local, pool.gpus_per_node)
    if count >= pool.gpus_per_node:
        return local if inside == 0 else (node + 1) * pool.gpus_per_node
    inside = -(-inside // count) * count
    if inside + count > pool.gpus_per_node:
        return (node + 1) * pool.gpus_per_node
    return node * pool.gpus_per_node + inside


def largest_slot(index: Index, members: Sequence[int], pool: int, most: int) -> int | None:
    """The largest slot of a pool, of at most `most` GPUs, that all members have layouts for."""
    for slot in reversed(range(len(index.slots))):
        size = index.slots[slot]
        fits = size.pool == pool and size.count <= most
        if fits and all(len(index.group(member, slot)) for member in members):
            return slot
    return None


def check_served(index: Index) -> None:
    """Raise where no strategy without shadows can place the problem."""
    for home in index.homes:
        if len(index.home(home)) == 0:
            raise DoesNotFit(
                f"{index.name([home])} has no layout that can run all of its "
                f"{len(index.calls_of[home])} calls"
            )
    if index.unserved:
        call = index.problem.calls[index.unserved[0]]
        raise DoesNotFit(f"none of the {len(call.options)} settings of {call.id} runs on a home")


def check_pairs(index: Index, sets: Sequence[Sequence[int]], *, strategy: str) -> None:
    """Raise where the spec's colocated or separate pairs contradict the sets."""
    reason = contradiction(index, sets)
    if reason is not None:
        raise DoesNotFit(f"{strategy} {reason}")


def contradiction(index: Index, sets: Sequence[Sequence[int]]) -> str | None:
    """What the sets do to a pair that the spec forbids; None when they respect all pairs."""
    number = {copy: i for i, members in enumerate(sets) for copy in members}
    for pairs, together in ((index.problem.colocate, True), (index.problem.separate, False)):
        for one, other in pairs:
            if one not in number or other not in number:
                continue
            if (number[one] == number[other]) != together:
                verb, demand = (
                    ("separates", "on the same GPUs") if together else ("colocates", "apart")
                )
                return f"{verb} {index.name([one, other])}, which the constraints want {demand}"
    return None


def shortage(index: Index, copies: Sequence[int], slot: int) -> str:
    """Why copies do not fit together on a slot, in bytes."""
    place = _place(index, slot)
    missing = [copy for copy in copies if len(index.group(copy, slot)) == 0]
    if missing:
        return f"{index.name(missing)} has no layout for {place}"
    least = least_bytes_together(index, copies, slot)
    capacity, host_capacity = int(index.capacity[slot]), int(index.host_capacity[slot])
    who = f"{index.name(copies)} on {place}"
    gpu = f"bytes more than its {capacity / GIB:.2f} GiB"
    host = f"{host_capacity / GIB:.2f} GiB of host memory per GPU"
    if least.gpu > capacity:
        return f"{who} need {least.gpu / GIB:.2f} GiB per GPU, {least.gpu - capacity} {gpu}"
    if least.host > host_capacity:
        return (
            f"{who} need {least.host / GIB:.2f} GiB of host memory per GPU, "
            f"{least.host - host_capacity} bytes more than the {host}"
        )
    if least.gpu_within_host > capacity:
        need = least.gpu_within_host
        return (
            f"{who} need {need / GIB:.2f} GiB per GPU with layouts within the {host}, "
            f"{need - capacity} {gpu}"
        )
    return (
        f"{who} have layouts within {capacity / GIB:.2f} GiB per GPU and layouts within the "
        f"{host}, but no combination within both"
    )


def _place(index: Index, slot: int) -> str:
    chosen = index.slots[slot]
    gpus = "GPU" if chosen.count == 1 else "GPUs"
    return f"{chosen.count} {gpus} of pool {index.problem.pools[chosen.pool].name}"


def aligned_firsts(pool: PoolSlice, count: int) -> list[int]:
    """Every first GPU of an aligned range of `count` GPUs of a pool."""
    found, local = [], 0
    while (local := _aligned_from(pool, count, local)) + count <= pool.num_gpus:
        found.append(pool.first_gpu + local)
        local += 1
    return found
