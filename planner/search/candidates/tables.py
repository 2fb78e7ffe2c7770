"""Priced candidates as columns, and the sound reductions that need only columns.

A copy table has one row per storage layout of a copy; a call table has one row per setting of a
call on a row of one copy. Rows are dropped, never changed, so row numbers stay those of the tables.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from automap.planner.cost.generation.streaming import SHARE_STEPS, TAILS, ready_seconds
from automap.planner.cost.pricing import GenerationLayouts
from automap.planner.cost.rows import distinct_rows
from automap.planner.dataflow.graph import Call
from automap.planner.layout import FloatArray, IntArray, Layouts

BoolArray = npt.NDArray[np.bool_]

FREE = -1
"""In place of what a process has in common: goes with everything."""
MOST_PADDING = 4
"""How many times its rows a table may grow when groups of unequal lengths are padded."""


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
    """What the copy's side of a weight sync takes, wherever the placement lies."""
    node_sync_seconds: FloatArray | None = None
    """What that side takes in a placement that lies in one node; None: just as long."""
    process: IntArray | None = None
    """[row, column] what all models in one process have in common: its engine, then sizes; FREE
    where a row goes with every value. None: the model shares no process."""

    def __len__(self) -> int:
        return len(self.pool)

    def any_process(self) -> IntArray | None:
        """One row of `process` that goes with every other, where the model shares a process."""
        return _any_process(self.process)

    def in_one_node(self) -> "CopyTable":
        """The table as it is priced in a placement that lies in one node."""
        if self.node_sync_seconds is None:
            return self
        return replace(self, sync_seconds=self.node_sync_seconds, node_sync_seconds=None)

    def least_syncs(self) -> "CopyTable":
        """The table with the lesser of its two weight-sync prices, a lower bound everywhere."""
        if self.node_sync_seconds is None:
            return self
        least = np.minimum(self.sync_seconds, self.node_sync_seconds)
        return replace(self, sync_seconds=least, node_sync_seconds=None)

    def take(self, rows: IntArray) -> "CopyTable":
        """The given rows as a table of their own."""
        return CopyTable(
            id=self.id,
            role=self.role,
            shadow_of=self.shadow_of,
            pool=self.pool[rows],
            layouts=self.layouts.take(rows),
            resident_bytes=self.resident_bytes[rows],
            host_bytes=self.host_bytes[rows],
            sync_seconds=self.sync_seconds[rows],
            node_sync_seconds=(
                None if self.node_sync_seconds is None else self.node_sync_seconds[rows]
            ),
            process=None if self.process is None else self.process[rows],
        )

    def joined(self, more: "CopyTable") -> "CopyTable":
        """This table with the rows of `more` below, so that its own keep their numbers."""
        one, other = self.node_sync_seconds, more.node_sync_seconds
        return replace(
            self,
            pool=np.append(self.pool, more.pool),
            layouts=joined_layouts([self.layouts, more.layouts]),
            resident_bytes=np.append(self.resident_bytes, more.resident_bytes),
            host_bytes=np.append(self.host_bytes, more.host_bytes),
            sync_seconds=np.append(self.sync_seconds, more.sync_seconds),
            node_sync_seconds=None if one is None or other is None else np.append(one, other),
            process=(
                None
                if self.process is None or more.process is None
                else np.concatenate([self.process, more.process])
            ),
        )


