"""How a call to all workers of a model hands out its arguments and gathers their outputs.

HybridFlow's transfer protocols (section 4, Table 3): a worker's method declares one with
`@transfer("3D")`, and the controller applies it with the model's layout. Pure Python: it moves
whatever can be split by rows, batches in memory or references to rows that lie elsewhere.

To add one:

    register(by_rows("HALVES", part=lambda layout, rank: rank % 2, collected=lambda layout: [0, 1]))
"""

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from automap.executor.layout import GenerationLayout, RankLayout
from automap.executor.workers.quick_pickles import by_position

Layout = RankLayout | GenerationLayout
Method = TypeVar("Method", bound=Callable[..., Any])


@typing.runtime_checkable
class Splittable(typing.Protocol):
    """Rows that a protocol can split and put together again."""

    @property
    def num_rows(self) -> int: ...

    def slice(self, start: int, stop: int) -> "Splittable":
        """Rows start … stop − 1."""
        ...

    @classmethod
    def concatenate(cls, parts: Sequence[Any]) -> "Splittable":
        """The rows of all parts, of which there is at least one."""
        ...


@by_position
@dataclass(frozen=True, slots=True)
class Call:
    """The arguments that one rank is called with."""

    args: tuple[object, ...]
    kwargs: dict[str, object]


