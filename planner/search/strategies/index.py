"""A problem's options as columns, sorted once, so that strategies need not scan them again.

Only homes and the options of calls on homes take part. Bytes are whole MiB, rounded up (capacities
down), as search and check count them.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from automap.planner.search.model.options import (
    CallColumns,
    CopyOptions,
    call_columns,
    copy_columns,
)
from automap.planner.search.model.problem import Problem
from automap.planner.search.strategies.groups import (
    Alone,
    FloatArray,
    Group,
    IntArray,
    Settings,
    Shared,
    Slot,
    fastest,
)
from automap.planner.search.strategies.stages import NUM_STAGES, stages_of
from automap.planner.units import MIB


class Index:
    """Columns of a problem's homes; build once, share between strategies."""

    def __init__(self, problem: Problem, *, stages: Sequence[int] | None = None) -> None:
        self.problem = problem
        self.stages = stages_of(problem) if stages is None else list(stages)
        self.homes = [i for i, copy in enumerate(problem.copies) if copy.shadow_of is None]
        owners = [call_columns(choice.options) for choice in problem.calls]
        self.calls_of = {
            home: [call for call, columns in enumerate(owners) if (columns.copy == home).any()]
            for home in self.homes
        }
        homes = [self._options(home) for home in self.homes]
        pairs = np.concatenate([np.stack([each.pool, each.num_gpus], axis=1) for each in homes])
        self.slots = [Slot(*pair) for pair in np.unique(pairs, axis=0).tolist()]
        self.number_of = {(s.pool, s.count): number for number, s in enumerate(self.slots)}
        self.pool_of = np.array([slot.pool for slot in self.slots], dtype=np.int64)
        self.count_of = np.array([slot.count for slot in self.slots], dtype=np.int64)
        self.capacity = _floor_mib([problem.pools[slot.pool].capacity_bytes for slot in self.slots])
        self.host_capacity = _floor_mib(
            [problem.pools[slot.pool].host_bytes for slot in self.slots]
        )
        self._home = {home: self._group_of(home, owners) for home in self.homes}
        self._edges = {
            home: np.searchsorted(group.slot, np.arange(len(self.slots) + 1))
            for home, group in self._home.items()
        }
        self._groups: dict[tuple[int, int], Group] = {}
        self.shared: dict[tuple[tuple[int, ...], int], Shared | None] = {}
        """Sets that `together` chose for already, by copies and slot."""

    def _options(self, home: int) -> CopyOptions:
        return copy_columns(self.problem.copies[home].options)

    def name(self, copies: Sequence[int]) -> str:
        """The ids of copies, for messages."""
        return ", ".join(self.problem.copies[copy].id for copy in copies)

    def home(self, home: int) -> Group:
        """All options of a home that have a setting for every call of it, sorted by slot."""
        return self._home[home]

    def group(self, home: int, slot: int) -> Group:
        """A home's options of one slot."""
        if (home, slot) not in self._groups:
            first, last = self._edges[home][slot : slot + 2]
            self._groups[home, slot] = self._home[home].between(int(first), int(last))
        return self._groups[home, slot]

    @cached_property
    def unserved(self) -> list[int]:
        """Calls that need GPUs and that no home can run."""
        served = {call for calls in self.calls_of.values() for call in calls}
        return [
            call
            for call, choice in enumerate(self.problem.calls)
            if choice.options and call not in served
        ]

    @cached_property
    def function_seconds(self) -> FloatArray:
        """[stages] longest call of each stage that takes no GPU: it runs beside all the others."""
        seconds = np.zeros(NUM_STAGES)
        for call, choice in enumerate(self.problem.calls):
            if not choice.options:
                stage = self.stages[call]
                seconds[stage] = max(seconds[stage], choice.fixed_seconds)
        return seconds

    @cached_property
    def alone(self) -> dict[int, Alone]:
        """HybridFlow's cache of auto_parallel: per home and slot the fastest strategy."""
        return {home: self._alone(home) for home in self.homes}

    def _group_of(self, home: int, owners: list[CallColumns]) -> Group:
        """The home's options sorted by slot, without those that lack a setting for a call."""
        options = self._options(home)
        most = int(self.count_of.max(initial=0)) + 1
        keys = self.pool_of * most + self.count_of
        slot = np.searchsorted(keys, options.pool * most + options.num_gpus)
        complete = np.ones(len(options), dtype=bool)
        for call in self.calls_of[home]:
            has = np.zeros(len(options), dtype=bool)
            has[owners[call].copy_option[owners[call].copy == home]] = True
            complete &= has
        number = np.argsort(slot, kind="stable")
        number = number[complete[number]]
        position = np.full(len(options), -1, dtype=np.int64)
        position[number] = np.arange(len(number))
        return Group(
            home,
            slot[number],
            number,
            _ceil_mib(options.resident_bytes)[number],
            _ceil_mib(options.host_bytes)[number],
            tuple(_settings(call, owners[call], home, position) for call in self.calls_of[home]),
        )

    def _alone(self, home: int) -> Alone:
        group = self._home[home]
        slots = len(self.slots)
        stage_seconds = np.zeros((len(group), NUM_STAGES))
        transient = group.needs() if len(group) else np.zeros(0, dtype=np.int64)
        free = self.capacity[group.slot] - group.resident
        for settings in group.settings:
            stage = self.stages[settings.call]
            stage_seconds[:, stage] += fastest(settings, free)
        stage_seconds[group.host > self.host_capacity[group.slot]] = np.inf
        order = np.lexsort((group.resident, stage_seconds.sum(axis=1), group.slot))
        present, first = np.unique(group.slot[order], return_index=True)
        option = np.zeros(slots, dtype=np.int64)
        option[present] = order[first]
        seconds = np.full((slots, NUM_STAGES), np.inf)
        seconds[present] = stage_seconds[option[present]]
        seconds[~np.isfinite(seconds).all(axis=1)] = np.inf
        return Alone(
            seconds,
            option,
            *(self._least(group, column) for column in (group.resident, transient, group.host)),
        )

    def _least(self, group: Group, column: IntArray) -> IntArray:
        """[slots] least value; where there is no option, one beyond every capacity."""
        most = int(max(self.capacity.max(), self.host_capacity.max())) + 1
        least = np.full(len(self.slots), most, dtype=np.int64)
        present, first = np.unique(group.slot, return_index=True)
        if len(present):
            least[present] = np.minimum.reduceat(column, first)
        return least


def _settings(call: int, columns: CallColumns, home: int, position: IntArray) -> Settings:
    """The settings on a home whose options have new positions (−1: left out)."""
    numbers = np.flatnonzero(columns.copy == home)
    at = position[columns.copy_option[numbers]]
    numbers, at = numbers[at >= 0], at[at >= 0]
    transient = _ceil_mib(columns.transient_bytes[numbers])
    order = np.lexsort((transient, columns.seconds[numbers], at))
    numbers, at = numbers[order], at[order]
    start = np.searchsorted(at, np.arange(int((position >= 0).sum()) + 1))
    return Settings(call, start, at, columns.seconds[numbers], transient[order], numbers)


def _ceil_mib(column: IntArray) -> IntArray:
    return -(-column // MIB) * MIB


def _floor_mib(values: list[int]) -> IntArray:
    column = np.array(values, dtype=np.int64)
    return column // MIB * MIB
