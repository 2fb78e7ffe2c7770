"""Columns of the Parquet files of one folder, each file read when first needed."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as arrow
import pyarrow.parquet as parquet

from automap.planner.cost.operators.interpolation import BoolArray
from automap.planner.layout import FloatArray

TEXT_COLUMNS = (
    "precision",
    "collector",
    "routing",
    "collective",
    "framework",
    "recompute",
    "part",
)


class TableReader:
    """The operator tables of one folder; a table without a file has no rows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, arrow.Table | None] = {}

    def rows(self, table: str, **texts: str) -> BoolArray:
        """Which rows hold the given texts in the columns of those names."""
        file = self._file(table)
        if file is None:
            return np.zeros(0, dtype=np.bool_)
        chosen = np.ones(file.num_rows, dtype=np.bool_)
        for name, text in texts.items():
            column = file[name].combine_chunks()
            known = column.dictionary.to_pylist()
            chosen &= _plain(column.indices) == known.index(text) if text in known else False
        return chosen

    def columns(self, table: str, names: Sequence[str], rows: BoolArray) -> list[FloatArray]:
        """Numeric columns, at the chosen rows."""
        file = self._file(table)
        if file is None:
            return [np.zeros(0) for _ in names]
        return [_plain(file[name].combine_chunks()).astype(np.float64)[rows] for name in names]

    def texts(self, table: str, name: str) -> list[str]:
        """The distinct texts of a column."""
        file = self._file(table)
        if file is None:
            return []
        return sorted(file[name].combine_chunks().dictionary.to_pylist())

    def _file(self, table: str) -> "arrow.Table | None":
        if table not in self._files:
            path = self._folder / f"{table}.parquet"
            self._files[table] = _read(path) if path.exists() else None
        return self._files[table]


def _read(path: Path) -> "arrow.Table":
    # Not parquet.read_table: that imports pyarrow's data set machinery, most of a second.
    names = parquet.read_schema(path).names
    text = [name for name in TEXT_COLUMNS if name in names]
    return parquet.ParquetFile(path, read_dictionary=text).read(use_threads=False)


def _plain(column: "arrow.Array") -> npt.NDArray[np.generic]:
    # Not to_numpy(): where pandas is installed, pyarrow imports it for that, most of a second.
    return np.from_dlpack(column)
