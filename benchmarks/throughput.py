"""Tokens per second of the tiny examples against a plain loop in one process.

    python -m benchmarks.throughput [--examples ppo grpo] [--repeat 10]

The job runs with all that it takes: two worker processes, Megatron-core or FSDP2, vLLM, the
controller. The plain loop (benchmarks/plain_loop.py) has the same task, model sizes and numbers,
and samples with a KV cache; it runs with one thread and with as many as the job has devices, and
the faster one is what the job is compared with. Tokens are those of the prompts and the responses
of an iteration. All take turns, so a busy machine slows them alike; figures are medians over
iterations. (On a busy one the job still loses more: Ray gives its workers a lower priority.) The
rewards of the last iterations show that all learn the same task.

A model this small is all overhead: the ratio says what a job costs beyond its arithmetic, and
nothing of models that fill a GPU.
"""

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table

from automap.executor.runtime.controller import Controller, device_numbers
from automap.executor.runtime.row_draws import RowSource
from benchmarks.plain_loop import PlainLoop
from benchmarks.tiny_jobs import controller_of, local_ray, prompts_of, tiny_job

JOB = "job"
WARM_UP = 2
LAST = 3
"""Iterations whose mean reward is shown."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """What one took, and earned."""

    tokens: float
    seconds: float
    reward: float


def measure(example: str, repeat: int) -> dict[str, list[Iteration]]:
    """Iterations of the job and of plain loops, in turn."""
    plan, settings = tiny_job(example)
    loops = {
        threads: (PlainLoop(plan, settings), prompts_of(plan, settings))
        for threads in (1, len(device_numbers(plan)))
    }
    measured: dict[str, list[Iteration]] = defaultdict(list)
    with local_ray(plan), controller_of(plan, settings) as controller:
        prompts = prompts_of(plan, settings)
        for number in range(1, WARM_UP + repeat + 1):
            measured[JOB].append(_iteration(controller, number, prompts))
            for threads, (loop, own_prompts) in loops.items():
                torch.set_num_threads(threads)
                batch = own_prompts.next_batch(plan.spec.workload.prompts_per_iteration)
                begun = time.perf_counter()
                tokens, reward = loop.iterate(batch)
                done = Iteration(tokens, time.perf_counter() - begun, reward)
                measured[f"plain, {threads} thread{'s' * (threads > 1)}"].append(done)
    return {name: iterations[WARM_UP:] for name, iterations in measured.items()}


def _iteration(controller: Controller, number: int, prompts: RowSource) -> Iteration:
    done = controller.iterate(number, prompts)
    metrics = done.rollout_metrics
    tokens = metrics["rollout/prompt_tokens"] + metrics["rollout/response_tokens"]
    return Iteration(tokens, done.seconds, metrics["critic/score/mean"])


def _row(iterations: Sequence[Iteration]) -> tuple[float, float, float]:
    rate = statistics.median(each.tokens / each.seconds for each in iterations)
    seconds = statistics.median(each.seconds for each in iterations)
    return rate, seconds, statistics.mean(each.reward for each in iterations[-LAST:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--examples", nargs="+", default=["ppo", "grpo"])
    parser.add_argument("--repeat", type=int, default=10)
    given = parser.parse_args()
    table = Table("example", "", "tokens/s", "iteration ms", "× plain", "last rewards")
    for example in given.examples:
        rows = {name: _row(each) for name, each in measure(example, given.repeat).items()}
        plain = max(rate for name, (rate, _, _) in rows.items() if name != JOB)
        for name, (rate, seconds, reward) in rows.items():
            figures = (f"{rate:.0f}", f"{1e3 * seconds:.0f}", f"{rate / plain:.3f}")
            table.add_row(example, name, *figures, f"{reward:.2f}")
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
