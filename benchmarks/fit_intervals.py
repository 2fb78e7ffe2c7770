"""Fit the spreads of planner/cost/intervals.py on measured runs, and say what the intervals hold.

    python -m benchmarks.fit_intervals TABLE.csv... [--write]

The tables are those of `automap validate`, rows of quality A and B; run it last, after the
constants of the cost model were fitted. A kind's spread is the |ln(measured ÷ predicted)| that 80 %
of its rows do not exceed, each group of rows with the square root of its number as weight. A group
is a source; where a model on a GPU type is what matters (generation and memory, nearly all rows of
which are of few sources) it is that. Models that ship a module to draft tokens with take no part,
as in `fit_generation`: whether a run used it makes a factor of two.

Printed per kind: the spread, the share of rows that its interval holds, and the share held when
each group's spread is that of the other groups. Below, for whole iterations of RL frameworks, the
share held by the sum of the intervals' parts. `--write` puts the spreads into the module.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from automap.planner.cost import intervals
from automap.planner.cost.intervals import COVERAGE, Kind
from automap.planner.validation.predictions import Prediction
from automap.planner.validation.table import parse_table
from automap.planner.validation.validate import validate


@dataclass(frozen=True)
class Residual:
    """One predicted row."""

    group: tuple[str, ...]
    off: float
    """|ln(measured ÷ predicted)|."""


def kind_of(one: Prediction) -> Kind | None:
    """Which spread a prediction belongs to; None: to none."""
    mixture = "experts" if one.subset.startswith("experts") else "dense"
    match one.row.kind, one.quantity:
        case "training", _:
            bits = "16-bit" if "16-bit" in one.subset else "8-bit"
            return f"training, {mixture}, {bits}"  # type: ignore[return-value]
        case "generation", "decode_step_seconds":
            bits = ", 4-bit" if one.subset.endswith("4-bit") else ""
            return f"generation, {mixture}{bits}"  # type: ignore[return-value]
        case "memory", "peak_memory_bytes":
            return "memory"
        case "collectives", _ if "from 1 MB" in one.subset:
            return "transfer in a node" if "in a node" in one.subset else "transfer across nodes"
    return None


def group_of(one: Prediction) -> tuple[str, ...]:
    """Rows that are alike beyond their kind, and so are left out together."""
    if one.row.kind in ("generation", "memory"):
        return (str(getattr(one.row, "model", "")), one.row.gpu_type)
    return (one.row.source,)


def residuals(found: Iterable[Prediction]) -> dict[Kind, list[Residual]]:
    """By kind; points of the profile's own tables are no predictions."""
    by_kind: dict[Kind, list[Residual]] = defaultdict(list)
    for one in found:
        kind = kind_of(one)
        if kind is None or one.predicted is None or one.provenance == "measured":
            continue
        off = abs(float(np.log(one.measured / one.predicted)))
        by_kind[kind].append(Residual(group_of(one), off))
    return by_kind


def spread(rows: list[Residual]) -> float:
    """The weighted quantile."""
    counts: dict[tuple[str, ...], int] = defaultdict(int)
    for row in rows:
        counts[row.group] += 1
    ordered = sorted(rows, key=lambda row: row.off)
    weights = np.cumsum([counts[row.group] ** -0.5 for row in ordered])
    reached = np.searchsorted(weights, COVERAGE * weights[-1])
    return ordered[min(int(reached), len(ordered) - 1)].off


def held(rows: Iterable[Residual], most: float | Mapping[tuple[str, ...], float]) -> float:
    """Share of rows inside the interval of a spread, which may differ between groups."""
    limits = [most if isinstance(most, float) else most[row.group] for row in rows]
    return float(np.mean([row.off <= limit for row, limit in zip(rows, limits, strict=True)]))


def left_out(rows: list[Residual]) -> float | None:
    """Share of rows inside an interval to which their own group contributed nothing."""
    groups = {row.group for row in rows}
    if len(groups) < 2:
        return None
    without = {one: spread([row for row in rows if row.group != one]) for one in groups}
    return held(rows, without)


def tell(by_kind: Mapping[Kind, list[Residual]]) -> dict[Kind, float]:
    """Print the table; returns the fitted spreads, in the order of the module."""
    print(
        f"{'80 % intervals':28} rows groups spread    interval     shipped holds  fitted  left out"
    )
    fitted: dict[Kind, float] = {}
    for kind, shipped in intervals.SPREADS.items():
        rows = by_kind.get(kind, [])
        if not rows:
            print(f"{kind:28}    0  (kept at {shipped})")
            fitted[kind] = shipped
            continue
        value = fitted[kind] = float(np.ceil(spread(rows) * 100) / 100)
        outside = left_out(rows)
        now, then = held(rows, shipped), held(rows, value)
        factors = f"/{np.exp(value):.2f}..x{np.exp(value):.2f}"
        groups = len({row.group for row in rows})
        alone = "-" if outside is None else f"{outside:.0%}"
        print(
            f"{kind:28} {len(rows):4} {groups:6} {value:6.2f} {factors:>14}"
            f"    {shipped:.2f} {now:6.0%} {then:7.0%}  {alone:>8}"
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


def main() -> None:
    tables = [argument for argument in sys.argv[1:] if argument != "--write"]
    if not tables:
        raise SystemExit("give the tables: training.csv generation.csv memory.csv collectives.csv")
    found = [
        one
        for name in tables
        for one in validate(parse_table(Path(name).read_text(encoding="utf-8")).rows)
    ]
    spreads = tell(residuals(found))
    iterations(found, spreads)
    print("\nSPREADS: dict[Kind, float] = {")
    for kind, value in spreads.items():
        print(f'    "{kind}": {value:g},')
    print("}")
    if "--write" in sys.argv:
        write(spreads)


def iterations(found: Iterable[Prediction], spreads: Mapping[Kind, float]) -> None:
    """Whole RL iterations: generation by its spread, the rest by that of training."""
    inside = []
    for one in found:
        whole = one.row.kind == "rlhf" and one.quantity == "iteration_seconds"
        if not whole or one.predicted is None:
            continue
        mixture = one.subset
        parts = dict(one.breakdown)
        generated = sum(value for name, value in parts.items() if "generate" in name)
        # Where generation runs beside training, the parts sum to more than the iteration.
        share = generated / sum(parts.values())
        low = high = 0.0
        for part, kind in ((share, "generation"), (1.0 - share, "training")):
            name = f"{kind}, {mixture}" + (", 16-bit" if kind == "training" else "")
            factor = float(np.exp(spreads[name]))  # type: ignore[index]
            low += one.predicted * part / factor
            high += one.predicted * part * factor
        inside.append(low <= one.measured <= high)
    if inside:
        print(f"iterations of RL frameworks  {len(inside):4}  held {np.mean(inside):.0%}")


if __name__ == "__main__":
    main()
