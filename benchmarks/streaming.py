"""Scoring responses while others are generated, beside scoring when all are there.

    python -m benchmarks.streaming [--seeds 3] [--iterations 20] [--chunks 4 8] [--layers 24]

The job is `examples/tiny-grpo-cpu.yaml` with a reference: the actor generates and trains on one
core, a reference of as wide but deeper layers scores on another one. Without streams it waits for
the last response; with `search.streaming` it takes them in chunks as they end (ADR 59). Runs of a
seed follow one another, so a busy machine slows all of them. Printed are the medians of seconds per
iteration beside the plan's, how many times faster each run was than the one without streams of its
seed (least and most over the seeds), the same of the plans, the share of the reference's seconds
that passed before the generation's end, and the largest difference of any iteration's mean reward
from the run without streams, which there should be none of.
"""

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from automap.executor.settings import RunSettings
from automap.executor.telemetry.call_records import CallRecord, read_records
from automap.planner.catalogue import architecture
from automap.planner.plan.types import Plan
from benchmarks.learning import metrics_of
from benchmarks.tiny_jobs import tiny_job

WARM_UP = 2
GENERATION, SCORING = "actor.generate", "reference.forward"
ONE_CORE = {"num_gpus": 1, "data_parallel_size": 1, "micro_batch_size": 16}
RUNNING_SEQUENCES = 64
"""At once, of the 256 of an iteration: they end one after another, as long ones do."""


def job(
    chunks: int, *, seed: int, iterations: int, reference_layers: int
) -> tuple[Plan, RunSettings]:
    """The job with so many chunks; 0: without streams."""

    def change(document: dict[str, Any]) -> None:
        sizes = architecture("tiny-llama").model_dump(mode="json", exclude_unset=True)
        deeper = sizes | {"num_layers": reference_layers}
        document["models"]["reference"] = {"architecture": deeper}
        document["workload"] |= {
            "prompts_per_iteration": 32,
            "response_length": {"mean": 12, "max": 24},
            "kl": "loss",
            "old_log_probs": "rollout",
        }
        actor = ONE_CORE | {"generation_tensor_parallel_size": 1}
        document["constraints"] |= {
            "separate": [["actor", "reference"]],
            "parallelism": {"actor": actor, "reference": ONE_CORE},
        }
        if chunks:
            document["search"] = {"streaming": True, "stream_chunks": chunks}

    plan, settings = tiny_job("grpo", seed=seed, change=change)
    rollout = settings.rollout.model_copy(
        update={"max_running_sequences": RUNNING_SEQUENCES, "steps_per_turn": 8}
    )
    changes = {"iterations": iterations, "rollout": rollout}
    return plan, settings.model_copy(update=changes)


def early_share(records: Iterable[CallRecord]) -> float:
    """The share of the seconds of scoring that passed before their generation had ended."""
    ends = {}
    scored: list[CallRecord] = []
    for each in records:
        if each.call_id == GENERATION:
            ends[each.iteration] = each.end_seconds
        elif each.call_id == SCORING:
            scored.append(each)
    early = sum(
        max(0.0, min(each.end_seconds, ends[each.iteration]) - each.start_seconds)
        for each in scored
    )
    return early / sum(each.end_seconds - each.start_seconds for each in scored)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streaming", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--chunks", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--layers", type=int, default=24, help="of the reference; the actor has 2")
    given = parser.parse_args(arguments)
    names = (0, *given.chunks)
    plans: dict[int, Plan] = {}
    seconds: dict[int, list[float]] = defaultdict(list)
    early: dict[int, list[float]] = defaultdict(list)
    apart: dict[int, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.seeds):
            rewards: dict[int, list[float]] = {}
            for chunks in names:
                plans[chunks], settings = job(
                    chunks, seed=seed, iterations=given.iterations, reference_layers=given.layers
                )
                output = Path(folder) / f"{chunks}-{seed}"
                found = metrics_of(plans[chunks], settings, folder=output)
                early[chunks].append(early_share(read_records(output / "records.jsonl")))
                seconds[chunks].append(
                    median(each["perf/time_per_step"] for each in found[WARM_UP:])
                )
                rewards[chunks] = [each["critic/score/mean"] for each in found]
                pairs = zip(rewards[chunks], rewards[0], strict=True)
                apart[chunks].append(max(abs(one - other) for one, other in pairs))
                print(
                    f"seed {seed}, {chunks} chunks: {1e3 * seconds[chunks][-1]:.0f} ms", flush=True
                )
    headers = ("× faster", "planned", "scored early", "rewards apart")
    table = Table("chunks", "iteration ms", "planned ms", *headers)
    for chunks in names:
        faster = [one / own for one, own in zip(seconds[0], seconds[chunks], strict=True)]
        table.add_row(
            str(chunks) if chunks else "no streams",
            f"{1e3 * median(seconds[chunks]):.0f}",
            f"{1e3 * plans[chunks].iteration_seconds:.0f}",
            f"{min(faster):.2f}–{max(faster):.2f}",
            f"{plans[0].iteration_seconds / plans[chunks].iteration_seconds:.2f}",
            f"{median(early[chunks]):.0%}",
            f"{max(apart[chunks]):.3g}",
        )
    Console(width=120).print(table)  # none of its columns is cut


if __name__ == "__main__":
    main()
