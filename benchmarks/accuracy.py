"""Print the table of docs/concepts/accuracy.md: errors left out, by rows and by groups.

    python -m benchmarks.accuracy FOLDER

The folder has the tables of `automap validate`: training.csv, generation.csv, memory.csv,
collectives.csv, rlhf.csv. Every fit runs anew without each group in turn (benchmarks/left_out.py
and the fits' own modules); constants are not changed. Takes some ten minutes. Targets stand beside
what is reached; "worst" is the mean over rows of the worst other way to leave rows out. Below the
table every line's groups, those first that carry most of it.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from automap.planner.cost.rl_systems import SYSTEMS
from automap.planner.layout import FloatArray
from automap.planner.validation.chosen_layouts import layout_regret
from automap.planner.validation.groups import LOAD_STRATA, group_of, load_of
from automap.planner.validation.predictions import Prediction
from automap.planner.validation.rows import RlhfRow
from automap.planner.validation.table import parse_table
from automap.planner.validation.verdicts import feasibility
from benchmarks import fit_communication, fit_intervals, fit_rlhf, hierarchical
from benchmarks.left_out import LeftOut, by_group


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    name: str
    target: str
    errors: FloatArray
    groups: Sequence[str]
    worst: tuple[str, float] | None = None

    def markdown(self) -> str:
        sizes = np.abs(np.expm1(self.errors))
        means = [one.mean() for one in by_group(list(sizes), self.groups)]
        worst = "-" if self.worst is None else f"{self.worst[1]:.1%} ({self.worst[0]})"
        return (
            f"| {self.name} | {self.target} | {len(sizes)} | {sizes.mean():.1%} | {len(means)} "
            f"| {np.mean(means):.1%} | {worst} |"
        )

    def told(self) -> str:
        """What each group has of the mean."""
        sizes = by_group(list(np.abs(np.expm1(self.errors))), self.groups)
        named = zip(sorted(set(self.groups)), sizes, strict=True)
        return "\n".join(
            f"{self.name}: {name}: {len(own)} rows, {own.mean():.1%}"
            for name, own in sorted(named, key=lambda each: -each[1].sum())
        )


def line_of(
    name: str, target: str, rows: Iterable[Prediction], left_out: Mapping[str, LeftOut]
) -> Line | None:
    """The rows that a fit left out, or which no fit saw."""
    known = [(one, left_out.get(f"{one.row.kind} {one.row.row_id}")) for one in rows]
    if not known:
        return None
    errors = [one.log_error or 0.0 if out is None else out.usual for one, out in known]
    ways = sorted({way for _, out in known if out for way in out.ways})
    means = {
        way: float(
            np.mean(
                [
                    abs(np.expm1(out.ways[way] if out else one.log_error or 0.0))
                    for one, out in known
                ]
            )
        )
        for way in ways
    }
    worst = max(means.items(), key=lambda item: item[1], default=None)
    return Line(name, target, np.array(errors), [group_of(one.row) for one, _ in known], worst)


def run_lines(found: Sequence[Prediction], left_out: Mapping[str, LeftOut]) -> list[Line | None]:
    """Training, decode steps and memory."""
    predicted = [one for one in found if one.log_error is not None]

    def of(kind: str, quantity: str, part: str) -> list[Prediction]:
        return [
            one
            for one in predicted
            if (one.row.kind, one.quantity) == (kind, quantity) and one.subset.startswith(part)
        ]

    steps = [
        one
        for one in of("generation", "decode_step_seconds", "")
        if f"generation {one.row.row_id}" in left_out
    ]
    low = [one for one in steps if (load_of(one.row) or 1.0) <= LOAD_STRATA[0]]
    others = [one for one in of("generation", "decode_step_seconds", "") if one not in steps]
    training = ("training", "iteration_seconds")
    return [
        line_of("training step, dense, 16-bit", "5 %", of(*training, "dense, 16"), left_out),
        line_of("training step, dense, 8-bit", "8 %", of(*training, "dense, 8"), left_out),
        line_of("training step, mixtures, 16-bit", "15 %", of(*training, "experts, 16"), left_out),
        line_of("training step, mixtures, 8-bit", "15 %", of(*training, "experts, 8"), left_out),
        line_of("decode step, load up to 0.05", "8 %", low, left_out),
        line_of("decode step, all loads", "12 %", steps, left_out),
        line_of("decode step, 4 bits or may draft: in no fit", "", others, left_out),
        line_of("peak memory", "6 %", of("memory", "peak_memory_bytes", ""), left_out),
    ]


def collective_line(path: Path) -> Line:
    runs = fit_communication.read_runs(path)
    stated = [one for one in runs if one.network_is_stated]
    large = [one for one in stated if (one.size_bytes >= fit_communication.LARGE).any()]
    problem, free = fit_communication.fit(large)
    projects = fit_communication.per_row(large, "project")
    errors = hierarchical.left_out(problem, projects, free)
    return Line("collectives across nodes, from 1 MB", "12 %", errors, projects)


def iteration_line(path: Path) -> Line | None:
    rows = parse_table(path.read_text(encoding="utf-8")).rows
    good = [row for row in rows if isinstance(row, RlhfRow) and row.quality in ("A", "B")]
    for system in SYSTEMS:
        basis = fit_rlhf.basis_of(system, good)
        if basis is None:
            continue
        problem, free = fit_rlhf.problem_of(basis)
        models = basis.schemes()["model"]
        errors = hierarchical.left_out(problem, models, free)
        return Line("RL iteration, its model left out", "12 %", errors, models)
    return None


def main() -> None:
    folder = Path(sys.argv[1])
    tables = [str(folder / f"{kind}.csv") for kind in ("training", "generation", "memory")]
    found, left_out = fit_intervals.read([*tables, str(folder / "collectives.csv")])
    print("| quantity | target | rows | mean | groups | mean of groups | worst other way |")
    print("|---|---|---|---|---|---|---|")
    every = [*run_lines(found, left_out), collective_line(folder / "collectives.csv")]
    every.append(iteration_line(folder / "rlhf.csv"))
    lines = [line for line in every if line is not None]
    for line in lines:
        print(line.markdown(), flush=True)
    for kind in ("training", "generation"):
        regret = layout_regret(one for one in found if one.row.kind == kind)
        if regret is not None:
            print(
                f"| regret of the best predicted layout, {kind} | 1 % | {regret.num_jobs} jobs "
                f"| {regret.mean:.1%} | | | at most {regret.worst:.1%} |"
            )
    fits = feasibility(one for one in found if one.row.kind in ("training", "memory"))
    if fits is not None:
        print(
            f"| runs that ran but are refused | 3 % | {fits.ran} | {fits.refused / fits.ran:.1%} "
            f"| | | of {fits.failed} that failed {fits.admitted} admitted |"
        )
    print()
    print("\n".join(line.told() for line in lines))
    print()
    fit_intervals.tell(fit_intervals.residuals(found, left_out))


if __name__ == "__main__":
    main()
