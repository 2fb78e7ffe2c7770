"""Seconds of one inference-engine step, tabulated over batch size and cache length."""

from dataclasses import dataclass

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture, layers_by_mixer
from automap.planner.cost import constants
from automap.planner.cost.generation.forward_pass import (
    ForwardPass,
    eager_seconds,
    forward_pass_seconds,
)
from automap.planner.cost.layer.attended import (
    attends,
    indexer_cache_elements,
    latent_cache_elements,
    read_tokens,
    state_bytes,
)
from automap.planner.cost.layer.transformer_layer import KernelContext, add, scaled
from automap.planner.cost.operators.profile import Timed
from automap.planner.cost.rollout_engines import EngineProfile
from automap.planner.cost.rows import ceil_div
from automap.planner.cost.shards import local_key_value_heads
from automap.planner.layout import FloatArray, IntArray

CACHE_POINTS = 5
"""Cache lengths at which attention is tabulated."""


@dataclass(frozen=True, slots=True)
class EngineShapes:
    """Distinct (tensor, pipeline, expert) parallel sizes of engine replicas [shape]."""

    tensor_parallel_size: IntArray
    pipeline_parallel_size: IntArray
    expert_parallel_size: IntArray

    def __len__(self) -> int:
        return len(self.tensor_parallel_size)


