"""What the cases of the FSDP engine share: layouts, settings, models and rows."""

import torch.distributed as dist
from torch import Tensor

from automap.executor.batch import Batch
from automap.executor.engines.fsdp import FsdpEngine
from automap.executor.layout import RankLayout
from automap.executor.settings import OptimizerSettings, TrainingSettings
from tests.executor.engines.plain_training import random_rows, tiny_config

LAYOUTS = {
    "data2": RankLayout(data_parallel_size=2),
    "tensor2": RankLayout(tensor_parallel_size=2),
    "data4": RankLayout(data_parallel_size=4),
    "data2_tensor2": RankLayout(data_parallel_size=2, tensor_parallel_size=2),
    "context2": RankLayout(context_parallel_size=2),
    "context4": RankLayout(context_parallel_size=4),
    "context2_data2": RankLayout(context_parallel_size=2, data_parallel_size=2),
    "context2_tensor2": RankLayout(context_parallel_size=2, tensor_parallel_size=2),
}
OPTIMIZER = OptimizerSettings(
    learning_rate=1e-2,
    minimum_learning_rate=1e-3,
    warmup_steps=2,
    decay="linear",
    decay_steps=4,
    clip_grad_norm=0.5,
    # Adam divides by the gradient's size, so where that is near zero (key biases) rounding shows.
    epsilon=1e-4,
)
RATES = (0.5e-2, 1e-2, 1e-2)
"""Of the first three steps, worked out by hand."""
TRAINING = TrainingSettings(optimizer=OPTIMIZER)


def build(layout: RankLayout, family: str = "llama", **settings: object) -> FsdpEngine:
    defaults = {"precision": "fp32", "training": TRAINING, "micro_batch_tokens": 24, "seed": 7}
    vocab_size = settings.pop("vocab_size", 256)
    config = tiny_config(family, vocab_size=vocab_size)
    return FsdpEngine(config, layout=layout, **(defaults | settings))


def whole(engine: FsdpEngine) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in engine.full_tensors()}


def rows_of_data_rank(data: int, *, seed: int) -> Batch:
    """Unlike numbers of rows, so that ranks have unlike numbers of micro-batches."""
    return random_rows((7, 2, 4, 1)[data], seed=100 * seed + data)


def own_rows(engine: FsdpEngine, *, seed: int) -> Batch:
    return rows_of_data_rank(engine.place.data, seed=seed)


def all_rows(layout: RankLayout, *, seed: int) -> list[Batch]:
    return [rows_of_data_rank(data, seed=seed) for data in range(layout.data_parallel_size)]


def assert_near(got: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    """Relative to the size of the tensor."""
    error = float((got - expected).norm() / expected.norm().clamp(min=1e-12))
    assert error <= tolerance, f"{what} differs by {error:.2e}, more than {tolerance}"


def same_everywhere(value: object) -> bool:
    everyone: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, value)
    return all(each == everyone[0] for each in everyone)
