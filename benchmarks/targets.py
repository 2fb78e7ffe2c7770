"""What targets cost: over the examples, the best plan inside each beside the best of all.

`python -m benchmarks.targets` prints a table: seconds (or price) of the best plan that can be
priced, with automap's margin of memory, how much more each target's plan takes, and the limit that
costs most by itself. With `--jobs 100` it is of random jobs. Every plan is an optimum, not the
simplest one near it, with the job's time limit.
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


def main() -> None:
    """Plan every example for every target and print the table."""
    parser = argparse.ArgumentParser(description="What targets cost, over the examples.")
    parser.add_argument("--only", nargs="+", metavar="EXAMPLE", help="these examples alone")
    parser.add_argument("--brief", action="store_true", help="do not plan without each limit")
    parser.add_argument("--target", choices=TARGETS, help="this one alone")
    parser.add_argument("--jobs", type=int, help="so many random jobs instead of the examples")
    given = parser.parse_args()
    targets = [given.target] if given.target else TARGETS
    rows: list[list[str]] = []
    shares: dict[str, list[float]] = {target: [] for target in targets}
    found = examples(given.only) if given.jobs is None else random_jobs(given.jobs)
    for name, spec in track(list(found), console=Console(stderr=True)):
        costs = target_costs(spec, targets, by_limit=not given.brief)
        rows.append(row(name, costs))
        for cost in costs:
            if cost.share is not None:
                shares[cost.target].append(100 * cost.share)
    heads = ["example", "best of all"]
    for target in targets:
        heads += [target, "costliest limit"]
    for cells in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(cells)} |")
    for target, found in shares.items():
        if found:
            middle, most = statistics.median(found), max(found)
            print(
                f"{target}: {len(found)} of {len(rows)}, median {middle:.1f} %, most {most:.1f} %"
            )


if __name__ == "__main__":
    main()