def _every_rank(layout: Layout) -> Sequence[int]:
    return range(layout.world_size)


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way to distribute an argument over the ranks of a layout and to collect their outputs."""

    name: str
    distribute: Callable[[Layout, object], Sequence[object]]
    """What each rank gets of an argument; ValueError if it cannot be split so."""
    collect: Callable[[Layout, Sequence[object]], object]
    """The result of the call, from one output per rank; None for ranks that were not called."""
    called: Callable[[Layout], Sequence[int]] = _every_rank
    """The ranks that are called at all."""
    collected: Callable[[Layout], Sequence[int]] = _every_rank
    """The ranks whose outputs `collect` looks at; others need not store theirs."""

    def calls(
        self,
        layout: Layout,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> list[Call | None]:
        """For each rank its arguments, or None where it is not called.

        Raises:
            ValueError: an argument cannot be distributed; the message names it.
        """
        in_order = [self._shares(layout, index, value) for index, value in enumerate(args)]
        by_name = {name: self._shares(layout, name, each) for name, each in (kwargs or {}).items()}
        called = set(self.called(layout))
        return [
            Call(
                tuple(shares[rank] for shares in in_order),
                {name: shares[rank] for name, shares in by_name.items()},
            )
            if rank in called
            else None
            for rank in range(layout.world_size)
        ]

    def _shares(self, layout: Layout, argument: int | str, value: object) -> Sequence[object]:
        try:
            shares = self.distribute(layout, value)
        except ValueError as error:
            raise ValueError(f"protocol {self.name}, argument {argument!r}: {error}") from error
        if len(shares) != layout.world_size:
            raise ValueError(
                f"protocol {self.name}, argument {argument!r}: distributed to {len(shares)} ranks, "
                f"but there are {layout.world_size}"
            )
        return shares


def row_ranges(num_rows: int, num_parts: int) -> list[tuple[int, int]]:
    """Contiguous parts of nearly equal size, (start, stop) each; the first ones are larger by one.

    Raises:
        ValueError: fewer rows than parts.
    """
    if num_rows < num_parts:
        raise ValueError(
            f"{num_rows} rows cannot be split into {num_parts} parts of at least one row each; "
            f"pad them to {num_parts} or more"
        )
    size, larger = divmod(num_rows, num_parts)
    starts = [part * size + min(part, larger) for part in range(num_parts + 1)]
    return list(pairwise(starts))


def scatter(value: object, parts: Sequence[int]) -> list[object]:
    """Rows split into max(parts) + 1 parts, `parts[rank]` to each rank; anything else to all."""
    if not isinstance(value, Splittable):
        return [value] * len(parts)
    pieces = [value.slice(*each) for each in row_ranges(value.num_rows, max(parts) + 1)]
    return [pieces[part] for part in parts]


def gather(outputs: Sequence[object], ranks: Sequence[int]) -> object:
    """The outputs of these ranks in this order: rows concatenated, anything else as a list.

    Raises:
        TypeError: some ranks returned rows and some did not.
    """
    chosen = [outputs[rank] for rank in ranks]
    rows = [output for output in chosen if isinstance(output, Splittable)]
    if not rows:
        return chosen
    if len(rows) < len(chosen):
        kinds = {rank: type(outputs[rank]).__name__ for rank in ranks}
        raise TypeError(f"some ranks returned rows and others did not: {kinds}")
    return type(rows[0]).concatenate(rows)


def broadcast(layout: Layout, value: object) -> list[object]:
    """The value for every rank."""
    return [value] * layout.world_size


def by_rows(
    name: str, *, part: Callable[[Layout, int], int], collected: Callable[[Layout], Sequence[int]]
) -> Protocol:
    """A protocol that splits rows: which part each rank gets, and which ranks' outputs count.

    `collected` names one rank per part, in the order of the parts.
    """
    return Protocol(
        name,
        distribute=lambda layout, value: scatter(
            value, [part(layout, rank) for rank in range(layout.world_size)]
        ),
        collect=lambda layout, outputs: gather(outputs, collected(layout)),
        collected=collected,
    )


def _training(layout: Layout) -> RankLayout:
    return layout.training if isinstance(layout, GenerationLayout) else layout


def _generation(layout: Layout) -> GenerationLayout:
    """Ranks that generate as they are laid out, if nothing else is said."""
    if isinstance(layout, GenerationLayout):
        return layout
    return GenerationLayout(layout, layout.tensor_parallel_size, layout.pipeline_parallel_size)


def _one_item_per_rank(layout: Layout, value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise ValueError(
            f"must be a list with an item for each of {layout.world_size} ranks, "
            f"got {type(value).__name__}"
        )
    if len(value) != layout.world_size:
        raise ValueError(f"has {len(value)} items for {layout.world_size} ranks")
    return value


def _one_item_per_replica(layout: Layout, value: object) -> Sequence[object]:
    if not isinstance(value, list):
        return broadcast(layout, value)
    generation = _generation(layout)
    if len(value) != generation.num_replicas:
        raise ValueError(f"has {len(value)} items for {generation.num_replicas} replicas")
    return [value[generation.replica(rank)] for rank in range(layout.world_size)]


def _gather_some(outputs: Sequence[object], ranks: Sequence[int]) -> object:
    with_rows = [rank for rank in ranks if outputs[rank] is not None]
    return gather(outputs, with_rows) if with_rows else None


def _data_leaders(layout: Layout) -> list[int]:
    """The last stage's first rank of every data-parallel replica."""
    training = _training(layout)
    last = training.pipeline_parallel_size - 1
    return [
        training.rank_of(data=data, pipeline=last) for data in range(training.data_parallel_size)
    ]


def _stage_leaders(layout: Layout) -> list[int]:
    """The first rank of every pipeline stage of the first replica."""
    training = _training(layout)
    return [training.rank_of(pipeline=each) for each in range(training.pipeline_parallel_size)]


def _stage_and_data_part(layout: Layout, rank: int) -> int:
    training = _training(layout)
    place = training.coordinates(rank)
    return place.data * training.pipeline_parallel_size + place.pipeline


def _stage_and_data_leaders(layout: Layout) -> list[int]:
    training = _training(layout)
    return [
        training.rank_of(data=data, pipeline=pipeline)
        for data in range(training.data_parallel_size)
        for pipeline in range(training.pipeline_parallel_size)
    ]


def _replica_leaders(layout: Layout) -> list[int]:
    """The first rank of every generation replica, in the order of the replicas."""
    generation = _generation(layout)
    replicas = generation.groups("tensor", "pipeline")
    return sorted((group[0] for group in replicas), key=generation.replica)


