"""Measurements of a profile as Parquet tables, the form in which they are priced with."""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from automap.planner.profiles.folder import COLUMNS, TEXTS

MEASUREMENTS = "measurements.jsonl"
COMPLETE = ".tables"
"""Name of the empty file that marks a folder whose tables were all written."""

Key = Mapping[str, str | int]
"""Key of a measurement: a value for each column of its table but `seconds`."""
Row = tuple[str, Key, float]
"""One measurement: (table, key, seconds)."""


def write_tables(folder: Path, rows: Iterable[Row]) -> None:
    """Write one Parquet file per table that has rows, each replaced as a whole or not at all."""
    # pyarrow takes a good part of a second to import, and few who import this write tables.
    import pyarrow as arrow
    import pyarrow.parquet as parquet

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
        unfinished = folder / f".{table}.{os.getpid()}.part"
        parquet.write_table(arrow.table(columns), unfinished, compression="zstd")
        os.replace(unfinished, folder / f"{table}.parquet")


def write_missing_tables(folder: Path) -> None:
    """Write the tables of a folder from its measurements, unless all of them are there.

    A process that was killed may have left some of them: the marker comes last. Two at once write
    the same files, each replaced as a whole.
    """
    if not folder.is_dir() or (folder / COMPLETE).exists():
        return
    lines = (folder / MEASUREMENTS).read_text(encoding="utf-8").splitlines()
    found = map(json.loads, lines)
    write_tables(folder, [(each["table"], each["key"], each["seconds"]) for each in found])
    (folder / COMPLETE).touch()
