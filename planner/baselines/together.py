"""The best way for several copies to share one range: what colocated baselines are made of.

Copies that share all their GPUs run one after another, so the seconds to minimise are a sum, and
memory couples the copies: every call must fit beside the residents of all. For a fixed budget of
resident bytes the copies are a knapsack, solved exactly by merging Pareto fronts copy by copy; the
budgets tried are those at which some call can use another setting (at most BUDGETS of them).
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.problem import CallOption, Problem

BUDGETS = 48
MIB = 2**20
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shared:
    """Copies on one range: what each chose, and the sum of their calls' seconds."""

    copy_options: dict[int, int]
    call_options: dict[int, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Member:
    """One copy's options of one pool and size, with the settings of its calls."""

    copy: int
    options: list[int]
    resident: FloatArray
    host: FloatArray
    settings: list[dict[int, list[tuple[float, int, int]]]]
    """Per option: call → (seconds, transient bytes, option of the call), fastest first."""


def fastest_together(problem: Problem, copies: list[int], pool: int, count: int) -> Shared | None:
    """Least sum of seconds for `copies` on one range of `count` GPUs; None when they do not fit."""
    members = [_member(problem, copy, pool, count) for copy in copies]
    if not all(member.options for member in members):
        return None
    capacity = problem.pools[pool].capacity_bytes // MIB * MIB
    best: tuple[float, list[int]] | None = None
    for transient in _transient_budgets(members, capacity):
        found = _knapsack(members, transient, capacity - transient, problem.pools[pool].host_bytes)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    if best is None:
        return None
    return _shared(members, best[1], capacity)


def _member(problem: Problem, copy: int, pool: int, count: int) -> _Member:
    options = [
        index
        for index, option in enumerate(problem.copies[copy].options)
        if option.pool == pool and option.num_gpus == count
    ]
    position = {option: i for i, option in enumerate(options)}
    settings: list[dict[int, list[tuple[float, int, int]]]] = [
        defaultdict(list) for _ in options
    ]
    needed: set[int] = set()
    for call, choice in enumerate(problem.calls):
        for index, setting in enumerate(choice.options):
            if setting.copy == copy:
                needed.add(call)
                if setting.copy_option in position:
                    settings[position[setting.copy_option]][call].append(_entry(setting, index))
    kept = [i for i in range(len(options)) if needed <= set(settings[i])]
    for i in kept:
        for entries in settings[i].values():
            entries.sort()
    chosen = [problem.copies[copy].options[options[i]] for i in kept]
    return _Member(
        copy,
        [options[i] for i in kept],
        np.array([-(-o.resident_bytes // MIB) * MIB for o in chosen], dtype=np.float64),
        np.array([-(-o.host_bytes // MIB) * MIB for o in chosen], dtype=np.float64),
        [settings[i] for i in kept],
    )


def _entry(setting: CallOption, index: int) -> tuple[float, int, int]:
    return setting.seconds, -(-setting.transient_bytes // MIB) * MIB, index


def _transient_budgets(members: list[_Member], capacity: int) -> list[int]:
    """Transient bytes at which some call gains a setting, thinned out to BUDGETS."""
    values = {
        transient
        for member in members
        for settings in member.settings
        for entries in settings.values()
        for _, transient, _ in entries
        if transient <= capacity
    }
    ordered = sorted(values)
    if len(ordered) <= BUDGETS:
        return ordered
    picks = np.linspace(0, len(ordered) - 1, BUDGETS).round().astype(int)
    return [ordered[pick] for pick in picks]


def _knapsack(
    members: list[_Member], transient: int, resident: int, host: int
) -> tuple[float, list[int]] | None:
    """(seconds, option position per member) with all residents inside their budget."""
    bytes_, hosts, seconds = np.zeros(1), np.zeros(1), np.zeros(1)
    trail: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    for member in members:
        costs = np.array([_cost(settings, transient) for settings in member.settings])
        new_bytes = (bytes_[:, None] + member.resident[None, :]).reshape(-1)
        new_hosts = (hosts[:, None] + member.host[None, :]).reshape(-1)
        new_seconds = (seconds[:, None] + costs[None, :]).reshape(-1)
        usable = (new_bytes <= resident) & (new_hosts <= host) & np.isfinite(new_seconds)
        keep = np.flatnonzero(usable)
        if len(keep) == 0:
            return None
        order = keep[np.lexsort((new_bytes[keep], new_seconds[keep]))]
        least = np.minimum.accumulate(new_bytes[order])
        order = order[np.concatenate([[True], new_bytes[order][1:] < least[:-1]])]
        trail.append((order // len(costs), order % len(costs)))
        bytes_, hosts, seconds = new_bytes[order], new_hosts[order], new_seconds[order]
    picks, at = [], 0
    for previous, option in reversed(trail):
        picks.append(int(option[at]))
        at = int(previous[at])
    return float(seconds[0]), picks[::-1]


def _cost(settings: dict[int, list[tuple[float, int, int]]], transient: int) -> float:
    total = 0.0
    for entries in settings.values():
        total += next((s for s, needed, _ in entries if needed <= transient), np.inf)
    return total


def _shared(members: list[_Member], picks: list[int], capacity: int) -> Shared:
    """With the layouts fixed, every call takes its fastest setting that fits beside them."""
    held = sum(float(m.resident[pick]) for m, pick in zip(members, picks, strict=True))
    copies, calls, total = {}, {}, 0.0
    for member, pick in zip(members, picks, strict=True):
        copies[member.copy] = member.options[pick]
        for call, entries in member.settings[pick].items():
            seconds, _, index = next(e for e in entries if held + e[1] <= capacity)
            calls[call] = index
            total += seconds
    return Shared(copies, calls, total)
