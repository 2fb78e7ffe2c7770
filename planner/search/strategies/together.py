"""The best way for several copies to share one range: what colocated baselines are made of.

Copies that share all their GPUs run one after another, so the seconds to minimise are a sum, and
memory couples the copies: every call must fit beside the residents of all. For a fixed budget of
transient bytes the copies are a knapsack, solved by merging Pareto fronts copy by copy; the
budgets tried are those at which some call can use another setting (at most BUDGETS of them).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from automap.planner.search.model.problem import Problem
from automap.planner.search.strategies.groups import FloatArray, Group, IntArray, Shared
from automap.planner.search.strategies.index import Index

BUDGETS = 1024
COARSE = 12
"""Every COARSE-th budget is tried first; what it finds bounds the work at the others."""
MOST_STATES = 2048
"""Combinations kept per copy when host memory binds too; two kinds of bytes have large fronts."""


def fastest_together(problem: Problem, copies: list[int], pool: int, count: int) -> Shared | None:
    """Least sum of seconds for `copies` on one range of `count` GPUs; None when they do not fit."""
    index = Index(problem)
    slot = index.number_of.get((pool, count))
    return None if slot is None else together(index, copies, slot)


def together(index: Index, copies: Sequence[int], slot: int) -> Shared | None:
    """Least sum of seconds for `copies` on one slot of `index`, which remembers the answer.

    None when they do not fit.
    """
    key = (tuple(copies), slot)
    if key not in index.shared:
        index.shared[key] = _together(index, copies, slot)
    return index.shared[key]


def _together(index: Index, copies: Sequence[int], slot: int) -> Shared | None:
    groups = [index.group(copy, slot) for copy in copies]
    if not all(len(group) for group in groups):
        return None
    capacity, host = int(index.capacity[slot]), int(index.host_capacity[slot])
    alone = _each_its_own(index, groups, slot)
    if alone is not None:
        return alone
    groups = _that_leave_room(groups, capacity, host)
    if not all(len(group) for group in groups):
        return None
    budgets = _transient_budgets(groups, capacity)
    costs = [_costs(group, budgets) for group in groups]
    least = _least_seconds(groups, costs, capacity - budgets)
    order = np.argsort(least, kind="stable")
    best: tuple[float, list[int]] | None = None
    for at in [*order[::COARSE], *order]:
        limit = np.inf if best is None else best[0]
        if least[at] < limit:
            columns = [cost[:, at] for cost in costs]
            found = _knapsack(groups, columns, capacity - int(budgets[at]), host, limit)
            best = found if found is not None else best
    return None if best is None else _shared(groups, best[1], capacity)


@dataclass(frozen=True, slots=True)
class LeastBytes:
    """What copies need at least to share a range, per GPU."""

    gpu: int
    host: int
    gpu_within_host: int
    """GPU bytes when only layouts count that leave enough host memory for the others' least."""


def least_bytes_together(index: Index, copies: Sequence[int], slot: int) -> LeastBytes:
    """The least of each kind of bytes; they need not be reachable by the same layouts.

    Every copy has an option of the slot, and one whose host bytes leave room for the others' least.
    """
    groups = [index.group(copy, slot) for copy in copies]
    host = sum(int(group.host.min()) for group in groups)
    room = max(int(index.host_capacity[slot]) - host, 0)
    within = [group.take(group.host <= int(group.host.min()) + room) for group in groups]
    return LeastBytes(_least_gpu_bytes(groups), host, _least_gpu_bytes(within))


def _least_gpu_bytes(groups: list[Group]) -> int:
    transients = _all_transients(groups)
    far = np.iinfo(np.int64).max // (len(groups) + 2)
    total = transients.copy()
    for group in groups:
        runs = group.needs()[:, None] <= transients[None, :]  # [options, budgets]
        total += np.where(runs, group.resident[:, None], far).min(axis=0)
    return int(total.min())


def _each_its_own(index: Index, groups: list[Group], slot: int) -> Shared | None:
    """Every copy as if it were alone, where memory allows: nothing is faster then."""
    capacity = int(index.capacity[slot])
    picks = []
    for group in groups:
        alone = index.alone[group.copy]
        if not np.isfinite(alone.seconds[slot]).all():
            return None
        first = int(np.searchsorted(index.home(group.copy).slot, slot))
        picks.append(int(alone.option[slot]) - first)
    held = sum(int(g.resident[pick]) for g, pick in zip(groups, picks, strict=True))
    if sum(int(g.host[pick]) for g, pick in zip(groups, picks, strict=True)) > int(
        index.host_capacity[slot]
    ):
        return None
    wanted = sum(float(index.alone[group.copy].seconds[slot].sum()) for group in groups)
    shared = _shared(groups, picks, capacity) if _all_run(groups, picks, capacity - held) else None
    return shared if shared is not None and shared.seconds <= wanted * (1 + 1e-12) else None


def _all_run(groups: list[Group], picks: list[int], free: int) -> bool:
    return all(
        int(group.between(pick, pick + 1).needs()[0]) <= free
        for group, pick in zip(groups, picks, strict=True)
    )


def _that_leave_room(groups: list[Group], capacity: int, host: int) -> list[Group]:
    """The groups without options that leave too little memory for the least of the others."""
    while all(len(group) for group in groups):
        before = sum(len(group) for group in groups)
        needs = max(int(group.needs().min()) for group in groups)
        room = capacity - sum(int(group.resident.min()) for group in groups)
        host_room = host - sum(int(group.host.min()) for group in groups)
        groups = [
            group.take(
                (
                    group.resident + np.maximum(group.needs(), needs)
                    <= room + int(group.resident.min())
                )
                & (group.host <= host_room + int(group.host.min()))
            )
            for group in groups
        ]
        if sum(len(group) for group in groups) == before:
            break
    return groups


