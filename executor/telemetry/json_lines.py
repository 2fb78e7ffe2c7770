"""Files of one JSON object per line, which a crash leaves whole up to its last line."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class JsonLines:
    """Appends lines; every line is handed to the system before `append` returns.

    A process killed at any moment leaves whole lines and at most a torn last one, which reading
    and opening anew drop.
    """

    def __init__(self, path: Path, *, key: str, keep_up_to: int) -> None:
        """Open for appending, without the lines whose `key` is above `keep_up_to`.

        A run that resumes after iteration n keeps what it wrote up to n; 0 starts anew.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_lines(path) if line[key] <= keep_up_to]
        partial = path.with_name(path.name + ".partial")
        with partial.open("wb") as file:
            file.writelines(line_of(line) for line in kept)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        self._file = path.open("ab")

    def append(self, line: Mapping[str, Any]) -> None:
        """Numbers must be finite."""
        self._file.write(line_of(line))
        self._file.flush()

    def close(self) -> None:
        """No more lines."""
        self._file.close()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines; none if there is no such file."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]


def line_of(line: Mapping[str, Any]) -> bytes:
    """A line as it stands in the file."""
    return json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
