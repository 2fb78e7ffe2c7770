"""Results appended as they come, so that a kill loses at most the one being written.

`measurements.jsonl` in the profile's folder is the truth: each line has the table, the key, the
median with its interval, and how many samples were taken and rejected; or why it failed. The
Parquet tables are written from it.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from automap.planner.profiles import COLUMNS, Key, Row, write_tables
from automap.profiler.errors import ProfileError
from automap.profiler.results.measurement import Measurement

FILE = "measurements.jsonl"


@dataclass(frozen=True, slots=True)
class Entry:
    """One shape of one table: measured, or the reason why it could not be."""

    table: str
    key: Key
    measurement: Measurement | None
    failed: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        """Equal for the same shape of the same table."""
        return identity(self.table, self.key)

    def line(self) -> str:
        """The entry as a line of the file, in JSON."""
        result = {"failed": self.failed} if self.measurement is None else asdict(self.measurement)
        return json.dumps({"table": self.table, "key": dict(self.key), **result})

    @classmethod
    def of(cls, line: str) -> Self:
        """The entry that a line of the file holds.

        Raises:
            ValueError: the line is not an entry, or only the beginning of one.
        """
        try:
            document = json.loads(line)
            table, key = document.pop("table"), document.pop("key")
            if set(key) != set(COLUMNS[table]):
                raise ValueError(f"the columns of {table} are {', '.join(COLUMNS[table])}")
            if "failed" in document:
                return cls(table, key, None, document["failed"])
            return cls(table, key, Measurement(**document))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a measurement: {error}") from None


def identity(table: str, key: Key) -> tuple[str, ...]:
    """Equal for the same shape of the same table."""
    return table, *(str(key[name]) for name in COLUMNS[table])


class Journal:
    """The measurements of one folder; what is there already is read first."""

    def __init__(self, folder: Path) -> None:
        """Open the folder's file.

        Raises:
            ProfileError: a line in the middle of the file is damaged.
        """
        self.folder = folder
        path = folder / FILE
        self.entries: dict[tuple[str, ...], Entry] = {}
        end = 0
        if path.exists():
            for entry, end in _read(path):  # noqa: B007 - the last end is what counts
                self.entries[entry.identity] = entry
        self._file = path.open("ab")
        # A kill may have left half a line.
        self._file.truncate(end)

    def __contains__(self, shape: tuple[str, Key]) -> bool:
        return identity(*shape) in self.entries

    def append(self, entry: Entry) -> None:
        """Keep a result, on the disk too."""
        self._file.write(entry.line().encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.entries[entry.identity] = entry

    def rows(self) -> list[Row]:
        """What was measured, as rows of tables."""
        return [
            (entry.table, entry.key, entry.measurement.seconds)
            for entry in self.entries.values()
            if entry.measurement is not None
        ]

    def write_tables(self) -> None:
        """Write the Parquet files anew."""
        write_tables(self.folder, self.rows())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _read(path: Path) -> Iterator[tuple[Entry, int]]:
    """Entries, each with where its line ends; an unfinished last line is left out."""
    content, start, number = path.read_bytes(), 0, 0
    while (end := content.find(b"\n", start) + 1) > 0:
        number += 1
        try:
            entry = Entry.of(content[start:end].decode())
        except (ValueError, UnicodeDecodeError) as error:
            raise ProfileError(
                f"{path}, line {number}: {error}",
                ["mend or remove the line, or give another --output"],
            ) from None
        yield entry, end
        start = end
