"""Fit the spreads of planner/cost/intervals.py on errors left out, and say what they hold.

    python -m benchmarks.fit_intervals TABLE.csv... [--write]

The tables are those of `automap validate`, rows of quality A and B; run it last, after the
constants of the cost model were fitted. Each row counts with the error that it has by constants
fitted without its group (benchmarks/left_out.py), and what its assumed settings may explain is
taken off in squares (`row_intervals.assumed_width`). A kind's spread is the value that four fifths
of the rows of a group do not exceed, on average over the groups: every group weighs the same, and
as the next group is one more than those measured, the share is raised by one part in their number,
to nine tenths at most. A group is a project; of kinds with fewer than five, a model of one (of
generation, on a GPU type by an engine; of collectives, a sweep).

Printed per kind: the spread, the share of rows that its interval holds, and by groups, each with
the spread of the other groups. Kinds called unseen take errors of rows whose GPU generation, or
kind of model, had no part in the fit of their software. Below, for whole iterations of RL
frameworks, the share held by the sum of the intervals' parts. `--write` puts the spreads into the
module.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from automap.planner.cost import intervals
from automap.planner.cost.intervals import COVERAGE, Kind
from automap.planner.validation.groups import project_of
from automap.planner.validation.physics import sound_rows
from automap.planner.validation.predictions import Prediction
from automap.planner.validation.row_intervals import assumed_width, kind_of
from automap.planner.validation.rows import CollectiveRow, GenerationRow
from automap.planner.validation.table import parse_table
from automap.planner.validation.validate import validate
from benchmarks.left_out import LeftOut, left_out_rows

FEW_PROJECTS = 5
MOST = 0.9
"""Share up to which few groups raise that of their rows: beyond it a spread is one row's error."""
UNSEEN = ", unseen"
AROUND = ("state_seconds", "handover_seconds", "around_seconds")
"""Parts of an RL iteration that are of its framework's driver."""


@dataclass(frozen=True)
class Residual:
    """One predicted row."""

    group: str
    off: float
    """|ln(measured ÷ predicted)|."""
    assumed: float
    """Width of what was assumed of it."""

    @property
    def needed(self) -> float:
        """Least spread with which its interval holds it."""
        return float(np.sqrt(max(self.off**2 - self.assumed**2, 0.0)))


def residuals(
    found: Iterable[Prediction], left_out: Mapping[str, LeftOut] | None = None
) -> dict[Kind, list[Residual]]:
    """By kind, of the predictions themselves or with the errors left out.

    Points of the profile's own tables are no predictions.
    """
    given, by_kind = left_out or {}, defaultdict[Kind, list[tuple[Prediction, float]]](list)
    for one in found:
        kind, error = kind_of(one), one.log_error
        if kind is None or error is None or one.provenance == "measured":
            continue
        known = given.get(f"{one.row.kind} {one.row.row_id}")
        seen = intervals.kind_named(kind.removesuffix(UNSEEN))
        by_kind[seen].append((one, known.usual if known else error))
        if f"{seen}{UNSEEN}" in intervals.SPREADS:
            by_kind[intervals.kind_named(f"{seen}{UNSEEN}")].append(
                (one, known.unseen if known else error)
            )
    return {kind: _grouped(rows) for kind, rows in by_kind.items()}


def _grouped(rows: Sequence[tuple[Prediction, float]]) -> list[Residual]:
    few = len({project_of(one.row) for one, _ in rows}) < FEW_PROJECTS
    return [
        Residual(
            project_of(one.row) + (f": {_part(one)}" if few else ""),
            abs(error),
            assumed_width(one),
        )
        for one, error in rows
    ]


def _part(one: Prediction) -> str:
    row = one.row
    if isinstance(row, CollectiveRow):
        return f"{row.collective} on {row.num_gpus} {row.gpu_type} of {row.num_nodes} nodes"
    if isinstance(row, GenerationRow):
        return f"{row.model} on {row.gpu_type} by {row.engine}"
    return str(getattr(row, "model", row.gpu_type))


def spread(rows: Sequence[Residual]) -> float:
    """The spread that holds COVERAGE of a group's rows on average."""
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row.group] += 1
    ordered = sorted(rows, key=lambda row: row.needed)
    weights = np.cumsum([1.0 / counts[row.group] for row in ordered]) / len(counts)
    share = min(COVERAGE * (1.0 + 1.0 / len(counts)), MOST)
    reached = int(np.searchsorted(weights, share - 1e-9))
    return ordered[min(reached, len(ordered) - 1)].needed


