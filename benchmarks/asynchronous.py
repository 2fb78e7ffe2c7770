"""A tiny job whose iterations overlap, beside the synchronous one on as many cores.

    python -m benchmarks.asynchronous [--seeds 3] [--iterations 60] [--runs NAME …]
        [--learning-rate 0.005] [--slow-reward]

The synchronous job is `examples/tiny-grpo-cpu.yaml` as it stands: both cores train, both generate.
In the others one core trains while the other one generates, and old rollouts are corrected for:
whole batches one iteration ahead (`search.staleness: 1`) with either correction, or continuously
(`search.continuous_rollouts`) with decoupled PPO and a staleness of 1 or 4. Printed are medians of
seconds per iteration beside the plan's, how many times faster each run was than the synchronous one
of its seed, which ran just before it (least and most over the seeds; a machine that is not quiet
shows there), the share of the cores' time in which no call was under way on them beside the plan's,
and the mean reward of the last iterations: learning counts as unharmed where it is at most 10 %
below the synchronous one.

With `--slow-reward` the reward of every run waits for 3 ms per response, as one does that runs what
the model wrote (`benchmarks.slow_reward`), and the spec says so: cores that have nothing to do in a
synchronous run generate or train in the others.
"""

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from rich.console import Console
from rich.table import Table

from automap.executor.settings import RunSettings
from automap.executor.telemetry.call_records import CallRecord, read_records
from automap.planner.plan.types import Plan
from benchmarks import slow_reward as slow_reward_module
from benchmarks.learning import LAST, metrics_of
from benchmarks.tiny_jobs import tiny_job

SYNCHRONOUS = "synchronous"
CORRECTIONS = ("decoupled_ppo", "truncated_importance_sampling")
CONTINUOUS = {"continuous, staleness 1": 1, "continuous, staleness 4": 4}
NAMES = (SYNCHRONOUS, *CORRECTIONS, *CONTINUOUS)
WARM_UP = 2
ALLOWED_LOSS = 0.1
"""Of the synchronous reward."""


def job(
    name: str,
    *,
    seed: int,
    iterations: int,
    learning_rate: float | None = None,
    slow_reward: bool = False,
) -> tuple[Plan, RunSettings]:
    """The synchronous job, or an overlapping one with a correction."""
    search = {"staleness": CONTINUOUS.get(name, 1), "continuous_rollouts": name in CONTINUOUS}

    def change(document: dict[str, Any]) -> None:
        if slow_reward:
            seconds = slow_reward_module.SECONDS_PER_RESPONSE
            document["models"]["reward"]["seconds_per_response"] = seconds
            document["models"]["reward"]["concurrency"] = 1
        if name != SYNCHRONOUS:
            _overlap(document, search=search)

    plan, settings = tiny_job("grpo", seed=seed, change=change)
    changes: dict[str, Any] = {"iterations": iterations}
    if name != SYNCHRONOUS:
        correction = name if name in CORRECTIONS else CORRECTIONS[0]
        algorithm = {**settings.algorithm.model_dump(), "off_policy_correction": correction}
        changes["algorithm"] = type(settings.algorithm).model_validate(algorithm)
    if slow_reward:
        path = f"{slow_reward_module.__name__}:{slow_reward_module.count_token.__name__}"
        reward = settings.functions["reward"].model_copy(update={"path": path})
        changes["functions"] = {"reward": reward}
    if learning_rate is not None:
        actor = settings.training["actor"]
        optimizer = actor.optimizer.model_copy(update={"learning_rate": learning_rate})
        changes["training"] = settings.training | {
            "actor": actor.model_copy(update={"optimizer": optimizer})
        }
    # A checkpoint ends the overlap: none but the last.
    changes["checkpoint"] = settings.checkpoint.model_copy(update={"every_iterations": None})
    return plan, settings.model_copy(update=changes)


def _overlap(document: dict[str, Any], *, search: dict[str, Any]) -> None:
    """One core for training; the other one is the search's to generate on."""
    document["search"] = search
    actor = {"num_gpus": 1, "micro_batch_size": 16, "generation_tensor_parallel_size": 1}
    document["constraints"] |= {"parallelism": {"actor": actor}, "allow_shadow_copies": True}


