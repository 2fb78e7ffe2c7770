"""The tables of a profile: their columns, and Parquet files as the planner reads them."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet

from planner.measured import COLUMNS, TEXTS

__all__ = ["COLUMNS", "Key", "Row", "write_tables"]

Key = Mapping[str, str | int]
"""What was measured: a value for each column of its table but `seconds`."""
Row = tuple[str, Key, float]
"""Table, key, seconds."""


def write_tables(folder: Path, rows: Iterable[Row]) -> None:
    """One Parquet file per table that has rows, each replaced as a whole or not at all."""
    by_table: dict[str, list[tuple[Key, float]]] = defaultdict(list)
    for table, key, seconds in rows:
        by_table[table].append((key, seconds))
    for table, measured in by_table.items():
        columns: dict[str, arrow.Array] = {
            name: arrow.array(
                [key[name] for key, _ in measured],
                arrow.string() if name in TEXTS else arrow.int64(),
            )
            for name in COLUMNS[table]
        }
        columns["seconds"] = arrow.array([seconds for _, seconds in measured], arrow.float64())
        unfinished = folder / f".{table}.parquet.part"
        parquet.write_table(arrow.table(columns), unfinished, compression="zstd")
        os.replace(unfinished, folder / f"{table}.parquet")
