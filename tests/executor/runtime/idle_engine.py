"""An engine that computes nothing, for tests of how runs end: light to import."""

import time

import torch

from automap.executor.batch import Batch, Ragged
from automap.executor.engines.training_engine import Loss, Output, TrainingEngine
from automap.executor.workers.model_setup import ModelSetup
from automap.executor.workers.model_worker import Factories, Rollout, SyncPlace, WeightSync
from automap.executor.workers.process import ProcessContext


class IdleEngine:
    def forward(self, batch: Batch, output: Output, *, temperature: float = 1.0) -> Batch:
        tokens = batch.ragged("response_tokens")
        return Batch({output: tokens.with_values(torch.zeros(len(tokens.values)))})

    def train_step(self, batch: Batch, loss: Loss, *, temperature: float = 1.0) -> dict[str, float]:
        return {"loss": 0.0}


class SlowRollout:
    """The prompts themselves, after a time that the first prompt's first token gives."""

    def start(self, *, changed: bool) -> dict[str, float]:
        return {}

    def weight_bytes(self) -> dict[str, float]:
        return {}

    def generate(
        self, prompts: Batch, *, responses_per_prompt: int, greedy: bool, iteration: int
    ) -> Batch:
        rows = prompts.take(torch.arange(prompts.num_rows).repeat_interleave(responses_per_prompt))
        time.sleep(float(rows.ragged("prompt_tokens").values[0]))
        tokens = rows.ragged("prompt_tokens")
        log_probs = tokens.with_values(torch.zeros(len(tokens.values)))
        return rows.with_columns(
            response_tokens=tokens,
            response_log_probs=log_probs,
            finished=torch.ones(rows.num_rows, dtype=torch.bool),
        )

    def stop(self) -> None: ...


class Prompts:
    """Rows of two tokens: so many seconds, and the row's number."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def prepare(self, num_rows: int) -> None: ...

    def next_batch(self, num_rows: int) -> Batch:
        tokens = [torch.tensor([self.seconds, row]) for row in range(num_rows)]
        return Batch({"prompt_tokens": Ragged.of(tokens), "prompt_id": torch.arange(num_rows)})


def hangs(response_tokens: list[list[int]]) -> list[float]:
    time.sleep(60)
    return []


def ones(response_tokens: list[list[int]]) -> list[float]:
    return [1.0] * len(response_tokens)


def build_engine(setup: ModelSetup, context: ProcessContext) -> TrainingEngine:
    return IdleEngine()  # type: ignore[return-value]


def build_rollout(
    setup: ModelSetup, context: ProcessContext, engine: TrainingEngine | None
) -> Rollout:
    return SlowRollout()


def build_sync(
    setup: ModelSetup, place: SyncPlace, engine: TrainingEngine | None, rollout: Rollout | None
) -> WeightSync:
    raise AssertionError("there is no shadow")


def build_nothing(setup: ModelSetup, context: ProcessContext) -> TrainingEngine:
    raise MemoryError("no room for the weights")


FACTORIES = Factories(build_engine, build_rollout, build_sync)
"""Engines that start."""
BROKEN = Factories(build_nothing, build_rollout, build_sync)
"""Engines that do not."""
