"""How much better plans are than what the published strategies choose, and how much sooner.

    python -m benchmarks.strategies [example.yaml …] [--only NAME …] [--budget 30] [--repeat 1]

Every example given (default: PPO on 16, 128 and 1,024 GPUs, Safe-RLHF on 128,
asynchronous GRPO on 32) is priced once. The search and each strategy then choose from the same
priced options, and each placement gets its shortest schedule. Per strategy: seconds of an
iteration, over those of the plan; what the strategy itself took it to last; the CPU seconds it
ran, over those of the search; or why it has no placement.

--budget   Seconds of ReaL's Markov chain, in steps that take about so long; published: 120.
--only     These strategies; may be repeated.
--repeat   Medians of so many runs.

Nothing is asserted but that no strategy is better than a proven plan.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.search.candidates.tables import Tables
from automap.planner.search.candidates.tabulate import price_candidates
from automap.planner.search.model.solve import Limits
from automap.planner.search.objectives import SearchResult
from automap.planner.search.search import best_placement
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies import STARTS, STRATEGIES
from automap.planner.search.strategies.attempts import Attempt, attempted
from automap.planner.spec import JobSpec

EXAMPLES = Path(__file__).parent.parent / "examples"
DEFAULTS = (
    "hybridflow-ppo-7b-16xa100.yaml",
    "hybridflow-ppo-70b-128xa100.yaml",
    "safe-rlhf-70b-128xa100.yaml",
    "grpo-async-qwen2.5-7b-32xh100.yaml",
    "hybridflow-ppo-70b-1024xa100.yaml",
)


def fastest(path: Path) -> JobSpec:
    """The spec of an example, which is to be as fast as it can."""
    spec = JobSpec.model_validate(yaml.safe_load(path.read_text()))
    search = {"objective": "throughput", "target_iteration_seconds": None}
    return spec.model_copy(update={"search": spec.search.model_copy(update=search)})


def searched(job: Job, tables: Tables, repeat: int) -> tuple[SearchResult, float]:
    """The best placement, and the median seconds of the search."""
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        best = best_placement(job, SearchSpace.of(job, tables), STARTS)
        seconds.append(time.process_time() - start)
    return best, statistics.median(seconds)


def tried(
    job: Job, tables: Tables, name: str, *, budget: float, repeat: int
) -> tuple[Attempt, float]:
    """What a strategy came to, and the median seconds that it took."""
    limits = Limits.within(budget, seed=job.spec.search.seed)
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        (attempt,) = attempted(SearchSpace.of(job, tables), [name], limits, most_counts=None)
        seconds.append(time.process_time() - start)
    return attempt, statistics.median(seconds)


def measure(out: Console, path: Path, names: Sequence[str], *, budget: float, repeat: int) -> None:
    """Print the plan of an example and every strategy beside it."""
    job = resolve(fastest(path))
    start = time.process_time()
    tables = price_candidates(job)
    pricing = time.process_time() - start
    best, search_seconds = searched(job, tables, repeat)
    if best.solution is None:
        out.print(f"{path.stem}: no placement")
        return
    period = best.solution.timing.period
    status = "proven optimal" if best.is_proven else f"not proven, bound {best.lower_bound:.3f} s"
    found = f"found in {search_seconds:.2f} s (pricing {pricing:.2f} s)"
    table = Table(title=f"{path.stem}: {period:.3f} s an iteration, {status}, {found}", box=None)
    table.add_column("strategy", no_wrap=True)
    for column in ("seconds", "÷ plan", "by its own cost", "ran s", "÷ search"):
        table.add_column(column, justify="right")
    table.add_column("why not")
    for name in names:
        attempt, ran = tried(job, tables, name, budget=budget, repeat=repeat)
        table.add_row(name, *_cells(attempt, period, ran, search_seconds))
        if best.is_proven and attempt.selected is not None:
            assert attempt.selected.timing.period >= period * (1 - 1e-9), f"{name} beats the plan"
    out.print(table)
    out.print()


def _cells(attempt: Attempt, period: float, ran: float, search_seconds: float) -> list[str]:
    took = [f"{ran:.2f}", f"{ran / search_seconds:.1f}"]
    if attempt.selected is None:
        return ["–", "–", "–", *took, attempt.reason]
    seconds, claimed = attempt.selected.timing.period, attempt.claimed_seconds
    own = "–" if claimed is None else f"{claimed:.3f}"
    return [f"{seconds:.3f}", f"{seconds / period:.4f}", own, *took, ""]


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("examples", nargs="*", type=Path)
    parser.add_argument("--only", action="append", choices=list(STRATEGIES), metavar="NAME")
    parser.add_argument("--budget", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    out = Console(width=150)
    for path in given.examples or [EXAMPLES / name for name in DEFAULTS]:
        names = given.only or list(STRATEGIES)
        measure(out, path, names, budget=given.budget, repeat=given.repeat)


if __name__ == "__main__":
    main()
