"""Micro-batches through Megatron-core's pipeline schedules."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from torch import Tensor, nn
from torch.nn.functional import pad

from automap.executor.batch import Batch, Ragged
from automap.executor.engines.log_probs import CHUNK_BYTES, token_log_probs
from automap.executor.engines.megatron.attention import Sequences
from automap.executor.engines.megatron.decoder import DecoderStage
from automap.executor.engines.megatron.parallel_groups import ParallelGroups
from automap.executor.engines.micro_batches import Packed, pack, split_rows
from automap.executor.engines.training_engine import Output


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One packed row on the device."""

    tokens: Tensor
    """[tokens] int64."""
    positions: Tensor
    """[tokens] int64."""
    sequences: Sequences
    predicting: Tensor
    """[response tokens] int64: places whose outputs predict the response tokens."""
    last: Tensor
    """[rows] int64: places of the sequences' last tokens."""
    batch: Batch
    counts: bool
    """Not if it only fills up the schedule."""


OnLastStage = Callable[[DecoderStage, MicroBatch, Tensor], tuple[Tensor, Any]]
"""From hidden states to a loss (or any tensor) and what is kept of the micro-batch."""


def make_micro_batches(
    batch: Batch,
    groups: ParallelGroups,
    *,
    max_tokens: int,
    multiple: int,
    device: torch.device,
) -> tuple[list[MicroBatch], list[Tensor]]:
    """Split, pack, and fill up with rows that count for nothing.

    All data ranks get equally many. The interleaved schedule also wants a multiple of the stages,
    and equally many tokens in each.

    Args:
        batch: this data rank's rows; may be none.
        groups: of the layout.
        max_tokens: of a micro-batch; see `split_rows`.
        multiple: what a micro-batch's tokens are padded to.
        device: where to.

    Returns:
        The micro-batches, and the row indices of those that count.
    """
    interleaved = groups.virtual_pipeline_parallel_size > 1
    indices = split_rows(
        batch,
        max_tokens=max_tokens,
        group=groups.data,
        device=device,
        multiple=groups.layout.pipeline_parallel_size if interleaved else 1,
    )
    parts = [pack(batch.take(index) if len(index) else _FILLER) for index in indices]
    if interleaved and parts:
        longest = max(len(part.tokens) for part in parts)
        multiple = -(-longest // multiple) * multiple
    return [
        _to_device(part, multiple, device, counts=len(index) > 0)
        for index, part in zip(indices, parts, strict=True)
    ], [index for index in indices if len(index)]


def run(
    chunks: Sequence[nn.Module],
    micro_batches: list[MicroBatch],
    on_last_stage: OnLastStage,
    groups: ParallelGroups,
    *,
    forward_only: bool,
) -> list[Any]:
    """What the last stage keeps of every micro-batch that counts; nothing on other stages.

    With gradients, they are summed over micro-batches and data ranks when this returns.
    """
    if not micro_batches:
        return []
    stages, virtual = groups.layout.pipeline_parallel_size, groups.virtual_pipeline_parallel_size
    schedule = get_forward_backward_func(stages, virtual if virtual > 1 else None)
    kept = schedule(
        forward_step_func=partial(_forward_step, on_last_stage),
        data_iterator=[iter(micro_batches) for _ in chunks],
        model=list(chunks),
        num_microbatches=len(micro_batches),
        # Read by the interleaved schedule alone: else stages tell each other the shapes.
        seq_length=len(micro_batches[0].tokens),
        micro_batch_size=1,
        forward_only=forward_only,
    )
    return [each for each, own in zip(kept, micro_batches, strict=False) if own.counts]


def predict(
    stage: DecoderStage,
    micro_batch: MicroBatch,
    hidden: Tensor,
    output: Output,
    *,
    temperature: float = 1.0,
    with_entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What the last stage puts out, and entropies if wanted, on every tensor rank; float32."""
    if output == "scores":
        return stage.score(hidden)[micro_batch.last], None
    if output == "values":
        return stage.score(hidden)[micro_batch.predicting], None
    weight = stage.shared_embedding_or_output_weight()
    assert weight is not None
    group, rank, rows = stage.groups.tp, stage.groups.tp.rank(), len(weight)
    # Rows that pad the vocabulary, all on the last rank, must not count. The function takes a
    # rank's first row to be rank × its rows, so that the last rank shifts the targets instead.
    real = min(rows, stage.vocab_size - rank * rows)
    targets = micro_batch.batch.ragged("response_tokens").values - rank * (rows - real)
    return token_log_probs(
        stage.hidden_at(hidden, micro_batch.predicting),
        weight if real == rows else weight[:real],
        targets,
        temperature=temperature,
        with_entropy=with_entropy,
        group=group if group.size() > 1 else None,
        # Equal on all ranks, whatever their real rows: they reduce chunk by chunk.
        chunk_tokens=max(CHUNK_BYTES // (4 * rows), 1),
    )


def _forward_step(
    on_last_stage: OnLastStage, micro_batches: Iterator[MicroBatch], chunk: nn.Module
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Any]]]:
    micro_batch = next(micro_batches)
    hidden = chunk(micro_batch.tokens, micro_batch.positions, micro_batch.sequences)
    model = chunk if isinstance(chunk, DecoderStage) else chunk.module
    assert isinstance(model, DecoderStage)

    def finish(output: Tensor) -> tuple[Tensor, Tensor, Any]:
        if micro_batch.counts:
            result, kept = on_last_stage(model, micro_batch, output)
        else:
            result, kept = output.sum() * 0.0, None
        # Megatron's count of tokens, which it would divide by; the loss is divided already.
        return result, torch.zeros((), dtype=torch.int), kept

    return hidden, finish


def _to_device(packed: Packed, multiple: int, device: torch.device, *, counts: bool) -> MicroBatch:
    filler = -len(packed.tokens) % multiple
    lengths = tuple(packed.lengths.tolist()) + ((filler,) if filler else ())
    return MicroBatch(
        tokens=pad(packed.tokens, (0, filler)).to(device),
        positions=pad(packed.positions, (0, filler)).to(device),
        sequences=Sequences.of(lengths, device),
        predicting=packed.predicting.to(device),
        last=packed.last.to(device),
        batch=packed.batch.to(device),
        counts=counts,
    )


_FILLER = Batch(
    {
        "prompt_tokens": Ragged.of([torch.zeros(1, dtype=torch.int64)]),
        "response_tokens": Ragged.of([torch.zeros(1, dtype=torch.int64)]),
    }
)
