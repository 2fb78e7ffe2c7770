"""Runs that ran although the memory verdict would refuse them, by framework and precision.

Each training run of a table that the cost model can price has fitted its GPUs. Printed are how many
a plan's check would refuse: with what the rows do not state as their framework has it by default,
and with the cheapest recomputation that fits, where it is not stated; and how many a search would
leave out, whose margin is larger. What is refused is listed with its bytes.

    python -m benchmarks.refused_runs training.csv
"""

import sys
from collections import defaultdict
from pathlib import Path

from automap.planner.units import GIB
from automap.planner.validation.ran_runs import RanRun, ran_run
from automap.planner.validation.rows import TrainingRow
from automap.planner.validation.table import parse_table
from automap.planner.validation.validate import DEFAULT_QUALITIES

HEADER = f"{'':34s}{'runs':>6s}{'refused':>9s}{'share':>8s}{'by default':>12s}{'not searched':>14s}"


def tell(name: str, runs: list[RanRun]) -> None:
    refused = sum(run.refused for run in runs)
    default = sum(run.refused_at_defaults for run in runs)
    beyond = sum(run.beyond_margin for run in runs)
    share = refused / len(runs) if runs else 0.0
    print(f"{name:34.34s}{len(runs):6d}{refused:9d}{share:8.1%}{default:12d}{beyond:14d}")


def tell_refused(run: RanRun) -> None:
    row = run.row
    print(
        f"  {row.model}, {row.num_gpus} x {row.gpu_type}, {row.precision}: "
        f"{run.needed_bytes / GIB:.1f} GiB, {run.bytes_over / GIB:.1f} more than usable "
        f"of {run.gpu_bytes / GIB:.0f}; recompute {row.recompute or 'not stated'} ({row.source})"
    )


def main() -> None:
    table = parse_table(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rows = [row for row in table.rows if isinstance(row, TrainingRow)]
    found = [ran_run(row) for row in rows if row.quality in DEFAULT_QUALITIES]
    runs = [run for run in found if run is not None]
    groups: dict[str, list[RanRun]] = defaultdict(list)
    for run in runs:
        groups[f"{run.framework}, {run.row.precision}"].append(run)
    print(HEADER)
    for name in sorted(groups):
        tell(name, groups[name])
    tell("all", runs)
    for run in sorted(runs, key=lambda each: -each.bytes_over):
        if run.refused:
            tell_refused(run)


if __name__ == "__main__":
    main()
