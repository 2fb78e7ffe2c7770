"""What targets cost: over the examples, the best plan inside each beside the best of all.

`python -m benchmarks.targets` prints a table: seconds (or price) of the best plan that can be
priced, with automap's margin of memory, how much more each target's plan takes, and the limit that
costs most by itself. With `--jobs 100` it is of random jobs. Every plan is an optimum, not the
simplest one near it, with the job's time limit, or `--seconds`, which a busy machine needs more of.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence

import yaml
from rich.console import Console
from rich.progress import track

from automap import JobSpec, TargetCost, target_costs
from automap.planner.spec import TargetName
from benchmarks.instances import EXAMPLES
from benchmarks.population_jobs import drawn

TARGETS: tuple[TargetName, ...] = (
    "automap",
    "verl@0.9.1",
    "slime@0.3.1",
    "nemo-rl@0.7.0",
    "openrlhf@0.11.2",
    "trl@1.16.0",
    "skyrl@0.3.0",
    "areal@1.0.4",
)


def row(name: str, costs: list[TargetCost]) -> list[str]:
    """The cells of one example."""
    free = min((c.free_value for c in costs if c.free_value is not None), default=None)
    cells = [name, "–" if free is None else f"{free:.4g}"]
    for cost in costs:
        if cost.share is None:
            cells += ["cannot", cost.reason.partition("\n")[0][:80]]
            continue
        worst = cost.limits[0] if cost.limits and cost.limits[0].share > 5e-5 else None
        cells.append(f"{100 * cost.share:.1f} %")
        cells.append("" if worst is None else f"{worst.limit} ({100 * worst.share:.1f} %)")
    return cells


def examples(only: Sequence[str] | None) -> Iterator[tuple[str, JobSpec]]:
    """The examples that are no runs of tiny models, or those that are named."""
    for path in sorted(EXAMPLES.glob("*.yaml")):
        if "tiny" not in path.name and (not only or path.stem in only):
            yield path.stem, JobSpec.model_validate(yaml.safe_load(path.read_text("utf-8")))


def random_jobs(number: int) -> Iterator[tuple[str, JobSpec]]:
    """The first of the random jobs, whatever software they name to price."""
    for index in range(number):
        document = drawn(0, index)
        document["workload"].pop("training_stack", None)
        document["search"] = {**document.get("search", {}), "target": None}
        yield f"job {index}", JobSpec.model_validate(document)


def limited(spec: JobSpec, seconds: float | None) -> JobSpec:
    """The job with another time limit for each of its searches, where one is given."""
    if seconds is None:
        return spec
    search = spec.search.model_copy(update={"time_limit_seconds": seconds})
    return spec.model_copy(update={"search": search})


def print_row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def summary(costs: Sequence[TargetCost]) -> str:
    """Cost in the middle and at most, and how many there are."""
    shares = [100 * cost.share for cost in costs if cost.share is not None]
    proven = sum(cost.plan is not None and cost.plan.search.status == "optimal" for cost in costs)
    middle, most = statistics.median(shares), max(shares)
    return f"median {middle:.1f} %, most {most:.1f} %, {proven} proven, {len(shares)} planned"


def main() -> None:
    """Plan every example for every target and print the table."""
    parser = argparse.ArgumentParser(description="What targets cost, over the examples.")
    parser.add_argument("--only", nargs="+", metavar="EXAMPLE", help="these examples alone")
    parser.add_argument("--brief", action="store_true", help="do not plan without each limit")
    parser.add_argument("--target", nargs="+", choices=TARGETS, help="these alone")
    parser.add_argument("--jobs", type=int, help="so many random jobs instead of the examples")
    parser.add_argument("--seconds", type=float, help="time limit of each search")
    given = parser.parse_args()
    targets = given.target or TARGETS
    planned: dict[str, list[TargetCost]] = {target: [] for target in targets}
    found = list(examples(given.only) if given.jobs is None else random_jobs(given.jobs))
    heads = ["example", "best of all"]
    for target in targets:
        heads += [target, "costliest limit"]
    print_row(heads)
    print_row(["---"] * len(heads))
    for name, spec in track(found, console=Console(stderr=True)):
        costs = target_costs(limited(spec, given.seconds), targets, by_limit=not given.brief)
        print_row(row(name, costs))
        for cost in costs:
            if cost.share is not None:
                planned[cost.target].append(cost)
    for target, of_target in planned.items():
        if of_target:
            print(f"{target}: {summary(of_target)} of {len(found)}")


if __name__ == "__main__":
    main()
