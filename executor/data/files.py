"""Prompts, answers and texts of a file, by row number: nothing is read before it is asked for."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from automap.executor.errors import RunError
from automap.executor.folders import opened

CHUNK_BYTES = 16 * 2**20


class DataError(RunError):
    """The data are not what the settings say; the message names field, place and what would do."""


class RowFile(ABC):
    """The rows of one file: a .jsonl is read line by line, of a .parquet the columns are held."""

    path: Path
    fingerprint: str
    """SHA-256 of the whole file."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def row(self, number: int) -> Mapping[str, Any]:
        """Columns by name; at least those of the settings, if the row has them."""

    @abstractmethod
    def where(self, number: int) -> str:
        """How people find the row in the file."""


def open_rows(path: Path, wanted: Mapping[str, str], *, field: str) -> RowFile:
    """Open the file and check that it has rows with the columns that the settings name.

    A column may be a field of a struct: `reward_model.ground_truth`.

    Args:
        path: A .jsonl or .parquet file.
        wanted: The columns, by the settings that name them.
        field: The setting that names the file.

    Raises:
        DataError: no such file, another ending, no rows, or a column is missing.
    """
    path = opened(path, field=field)
    if not path.is_file():
        raise DataError(f"{field}: there is no file {path}")
    match path.suffix:
        case ".jsonl":
            rows: RowFile = _JsonlFile(path)
        case ".parquet":
            rows = _ParquetFile(path, wanted, field)
        case _:
            raise DataError(f"{field}: {path} must end in .parquet or .jsonl")
    if len(rows) == 0:
        raise DataError(f"{field}: {path} has no rows")
    for setting, name in wanted.items():
        cell(rows, 0, setting, name)
    return rows


def cell(rows: RowFile, number: int, field: str, name: str) -> object:
    """One value of a row; `field` is the setting that names the column.

    Raises:
        DataError: the row has no such column.
    """
    row = rows.row(number)
    if name in row:
        return row[name]
    value: object = row
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise _missing(field, name, row, f"{rows.path}, {rows.where(number)}")
        value = value[part]
    return value


def _missing(field: str, name: str, existing: Iterable[str], where: str) -> DataError:
    return DataError(f"{field}: no column {name!r} in {where}; there are {sorted(existing)}")


class _JsonlFile(RowFile):
    """One JSON object per line; the positions of the lines are known, the lines stay on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        digest = hashlib.sha256()
        ends: list[npt.NDArray[np.int64]] = []
        size = content = 0
        while chunk := self._file.read(CHUNK_BYTES):
            digest.update(chunk)
            ends.append(np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == ord("\n")) + size)
            if stripped := len(chunk.rstrip()):
                content = size + stripped
            size += len(chunk)
        self.fingerprint = digest.hexdigest()
        # Blank lines at the end are no rows; one in the middle is an error where it is read.
        newlines = np.concatenate([np.zeros(0, dtype=np.int64), *ends])
        inside = newlines[newlines < content]
        bounds = [] if content == 0 else [[-1], inside, [content]]
        self._bounds = np.concatenate([np.zeros(0, dtype=np.int64), *bounds])

    def __len__(self) -> int:
        return max(0, len(self._bounds) - 1)

    def row(self, number: int) -> Mapping[str, Any]:
        start, end = int(self._bounds[number]) + 1, int(self._bounds[number + 1])
        self._file.seek(start)
        try:
            row = json.loads(self._file.read(end - start))
        except ValueError as error:
            raise DataError(f"{self.path}, {self.where(number)}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(
                f"{self.path}, {self.where(number)}: a {type(row).__name__}, not an object such as "
                '{"prompt": "…"}'
            )
        return row

    def where(self, number: int) -> str:
        return f"line {number + 1}"


class _ParquetFile(RowFile):
    """The columns that are needed, in memory as Arrow."""

    def __init__(self, path: Path, wanted: Mapping[str, str], field: str) -> None:
        import pyarrow
        import pyarrow.parquet

        self.path = path
        try:
            names = list(pyarrow.parquet.read_schema(path).names)
            columns = {name if name in names else name.split(".")[0] for name in wanted.values()}
            for setting, name in wanted.items():
                if name not in names and name.split(".")[0] not in names:
                    raise _missing(setting, name, names, str(path))
            self._table = pyarrow.parquet.read_table(path, columns=sorted(columns))
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"{field}: cannot read {path} as Parquet: {error}") from error
        with path.open("rb") as file:
            self.fingerprint = hashlib.file_digest(file, "sha256").hexdigest()

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def row(self, number: int) -> Mapping[str, Any]:
        return {name: self._table.column(name)[number].as_py() for name in self._table.column_names}

    def where(self, number: int) -> str:
        return f"row {number}"
