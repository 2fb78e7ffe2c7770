"""A few layouts of every size, from the fastest to the one that takes the least memory.

Memory decides what fits together, but hundreds of layouts of one size differ by little. What a
large search needs of them is one for every step of memory that it might have to save.
"""

import numpy as np

from automap.planner.layout import FloatArray, IntArray
from automap.planner.search.candidates.tables import BoolArray, CallTable
from automap.planner.search.decomposition.master import fastest_rows
from automap.planner.search.space.rows import Rows
from automap.planner.search.space.search_space import SearchSpace

STEP_BYTES = 4 * 10**9
"""Per GPU: what a slower layout, or setting, must take less."""
HELD, PEAK = 0.25, 0.65
"""Shares of a GPU that a copy may hold, and may take while a call runs on it, to leave room."""


def sampled_layouts(space: SearchSpace, rows: Rows) -> Rows:
    """The fastest row of every size, and slower ones that each save another step of memory."""
    tables = space.tables
    copies = [_layouts(space, rows, copy) for copy in range(len(tables.copies))]
    calls = [
        _settings(table, mask & copies[table.copy][table.copy_row])
        for table, mask in zip(tables.calls, rows.calls, strict=True)
    ]
    return Rows(copies, calls)


def rows_with_headroom(space: SearchSpace, rows: Rows) -> Rows:
    """The members of `rows` that leave other copies room, for searches that do not count memory.

    A copy keeps all its rows where a call on it would have none left.
    """
    tables = space.tables
    capacity = np.array([pool.capacity_bytes for pool in space.problem.pools], dtype=float)
    copies = [
        mask & (copy.resident_bytes <= HELD * capacity[copy.pool])
        for copy, mask in zip(tables.copies, rows.copies, strict=True)
    ]
    calls = []
    for table, mask in zip(tables.calls, rows.calls, strict=True):
        copy, layout = tables.copies[table.copy], table.copy_row
        peak = copy.resident_bytes[layout] + table.transient_bytes
        with_headroom = peak <= PEAK * capacity[copy.pool[layout]]
        calls.append(mask & with_headroom & copies[table.copy][layout])
    bare = {
        table.copy
        for table, mask, all_ in zip(tables.calls, calls, rows.calls, strict=True)
        if all_.any() and not mask.any()
    }
    return Rows(
        [rows.copies[c] if c in bare else mask for c, mask in enumerate(copies)],
        [
            all_ if table.copy in bare else mask
            for table, mask, all_ in zip(tables.calls, calls, rows.calls, strict=True)
        ],
    )


def _layouts(space: SearchSpace, rows: Rows, index: int) -> BoolArray:
    copy, here = space.tables.copies[index], np.flatnonzero(rows.copies[index])
    columns, peaks = [copy.sync_seconds], [np.zeros(len(copy))]
    for table, mask in zip(space.tables.calls, rows.calls, strict=True):
        if table.copy == index:
            columns.append(_least(table, mask, table.seconds, len(copy)))
            peaks.append(_least(table, mask, table.transient_bytes.astype(float), len(copy)))
    total = np.sum(columns, axis=0)
    kept = np.zeros(len(copy), dtype=bool)
    kept[fastest_rows(copy, here, np.stack(columns, axis=1))] = True
    resident = copy.resident_bytes.astype(float)
    for held in (resident, resident + np.max(peaks, axis=0)):
        kept[_steps(here, (copy.layouts.num_gpus, copy.pool), total, held)] = True
    return kept


def _least(table: CallTable, mask: BoolArray, values: FloatArray, num_rows: int) -> FloatArray:
    least = np.full(num_rows, np.inf)
    np.minimum.at(least, table.copy_row[mask], values[mask])
    return least


def _settings(table: CallTable, mask: BoolArray) -> BoolArray:
    """Per setting, whether it is the fastest on its layout or saves another step of memory."""
    kept = np.zeros(len(table), dtype=bool)
    held = table.transient_bytes.astype(float)
    kept[_steps(np.flatnonzero(mask), (table.copy_row,), table.seconds, held)] = True
    return kept


def _steps(
    rows: IntArray, groups: tuple[IntArray, ...], seconds: FloatArray, held: FloatArray
) -> list[int]:
    """Each group's fastest row, then every slower one that holds less by another STEP_BYTES."""
    order = rows[np.lexsort([values[rows] for values in (held, seconds, *groups)])]
    changes = np.zeros(len(order), dtype=bool)
    changes[:1] = True
    for values in groups:
        changes[1:] |= np.diff(values[order]) != 0
    kept, least = [], np.inf
    bytes_held = zip(order.tolist(), held[order].tolist(), changes.tolist(), strict=True)
    for row, here, new in bytes_held:
        if new or here < least - STEP_BYTES:
            kept.append(row)
            least = here
    return kept