def planned_idle(plan: Plan) -> float:
    """The share of the devices' seconds, over a period of the plan, that no call takes."""
    devices = {copy.id: copy.num_gpus for copy in plan.copies}
    taken = sum(
        (call.end_seconds - call.start_seconds) * devices[call.copy_id]
        for call in plan.calls
        if call.copy_id is not None
    )
    for sync in plan.transitions:
        both = devices[sync.source_copy] + devices[sync.target_copy]
        taken += (sync.end_seconds - sync.start_seconds) * both
    return 1.0 - taken / (plan.iteration_seconds * plan.gpus_used)


def measured_idle(records: Sequence[CallRecord], *, num_devices: int) -> float:
    """The same of a run, from the end of its warm-up to the end of its last iteration."""
    ends = sorted(each.end_seconds for each in records if each.kind == "iteration")
    begin, end = ends[WARM_UP - 1], ends[-1]
    taken = 0.0
    for device in range(num_devices):
        until = begin
        here = (each for each in records if device in each.ranks)
        for call in sorted(here, key=lambda each: each.start_seconds):
            taken += max(0.0, min(call.end_seconds, end) - max(call.start_seconds, until))
            until = max(until, min(call.end_seconds, end))
    return 1.0 - taken / (num_devices * (end - begin))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.asynchronous", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--runs", nargs="+", choices=NAMES[1:], default=NAMES[1:])
    parser.add_argument("--learning-rate", type=float, help="of all runs; else the example's")
    parser.add_argument("--slow-reward", action="store_true", help="3 ms per response, in all runs")
    given = parser.parse_args(arguments)
    rewards: dict[str, list[float]] = defaultdict(list)
    seconds: dict[str, list[float]] = defaultdict(list)
    """Of an iteration: the median of each seed."""
    idle: dict[str, list[float]] = defaultdict(list)
    plans: dict[str, Plan] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.seeds):
            for name in (SYNCHRONOUS, *given.runs):
                plan, settings = job(
                    name,
                    seed=seed,
                    iterations=given.iterations,
                    learning_rate=given.learning_rate,
                    slow_reward=given.slow_reward,
                )
                output = Path(folder) / f"{name}-{seed}"
                found = metrics_of(plan, settings, folder=output)
                plans[name] = plan
                records = read_records(output / "records.jsonl")
                idle[name].append(measured_idle(records, num_devices=plan.gpus_used))
                rewards[name].append(mean(each["critic/score/mean"] for each in found[-LAST:]))
                seconds[name].append(median(each["perf/time_per_step"] for each in found[WARM_UP:]))
                print(
                    f"seed {seed}, {name}: reward {rewards[name][-1]:.2f}, "
                    f"{1e3 * seconds[name][-1]:.0f} ms, idle {idle[name][-1]:.0%}",
                    flush=True,
                )
    headers = ("× faster", "idle", "planned idle", "last rewards", "of synchronous")
    table = Table("run", "iteration ms", "planned ms", *headers)
    for name, earned in rewards.items():
        share = mean(earned) / mean(rewards[SYNCHRONOUS])
        pairs = zip(seconds[SYNCHRONOUS], seconds[name], strict=True)
        faster = [synchronous / own for synchronous, own in pairs]
        table.add_row(
            name,
            f"{1e3 * median(seconds[name]):.0f}",
            f"{1e3 * plans[name].iteration_seconds:.0f}",
            f"{min(faster):.2f}–{max(faster):.2f}",
            f"{median(idle[name]):.0%}",
            f"{planned_idle(plans[name]):.0%}",
            " ".join(f"{each:.2f}" for each in earned),
            f"{share:.2f}" + ("" if share >= 1 - ALLOWED_LOSS else f" (< {1 - ALLOWED_LOSS:.2f})"),
        )
    Console(width=120).print(table)  # none of its columns is cut


if __name__ == "__main__":
    main()
