"""Plans beside the searches of ReaL, HybridFlow and RLinf on mixed instances, same cost model.

    python -m benchmarks.mixed [--count 30] [--seed 0] [--budget 120] [--results mixed.jsonl]
                               [--search-again]

Instances are drawn from the seed: seven algorithms, dense models of 0.5B to 72B, 8 to 512 GPUs in
one or two pools, lengths, with and without staleness. Each is priced once; then the search and the
three strategies choose from the same priced options, and every placement gets its shortest
schedule. Seconds are CPU seconds of the search or the strategy, without pricing.

Every finished instance is a line of the results file, and a run that is started again with the
same file, seed and budget goes on after the last one. --budget is that of ReaL's Markov chain in
seconds (120 is what its paper uses; it runs steps that take about so long). --search-again measures
the searches of such a file anew, in a minute, and keeps what the strategies came to in an hour.

Nothing is asserted but that no strategy is better than a proven plan.
"""

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from automap.planner.errors import PlanningError
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.search.candidates.tables import Tables
from automap.planner.search.candidates.tabulate import price_candidates
from automap.planner.search.model.solve import Limits
from automap.planner.search.search import best_placement
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies import STARTS
from automap.planner.search.strategies.attempts import attempted
from automap.planner.spec import JobSpec

STRATEGIES = ("real_mcmc", "hybridflow", "rlinf")
ALGORITHMS = ("ppo", "grpo", "remax", "safe_rlhf", "rloo", "reinforce_plus_plus", "dapo")
MODELS = ("qwen2.5-0.5b", "qwen2.5-7b", "llama-2-13b", "qwen2.5-32b", "llama-2-70b", "qwen2.5-72b")
GPUS = ("a100-80gb-sxm", "h100", "h200", "h20")
NODES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
TRAINED_BYTES, HELD_BYTES = 18, 2
"""Per parameter of a model that trains, and of one that does not."""
FILLED_SHARE = 0.5
"""Of the cluster's memory, which the models' own bytes may take."""
WITH_CRITIC = ("ppo", "safe_rlhf")
GROUPED = ("grpo", "rloo", "dapo")


def drawn(seed: int, number: int) -> JobSpec:
    """Instance `number` of a seed; drawn again until its models can fit its GPUs."""
    draw = random.Random(f"{seed}/{number}")
    while True:
        spec = JobSpec.model_validate(_document(draw, f"mixed-{seed}-{number}"))
        job = resolve(spec)
        if _bytes_needed(job) <= FILLED_SHARE * _bytes_there(job):
            return spec