def held(rows: Iterable[Residual], most: float | Mapping[str, float]) -> dict[str, list[bool]]:
    """Whether each row is inside the interval of a spread, by group."""
    found: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        limit = most if isinstance(most, float) else most[row.group]
        found[row.group].append(row.needed <= limit)
    return dict(found)


def left_out_spreads(rows: Sequence[Residual]) -> dict[str, float]:
    """By group, the spread of all other groups; empty with one group."""
    groups = {row.group for row in rows}
    if len(groups) < 2:
        return {}
    return {one: spread([row for row in rows if row.group != one]) for one in groups}


def shares(held_rows: Mapping[str, list[bool]]) -> tuple[float, float]:
    """(share of rows, mean over groups of the share of their rows)."""
    every = [one for rows in held_rows.values() for one in rows]
    return float(np.mean(every)), float(np.mean([np.mean(rows) for rows in held_rows.values()]))


def tell(by_kind: Mapping[Kind, list[Residual]]) -> dict[Kind, float]:
    """Print the table; returns the fitted spreads, in the order of the module."""
    heads = "rows groups spread shipped   holds rows groups   left out rows groups"
    print(f"{'80 % intervals':36} {heads}")
    fitted: dict[Kind, float] = {}
    for kind, shipped in intervals.SPREADS.items():
        rows = by_kind.get(kind, [])
        if not rows:
            print(f"{kind:36}    0  (kept at {shipped})")
            fitted[kind] = shipped
            continue
        value = float(np.ceil(spread(rows) * 100) / 100)
        if kind.endswith(UNSEEN):  # never narrower than what was seen
            value = max(value, fitted[intervals.kind_named(kind.removesuffix(UNSEEN))])
        fitted[kind] = value
        apart = left_out_spreads(rows)
        now = shares(held(rows, value))
        then = "".join(f" {share:6.0%}" for share in shares(held(rows, apart))) if apart else " -"
        groups = len({row.group for row in rows})
        print(
            f"{kind:36} {len(rows):4} {groups:6} {value:6.2f} {shipped:7.2f}"
            f"   {now[0]:10.0%} {now[1]:6.0%}   {then:>15}"
        )
    return fitted


def write(spreads: Mapping[Kind, float]) -> None:
    """Put the spreads into the module's source."""
    path = Path(intervals.__file__)
    text = path.read_text(encoding="utf-8")
    lines = "".join(f'    "{kind}": {value:g},\n' for kind, value in spreads.items())
    path.write_text(
        re.sub(
            r"(SPREADS: dict\[Kind, float\] = \{\n).*?\}\n", rf"\g<1>{lines}}}\n", text, flags=re.S
        ),
        encoding="utf-8",
    )
    print(f"written to {path}")


def read(paths: Iterable[str]) -> tuple[list[Prediction], dict[str, LeftOut]]:
    """(all predictions of sound rows, errors left out by row id)."""
    found: list[Prediction] = []
    left_out: dict[str, LeftOut] = {}
    for path in paths:
        table = parse_table(Path(path).read_text(encoding="utf-8"))
        good = sound_rows([row for row in table.rows if row.quality in ("A", "B")])
        found += validate(good)
        if table.kind in ("training", "generation", "memory"):
            own = left_out_rows(path, table.kind)
            left_out |= {f"{table.kind} {name}": one for name, one in own.items()}
    return found, left_out


def main() -> None:
    tables = [argument for argument in sys.argv[1:] if argument != "--write"]
    if not tables:
        raise SystemExit("give the tables: training.csv generation.csv memory.csv collectives.csv")
    found, left_out = read(tables)
    spreads = tell(residuals(found, left_out))
    iterations(found, spreads)
    if "--write" in sys.argv:
        write(spreads)


def iterations(found: Iterable[Prediction], spreads: Mapping[Kind, float]) -> None:
    """Whole RL iterations: each part by its spread."""
    inside = []
    for one in found:
        whole = one.row.kind == "rlhf" and one.quantity == "iteration_seconds"
        if not whole or one.predicted is None:
            continue
        mixture = one.subset
        parts = dict(one.breakdown)
        low = high = 0.0
        for name, seconds in parts.items():
            kind = f"training, {mixture}, 16-bit"
            if name in AROUND:
                kind = "host work of RL frameworks"
            elif "generate" in name:
                kind = f"generation, {mixture}"
            factor = float(np.exp(spreads[intervals.kind_named(kind)]))
            # Where generation runs beside training, the parts sum to more than the iteration.
            part = one.predicted * seconds / sum(parts.values())
            low += part / factor
            high += part * factor
        inside.append(low <= one.measured <= high)
    if inside:
        print(f"iterations of RL frameworks  {len(inside):4}  held {np.mean(inside):.0%}")


if __name__ == "__main__":
    main()
