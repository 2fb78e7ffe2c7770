"""What targets cost: over the examples, the best plan inside each beside the best of all.

`python -m benchmarks.targets` prints a table: seconds (or price) of the best plan that can be
priced, with automap's margin of memory, how much more each target's plan takes, and the limit that
costs most by itself. Every plan is an optimum, not the simplest one near it, with the example's
time limit.
"""

import argparse
import statistics

import yaml
from rich.console import Console
from rich.progress import track

from automap import JobSpec, TargetCost, target_cost
from automap.planner.spec import TargetName
from benchmarks.instances import EXAMPLES

TARGETS: tuple[TargetName, ...] = ("automap", "verl@0.9.1", "slime@0.3.1")


def row(name: str, costs: list[TargetCost]) -> list[str]:
    """The cells of one example."""
    free = min((c.free_value for c in costs if c.free_value is not None), default=None)
    cells = [name, "–" if free is None else f"{free:.4g}"]
    for cost in costs:
        if cost.share is None:
            cells += ["cannot", cost.reason.splitlines()[0][:80]]
            continue
        worst = cost.limits[0] if cost.limits and cost.limits[0].share > 5e-5 else None
        cells.append(f"{100 * cost.share:.1f} %")
        cells.append("" if worst is None else f"{worst.limit} ({100 * worst.share:.1f} %)")
    return cells


def main() -> None:
    """Plan every example for every target and print the table."""
    parser = argparse.ArgumentParser(description="What targets cost, over the examples.")
    parser.add_argument("--only", nargs="+", metavar="EXAMPLE", help="these examples alone")
    parser.add_argument("--brief", action="store_true", help="do not plan without each limit")
    given = parser.parse_args()
    paths = [path for path in sorted(EXAMPLES.glob("*.yaml")) if "tiny" not in path.name]
    rows: list[list[str]] = []
    shares: dict[str, list[float]] = {target: [] for target in TARGETS}
    for path in track(paths, console=Console(stderr=True)):
        if given.only and path.stem not in given.only:
            continue
        spec = JobSpec.model_validate(yaml.safe_load(path.read_text("utf-8")))
        costs = [target_cost(spec, target, by_limit=not given.brief) for target in TARGETS]
        rows.append(row(path.stem, costs))
        for cost in costs:
            if cost.share is not None:
                shares[cost.target].append(100 * cost.share)
    heads = ["example", "best of all"]
    for target in TARGETS:
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
