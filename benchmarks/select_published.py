"""Choose the golden rows of tests/golden/published from tables of published measurements.

    python -m benchmarks.select_published OUT_FOLDER TABLE.csv [...]

Of the rows of grades A and B, sorted by row_id, each source, GPU, engine and synchrony gives its
first row and every n-th after it, n by the kind of table (EVERY); every run that ran out of memory
is kept. All columns are kept, the citation among them.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

from automap.planner.validation.table import parse_table

EVERY = {
    "training": 20,
    "memory": 8,
    "generation": 55,
    "rlhf": 8,
    "collectives": 60,
    "gemm": 135,
}
APART = ("source", "gpu_type", "engine", "synchrony")


def selected(rows: list[dict[str, str]], every: int) -> list[dict[str, str]]:
    groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["row_id"]):
        if row["quality"] in ("A", "B"):
            groups[tuple(row.get(name, "") for name in APART)].append(row)
    return [
        row
        for key in sorted(groups)
        for number, row in enumerate(groups[key])
        if number % every == 0 or row.get("out_of_memory") == "1"
    ]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for path in map(Path, sys.argv[2:]):
        text = path.read_text(encoding="utf-8")
        kind = parse_table(text).kind
        rows = list(csv.DictReader(text.splitlines()))
        chosen = selected(rows, EVERY[kind])
        with (folder / f"{kind}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(chosen)
        print(f"{kind}: {len(chosen)} of {len(rows)} rows")


if __name__ == "__main__":
    main()
