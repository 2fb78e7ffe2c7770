"""CSV texts for tests: rows of the golden tables with cells changed."""

import csv
import io
from functools import cache
from pathlib import Path

from automap.planner.validation.predictions import Prediction
from automap.planner.validation.table import parse_table
from automap.planner.validation.validate import validate

PUBLISHED = Path(__file__).parents[2] / "golden" / "published"
KINDS = ("training", "memory", "generation", "rlhf", "collectives", "gemm")


def golden(kind: str) -> list[dict[str, str]]:
    with (PUBLISHED / f"{kind}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def text_of(rows: list[dict[str, str]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def changed(kind: str, **cells: str) -> str:
    """The first golden row of a kind, sound, then the same one with cells changed."""
    first = golden(kind)[0]
    return text_of([first, first | {"row_id": "changed"} | cells])


@cache
def published() -> tuple[Prediction, ...]:
    texts = ((PUBLISHED / f"{kind}.csv").read_text(encoding="utf-8") for kind in KINDS)
    return tuple(one for text in texts for one in validate(parse_table(text).rows))