def _document(draw: random.Random, name: str) -> dict[str, Any]:
    algorithm = draw.choice(ALGORITHMS)
    actor = draw.choice(MODELS)
    smaller = draw.choice(MODELS[: MODELS.index(actor) + 1])
    models: dict[str, Any] = {role: {"architecture": actor} for role in ("actor", "reference")}
    if algorithm in WITH_CRITIC:
        models["critic"] = {"architecture": smaller}
    models["reward"] = (
        {"function": True, "seconds_per_response": 0.005, "concurrency": 64}
        if algorithm in GROUPED and draw.random() < 0.4
        else {"architecture": smaller}
    )
    if algorithm == "safe_rlhf":
        models["cost"] = {"architecture": smaller}
    kinds = draw.sample(GPUS, draw.choice((1, 1, 2)))
    nodes = [max(draw.choice(NODES) // len(kinds), 1) for _ in kinds]
    pools = [
        {"name": f"pool{index}", "gpu": kind, "num_nodes": number}
        for index, (kind, number) in enumerate(zip(kinds, nodes, strict=True))
    ]
    gpus = 8 * sum(nodes)
    responses = draw.choice((4, 8)) if algorithm in GROUPED else 1
    response = draw.choice((512, 1024, 2048, 4096))
    lengths = {"mean": response, "max": response}
    if draw.random() < 0.5:
        lengths = {"p50": response // 2, "p90": 3 * response // 2, "max": 2 * response}
    return {
        "name": name,
        "algorithm": algorithm,
        "models": models,
        "workload": {
            "prompts_per_iteration": max(draw.choice((4, 8, 16)) * gpus // responses, 16),
            "responses_per_prompt": responses,
            "prompt_length": {"mean": 512, "max": 1024},
            "response_length": lengths,
            "updates_per_epoch": draw.choice((1, 4)),
            "iterations": 100,
        },
        "cluster": {"pools": pools},
        "search": {"staleness": 1} if algorithm == "grpo" and draw.random() < 0.5 else {},
    }


def _bytes_needed(job: Job) -> float:
    return sum(
        model.architecture.num_parameters() * (TRAINED_BYTES if model.trainable else HELD_BYTES)
        for model in job.models.values()
    )


def _bytes_there(job: Job) -> float:
    return float(sum(pool.num_gpus * pool.gpu.memory_bytes for pool in job.pools))


def measured(seed: int, number: int, budget: float) -> dict[str, Any]:
    """One instance: the search, and the strategies on the same priced options."""
    job = resolve(drawn(seed, number))
    tables = price_candidates(job)
    found = _searched(job, tables)
    strategies = {name: _tried(job, tables, name, budget) for name in STRATEGIES}
    return {"seed": seed, "number": number, "budget": budget, **found, "strategies": strategies}


def searched_again(row: dict[str, Any]) -> dict[str, Any]:
    """An instance of the results file whose search is measured anew, its strategies kept."""
    job = resolve(drawn(row["seed"], row["number"]))
    return {**row, **_searched(job, price_candidates(job))}


def _searched(job: Job, tables: Tables) -> dict[str, Any]:
    start = time.process_time()
    best = best_placement(job, SearchSpace.of(job, tables), STARTS)
    seconds = time.process_time() - start
    return {
        "algorithm": job.spec.algorithm,
        "actor": str(job.spec.models["actor"].architecture),
        "gpus": [pool.num_gpus for pool in job.pools],
        "models": len(job.models),
        "staleness": job.spec.search.staleness,
        "period": None if best.solution is None else best.solution.timing.period,
        "proven": best.is_proven,
        "bound": best.lower_bound,
        "search_seconds": seconds,
    }


def _tried(job: Job, tables: Tables, name: str, budget: float) -> dict[str, Any]:
    start = time.process_time()
    limits = Limits.within(budget, seed=job.spec.search.seed)
    (attempt,) = attempted(SearchSpace.of(job, tables), [name], limits, most_counts=None)
    seconds = time.process_time() - start
    period = None if attempt.selected is None else attempt.selected.timing.period
    return {"period": period, "seconds": seconds, "reason": attempt.reason}


def known(path: Path, seed: int, budget: float) -> dict[int, dict[str, Any]]:
    """Instance number → what the results file has of it."""
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return {
        line["number"]: line for line in lines if (line["seed"], line["budget"]) == (seed, budget)
    }


def results(path: Path, seed: int, budget: float, count: int) -> Iterator[dict[str, Any]]:
    """Every instance, measured now where the file lacks it, and written there at once."""
    have = known(path, seed, budget)
    for number in range(count):
        if number not in have:
            print(f"  instance {number + 1} of {count}", file=sys.stderr)
            try:
                have[number] = measured(seed, number, budget)
            except PlanningError as error:
                print(f"  instance {number} has no plan: {error}", file=sys.stderr)
                continue
            with path.open("a") as file:
                file.write(json.dumps(have[number]) + "\n")
        yield have[number]


def print_instances(out: Console, rows: list[dict[str, Any]]) -> None:
    """Seconds of each plan, and how many times that each strategy's placement takes."""
    table = Table(title="Seconds of an iteration: strategy ÷ plan", box=None)
    for name in ("#", "algorithm", "actor", "GPUs", "status"):
        table.add_column(name, no_wrap=True)
    for name in ("plan s", *STRATEGIES, "search s", *(f"{name} s" for name in STRATEGIES)):
        table.add_column(name, justify="right")
    for row in rows:
        each = [row["strategies"][name] for name in STRATEGIES]
        table.add_row(
            str(row["number"]),
            row["algorithm"] + (" async" if row["staleness"] else ""),
            row["actor"],
            "+".join(map(str, row["gpus"])),
            "proven" if row["proven"] else f"gap {1 - row['bound'] / row['period']:.1%}",
            f"{row['period']:.3f}",
            *(_ratio_text(one["period"], row["period"]) for one in each),
            f"{row['search_seconds']:.2f}",
            *(f"{one['seconds']:.1f}" for one in each),
        )
    out.print(table)


def _ratio_text(period: float | None, of: float) -> str:
    return "none" if period is None else f"{period / of:.3f}×"


def print_summary(out: Console, rows: list[dict[str, Any]]) -> None:
    """Per strategy over all instances: better, equal, worse; how much, and how much sooner."""
    table = Table(title="Over all instances", box=None)
    for name in ("strategy", "no placement", "better than the plan", "equal", "worse"):
        table.add_column(name, justify="left" if name == "strategy" else "right")
    for name in ("median ratio", "mean ratio", "largest", "median s ÷ search s", "mean ÷"):
        table.add_column(name, justify="right")
    for name in STRATEGIES:
        pairs = [(row, row["strategies"][name]) for row in rows]
        ratios = [one["period"] / row["period"] for row, one in pairs if one["period"]]
        times = [one["seconds"] / row["search_seconds"] for row, one in pairs]
        table.add_row(
            name,
            str(len(rows) - len(ratios)),
            str(sum(ratio < 1 - 1e-9 for ratio in ratios)),
            str(sum(abs(ratio - 1) <= 1e-9 for ratio in ratios)),
            str(sum(ratio > 1 + 1e-9 for ratio in ratios)),
            *(
                (f"{statistics.median(ratios):.3f}×", _mean(ratios), f"{max(ratios):.3f}×")
                if ratios
                else ("–", "–", "–")
            ),
            f"{statistics.median(times):.1f}×",
            _mean(times),
        )
    out.print(table)
    out.print("means are geometric; target: no strategy is better than the plan")


def _mean(values: list[float]) -> str:
    return f"{math.exp(statistics.fmean(map(math.log, values))):.3f}×"


def main() -> None:
    """Measure what the results file lacks, and print it all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=30, help="instances (default 30)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=120.0, metavar="SECONDS")
    parser.add_argument("--results", type=Path, default=Path("mixed.jsonl"), metavar="FILE")
    parser.add_argument("--search-again", action="store_true", help="measure searches anew")
    given = parser.parse_args()
    if given.count < 1 or given.budget <= 0:
        parser.error("--count and --budget must be positive")
    out = Console(width=max(Console().width, 170), highlight=False)
    rows = list(results(given.results, given.seed, given.budget, given.count))
    if given.search_again:
        rows = [searched_again(row) for row in rows]
    planned = [row for row in rows if row["period"] is not None]
    if not planned:
        out.print("no instance has a plan")
        return
    print_instances(out, planned)
    print_summary(out, planned)
    for row in planned:
        for name, one in row["strategies"].items():
            if row["proven"] and one["period"] is not None:
                better = one["period"] < row["period"] * (1 - 1e-9)
                assert not better, f"{name} beats the plan of instance {row['number']}"


if __name__ == "__main__":
    main()
