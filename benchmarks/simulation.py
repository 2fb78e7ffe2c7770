"""The closed form of generation beside a simulated engine with the same step costs.

    python -m benchmarks.simulation [draws] [turns]

Per workload: seconds of the closed form (`cost.generation`) and of the simulation
(tests/planner/simulation/engine.py), averaged over draws of all lengths, how far the first is off,
the standard error of the second, and both's standard deviation from draw to draw. With `turns`, a
wider grid of turns with environment time in short caches (minutes).
"""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from automap.planner import catalogue
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.job.resolution import resolve_pool
from automap.planner.layout import GenerationLayouts
from automap.planner.spec import PoolSpec, WorkloadSpec
from tests.planner.simulation.comparison import Generation, compare

CONSTANT = {"mean": 1024, "max": 1024}
MEAN = {"mean": 1000, "max": 8192}
"""The planner's log-normal."""
PERCENTILES = {"p50": 600, "p90": 2500, "p99": 6000, "max": 8192}
HISTOGRAM = {"histogram": [[200, 0.5], [1000, 0.3], [4000, 0.2]]}


@dataclass(frozen=True)
class Case:
    """One workload and layout on H100 nodes."""

    name: str
    response: dict[str, Any]
    prompt: dict[str, Any]
    sequences: int
    """On each replica."""
    replicas: int = 1
    model: str = "llama-3.1-8b"
    tensor: int = 2
    pipeline: int = 1
    experts: int = 1
    """Expert-parallel size."""
    cache_share: float = 1.0
    responses_per_prompt: int = 1
    turns: int = 1
    environment_seconds: float = 0.0
    rollout_precision: str | None = None
    rollout_cache_precision: str = "bf16"
    rollout_engine: str = "vllm"

    def generation(self) -> Generation:
        number = self.sequences * self.replicas
        workload = WorkloadSpec.model_validate(
            {
                "prompts_per_iteration": number // self.responses_per_prompt,
                "responses_per_prompt": self.responses_per_prompt,
                "prompt_length": self.prompt,
                "response_length": self.response,
                "turns": self.turns,
                "environment_seconds_per_turn": self.environment_seconds,
                "rollout_precision": self.rollout_precision,
                "rollout_cache_precision": self.rollout_cache_precision,
                "rollout_engine": self.rollout_engine,
            }
        )
        sizes = (self.tensor, self.pipeline, self.experts, self.replicas)
        return Generation(
            Model("actor", catalogue.architecture(self.model), False, True, None),
            Call(
                id="actor.generate",
                role="actor",
                model="actor",
                kind="generate",
                num_sequences=number,
            ),
            workload,
            resolve_pool(PoolSpec(name="h100", gpu="h100-80gb-sxm", num_nodes=4), field="pool"),
            GenerationLayouts(*(np.array([size], dtype=np.int64) for size in sizes)),
            self.cache_share,
        )