def _any_process(process: IntArray | None) -> IntArray | None:
    return None if process is None else np.full((1, process.shape[1]), FREE)


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
    engine: GenerationLayouts
    """Generation layouts; the copy's own sizes for other calls."""
    chunk_ready_shares: FloatArray | None = None
    """[row, chunk]: where a streamed edge leads on, the part of the seconds after which each chunk
    but the last is out."""
    tail: IntArray | None = None
    """[row] which of TAILS the generation has, counted from 1; 0: none. None: none is wanted."""
    main_phase_shares: FloatArray | None = None
    """[row] the part of the seconds after which the tail begins, beside `tail`."""
    process: IntArray | None = None
    """[row, column] what all generations of its model have in common: the engine's sizes, then its
    cache. None: they may differ."""

    def __len__(self) -> int:
        return len(self.seconds)

    def any_process(self) -> IntArray | None:
        """One row of `process` that goes with every other, where the call has the column."""
        return _any_process(self.process)

    def joined(self, more: "CallTable") -> "CallTable":
        """This table with the rows of `more` below, so that its own keep their numbers."""
        return joined_calls([self, more])

    def tails(self, num_gpus: IntArray) -> tuple[IntArray, FloatArray]:
        """(GPUs that go on, seconds until the others are free) on ranges of so many GPUs."""
        if self.tail is None or self.main_phase_shares is None:
            return num_gpus, self.seconds
        ratios = np.array([1, *(tail.ratio for tail in TAILS)], dtype=np.int64)
        main_phase = ready_seconds(self.main_phase_shares[:, None], self.seconds)[:, 0]
        return num_gpus // ratios[self.tail], np.where(self.tail > 0, main_phase, self.seconds)

    def kinds(self) -> IntArray | None:
        """Per row a number; rows with the same one compare by seconds and bytes alone."""
        return kinds_of(self.chunk_ready_shares, self.tail, self.main_phase_shares)

    def chunk_ready_seconds(self) -> FloatArray:
        """[row, chunk]: seconds until each chunk but the last is out; else no columns."""
        if self.chunk_ready_shares is None:
            return np.zeros((len(self), 0))
        return ready_seconds(self.chunk_ready_shares, self.seconds)

    def take(self, rows: IntArray | BoolArray) -> "CallTable":
        """The given rows."""
        numbers = np.arange(len(self), dtype=np.int64)[rows]
        columns = {name: getattr(self, name)[numbers] for name in PLAIN_COLUMNS}
        engine = self.engine.take(numbers)
        for name in OPTIONAL_COLUMNS:
            values = getattr(self, name)
            columns[name] = None if values is None else values[numbers]
        return CallTable(call=self.call, copy=self.copy, engine=engine, **columns)


OPTIONAL_COLUMNS = ("chunk_ready_shares", "tail", "main_phase_shares", "process")
PLAIN_COLUMNS = tuple(
    field.name
    for field in fields(CallTable)
    if field.name not in ("call", "copy", "engine", *OPTIONAL_COLUMNS)
)


@dataclass(frozen=True, slots=True)
class Tables:
    """All candidates of a job: calls may have one table per copy that can serve them."""

    copies: list[CopyTable]
    calls: list[CallTable]
    dataflow_calls: tuple[Call, ...]
    num_priced: int

    @property
    def has_processes(self) -> bool:
        """True where models of one process, or generations of one engine, have to agree."""
        processes = [copy.process for copy in self.copies] + [call.process for call in self.calls]
        return any(process is not None for process in processes)

    @property
    def differ_in_one_node(self) -> bool:
        """True where a placement that lies in one node has shorter weight syncs than others."""
        return any(copy.node_sync_seconds is not None for copy in self.copies)

    def of(self, call: int, copy: int) -> CallTable:
        """The settings of a call on a copy that can serve it."""
        return next(each for each in self.calls if (each.call, each.copy) == (call, copy))

    def trains(self, copy: int) -> bool:
        """Whether some call trains on a copy."""
        return any(
            each.copy == copy and self.dataflow_calls[each.call].kind == "train"
            for each in self.calls
        )

    def in_one_node(self) -> "Tables":
        """All tables as they are priced in a placement that lies in one node."""
        return replace(self, copies=[copy.in_one_node() for copy in self.copies])

    def least_syncs(self) -> "Tables":
        """These tables with the least sync seconds of any placement, in one node or several."""
        return replace(self, copies=[copy.least_syncs() for copy in self.copies])


def kinds_of(*columns: FloatArray | IntArray | None) -> IntArray | None:
    """Per row the number of its combination of optional columns; None where there are none."""
    given = [column for column in columns if column is not None]
    if not given:
        return None
    # Shares are whole multiples of a step, so all columns count in steps.
    steps = np.rint(SHARE_STEPS * np.column_stack(given)).astype(np.int64)
    return distinct_rows(*steps.T)[1]


