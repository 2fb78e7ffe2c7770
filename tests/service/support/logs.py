"""Log lines of real processes, as JSON."""

import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def log_lines(file: Path) -> list[Line]:
    """Every line; one that is no JSON object fails the test."""
    found = []
    for line in file.read_text().splitlines():
        parsed = json.loads(line)
        assert isinstance(parsed, dict), line
        found.append(parsed)
    return found


def requests_in(lines: list[Line]) -> list[Line]:
    return [line for line in lines if "route" in line]