@dataclass(frozen=True, slots=True)
class StepTables:
    """Seconds of a decode step through all stages: [shape, batch]; attention [shape, batch, cache].

    `batch` is the running batch of one pipeline micro-batch.
    """

    batches: FloatArray
    cache_lengths: FloatArray
    compute: FloatArray
    attention: FloatArray
    communication: FloatArray
    source: IntArray
    """Weakest provenance [shape], as an index into layout.SOURCES."""
    least_seconds: float = 0.0
    """Time to launch the kernels of a step that is not replayed from a graph."""

    def at(
        self, shape: IntArray, batch: FloatArray, cache_length: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """(compute, communication) seconds, linear between the tabulated points.

        `shape` indexes the distinct shapes and broadcasts against batch and cache length.
        """
        steps = np.log2(np.maximum(batch, 1.0)) * 2.0  # batches are spaced by √2
        low = np.minimum(steps.astype(np.int64), len(self.batches) - 2)
        weight = (batch - self.batches[low]) / (self.batches[low + 1] - self.batches[low])
        places = len(self.batches)
        flat = shape * places + low
        compute = _between(self.compute.ravel(), flat, flat + 1, weight)
        moved = _between(self.communication.ravel(), flat, flat + 1, weight)
        points = len(self.cache_lengths)
        spacing = self.cache_lengths[1] - self.cache_lengths[0]
        position = (cache_length - self.cache_lengths[0]) / spacing
        left = np.clip(position.astype(np.int64), 0, points - 2)
        base = flat * points + left
        table = self.attention.ravel()
        near = _between(table, base, base + points, weight)
        far = _between(table, base + 1, base + points + 1, weight)
        attention = near + (position - left) * (far - near)
        return np.maximum(compute + attention, 0.0), np.maximum(moved, 0.0)

    def overhead_seconds(
        self, engine: EngineProfile, batch: FloatArray, cached: FloatArray, on_gpu: FloatArray
    ) -> FloatArray:
        """Seconds that the host adds to a step's `on_gpu`, with so many tokens per sequence.

        The GPU waits for some of its work. The rest, launches and what follows them, runs beside
        the GPU, and shows where it takes longer.
        """
        waited = engine.step_seconds + engine.sequence_seconds * batch
        each = engine.launched_sequence_seconds + engine.launched_token_seconds * cached
        beside = self.least_seconds + each * batch
        return np.asarray(waited + np.maximum(beside - on_gpu, 0.0), dtype=np.float64)


def _between(table: FloatArray, low: IntArray, high: IntArray, weight: FloatArray) -> FloatArray:
    lower = table[low]
    return lower + weight * (table[high] - lower)


def step_tables(
    context: KernelContext, shapes: EngineShapes, *, largest_batch: int, cache_lengths: FloatArray
) -> StepTables:
    """Tabulate a decode step; micro-batches of a pipeline each pass all stages."""
    count = int(np.ceil(2 * np.log2(max(largest_batch, 2)))) + 2
    batches = np.sqrt(2.0) ** np.arange(count)
    grid = _grid(shapes, batches, captured=context.engine.captured)
    compute, moved = forward_pass_seconds(context, grid)
    columns = (
        shapes.tensor_parallel_size[:, None, None],
        batches[None, :, None],
        cache_lengths[None, None, :],
    )
    attention = cached_attention(context, *columns)
    size = (len(shapes), count)
    sources = [part.source.reshape(size).max(axis=1) for part in (compute, moved)]
    sources.append(attention.source.max(axis=(1, 2)))
    return StepTables(
        batches=batches,
        cache_lengths=cache_lengths,
        compute=compute.seconds.reshape(size),
        attention=attention.seconds,
        communication=moved.seconds.reshape(size),
        source=np.maximum.reduce(sources),
        least_seconds=0.0 if context.engine.captured else eager_seconds(context),
    )


def cached_attention(
    context: KernelContext, tensor: IntArray, batch: FloatArray, cache_length: FloatArray
) -> Timed:
    """Seconds in which one token of every sequence attends to its cache, or updates its state.

    Of all layers' mixers; tensor parallel size, sequences and their cached tokens broadcast.
    """
    return add(
        *(
            scaled(_mixer(context, sizes, tensor, batch, cache_length), count)
            for sizes, count in layers_by_mixer(context.model.architecture)
        )
    )


def _mixer(
    context: KernelContext,
    arch: ModelArchitecture,
    tensor: IntArray,
    batch: FloatArray,
    cache_length: FloatArray,
) -> Timed:
    """Seconds of one layer's attention in a decode step, or of its state; arguments broadcast."""
    if attends(arch):
        read = read_tokens(arch, cache_length)
        found = _attention(context, arch, tensor, batch, read)
        return add(found, _indexer(context, arch, batch, cache_length))
    # The state of every sequence is read and written; the convolution's is small beside it.
    moved = 2.0 * state_bytes(arch, element_bytes=constants.PRECISION_BYTES["bf16"])
    one = context.profile.memory_bound(moved * batch / tensor)
    shape = np.broadcast_shapes(tensor.shape, batch.shape, cache_length.shape)
    return Timed(np.broadcast_to(one.seconds, shape), np.broadcast_to(one.source, shape))


def _attention(
    context: KernelContext,
    arch: ModelArchitecture,
    tensor: IntArray,
    batch: FloatArray,
    cache_length: FloatArray,
) -> Timed:
    """Seconds of one layer's attention in a decode step over so many tokens; arguments broadcast.

    Latent attention (MLA) reads one vector per token, which serves all heads as key and as value
    (the up-projections are absorbed by query and output); every GPU of the tensor group has it.
    """
    heads = ceil_div(arch.num_attention_heads, tensor)
    element = constants.PRECISION_BYTES[context.cache_precision]
    latent = latent_cache_elements(arch)
    if latent:
        key_value, width, cache_bytes = np.ones_like(tensor), latent, element
    else:
        key_value, width = local_key_value_heads(arch, tensor), arch.head_dim
        cache_bytes = 2 * element
    as_measured = 2 * constants.PRECISION_BYTES["bf16"]
    return context.profile.decode_attention(
        batch_size=batch,
        kv_length=cache_length,
        num_attention_heads=heads,
        num_key_value_heads=key_value,
        head_dim=width,
        cache_bytes=None if cache_bytes == as_measured else cache_bytes,
    )


def _indexer(
    context: KernelContext, arch: ModelArchitecture, batch: FloatArray, cache_length: FloatArray
) -> Timed:
    """Seconds in which an indexer reads its key of every cached token; 0 without one."""
    keys = indexer_cache_elements(arch)
    element = constants.PRECISION_BYTES[context.cache_precision]
    one = context.profile.memory_bound(keys * element * batch * cache_length)
    return one if keys else Timed(np.zeros(1), np.zeros(1, dtype=np.int64))


def _grid(shapes: EngineShapes, batches: FloatArray, *, captured: bool) -> ForwardPass:
    count = len(batches)
    tokens = np.tile(np.ceil(batches - 1e-9).astype(np.int64), len(shapes))
    return ForwardPass(
        np.repeat(shapes.tensor_parallel_size, count),
        np.repeat(shapes.pipeline_parallel_size, count),
        np.repeat(shapes.expert_parallel_size, count),
        tokens,
        logits=tokens,
        captured=captured,
    )
