"""Options that stay columns until one is looked at: most of a large table's never are.

They read like tuples of `problem`'s options; what scans them all takes the columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from automap.planner.layout import FloatArray, IntArray
from automap.planner.search.model.problem import CallOption, CopyOption, Tail


@dataclass(frozen=True, eq=False)
class CopyOptions(Sequence[CopyOption]):
    """Options of a copy, one per entry of the columns."""

    pool: IntArray
    num_gpus: IntArray
    resident_bytes: IntArray
    host_bytes: IntArray
    sync_seconds: FloatArray
    row: IntArray

    def __len__(self) -> int:
        return len(self.row)

    @overload
    def __getitem__(self, index: int) -> CopyOption: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CopyOption]: ...
    def __getitem__(self, index: int | slice) -> CopyOption | Sequence[CopyOption]:
        if isinstance(index, slice):
            return self._every[index]
        return self._made(np.array([index]))[0]

    def __iter__(self) -> Iterator[CopyOption]:
        return iter(self._every)

    @cached_property
    def _every(self) -> tuple[CopyOption, ...]:
        return self._made(slice(None))

    def _made(self, numbers: IntArray | slice) -> tuple[CopyOption, ...]:
        columns = (self.pool, self.num_gpus, self.resident_bytes, self.host_bytes)
        lists = [column[numbers].tolist() for column in (*columns, self.sync_seconds, self.row)]
        return tuple(map(CopyOption, *lists))


@dataclass(frozen=True, slots=True)
class CallPart:
    """Options of a call on one copy."""

    copy: int
    copy_option: IntArray
    seconds: FloatArray
    transient_bytes: IntArray
    row: IntArray
    chunk_ready_seconds: FloatArray
    """[option, chunk] seconds until each chunk but the last is out; else no columns."""
    tail_gpus: IntArray | None
    """0: without a tail; None: no option has one."""
    main_phase_seconds: FloatArray

    def __len__(self) -> int:
        return len(self.row)

    def made(self, numbers: IntArray | slice) -> list[CallOption]:
        """Some of the options."""
        columns = (self.copy_option, self.seconds, self.transient_bytes, self.row)
        lists = [column[numbers].tolist() for column in columns]
        chunks = map(tuple, self.chunk_ready_seconds[numbers].tolist())
        if self.tail_gpus is None:
            return [CallOption(self.copy, *each) for each in zip(*lists, chunks, strict=True)]
        tails = [
            Tail(count, main_phase) if count else None
            for count, main_phase in zip(
                self.tail_gpus[numbers].tolist(),
                self.main_phase_seconds[numbers].tolist(),
                strict=True,
            )
        ]
        return [CallOption(self.copy, *each) for each in zip(*lists, chunks, tails, strict=True)]


@dataclass(frozen=True, eq=False)
class CallOptions(Sequence[CallOption]):
    """Options of a call, copy after copy."""

    parts: tuple[CallPart, ...]

    def __len__(self) -> int:
        return self._ends[-1]

    @overload
    def __getitem__(self, index: int) -> CallOption: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CallOption]: ...
    def __getitem__(self, index: int | slice) -> CallOption | Sequence[CallOption]:
        if isinstance(index, slice):
            return self._every[index]
        number = range(len(self))[index]
        for part, end in zip(self.parts, self._ends[1:], strict=True):
            if number < end:
                return part.made(np.array([number - end + len(part)]))[0]
        raise IndexError(index)

    def __iter__(self) -> Iterator[CallOption]:
        return iter(self._every)

    @cached_property
    def _ends(self) -> list[int]:
        return [0, *np.cumsum([len(part) for part in self.parts], dtype=np.int64).tolist()]

    @cached_property
    def _every(self) -> tuple[CallOption, ...]:
        return tuple(option for part in self.parts for option in part.made(slice(None)))


@dataclass(frozen=True, slots=True)
class CallColumns:
    """What there is of every option of a call."""

    copy: IntArray
    copy_option: IntArray
    seconds: FloatArray
    transient_bytes: IntArray


def copy_columns(options: Sequence[CopyOption]) -> CopyOptions:
    """Any options of a copy as columns."""
    if isinstance(options, CopyOptions):
        return options
    return CopyOptions(*(_column(options, name) for name in CopyOptions.__dataclass_fields__))


def call_columns(options: Sequence[CallOption]) -> CallColumns:
    """Any options of a call as columns."""
    names = CallColumns.__dataclass_fields__
    if not isinstance(options, CallOptions) or not options.parts:
        return CallColumns(*(_column(options, name) for name in names))
    parts = options.parts
    copies = np.repeat([part.copy for part in parts], [len(part) for part in parts])
    rest = (np.concatenate([getattr(part, name) for part in parts]) for name in [*names][1:])
    return CallColumns(copies, *rest)


def _column(options: Sequence[Any], name: str) -> Any:
    kind = np.float64 if name.endswith("_seconds") or name == "seconds" else np.int64
    return np.array([getattr(option, name) for option in options], dtype=kind)


def copies_of(options: Sequence[CallOption]) -> set[int]:
    """The copies that any options of a call are on."""
    if isinstance(options, CallOptions):
        return {part.copy for part in options.parts if len(part)}
    return {option.copy for option in options}