ONE_TO_ALL = Protocol(
    "ONE_TO_ALL", broadcast, lambda layout, outputs: [outputs[rank] for rank in _every_rank(layout)]
)
"""One value to every rank; a list of all outputs. To initialise, load, save."""
RANK_ZERO = Protocol(
    "RANK_ZERO",
    lambda layout, value: [value] + [None] * (layout.world_size - 1),
    lambda layout, outputs: outputs[0],
    called=lambda layout: [0],
    collected=lambda layout: [0],
)
"""Rank 0 alone is called; its output as it is."""
ALL_TO_ALL = Protocol("ALL_TO_ALL", _one_item_per_rank, ONE_TO_ALL.collect)
"""Every argument is a list with an item per rank; a list of all outputs."""
DP = by_rows("DP", part=lambda layout, rank: rank, collected=_every_rank)
"""Pure data parallelism: every rank takes its own part of the rows."""
THREE_D = by_rows(
    "3D",
    part=lambda layout, rank: _training(layout).coordinates(rank).data,
    collected=_data_leaders,
)
"""A part for each data-parallel replica, the same to its tensor, context and pipeline ranks.

Collected from the last stage, tensor and context rank 0, of every replica.
"""
THREE_D_ALL_MICRO_DP = by_rows(
    "3D_ALL_MICRO_DP",
    part=lambda layout, rank: _generation(layout).replica(rank),
    collected=_replica_leaders,
)
"""A part for each generation replica, the same to its tensor and pipeline ranks.

The paper's table gives one part to a whole micro-data-parallel group; with tensor or pipeline
groups in generation that would hand unlike prompts to the ranks of one replica, so here the d_g
ranks of a micro-data-parallel group take a part each, consecutive ones. Collected from local rank 0
of every replica. On a layout without generation of its own, the training's replicas generate.
"""
THREE_D_PER_REPLICA = Protocol(
    "3D_PER_REPLICA",
    lambda layout, value: _one_item_per_replica(layout, value),
    lambda layout, outputs: _gather_some(outputs, _replica_leaders(layout)),
    collected=_replica_leaders,
)
"""A list has an item for each generation replica, the same to its tensor and pipeline ranks.

Collected as by 3D_ALL_MICRO_DP, from the replicas that have rows; None if none has.
"""
THREE_D_PP_ONLY = Protocol(
    "3D_PP_ONLY",
    broadcast,
    lambda layout, outputs: gather(outputs, _stage_leaders(layout)),
    collected=_stage_leaders,
)
"""One value to every rank; collected from tensor, context and data rank 0 of every stage."""
PP_AS_DP = by_rows("PP_AS_DP", part=_stage_and_data_part, collected=_stage_and_data_leaders)
"""Stages take rows like data-parallel ranks: parts run over stages first, then replicas."""

_PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        ONE_TO_ALL,
        RANK_ZERO,
        ALL_TO_ALL,
        DP,
        THREE_D,
        THREE_D_ALL_MICRO_DP,
        THREE_D_PER_REPLICA,
        THREE_D_PP_ONLY,
        PP_AS_DP,
    )
}


def register(protocol: Protocol) -> Protocol:
    """Make a protocol known by its name; ValueError if the name is taken."""
    if protocol.name in _PROTOCOLS:
        raise ValueError(f"there is a protocol {protocol.name!r} already")
    _PROTOCOLS[protocol.name] = protocol
    return protocol


def transfer(protocol: Protocol | str) -> Callable[[Method], Method]:
    """Mark a worker's method with its protocol, or the name of a registered one."""
    if isinstance(protocol, str):
        if protocol not in _PROTOCOLS:
            raise ValueError(f"unknown protocol {protocol!r}; known are {', '.join(_PROTOCOLS)}")
        protocol = _PROTOCOLS[protocol]

    def mark(method: Method) -> Method:
        method.transfer_protocol = protocol  # type: ignore[attr-defined]
        return method

    return mark


def protocol_of(method: Callable[..., Any]) -> Protocol:
    """What a method was marked with; TypeError if it was not."""
    protocol = getattr(method, "transfer_protocol", None)
    if not isinstance(protocol, Protocol):
        name = getattr(method, "__qualname__", repr(method))
        raise TypeError(f"{name} declares no protocol: mark it with @transfer(...)")
    return protocol
