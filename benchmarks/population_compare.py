"""The rule by which a change of the search is accepted, over two results files of the population.

Over the same jobs, space and prices, no proven plan may become worse, and no other may lose more
than half a point of its gap. So the rule is broken by a job

- whose plan was proven, and is worse now by whatever little ("worse");
- whose gap is larger by more than half a point; that of a proven plan was 0 ("gap lost");
- that had an answer, and has none now: not in time, by an error, or killed ("lost");
- of which the two claim what cannot both be true: two proven plans of different value, a plan for
  what was proven impossible, or a plan below a proven bound ("contradiction"). Where space or
  prices were changed on purpose this says so, and the results become the new base;
- that only the old file has ("missing").

A plan that is as good as before but no longer proven is told of and breaks nothing, if its gap
is within the half point.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]
PROVEN = ("optimal", "infeasible")
PLANNED = ("optimal", "cut")
HALF_A_POINT = 0.005
SECONDS = (("solving s", "solving_seconds"), ("planning CPU s", "planning_cpu_seconds"))


def breach(old: Row, new: Row) -> tuple[str, str] | None:
    """How a job breaks the rule, as a word and in numbers; None: it does not."""
    if old["outcome"] not in (*PROVEN, *PLANNED):
        return None
    if new["outcome"] not in (*PROVEN, *PLANNED):
        # Of what was proven impossible only the proof is lost, and nobody misses a plan.
        within = old["outcome"] == "infeasible" and new["outcome"] == "not found"
        return None if within else ("lost", f"{old['outcome']} → {new['outcome']}")
    if "infeasible" in (old["outcome"], new["outcome"]):
        same = old["outcome"] == new["outcome"]
        return None if same else ("contradiction", f"{old['outcome']} → {new['outcome']}")
    return _worse(old, new) or _contradicted(old, new) or _gap_lost(old, new)


def _worse(old: Row, new: Row) -> tuple[str, str] | None:
    if old["outcome"] != "optimal" or new["value"] <= old["value"]:
        return None
    more = new["value"] / old["value"] - 1 if old["value"] else math.inf
    return "worse", f"{old['value']!r} → {new['value']!r} (+{more:.2%})"


def _contradicted(old: Row, new: Row) -> tuple[str, str] | None:
    for bounded, planned in ((old, new), (new, old)):
        if planned["value"] < bounded["bound"] * (1 - 1e-12):
            return "contradiction", f"{planned['value']!r} is below the bound {bounded['bound']!r}"
    return None


def _gap_lost(old: Row, new: Row) -> tuple[str, str] | None:
    if new["gap"] - old["gap"] <= HALF_A_POINT:
        return None
    return "gap lost", f"gap {old['gap']:.2%} → {new['gap']:.2%}"


def print_comparison(
    out: Console,
    old: Mapping[Any, Row],
    new: Mapping[Any, Row],
    *,
    only: Sequence[int] | None = None,
) -> int:
    """Print how the new results keep the rule; the exit code, 1 where they break it."""
    old = {key: row for key, row in old.items() if only is None or row["index"] in only}
    pairs = [(row, new[key]) for key, row in old.items() if key in new]
    missing = [row for key, row in old.items() if key not in new]
    if not pairs:
        out.print("the files have no job in common: other seeds, or drawn otherwise")
        return 1
    broken = [(*pair, found) for pair in pairs if (found := breach(*pair)) is not None]
    same = sum(_same_plan(*pair) for pair in pairs)
    out.print(
        f"{len(pairs)} jobs in both files, {len(missing)} only in the old one; proven: "
        f"{_proven(row for row, _ in pairs)} → {_proven(row for _, row in pairs)}; "
        f"same outcome and placement: {same}"
    )
    _print_seconds(out, pairs)
    _print_changes(
        out, "Breaks the rule", [(a, b, f"{word}: {told}") for a, b, (word, told) in broken]
    )
    changed = [
        (*pair, told)
        for pair in pairs
        if breach(*pair) is None and (told := change(*pair)) is not None
    ]
    _print_changes(out, "Changed within the rule", changed)
    for row in missing:
        out.print(f"missing: {row['index']} {row['job']}, {row['nodes']}")
    out.print("the rule is broken" if broken or missing else "the rule is kept")
    return 1 if broken or missing else 0


def change(old: Row, new: Row) -> str | None:
    """What else became of a job, in words; None: nothing."""
    if old["outcome"] != new["outcome"]:
        return f"{old['outcome']} → {new['outcome']}" + (
            f", gap {new['gap']:.2%}" if new.get("gap") else ""
        )
    if new["outcome"] == "cut" and (old["value"], old["gap"]) != (new["value"], new["gap"]):
        return (
            f"value {new['value'] / old['value'] - 1:+.3%}, gap {old['gap']:.2%} → {new['gap']:.2%}"
        )
    return None if _same_plan(old, new) else "as good, placed otherwise"


def _same_plan(old: Row, new: Row) -> bool:
    return (old["outcome"], old.get("placement")) == (new["outcome"], new.get("placement"))


def _proven(rows: Any) -> str:
    proven = [row["outcome"] in PROVEN for row in rows]
    return f"{sum(proven) / len(proven):.1%}"


def ninetieth(values: Sequence[float]) -> float:
    """The smallest value that nine in ten do not exceed."""
    return sorted(values)[math.ceil(0.9 * len(values)) - 1]


def _print_seconds(out: Console, pairs: list[tuple[Row, Row]]) -> None:
    """Seconds of both, and how many times those of the old the new takes."""
    table = Table(box=None)
    table.add_column("")
    for name in ("old median", "p90", "new median", "p90", "p90 ÷ p90", "job by job median", "p90"):
        table.add_column(name, justify="right")
    for name, column in SECONDS:
        both = [(a[column], b[column]) for a, b in pairs if column in a and column in b]
        if not both:
            continue
        before, after = [a for a, _ in both], [b for _, b in both]
        ratios = [b / a for a, b in both if a > 0] or [1.0]
        table.add_row(
            name,
            *(f"{f(of):.2f}" for of in (before, after) for f in (statistics.median, ninetieth)),
            f"{ninetieth(after) / max(ninetieth(before), 1e-9):.2f}×",
            *(f"{f(ratios):.2f}×" for f in (statistics.median, ninetieth)),
        )
    out.print(table)


def _print_changes(out: Console, title: str, changes: list[tuple[Row, Row, str]]) -> None:
    if not changes:
        return
    table = Table(title=f"{title}: {len(changes)}", box=None)
    for name in ("#", "job", "nodes", "what"):
        table.add_column(name)
    for _, row, told in changes:
        table.add_row(str(row["index"]), f"{row['job']}, {row['objective']}", row["nodes"], told)
    out.print(table)