def _all_transients(groups: list[Group]) -> IntArray:
    columns = [settings.transient for group in groups for settings in group.settings]
    return np.unique(np.concatenate(columns)) if columns else np.zeros(1, dtype=np.int64)


def _transient_budgets(groups: list[Group], capacity: int) -> IntArray:
    """Transient bytes at which some call gains a setting, thinned out to BUDGETS."""
    values = _all_transients(groups)
    held = sum(int(group.resident.min()) for group in groups)
    least = max(int(group.needs().min()) for group in groups)
    values = values[(values <= capacity - held) & (values >= least)]
    if len(values) <= BUDGETS:
        return values
    return values[np.linspace(0, len(values) - 1, BUDGETS).round().astype(np.int64)]


def _costs(group: Group, budgets: IntArray) -> FloatArray:
    """[options, budgets] sum of the calls' seconds, each with its fastest setting in budget."""
    total = np.zeros((len(group), len(budgets)))
    for settings in group.settings:
        seconds = np.full((len(group), len(budgets) + 1), np.inf)
        first = np.searchsorted(budgets, settings.transient)  # the least budget with room for it
        np.minimum.at(seconds, (settings.option, first), settings.seconds)
        total += np.minimum.accumulate(seconds, axis=1)[:, :-1]
    return total


def _least_seconds(groups: list[Group], costs: list[FloatArray], free: IntArray) -> FloatArray:
    """[budgets] lower bound: each copy's fastest option that leaves room for the others."""
    far = np.iinfo(np.int64).max // (len(groups) + 2)
    held = [
        np.where(np.isfinite(cost), group.resident[:, None], far).min(axis=0)
        for group, cost in zip(groups, costs, strict=True)
    ]
    total = np.zeros(len(free))
    for group, cost, own in zip(groups, costs, held, strict=True):
        room = free - np.sum(held, axis=0) + own
        total += np.where(group.resident[:, None] <= room, cost, np.inf).min(axis=0)
    return total


def _knapsack(
    groups: list[Group], costs: list[FloatArray], resident: int, host: int, limit: float
) -> tuple[float, list[int]] | None:
    """(seconds, option position per member) below `limit`, residents inside their budget."""
    host_binds = sum(int(group.host.max()) for group in groups) > host
    bytes_, hosts = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    seconds = np.zeros(1)
    trail: list[tuple[IntArray, IntArray]] = []
    later = sum(float(cost.min()) for cost in costs)
    later_bytes = sum(int(group.resident.min()) for group in groups)
    for group, cost in zip(groups, costs, strict=True):
        later -= float(cost.min())
        later_bytes -= int(group.resident.min())
        own = np.flatnonzero(np.isfinite(cost))
        own = own[_front(cost[own], group.resident[own], group.host[own], host_binds=host_binds)]
        new_bytes = (bytes_[:, None] + group.resident[own][None, :]).reshape(-1)
        new_hosts = (hosts[:, None] + group.host[own][None, :]).reshape(-1)
        new_seconds = (seconds[:, None] + cost[own][None, :]).reshape(-1)
        fits = (new_bytes + later_bytes <= resident) & (new_hosts <= host)
        keep = np.flatnonzero(fits & (new_seconds + later < limit))
        if len(keep) == 0:
            return None
        keep = keep[
            _front(new_seconds[keep], new_bytes[keep], new_hosts[keep], host_binds=host_binds)
        ]
        trail.append((keep // len(own), own[keep % len(own)]))
        bytes_, hosts, seconds = new_bytes[keep], new_hosts[keep], new_seconds[keep]
    picks, at = [], 0
    for previous, option in reversed(trail):
        picks.append(int(option[at]))
        at = int(previous[at])
    return float(seconds[0]), picks[::-1]


def _front(seconds: FloatArray, bytes_: IntArray, hosts: IntArray, *, host_binds: bool) -> IntArray:
    """Entries that no other beats in seconds and bytes (and host bytes), fastest first."""
    order = np.lexsort((hosts, bytes_, seconds))
    if not host_binds:
        least = np.minimum.accumulate(bytes_[order])
        front: IntArray = order[np.concatenate([[True], bytes_[order][1:] < least[:-1]])]
        return front
    # Fastest first, so an entry stays unless a kept one has no more of both kinds of bytes. Of the
    # kept ones only the stairs matter: more bytes, fewer host bytes.
    kept: list[int] = []
    stair_bytes: list[int] = []
    stair_hosts: list[int] = []
    for entry, held, host in zip(
        order.tolist(), bytes_[order].tolist(), hosts[order].tolist(), strict=True
    ):
        at = bisect_right(stair_bytes, held)
        if at and stair_hosts[at - 1] <= host:
            continue
        kept.append(entry)
        first = bisect_left(stair_bytes, held)
        last = first
        while last < len(stair_hosts) and stair_hosts[last] >= host:
            last += 1
        stair_bytes[first:last] = [held]
        stair_hosts[first:last] = [host]
        if len(kept) == MOST_STATES:
            break
    return np.array(kept, dtype=np.int64)


def _shared(groups: list[Group], picks: list[int], capacity: int) -> Shared:
    """The copies with the given layouts, each call with its fastest setting that fits beside."""
    held = sum(int(g.resident[pick]) for g, pick in zip(groups, picks, strict=True))
    copies, calls, total = {}, {}, 0.0
    for group, pick in zip(groups, picks, strict=True):
        copies[group.copy] = int(group.number[pick])
        for settings in group.between(pick, pick + 1).settings:
            at = int(np.argmax(settings.transient <= capacity - held))
            calls[settings.call] = int(settings.number[at])
            total += float(settings.seconds[at])
    return Shared(copies, calls, total)
