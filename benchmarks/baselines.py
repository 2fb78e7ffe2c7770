"""Seconds that the named strategies take, beside the stage cost of what they choose.

Every example given (default: PPO with four 70B models on 128, 1,024 and 4,096 GPUs, and Safe-RLHF
on 128) is priced, and all its options are handed to the strategies. `index` sorts the options once;
the strategies share it.

    python -m benchmarks.baselines [example.yaml …]
"""

import sys
import time
from pathlib import Path

import yaml

from planner.resolve import resolve
from planner.search.baselines import STRATEGIES, DoesNotFit, Index
from planner.search.candidates import price
from planner.search.problem import Problem
from planner.search.space import all_rows, problem_of, skeleton
from planner.spec import JobSpec

EXAMPLES = Path(__file__).parent.parent / "examples"
DEFAULTS = (
    "hybridflow-ppo-70b-128xa100.yaml",
    "safe-rlhf-70b-128xa100.yaml",
    "hybridflow-ppo-70b-1024xa100.yaml",
    "hybridflow-ppo-70b-4096xa100.yaml",
)


def example_problem(path: Path) -> Problem:
    """The placement problem of an example with all its options."""
    job = resolve(JobSpec.model_validate(yaml.safe_load(path.read_text())))
    tables = price(job)
    return problem_of(skeleton(job, tables), tables, all_rows(tables))


def measure(problem: Problem) -> None:
    """Print seconds and stage cost of every strategy."""
    start = time.perf_counter()
    index = Index(problem)
    total = time.perf_counter() - start
    print(f"  {'index':13}{total:8.3f} s")
    for name, strategy in STRATEGIES.items():
        start = time.perf_counter()
        try:
            result = f"stage cost {strategy.place_indexed(index).claimed_seconds:10.3f} s"
        except DoesNotFit as reason:
            result = str(reason)
        seconds = time.perf_counter() - start
        total += seconds
        print(f"  {name:13}{seconds:8.3f} s   {result}")
    print(f"  {'all':13}{total:8.3f} s")


def main() -> None:
    """Measure the examples named on the command line."""
    for path in [Path(name) for name in sys.argv[1:]] or [EXAMPLES / name for name in DEFAULTS]:
        problem = example_problem(path)
        options = sum(len(call.options) for call in problem.calls)
        print(f"{path.stem}: {options} call options")
        measure(problem)


if __name__ == "__main__":
    main()