SHORT, EQUAL, LONG = (
    {"mean": 256, "max": 256},
    {"mean": 1024, "max": 1024},
    {"mean": 700, "max": 2048},
)
CASES = (
    Case("constant", CONSTANT, LONG, 128),
    Case("constant, four fifths of the cache", CONSTANT, SHORT, 128, cache_share=0.8),
    Case("constant, waves that just fit", CONSTANT, SHORT, 128, cache_share=0.4),
    Case("constant, half the cache", CONSTANT, LONG, 128, cache_share=0.5),
    Case("constant, an eighth of the cache", CONSTANT, SHORT, 128, cache_share=0.125),
    Case("log-normal", MEAN, LONG, 128),
    Case("log-normal, few", MEAN, LONG, 16),
    Case("log-normal, many", MEAN, SHORT, 512),
    Case("log-normal, 0.8 of the cache", MEAN, LONG, 128, cache_share=0.8),
    Case("log-normal, half the cache", MEAN, LONG, 128, cache_share=0.5),
    Case("log-normal, an eighth of the cache", MEAN, LONG, 128, cache_share=0.125),
    Case("percentiles with a heavy tail", PERCENTILES, LONG, 128),
    Case("heavy tail, a quarter of the cache", PERCENTILES, SHORT, 128, cache_share=0.25),
    Case("histogram", HISTOGRAM, LONG, 128),
    Case("histogram, a quarter of the cache", HISTOGRAM, LONG, 128, cache_share=0.25),
    Case("16 responses per prompt", MEAN, EQUAL, 128, responses_per_prompt=16),
    Case(
        "16 per prompt, 0.3 of the cache",
        MEAN,
        EQUAL,
        128,
        cache_share=0.3,
        responses_per_prompt=16,
    ),
    Case("8 replicas", MEAN, LONG, 32, replicas=8),
    Case("70B, 4 stages", MEAN, SHORT, 128, model="llama-3.1-70b", tensor=4, pipeline=4),
    Case("70B in fp8", MEAN, LONG, 64, 1, "llama-3.1-70b", 4, rollout_precision="fp8"),
    Case(
        "cache in fp8, a quarter of it",
        CONSTANT,
        SHORT,
        128,
        cache_share=0.25,
        rollout_cache_precision="fp8",
    ),
    Case("SGLang", MEAN, LONG, 128, rollout_engine="sglang"),
    Case("experts", MEAN, LONG, 128, model="qwen3-30b-a3b"),
    Case("experts over 4 replicas", MEAN, LONG, 64, 4, "qwen3-30b-a3b", experts=8),
    Case("1 turn, environment 20 s", MEAN, LONG, 128, turns=1, environment_seconds=20.0),
    Case("4 equal turns, environment 5 s", CONSTANT, SHORT, 128, turns=4, environment_seconds=5.0),
    Case("4 turns, environment 2 s", MEAN, LONG, 128, turns=4, environment_seconds=2.0),
    Case("8 turns, environment 5 s", MEAN, SHORT, 64, turns=8, environment_seconds=5.0),
    Case(
        "4 turns, 0.3 of the cache",
        MEAN,
        LONG,
        128,
        cache_share=0.3,
        turns=4,
        environment_seconds=2.0,
    ),
    Case(
        "heavy tail, 4 turns of 20 s, 0.2",
        PERCENTILES,
        SHORT,
        64,
        cache_share=0.2,
        turns=4,
        environment_seconds=20.0,
    ),
    Case("prompts of several chunks", CONSTANT, {"mean": 12000, "max": 32768}, 48),
    Case(
        "8 turns, mostly away, short cache",
        MEAN,
        SHORT,
        64,
        cache_share=0.3,
        turns=8,
        environment_seconds=5.0,
    ),
)


TURNS = tuple(
    Case(
        f"{name}, {number}, {share:g} of the cache, {turns} × {each:g} s",
        response,
        LONG,
        number,
        cache_share=share,
        turns=turns,
        environment_seconds=each,
    )
    for name, response in (("equal", CONSTANT), ("log-normal", MEAN), ("heavy", PERCENTILES))
    for number in (64, 256)
    for share in (0.15, 0.3, 0.6)
    for turns, each in ((3, 1.0), (3, 20.0), (8, 5.0))
)


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    cases = TURNS if "turns" in sys.argv[2:] else CASES
    print(f"{'':40} {'closed s':>9} {'simulated':>9} {'off':>6} {'error':>6} {'spread s':>14}")
    worst = 0.0
    for case in cases:
        found = compare(case.generation(), draws=draws)
        worst = max(worst, abs(found.relative_error))
        print(
            f"{case.name:40} {found.closed_seconds:9.2f} {found.simulated_seconds:9.2f} "
            f"{found.relative_error:+6.1%} {found.standard_error / found.simulated_seconds:6.1%} "
            f"{found.closed_deviation:6.2f} {found.simulated_deviation:6.2f}  "
            f"{found.preemptions:.0f} preempted",
            flush=True,
        )
    print(f"largest deviation {worst:.1%} (target 3 %)")


if __name__ == "__main__":
    main()
