"""A problem's options as columns, sorted once, so that strategies need not scan them again.

Only homes and the options of calls on homes take part. Bytes are whole MiB, rounded up (capacities
down), as search and check count them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.baselines.stages import NUM_STAGES, stages_of
from planner.problem import CallChoice, CopyOption, Problem

MIB = 2**20
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Slot:
    """A size of a range in a pool."""

    pool: int
    count: int


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one call on one home, option by option, fastest first."""

    call: int
    start: IntArray
    """[options + 1] where each option's settings begin."""
    option: IntArray
    """[settings] position of the home's option."""
    seconds: FloatArray
    transient: IntArray
    number: IntArray
    """Index of the setting among the call's options."""

    def between(self, first: int, last: int) -> "Settings":
        """Those of the options first … last − 1, whose positions then begin at 0."""
        begin, end = int(self.start[first]), int(self.start[last])
        part = slice(begin, end)
        return Settings(
            self.call,
            self.start[first : last + 1] - begin,
            self.option[part] - first,
            self.seconds[part],
            self.transient[part],
            self.number[part],
        )

    def take(self, keep: BoolArray) -> "Settings":
        """Those of the options that stay, whose positions close up."""
        part = np.flatnonzero(keep[self.option])
        option = (np.cumsum(keep) - 1)[self.option[part]]
        start = np.searchsorted(option, np.arange(int(keep.sum()) + 1))
        columns = (self.seconds[part], self.transient[part], self.number[part])
        return Settings(self.call, start, option, *columns)


@dataclass(frozen=True, slots=True)
class Group:
    """The options of one home, of one slot or (in `Index.home`) of all, with their calls."""

    copy: int
    slot: IntArray
    number: IntArray
    """Index of each option among the copy's options."""
    resident: IntArray
    host: IntArray
    settings: tuple[Settings, ...]

    def __len__(self) -> int:
        return len(self.number)

    def between(self, first: int, last: int) -> "Group":
        """The options first … last − 1."""
        part = slice(first, last)
        return Group(
            self.copy,
            self.slot[part],
            self.number[part],
            self.resident[part],
            self.host[part],
            tuple(settings.between(first, last) for settings in self.settings),
        )

    def take(self, keep: BoolArray) -> "Group":
        """The options [options] that stay."""
        if keep.all():
            return self
        return Group(
            self.copy,
            self.slot[keep],
            self.number[keep],
            self.resident[keep],
            self.host[keep],
            tuple(settings.take(keep) for settings in self.settings),
        )

    def needs(self) -> IntArray:
        """[options] least transient bytes with which every call of an option can run."""
        needs = np.zeros(len(self), dtype=np.int64)
        for settings in self.settings:
            least = np.minimum.reduceat(settings.transient, settings.start[:-1])
            np.maximum(needs, least, out=needs)
        return needs


@dataclass(frozen=True, slots=True)
class _Columns:
    """A call's options, whatever copy they are on."""

    copy: IntArray
    copy_option: IntArray
    seconds: FloatArray
    transient: IntArray


@dataclass(frozen=True, slots=True)
class Alone:
    """The best strategy of one home per slot, as if it were alone there (auto_parallel)."""

    seconds: FloatArray
    """[slots, stages]; infinite where the home has no option that fits."""
    option: IntArray
    """[slots] position in the home's options; arbitrary where nothing fits."""
    resident: IntArray
    """[slots] least resident bytes of any option; beyond every capacity where there is none."""
    transient: IntArray
    """[slots] least transient bytes that let every call run."""
    host: IntArray
    """[slots] least host bytes."""


class Index:
    """Columns of a problem's homes; build once, share between strategies."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.stages = stages_of(problem)
        self.homes = [i for i, copy in enumerate(problem.copies) if copy.shadow_of is None]
        owners = [_columns(choice) for choice in problem.calls]
        self.calls_of = {
            home: [call for call, columns in enumerate(owners) if (columns.copy == home).any()]
            for home in self.homes
        }
        pairs = {(o.pool, o.num_gpus) for home in self.homes for o in self._options(home)}
        self.slots = [Slot(*pair) for pair in sorted(pairs)]
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

    def _options(self, home: int) -> tuple[CopyOption, ...]:
        return self.problem.copies[home].options

    def name(self, copies: list[int] | tuple[int, ...]) -> str:
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

    def _group_of(self, home: int, owners: list[_Columns]) -> Group:
        """The home's options sorted by slot, without those that lack a setting for a call."""
        options = self._options(home)
        slot = np.array([self.number_of[o.pool, o.num_gpus] for o in options], dtype=np.int64)
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
            _ceil_mib([o.resident_bytes for o in options])[number],
            _ceil_mib([o.host_bytes for o in options])[number],
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


def fastest(settings: Settings, free: IntArray) -> FloatArray:
    """[options] seconds of each option's fastest setting within `free` [options] bytes."""
    if len(free) == 0:
        return np.zeros(0)
    fits = settings.transient <= free[settings.option]
    seconds = np.where(fits, settings.seconds, np.inf)
    least: FloatArray = np.minimum.reduceat(seconds, settings.start[:-1])
    return least


def _columns(choice: CallChoice) -> _Columns:
    options = choice.options
    return _Columns(
        np.array([o.copy for o in options], dtype=np.int64),
        np.array([o.copy_option for o in options], dtype=np.int64),
        np.array([o.seconds for o in options], dtype=np.float64),
        _ceil_mib([o.transient_bytes for o in options]),
    )


def _settings(call: int, columns: _Columns, home: int, position: IntArray) -> Settings:
    """The settings on a home whose options have new positions (−1: left out)."""
    numbers = np.flatnonzero(columns.copy == home)
    at = position[columns.copy_option[numbers]]
    numbers, at = numbers[at >= 0], at[at >= 0]
    order = np.lexsort((columns.transient[numbers], columns.seconds[numbers], at))
    numbers, at = numbers[order], at[order]
    start = np.searchsorted(at, np.arange(int((position >= 0).sum()) + 1))
    return Settings(call, start, at, columns.seconds[numbers], columns.transient[numbers], numbers)


def _ceil_mib(values: list[int]) -> IntArray:
    column = np.array(values, dtype=np.int64)
    return -(-column // MIB) * MIB


def _floor_mib(values: list[int]) -> IntArray:
    column = np.array(values, dtype=np.int64)
    return column // MIB * MIB
