"""From a training engine's weights to the tensors that vLLM loads, on the ranks that do both."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from automap.executor.engines.training_engine import Piece
from automap.executor.layout import GenerationLayout
from automap.executor.reshard.exchange import Exchange
from automap.executor.reshard.gather import BUCKET_BYTES, AllGather
from automap.executor.reshard.ledger import Ledger
from automap.executor.reshard.local_groups import new_local_group
from automap.executor.reshard.parts import (
    Held,
    Part,
    Target,
    by_name,
    covers,
    full_tensor,
    is_whole,
    whole,
)

Pieces = Callable[[], Iterable[Piece]]


class Source(Protocol):
    """Brings tensors in parts: an `AllGather`, an `Exchange`, or a `WeightReceiver`."""

    @property
    def num_members(self) -> int:
        """Where there is but one, what comes may be the training weights themselves."""
        ...

    def run(self) -> Iterator[tuple[str, Held]]:
        """Every tensor with what this rank reads of it; valid until the next is asked for."""
        ...


class Transition:
    """Brings the generation weights of this rank, one tensor after the other."""

    def __init__(self, sources: Iterable[Source], ledger: Ledger) -> None:
        self._sources = list(sources)
        self.ledger = ledger

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Hugging Face names and tensors of the full shape, for `VllmEngine.load_weights`.

        Only what this rank's target reads is filled in. A tensor has memory of its own (in the
        ledger as `assembly`) that goes when the caller lets go of it, unless it is the training
        weight itself. Collective; must be exhausted.
        """
        for source in self._sources:
            for name, held in source.run():
                part, values = next(iter(held.items()))
                if source.num_members == 1 and is_whole(part):
                    yield name, values.reshape(part.shape)
                    continue
                tensor = full_tensor(held)
                self.ledger.watch("assembly", [tensor])
                yield name, tensor

    def parts(self) -> Iterator[tuple[str, Held]]:
        """The parts that `tensors` puts together; each is valid until the next is asked for."""
        for run in [source.run() for source in self._sources]:
            yield from run


def gather_within(
    pieces: Pieces,
    layout: GenerationLayout,
    *,
    dtype: torch.dtype | None = None,
    only: Callable[[str], bool] = lambda name: True,
    bucket_bytes: int = BUCKET_BYTES,
    ledger: Ledger | None = None,
) -> AllGather:
    """The all-gather that a layout asks for, over this rank's own group.

    In interval grouping that is its micro-data-parallel group. In vanilla grouping it is the
    model-parallel group (HybridFlow, Table 2), of which a rank keeps what it generates with.

    Args: see `AllGather`. Ranks are those of torch's default group.
    """
    rank = dist.get_rank()
    if layout.grouping == "interval" or layout.micro_data_parallel_size == 1:
        ranks = _own(layout.groups("micro_data"), rank)
    else:
        ranks = _own(layout.training.groups("tensor", "pipeline"), rank)
    shard = layout.shard(rank)
    return AllGather(
        pieces,
        new_group(ranks),
        dtype=dtype,
        keep=[shard.contains(layout.training.shard(member)) for member in ranks],
        only=only,
        bucket_bytes=bucket_bytes,
        ledger=ledger,
    )