def settings_of_rows(base_of: IntArray, base_rows: IntArray) -> tuple[IntArray, IntArray]:
    """(row, setting) for every row with every setting of its base; `base_rows` must not fall."""
    first = np.searchsorted(base_rows, base_of, side="left")
    count = np.searchsorted(base_rows, base_of, side="right") - first
    owner = np.repeat(np.arange(len(base_of), dtype=np.int64), count)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    return owner, np.asarray(np.repeat(first, count) + within, dtype=np.int64)


def joined_layouts(parts: list[Layouts]) -> Layouts:
    """Several column sets one below the other."""
    names = Layouts.__dataclass_fields__
    return Layouts(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def joined_calls(parts: list[CallTable]) -> CallTable:
    """Tables of one call on one copy, one below the other."""
    # Without rows a table has no columns of streams and tails either.
    parts = [part for part in parts if len(part)] or parts[:1]
    engine = GenerationLayouts.joined([part.engine for part in parts])
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in PLAIN_COLUMNS
    }
    for name in OPTIONAL_COLUMNS:
        given = [getattr(part, name) for part in parts]
        columns[name] = None if given[0] is None else np.concatenate(given)
    return CallTable(call=parts[0].call, copy=parts[0].copy, engine=engine, **columns)


def front(table: CallTable) -> CallTable:
    """Per copy row the settings that no other beats in seconds and bytes; of equals the first.

    Where chunks are streamed or tails wanted, only settings are compared whose chunks are out and
    whose main phase has ended after equal shares: the one that ends first then is first in all.
    """
    return table.take(
        front_rows(table.copy_row, table.seconds, table.transient_bytes, table.kinds())
    )


def front_rows(
    owner: IntArray,
    seconds: FloatArray,
    transient_bytes: IntArray,
    kinds: IntArray | None = None,
) -> IntArray:
    """Per owner the rows that no other of their kind beats in seconds and bytes.

    Of equals the first.
    """
    if len(owner) == 0:
        return np.zeros(0, dtype=np.int64)
    if kinds is not None:
        owner = owner * (int(kinds.max()) + 1) + kinds
    changes = np.diff(owner)
    first = np.concatenate([[0], np.flatnonzero(changes) + 1])
    lengths = np.diff(first, append=len(owner))
    if (changes < 0).any() or len(first) * int(lengths.max()) > MOST_PADDING * len(owner):
        return _front_of_sorted(owner, seconds, transient_bytes)
    return _front_of_groups(first, lengths, seconds, transient_bytes)


def _front_of_sorted(owner: IntArray, seconds: FloatArray, transient_bytes: IntArray) -> IntArray:
    order = np.lexsort((transient_bytes, seconds, owner))
    row, transient = owner[order], transient_bytes[order]
    group = np.concatenate([[0], np.cumsum(row[1:] != row[:-1])])
    # Each group's bytes lie below those of the group before, so the running least starts anew.
    shifted = transient - group * (int(transient.max()) + 1)
    least = np.minimum.accumulate(shifted)
    keep = np.concatenate([[True], shifted[1:] < least[:-1]])
    return np.sort(order[keep])


def _front_of_groups(
    first: IntArray, lengths: IntArray, seconds: FloatArray, transient_bytes: IntArray
) -> IntArray:
    """The rows of each group that no other of the group beats in both seconds and bytes, ascending.

    Group g has the `lengths[g]` rows from row `first[g]` on. All groups are sorted at once as the
    rows of a matrix: many short sorts take less than a long one.
    """
    group = np.repeat(np.arange(len(first)), lengths)
    place = np.arange(len(seconds)) - first[group]
    shape = len(first), int(lengths.max())
    all_seconds = np.full(shape, np.inf)
    all_bytes = np.full(shape, np.iinfo(np.int64).max)
    all_seconds[group, place], all_bytes[group, place] = seconds, transient_bytes
    order = np.argsort(all_bytes, axis=1, kind="stable")
    by_seconds = np.argsort(np.take_along_axis(all_seconds, order, 1), axis=1, kind="stable")
    order = np.take_along_axis(order, by_seconds, 1)
    transient = np.take_along_axis(all_bytes, order, 1)
    keep = np.ones(shape, dtype=np.bool_)
    keep[:, 1:] = transient[:, 1:] < np.minimum.accumulate(transient, axis=1)[:, :-1]
    rows = first[:, None] + order
    return np.sort(rows[keep])
