"""A hundred realistic jobs, each planned in a process of its own: how a search is accepted.

    python -m benchmarks.population [--jobs 100] [--seed 0] [--results population.jsonl]
                                    [--only INDEX …] [--again] [--processes 1] [--strategies]
    python -m benchmarks.population --compare OLD NEW [--only INDEX …]
    python -m benchmarks.population --spec INDEX [--seed 0]

The first draws jobs (benchmarks/population_jobs.py), plans those that the results file lacks, and
prints what the file has of all. A process that takes longer than --end-after seconds (120) is
ended, with whatever it started. The file has a line of JSON per job, and a run that was stopped
goes on with it. --again plans the jobs anew; the later line counts. --strategies also places every
job as the quick strategies do that no search starts from; give it from the beginning. Seconds
depend on the machine; plans, bounds and gaps do not.

--compare applies the rule by which a change of the search is accepted (population_compare.py) to
two results files, and exits with 1 where it is broken. --spec prints the spec of a job.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.population_compare import PROVEN, ninetieth, print_comparison
from benchmarks.population_jobs import Document, digest, drawn

ROOT = Path(__file__).parent.parent
CHILD = "benchmarks.population_child"
TIME_LIMIT_SECONDS = 30.0
"""search.time_limit_seconds, which the specs leave as it is."""
SECONDS = (
    ("solving s", "solving_seconds"),
    ("pricing s", "pricing_seconds"),
    ("planning s", "planning_seconds"),
    ("planning CPU s", "planning_cpu_seconds"),
    ("whole process, s", "wall_seconds"),
    ("whole process, CPU s", "cpu_seconds"),
)
MINIMISED = {"throughput": "period_us", "price": "price"}
"""Objectives that a strategy can be compared by, and the column of each."""
Row = dict[str, Any]
Key = tuple[int, int, str]


def key_of(row: Row) -> Key:
    """Seed, index and hash of the spec: a job that is drawn otherwise is another job."""
    return row["seed"], row["index"], row["spec"]


def job_row(seed: int, index: int, spec: Document) -> Row:
    """What is known of a job before it is planned."""
    pools = spec["cluster"]["pools"]
    return {
        "seed": seed,
        "index": index,
        "spec": digest(spec),
        "job": spec["name"].removeprefix(f"population-{seed}-{index}-"),
        "nodes": " + ".join(f"{pool['num_nodes']} {pool['gpu']}" for pool in pools),
        "objective": spec["search"]["objective"],
    }


def known(path: Path) -> dict[Key, Row]:
    """The rows of a results file; of a job's rows the last. A line cut short is no row."""
    rows: dict[Key, Row] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            row = json.loads(line)
            rows[key_of(row)] = row
    return rows


def append(path: Path, row: Row) -> None:
    """A row as a line of its own, in one write."""
    with path.open("ab+") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # the writer before was stopped within a line
                file.write(b"\n")
        file.write(json.dumps(row).encode() + b"\n")


