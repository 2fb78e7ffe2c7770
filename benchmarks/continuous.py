"""What continuous generation gains by the planner, beside what verl measured on H20.

    python -m benchmarks.continuous TABLE.csv

TABLE.csv is the table of published RL systems (`automap validate`). Of its pairs of a colocated
synchronous and an asynchronous run on as many H20 with responses of up to 28,672 tokens, the mean
length is not stated: it is the one at which the planner's synchronous plan trains in the measured
seconds. Then the job is planned under each schedule, the split of the GPUs being the planner's.
"""

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec

GPU, LONGEST = "h20-96gb", 28672
STALENESS = (2, 4, 8)
ROUNDS = 6


def job(num_gpus: int, mean: float, *, pass_again: bool = True, **search: Any) -> JobSpec:
    """DAPO of Qwen2.5-Math-7B with 512 prompts × 16 responses, as verl's documents have it."""
    return JobSpec.model_validate(
        {
            "name": f"dapo-7b-{num_gpus}xh20",
            "algorithm": "dapo",
            "models": {
                "actor": {"architecture": "qwen2.5-7b"},
                "reward": {"function": True, "seconds_per_response": 1e-3, "concurrency": 64},
            },
            "workload": {
                "prompts_per_iteration": 512,
                "responses_per_prompt": 16,
                "updates_per_epoch": 16,
                "kl": "none",
                "old_log_probs": "recompute" if pass_again else "rollout",
                "prompt_length": {"mean": 256, "max": 2048},
                "response_length": {"mean": mean, "max": LONGEST},
            },
            "cluster": {"pools": [{"name": "h20", "gpu": GPU, "num_nodes": num_gpus // 8}]},
            "search": {"target": "any", "simplicity_tolerance": 0, **search},
        }
    )


def mean_length(num_gpus: int, training_seconds: float) -> float:
    """Mean response length at which the synchronous plan trains in so many seconds."""
    low, high = 256.0, float(LONGEST) / 2
    for _ in range(ROUNDS):
        middle = math.sqrt(low * high)
        longer = seconds_of(make_plan(job(num_gpus, middle)), "train") > training_seconds
        low, high = (low, middle) if longer else (middle, high)
    return math.sqrt(low * high)


def seconds_of(plan: Plan, kind: str) -> float:
    """Seconds of all calls of a kind."""
    return sum(call.end_seconds - call.start_seconds for call in plan.calls if call.kind == kind)


def variants(num_gpus: int, mean: float) -> list[tuple[str, JobSpec]]:
    """The schedules that are planned."""
    found = [
        ("synchronous", job(num_gpus, mean)),
        ("one step off", job(num_gpus, mean, staleness=1)),
    ]
    for staleness in STALENESS:
        search: dict[str, Any] = {"staleness": staleness, "continuous_rollouts": True}
        found.append((f"continuous, staleness {staleness}", job(num_gpus, mean, **search)))
    kept: dict[str, Any] = {**search, "keep_cache_at_sync": True}
    found.append((f"continuous, {staleness}, cache kept", job(num_gpus, mean, **kept)))
    bypass = job(num_gpus, mean, pass_again=False, **kept)
    return [*found, (f"continuous, {staleness}, no proximal pass", bypass)]


def pairs(path: Path) -> list[tuple[dict[str, str], dict[str, str]]]:
    """(synchronous, asynchronous) rows of the table on as many GPUs."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["gpu_type"] == GPU and row["max_response_length"] == str(LONGEST)
        ]
    found = []
    for row in rows:
        same = [r for r in rows if r["num_gpus"] == row["num_gpus"] and r["synchrony"] == "async"]
        if row["synchrony"] == "sync" and same:
            found.append((row, same[0]))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.continuous", description=__doc__)
    parser.add_argument("table", type=Path, metavar="TABLE.csv")
    out = Console(width=100)
    for alone, beside in pairs(parser.parse_args(arguments).table):
        gpus = int(alone["num_gpus"])
        mean = mean_length(gpus, float(alone["training_seconds"]))
        table = Table(
            "schedule", "seconds", "faster", "generate on", "generate s", "score, train s"
        )
        first = None
        for name, spec in variants(gpus, mean):
            plan = make_plan(spec)
            first = first or plan.iteration_seconds
            generating = next(call for call in plan.calls if call.kind == "generate")
            copy = next(each for each in plan.copies if each.id == generating.copy_id)
            table.add_row(
                name,
                f"{plan.iteration_seconds:.0f}",
                f"{first / plan.iteration_seconds:.2f}",
                f"{copy.num_gpus}",
                f"{seconds_of(plan, 'generate'):.0f}",
                f"{seconds_of(plan, 'forward') + seconds_of(plan, 'train'):.0f}",
            )
        for name, row in (("measured, synchronous", alone), ("measured, asynchronous", beside)):
            rest = float(row["log_prob_seconds"] or 0) + float(row["training_seconds"])
            table.add_row(
                name,
                f"{float(row['iteration_seconds']):.0f}",
                f"{float(alone['iteration_seconds']) / float(row['iteration_seconds']):.2f}",
                f"{gpus if row is alone else gpus // 2}",
                row["generation_seconds"],
                f"{rest:.0f}",
            )
        out.print(f"{gpus} H20, mean response {mean:.0f} tokens (inferred)")
        out.print(table)


if __name__ == "__main__":
    main()
