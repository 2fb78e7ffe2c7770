"""Layouts that another one of their copy, pool and size makes superfluous, found in columns.

The same argument as the second one of `model.pruning`, before rows become options: a row of
a copy goes for the sake of another that holds no more bytes anywhere, syncs no slower, and has for
every setting of every call one that is as fast and peaks no higher.

The coarse master problem (`decomposition.coarse`) is built with it; in the sub-problems it saves
0.4 of 1.3 s (PPO with four 70B models, 16,384 GPUs).
"""

from dataclasses import dataclass

import numpy as np

from automap.planner.layout import FloatArray, IntArray
from automap.planner.search.candidates.tables import BoolArray, CallTable
from automap.planner.search.decomposition.master import Size, Sizes, rows_of_sizes
from automap.planner.search.space.rows import Rows
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.units import MIB


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings of one call on the rows of a copy, sorted by row and peak.

    Where chunks are streamed or tails wanted, those of one kind: they compare by seconds and bytes.
    """

    row: IntArray
    seconds: FloatArray
    peak_mib: IntArray


class DominanceFilter:
    """The rows of one set of shadows without dominated ones, found for each size on demand.

    What is found for `rows` holds for every part of them that a limit on the period leaves: where
    a row stays within the limit, one that is at least as fast in everything does too.
    """

    def __init__(self, space: SearchSpace, rows: Rows) -> None:
        self.space, self.rows = space, rows
        self._kept: dict[tuple[int, Size], IntArray] = {}
        self._settings: dict[int, list[_Settings]] = {}

    def of_sizes(self, rows: Rows, sizes: Sizes) -> Rows:
        """The members of `rows` with the given sizes that no row dominates.

        A copy that `sizes` does not name keeps all its rows.
        """
        chosen = rows_of_sizes(self.space, rows, sizes)
        copies = list(chosen.copies)
        for copy, allowed in sizes.items():
            keep = np.zeros_like(copies[copy])
            for size in allowed:
                keep[self._kept_rows(copy, size)] = True
            copies[copy] = copies[copy] & keep
        calls = [
            mask & copies[table.copy][table.copy_row]
            for table, mask in zip(self.space.tables.calls, chosen.calls, strict=True)
        ]
        return Rows(copies, calls)

    def _kept_rows(self, copy: int, size: Size) -> IntArray:
        if (copy, size) not in self._kept:
            self._kept[copy, size] = self._find(copy, size)
        return self._kept[copy, size]

    def _find(self, index: int, size: Size) -> IntArray:
        """Row after row, the fastest first, takes away what it dominates."""
        copy = self.space.tables.copies[index]
        same = (copy.pool == size[0]) & (copy.layouts.num_gpus == size[1])
        rows = np.flatnonzero(self.rows.copies[index] & same)
        if index not in self._settings:
            self._settings[index] = self._all_settings(index)
        settings = [_within(each, rows) for each in self._settings[index]]
        fastest = sum((_fastest(each, len(rows)) for each in settings), np.zeros(len(rows)))
        held = np.stack([copy.resident_bytes[rows], copy.host_bytes[rows]], axis=1)
        sync = copy.sync_seconds[rows]
        left, kept = np.lexsort((rows, held[:, 1], held[:, 0], fastest)), []
        while len(left):
            one, others = left[0], left[1:]
            kept.append(one)
            goes = (held[one] <= held[others]).all(axis=1) & (sync[one] <= sync[others])
            for each in settings:
                goes &= _covers(each, one, len(rows))[others]
            left = others[~goes]
        return np.sort(rows[np.array(kept, dtype=np.int64)])

    def _all_settings(self, index: int) -> list[_Settings]:
        copy = self.space.tables.copies[index]
        resident = -(-copy.resident_bytes // MIB)
        result = []
        for table, mask in zip(self.space.tables.calls, self.rows.calls, strict=True):
            if table.copy != index:
                continue
            for part in _by_kind(table.take(mask)):
                row = part.copy_row
                peak = resident[row] - (-part.transient_bytes // MIB)
                order = np.lexsort((peak, row))
                result.append(_Settings(row[order], part.seconds[order], peak[order]))
        return result


def _by_kind(table: CallTable) -> list[CallTable]:
    kinds = table.kinds()
    if kinds is None:
        return [table]
    return [
        table.take(np.flatnonzero(kinds == kind)) for kind in range(int(kinds.max(initial=-1)) + 1)
    ]


def _within(settings: _Settings, rows: IntArray) -> _Settings:
    """The settings of `rows`, which are numbered anew."""
    position = np.searchsorted(rows, settings.row)
    position[position == len(rows)] = 0
    mine: BoolArray = rows[position] == settings.row if len(rows) else position < 0
    return _Settings(position[mine], settings.seconds[mine], settings.peak_mib[mine])


def _fastest(settings: _Settings, num_rows: int) -> FloatArray:
    seconds = np.full(num_rows, np.inf)
    np.minimum.at(seconds, settings.row, settings.seconds)
    return np.where(np.isfinite(seconds), seconds, 0.0)


def _covers(settings: _Settings, one: int, num_rows: int) -> BoolArray:
    """[row] True where every setting has one of row `one` as fast that peaks no higher."""
    first, last = np.searchsorted(settings.row, [one, one + 1])
    peaks = settings.peak_mib[first:last]
    least = np.concatenate([[np.inf], np.minimum.accumulate(settings.seconds[first:last])])
    covered = least[np.searchsorted(peaks, settings.peak_mib, side="right")] <= settings.seconds
    covers = np.ones(num_rows, dtype=bool)
    covers[settings.row[~covered]] = False
    return covers
