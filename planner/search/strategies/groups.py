"""Columns of options: settings of a call, layouts of a home, and what was chosen among them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
        """The settings of the options first … last − 1, whose positions then begin at 0."""
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
        """The settings of the options that `keep` [options] marks, numbered anew from 0."""
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
        """The options that `keep` [options] marks."""
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


@dataclass(frozen=True, slots=True)
class Shared:
    """Copies on one range: what each chose, and the sum of their calls' seconds."""

    copy_options: dict[int, int]
    call_options: dict[int, int]
    seconds: float


def fastest(settings: Settings, free: IntArray) -> FloatArray:
    """[options] seconds of each option's fastest setting within `free` [options] bytes."""
    if len(free) == 0:
        return np.zeros(0)
    fits = settings.transient <= free[settings.option]
    seconds = np.where(fits, settings.seconds, np.inf)
    least: FloatArray = np.minimum.reduceat(seconds, settings.start[:-1])
    return least
