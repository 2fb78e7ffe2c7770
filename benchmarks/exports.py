"""Of the random jobs of benchmarks.population, how many a framework can run and is told.

    python -m benchmarks.exports [--target verl@0.9.1] [--seed 0] [--jobs 100] [--seconds 300]

Every job is planned with that `search.target`, whatever software it names to price, or to generate
with where the framework lacks it, and each plan is exported. The command exits with 1 where an
export is refused: the target then allows what the framework cannot be told.
"""

import argparse
import statistics
import sys
import time
from collections import Counter

from rich.console import Console
from rich.progress import track

from automap import InfeasibleError, JobSpec, NoSolutionInTimeError, SpecError, export, make_plan
from automap.planner.errors import NotExportableError
from automap.planner.frameworks import framework_names
from automap.planner.spec import TargetName
from automap.planner.targets import TARGETS, inside
from benchmarks.population_jobs import Document, drawn
from benchmarks.targets import limited

TARGET = "verl@0.9.1"


def job_for(target: TargetName, document: Document) -> JobSpec:
    """A drawn job for a target, priced as the target's own software."""
    workload = document["workload"]
    workload.pop("training_stack", None)
    if workload.get("rollout_engine", "vllm") not in TARGETS[target].rollout.names:
        workload.pop("rollout_engine", None)
    document["search"] = {**document.get("search", {}), "target": None}
    return inside(JobSpec.model_validate(document), target)


def outcome(spec: JobSpec, target: str) -> tuple[str, str, float]:
    """(what became of a job, why, seconds of the export)."""
    try:
        plan = make_plan(spec)
    except SpecError as error:
        return "cannot be run", str(error).split("cannot run this job: ")[-1].split(" (")[0], 0.0
    except InfeasibleError:
        return "impossible there", "", 0.0
    except NoSolutionInTimeError:
        return "not found in time", "", 0.0
    started = time.perf_counter()
    try:
        export(plan, target)
    except NotExportableError as error:
        return "export refused", "; ".join(reason.summary for reason in error.reasons), 0.0
    return "exported", "", time.perf_counter() - started


def main() -> int:
    """Plan and export them, and print what became of them."""
    parser = argparse.ArgumentParser(description="Random jobs as launches of a framework.")
    parser.add_argument("--target", default=TARGET, choices=framework_names())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seconds", type=float, help="time limit of a search, on a busy machine")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    seconds = []
    for index in track(range(given.jobs), console=Console(stderr=True)):
        job = limited(job_for(given.target, drawn(given.seed, index)), given.seconds)
        what, why, took = outcome(job, given.target)
        counts[what] += 1
        if what == "not found in time":
            print(f"job {index}: {what}")
        if why:
            reasons[f"{what}: {why}"] += 1
        if what == "exported":
            seconds.append(took)
    for what, number in counts.most_common():
        print(f"{number:4d} {what}")
    for why, number in reasons.most_common():
        print(f"     {number:4d} {why}")
    if seconds:
        print(f"seconds of an export: {statistics.median(seconds):.2f}, at most {max(seconds):.2f}")
    return 1 if counts["export refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