def model_parallel_transition(
    pieces: Pieces,
    layout: GenerationLayout,
    *,
    num_key_value_heads: int,
    dtype: torch.dtype | None = None,
    bucket_bytes: int = BUCKET_BYTES,
    ledger: Ledger | None = None,
) -> Transition:
    """For an engine whose shards are by tensor and pipeline rank, in interval grouping.

    A tensor that training and vLLM cut at other places (a vocabulary that they pad unlike) comes
    from the whole model-parallel group instead of the micro-data-parallel one.

    Args:
        pieces: this rank's weights, asked for at every transition.
        layout: over torch's default group.
        num_key_value_heads: of the model.
        dtype: to generate in; None: as the weights are.
        bucket_bytes: see `AllGather`.
        ledger: to count in; None: one of its own.
    """
    ledger = ledger if ledger is not None else Ledger()
    place = layout.coordinates(dist.get_rank())
    target = Target(place.tensor, layout.tensor_parallel_size, num_key_value_heads)
    near = gather_within(pieces, layout, dtype=dtype, bucket_bytes=bucket_bytes, ledger=ledger)
    group = new_group(_own(layout.training.groups("tensor", "pipeline"), dist.get_rank()))
    far = _cut_elsewhere(near, target, place.pipeline, group)
    if not far:
        return Transition([near], ledger)
    near = gather_within(
        pieces,
        layout,
        dtype=dtype,
        only=lambda name: name not in far,
        bucket_bytes=bucket_bytes,
        ledger=ledger,
    )
    rest = AllGather(
        pieces,
        group,
        dtype=dtype,
        only=far.__contains__,
        bucket_bytes=bucket_bytes,
        ledger=ledger,
    )
    return Transition([near, rest], ledger)


def data_parallel_transition(
    pieces: Pieces,
    group: dist.ProcessGroup,
    target: Target,
    *,
    dtype: torch.dtype | None = None,
    bucket_bytes: int = BUCKET_BYTES,
    ledger: Ledger | None = None,
) -> Transition:
    """For an engine whose shards are by data and context rank (FSDP), to any generation layout.

    Args:
        pieces: this rank's weights, asked for at every transition.
        group: the ranks that together hold the model.
        target: what this rank generates with.
        dtype: to generate in; None: as the weights are.
        bucket_bytes: see `AllGather`.
        ledger: to count in; None: one of its own.
    """
    if target.tensor_parallel_size > 1:
        return any_transition(
            pieces, group, target, dtype=dtype, bucket_bytes=bucket_bytes, ledger=ledger
        )
    ledger = ledger if ledger is not None else Ledger()
    source = AllGather(pieces, group, dtype=dtype, bucket_bytes=bucket_bytes, ledger=ledger)
    return Transition([source], ledger)


def any_transition(
    pieces: Pieces,
    group: dist.ProcessGroup,
    target: Target,
    *,
    dtype: torch.dtype | None = None,
    bucket_bytes: int = BUCKET_BYTES,
    ledger: Ledger | None = None,
) -> Transition:
    """For any engine and any two layouts, such as interleaved stages; see `Exchange`.

    Args: as of `data_parallel_transition`.
    """
    ledger = ledger if ledger is not None else Ledger()
    exchange = Exchange(
        pieces, group, target, dtype=dtype, bucket_bytes=bucket_bytes, ledger=ledger
    )
    return Transition([exchange], ledger)


def new_group(ranks: list[int]) -> dist.ProcessGroup:
    """A group that only its members ask for, in the default group's backend."""
    group = new_local_group(sorted(ranks))
    assert isinstance(group, dist.ProcessGroup)
    return group


def _cut_elsewhere(
    near: AllGather, target: Target, stage: int, group: dist.ProcessGroup
) -> frozenset[str]:
    """Tensors of which some rank's all-gather does not bring all that its target reads.

    The ranks of a generation stage read the same tensors. A rank may hold nothing of one: with
    fewer key-value heads than tensor ranks some have the queries, others the keys and values.
    """
    held = by_name(near.wanted)
    size = dist.get_world_size(group)
    everywhere: list[tuple[int, list[Part]]] = [(0, [])] * size
    own = (stage, [whole(parts[0]) for parts in held.values()])
    dist.all_gather_object(everywhere, own, group=group)
    tensors = {each.name: each for where, them in everywhere if where == stage for each in them}
    missing = [
        name
        for name, tensor in tensors.items()
        if (read := target.part(tensor)) is not None and not covers(held.get(name, ()), read)
    ]
    names: list[list[str]] = [[]] * size
    dist.all_gather_object(names, missing, group=group)
    return frozenset(name for each in names for name in each)


def _own(groups: list[list[int]], rank: int) -> list[int]:
    return next(ranks for ranks in groups if rank in ranks)
