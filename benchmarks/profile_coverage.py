"""Profile time against coverage: what a longer `automap profile` buys on this machine.

    python -m benchmarks.profile_coverage [--budgets 30 60 120 300] [--model NAME]

Profiles the machine once for each budget, each into a folder of its own, and prints which part of
the wanted shapes was measured, by table, and how well shapes that were left out are predicted from
the others (median error, the tables' shapes counting alike).
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from automap.planner import catalogue
from automap.profiler.results.profile_report import ProfileReport
from automap.profiler.session import profile
from automap.profiler.settings import ProfileSettings

TABLES = ("gemm", "prefill_attention", "decode_attention", "collectives", "host_work", "layers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--budgets", type=float, nargs="+", default=[30.0, 60.0, 120.0, 300.0])
    parser.add_argument("--model", default="tiny-llama", help="of the catalogue: whose shapes")
    given = parser.parse_args()
    model = {given.model: catalogue.architecture(given.model)}
    reports = []
    with tempfile.TemporaryDirectory() as folder:
        for budget in given.budgets:
            settings = ProfileSettings(
                output=Path(folder) / f"{budget:g}", models=model, budget_seconds=budget
            )
            reports.append(profile(settings, lambda progress: None))
            sys.stdout.write(_told(reports[-1]) if len(reports) > 1 else _header(reports))
            sys.stdout.flush()


def _header(reports: list[ProfileReport]) -> str:
    (first,) = reports
    columns = ["budget s", "took s", "shapes", *TABLES, "left out: median error", "load"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join(lines) + "\n" + _told(first)


def _told(report: ProfileReport) -> str:
    covered = {each.table: f"{each.measured / each.wanted:.0%}" for each in report.tables}
    measured = sum(each.measured for each in report.tables)
    wanted = sum(each.wanted for each in report.tables)
    errors = [each.median_error for each in report.held_out for _ in range(each.shapes)]
    cells = [
        f"{report.budget_seconds:g}",
        f"{report.seconds:.0f}",
        f"{measured:,} of {wanted:,}",
        *(covered.get(table, "-") for table in TABLES),
        f"{statistics.median(errors):.1%}" if errors else "-",
        f"{report.conditions.load:.1f}",
    ]
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    main()