class Processes:
    """Planning processes, a job each, that end when they take too long or this one is stopped."""

    def __init__(self, end_after: float, *, strategies: bool) -> None:
        self._end_after = end_after
        self._strategies = strategies
        self._running: set[subprocess.Popen[str]] = set()

    def planned(self, spec: Document) -> Row:
        """What the planning of a spec came to."""
        process = subprocess.Popen(
            [sys.executable, "-m", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        self._running.add(process)
        started = time.time()
        request = {
            "spec": spec,
            "strategies": self._strategies,
            "started": started,
            "end_after": self._end_after,
        }
        end = None
        try:
            output, errors = process.communicate(json.dumps(request), timeout=self._end_after)
        except subprocess.TimeoutExpired:
            _end(process)
            _, _, usage = os.wait4(process.pid, 0)
            cpu_seconds = usage.ru_utime + usage.ru_stime
            end = f"ended after {self._end_after:g} s, in which it ran {cpu_seconds:.0f} CPU s"
            output, errors = process.communicate()
        finally:
            self._running.discard(process)
        lines = [json.loads(line) for line in output.splitlines() if line.endswith("}")]
        if lines and (end or process.returncode == 0):
            return {name: value for line in lines for name, value in line.items()}
        last = (errors.strip().splitlines() or ["no message"])[-1]
        return {
            "outcome": "killed" if end else "error",
            "reason": end or f"exit code {process.returncode}: {last}",
            "wall_seconds": time.time() - started,
        }

    def end(self) -> None:
        """End those that run."""
        for process in list(self._running):
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a process that leads its group, and the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def measured(
    seed: int, indices: Sequence[int], plan: Callable[[Document], Row], processes: int
) -> Iterator[Row]:
    """The rows of jobs, as they come."""

    def row(index: int) -> Row:
        spec = drawn(seed, index)
        return {**job_row(seed, index, spec), **plan(spec)}

    pool = ThreadPoolExecutor(processes)
    try:
        for done in as_completed([pool.submit(row, index) for index in indices]):
            yield done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def print_summary(out: Console, rows: list[Row]) -> None:
    """What became of the jobs, how long it took, and what it gained."""
    outcomes = Counter(row["outcome"] for row in rows)
    proven = sum(outcomes[name] for name in PROVEN)
    told = ", ".join(f"{number} {name}" for name, number in outcomes.most_common())
    out.print(f"{len(rows)} jobs: {told}; proven (optimal or infeasible): {proven / len(rows):.1%}")
    _print_seconds(out, rows)
    late = [row["wall_seconds"] - TIME_LIMIT_SECONDS for row in rows]
    over = sorted(seconds for seconds in late if seconds > 0)
    if over:
        out.print(
            f"{len(over)} jobs took longer than the time limit of {TIME_LIMIT_SECONDS:g} s, the "
            f"start of the process included: by {statistics.median(over):.1f} s (median), "
            f"{over[-1]:.1f} s (most)"
        )
    _print_targets(out, rows)
    for objective, column in MINIMISED.items():
        _print_gains(out, rows, objective, column)
    out.print("means are geometric; better: than the plan, which no strategy is than a proven one")
    _print_jobs(out, "Slowest", sorted(rows, key=lambda row: -row["wall_seconds"])[:8])
    _print_jobs(out, "Not proven", [row for row in rows if row["outcome"] not in PROVEN])


def _print_targets(out: Console, rows: list[Row]) -> None:
    """How many plans are for each target, and how many each target runs as they are."""
    plans = [row for row in rows if "runs_with" in row]
    planned = Counter(row["target"] for row in plans)
    runs = Counter(name for row in plans for name in row["runs_with"])
    for name in sorted({*planned, *runs}):
        out.print(f"{name}: {planned[name]} of {len(plans)} plans are for it, it runs {runs[name]}")


def _print_seconds(out: Console, rows: list[Row]) -> None:
    table = Table(box=None)
    table.add_column("")
    for name in ("median", "p90", "max", "of job"):
        table.add_column(name, justify="right")
    columns = [*((name, column, 1.0) for name, column in SECONDS), ("MiB", "peak_bytes", 2.0**20)]
    for name, column, unit in columns:
        pairs = sorted((row[column] / unit, row["index"]) for row in rows if column in row)
        if pairs:
            values = [value for value, _ in pairs]
            most, index = pairs[-1]
            cells = (statistics.median(values), ninetieth(values), most)
            table.add_row(name, *(f"{value:,.2f}" for value in cells), str(index))
    out.print(table)


def _print_gains(out: Console, rows: list[Row], objective: str, column: str) -> None:
    """What each strategy takes over the plan, in what the jobs minimise."""
    rows = [row for row in rows if row["objective"] == objective and "strategies" in row]
    table = Table(title=f"Strategy ÷ plan, {len(rows)} jobs for {objective}", box=None)
    for name in ("strategy", "no placement", "equal", "median", "mean", "most", "better"):
        table.add_column(name, justify="left" if name == "strategy" else "right")
    for name in dict.fromkeys(name for row in rows for name in row["strategies"]):
        pairs = [(row, row["strategies"][name]) for row in rows if name in row["strategies"]]
        ratios = [placed[column] / row[column] for row, placed in pairs if placed is not None]
        averages = (statistics.median, statistics.geometric_mean, max)
        table.add_row(
            name,
            str(len(pairs) - len(ratios)),
            str(sum(abs(ratio - 1) <= 1e-9 for ratio in ratios)),
            *(f"{average(ratios):.3f}×" if ratios else "" for average in averages),
            str(sum(ratio < 1 - 1e-9 for ratio in ratios)),
        )
    if rows:
        out.print(table)


def _print_jobs(out: Console, title: str, rows: list[Row]) -> None:
    if not rows:
        return
    table = Table(title=f"{title}: {len(rows)}", box=None)
    for name in ("#", "job", "nodes", "outcome"):
        table.add_column(name, no_wrap=True)
    for name in ("gap", "pricing s", "solving s", "whole s"):
        table.add_column(name, justify="right")
    table.add_column("why it stopped")
    for row in rows:
        table.add_row(
            str(row["index"]),
            f"{row['job']}, {row['objective']}",
            row["nodes"],
            row["outcome"],
            f"{row['gap']:.2%}" if row.get("gap") else "",
            *(
                f"{row[name]:.1f}" if name in row else ""
                for name in ("pricing_seconds", "solving_seconds")
            ),
            f"{row['wall_seconds']:.1f}",
            row.get("reason", "")[:120],
        )
    out.print(table)


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=Path("population.jsonl"), metavar="FILE")
    parser.add_argument("--only", type=int, nargs="+", metavar="INDEX", help="these jobs alone")
    parser.add_argument("--again", action="store_true", help="plan also what the file has")
    parser.add_argument("--processes", type=int, default=1, help="jobs at once (default 1)")
    parser.add_argument("--strategies", action="store_true", help="all quick ones, not four")
    parser.add_argument("--end-after", type=float, default=120.0, metavar="SECONDS")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("OLD", "NEW"))
    parser.add_argument("--spec", type=int, metavar="INDEX", help="print the spec of a job")
    given = parser.parse_args()
    if given.jobs < 1 or given.processes < 1 or given.end_after <= 0:
        parser.error("--jobs, --processes and --end-after must be positive")
    return given


def run(out: Console, given: argparse.Namespace) -> None:
    """Plan what the results file lacks, and print what it has."""
    indices = given.only or range(given.jobs)
    keys = {index: (given.seed, index, digest(drawn(given.seed, index))) for index in indices}
    have = {} if given.again else known(given.results)
    missing = [index for index in indices if keys[index] not in have]
    processes = Processes(given.end_after, strategies=given.strategies)
    try:
        for row in measured(given.seed, missing, processes.planned, given.processes):
            append(given.results, row)
            print(
                f"  {row['index']:3} {row['job']}, {row['nodes']}: {row['outcome']}, "
                f"{row['wall_seconds']:.1f} s",
                file=sys.stderr,
            )
    finally:
        processes.end()
    have = known(given.results)
    print_summary(out, [have[keys[index]] for index in indices])


def main() -> None:
    """Draw and plan, compare, or print a spec."""
    given = _given()
    out = Console(width=max(Console().width, 190), highlight=False)
    if given.spec is not None:
        print(json.dumps(drawn(given.seed, given.spec), indent=2))
    elif given.compare:
        old, new = (known(path) for path in given.compare)
        sys.exit(print_comparison(out, old, new, only=given.only))
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        run(out, given)


if __name__ == "__main__":
    main()
