"""Print what simpler plans cost, and how much simpler they are, by the tolerance they may use.

    python -m benchmarks.simplicity [--tolerances 0 0.01 0.03]

Of every example on GPUs that is proven without a tolerance: how much longer (or dearer) its plan
is than the optimum; distinct layouts of its models; and tensor, pipeline, context and expert sizes
above 1 of all of them, which are what people have to choose and to trust.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import yaml
from rich.console import Console
from rich.table import Table

from automap import JobSpec, Plan, make_plan
from automap.planner.plan.types import Parallelism

EXAMPLES = Path(__file__).parents[1] / "examples"
SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "context_parallel_size",
    "expert_parallel_size",
)


@dataclass(frozen=True)
class Simplicity:
    """One plan."""

    value: float
    """Of its objective."""
    layouts: int
    sizes: int

    @staticmethod
    def of(plan: Plan) -> "Simplicity":
        layouts: list[Parallelism] = [copy.layout for copy in plan.copies]
        above_one = [getattr(each, size) > 1 for each in layouts for size in SIZES]
        return Simplicity(plan.search.objective_value, len(set(layouts)), sum(above_one))


def measure(path: Path, tolerances: Sequence[float]) -> list[Simplicity] | None:
    """The example's plans, one for each tolerance; None: its optimum is not proven."""
    document, found = yaml.safe_load(path.read_text("utf-8")), []
    for tolerance in (0.0, *tolerances):
        search = {**document.get("search", {}), "simplicity_tolerance": tolerance}
        plan = make_plan(JobSpec.model_validate({**document, "search": search}))
        if tolerance == 0 and plan.search.status != "optimal":
            return None
        found.append(Simplicity.of(plan))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tolerances", nargs="+", type=float, default=[0.01, 0.03])
    tolerances = parser.parse_args().tolerances
    paths = [path for path in sorted(EXAMPLES.glob("*.yaml")) if "-cpu" not in path.stem]
    measured = {path.stem: measure(path, tolerances) for path in paths}
    proven = {name: found for name, found in measured.items() if found is not None}
    columns = [f"{each:g}" for each in (0.0, *tolerances)]
    table = Table("over the optimum, layouts, sizes above 1", *columns)
    for name, found in proven.items():
        cells = [f"{_over(each, found[0]):.2%}, {each.layouts}, {each.sizes}" for each in found]
        table.add_row(name, *cells)
    totals = []
    for plans in zip(*proven.values(), strict=True):
        over = mean(_over(one, found[0]) for one, found in zip(plans, proven.values(), strict=True))
        layouts, sizes = sum(one.layouts for one in plans), sum(one.sizes for one in plans)
        totals.append(f"{over:.2%}, {layouts}, {sizes}")
    table.add_row(f"{len(proven)} examples: mean, sums", *totals, end_section=True)
    Console().print(table)


def _over(plan: Simplicity, optimum: Simplicity) -> float:
    return plan.value / optimum.value - 1


if __name__ == "__main__":
    main()
