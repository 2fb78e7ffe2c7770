"""Every layout up to a number of ranks, and where its ranks stand, by reshaping arrays."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import numpy.typing as npt

from automap.executor.layout import GenerationLayout, Order, RankLayout

ORDERS: tuple[Order, ...] = ("megatron", "hybridflow")
Ranks = npt.NDArray[np.int64]


def divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def rank_layouts(
    *, largest: int, with_context: bool = False, smallest: int = 1
) -> Iterator[RankLayout]:
    for world_size, order in product(range(smallest, largest + 1), ORDERS):
        for tensor in divisors(world_size):
            for pipeline in divisors(world_size // tensor):
                rest = world_size // tensor // pipeline
                for context in divisors(rest) if with_context else [1]:
                    yield RankLayout(
                        tensor_parallel_size=tensor,
                        pipeline_parallel_size=pipeline,
                        context_parallel_size=context,
                        data_parallel_size=rest // context,
                        order=order,
                    )


def generation_layouts(
    *, largest: int, with_context: bool = False, smallest: int = 1
) -> Iterator[GenerationLayout]:
    for training in rank_layouts(largest=largest, with_context=with_context, smallest=smallest):
        for tensor in divisors(training.tensor_parallel_size):
            for pipeline in divisors(training.pipeline_parallel_size):
                yield GenerationLayout(training, tensor, pipeline)


def grid(layout: RankLayout) -> Ranks:
    """Ranks as an array [pipeline, data, context, tensor], laid out axis by axis."""
    t, p = layout.tensor_parallel_size, layout.pipeline_parallel_size
    c, d = layout.context_parallel_size, layout.data_parallel_size
    ranks = np.arange(t * p * c * d)
    if layout.order == "megatron":
        return ranks.reshape(p, d, c, t)
    return ranks.reshape(d, c, p, t).transpose(2, 0, 1, 3)


def generation_grid(layout: GenerationLayout) -> Ranks:
    """Ranks as an array [data, micro_data, pipeline, tensor], by slicing the training's array."""
    training, t, p = layout.training, layout.tensor_parallel_size, layout.pipeline_parallel_size
    d, dg = layout.data_parallel_size, layout.micro_data_parallel_size
    if layout.grouping == "vanilla":
        if training.order == "megatron":
            return np.arange(layout.world_size).reshape(p, d, dg, t).transpose(1, 2, 0, 3)
        return np.arange(layout.world_size).reshape(d, dg, p, t)
    pipelines = training.pipeline_parallel_size // p
    tensors = training.tensor_parallel_size // t
    split = grid(training).reshape(p, pipelines, d, t, tensors)
    return split.transpose(2, 1, 4, 0, 3).reshape(d, dg, p, t)
