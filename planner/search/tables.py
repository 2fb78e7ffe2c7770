"""Priced candidates as columns, and the sound reductions that need only columns.

A copy table has one row per storage layout of a copy; a call table has one row per setting of a
call on a row of one copy. Rows are dropped, never changed, so row numbers stay those of the tables.
"""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from planner.cost.pricing import Engine
from planner.dataflow import Call
from planner.layout import FloatArray, IntArray, Layouts

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CopyTable:
    """Every candidate layout of one copy, over all pools."""

    id: str
    role: str
    shadow_of: int | None
    pool: IntArray
    layouts: Layouts
    resident_bytes: IntArray
    host_bytes: IntArray
    sync_seconds: FloatArray

    def __len__(self) -> int:
        return len(self.pool)

    def take(self, rows: IntArray) -> "CopyTable":
        """The given rows."""
        return CopyTable(
            id=self.id,
            role=self.role,
            shadow_of=self.shadow_of,
            pool=self.pool[rows],
            layouts=self.layouts.take(rows),
            resident_bytes=self.resident_bytes[rows],
            host_bytes=self.host_bytes[rows],
            sync_seconds=self.sync_seconds[rows],
        )


@dataclass(frozen=True, slots=True)
class CallTable:
    """Every candidate setting of one call on one copy."""

    call: int
    copy: int
    copy_row: IntArray
    seconds: FloatArray
    transient_bytes: IntArray
    micro_batch_size: IntArray
    """0 where it does not apply."""
    recompute: IntArray
    kv_cache_bytes: IntArray
    engine: Engine
    """Generation layouts; the copy's own sizes for other calls."""

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, rows: IntArray | BoolArray) -> "CallTable":
        """The given rows."""
        numbers = np.arange(len(self), dtype=np.int64)[rows]
        columns = {name: getattr(self, name)[numbers] for name in PLAIN_COLUMNS}
        engine = self.engine.take(numbers)
        return CallTable(call=self.call, copy=self.copy, engine=engine, **columns)


PLAIN_COLUMNS = tuple(
    field.name for field in fields(CallTable) if field.name not in ("call", "copy", "engine")
)


@dataclass(frozen=True, slots=True)
class Tables:
    """All candidates of a job: calls may have one table per copy that can serve them."""

    copies: list[CopyTable]
    calls: list[CallTable]
    dataflow_calls: tuple[Call, ...]
    num_priced: int


def joined_layouts(parts: list[Layouts]) -> Layouts:
    """Several column sets one below the other."""
    names = Layouts.__dataclass_fields__
    return Layouts(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def joined_calls(parts: list[CallTable]) -> CallTable:
    """Tables of one call on one copy, one below the other."""
    engine = Engine.joined([part.engine for part in parts])
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in PLAIN_COLUMNS
    }
    return CallTable(call=parts[0].call, copy=parts[0].copy, engine=engine, **columns)


def front(table: CallTable) -> CallTable:
    """Per copy row the settings that no other beats in seconds and bytes; of equals the first."""
    return table.take(front_rows(table.copy_row, table.seconds, table.transient_bytes))


def front_rows(owner: IntArray, seconds: FloatArray, transient_bytes: IntArray) -> IntArray:
    """Per owner the rows that no other one beats in seconds and bytes; of equals the first."""
    if len(owner) == 0:
        return np.zeros(0, dtype=np.int64)
    order = np.lexsort((transient_bytes, seconds, owner))
    row, transient = owner[order], transient_bytes[order]
    group = np.concatenate([[0], np.cumsum(row[1:] != row[:-1])])
    # Each group's bytes lie below those of the group before, so the running least starts anew.
    shifted = transient - group * (int(transient.max()) + 1)
    least = np.minimum.accumulate(shifted)
    keep = np.concatenate([[True], shifted[1:] < least[:-1]])
    return np.sort(order[keep])
