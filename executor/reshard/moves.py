"""What has to move between ranks so that each gets what it reads: any layout to any other. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from automap.executor.reshard.buckets import aligned, bucket_size, kind_of
from automap.executor.reshard.ledger import TrafficKind
from automap.executor.reshard.parts import Part, Target, by_name, covers, whole


@dataclass(frozen=True, slots=True)
class Move:
    """A box of a tensor on its way from one member of a group to another, or staying where it is.

    The sender has it as part of `held`.
    """

    source: int
    target: int
    held: Part
    sent: Part

    @property
    def nbytes(self) -> int:
        return 0 if self.source == self.target else aligned(self.sent.nbytes)


def moves_of(
    held: Sequence[Sequence[Part]], wanted: Sequence[Part | None], *, take_turns: bool = True
) -> list[Move]:
    """How every member comes by what it wants of one tensor.

    Args:
        held: the parts that each member has; any two are the same or do not overlap.
        wanted: the part that each member shall have; None: nothing.
        take_turns: whether members that hold the same part share the sending of it; otherwise
            the first sends it to all.

    Raises:
        ValueError: all together hold less than somebody wants.
    """
    holders: dict[Part, list[int]] = defaultdict(list)
    for member, parts in enumerate(held):
        for part in parts:
            holders[part].append(member)
    moves = []
    for target, want in enumerate(wanted):
        if want is None:
            continue
        if not covers(holders, want):
            raise ValueError(f"no rank holds all of {want.name} at {want.start} + {want.shape}")
        for part, members in holders.items():
            if common := part.common(want):
                turn = target % len(members) if take_turns else 0
                source = target if target in members else members[turn]
                moves.append(Move(source, target, part, common))
    return moves


@dataclass(frozen=True, slots=True)
class MoveBucket:
    """Moves of tensors that travel together, all of one kind."""

    kind: TrafficKind
    moves: tuple[Move, ...]

    def splits(self, member: int, num_members: int) -> tuple[list[int], list[int]]:
        """Bytes that a member sends to each other, and receives from each."""
        sent, received = [0] * num_members, [0] * num_members
        for move in self.moves:
            if move.source == member:
                sent[move.target] += move.nbytes
            if move.target == member:
                received[move.source] += move.nbytes
        return sent, received


def moves_by_tensor(
    described: Sequence[tuple[Sequence[Part], Target | None]], *, take_turns: bool = True
) -> dict[TrafficKind, list[list[Move]]]:
    """The moves of every tensor that a group holds, by kind of traffic.

    Args:
        described: what each member holds, and what it generates with.
        take_turns: see `moves_of`.
    """
    held = [by_name(parts) for parts, _ in described]
    found: dict[TrafficKind, list[list[Move]]] = defaultdict(list)
    for name in dict.fromkeys(name for parts in held for name in parts):
        own = [parts.get(name, []) for parts in held]
        tensor = whole(next(part for parts in own for part in parts))
        wanted = [target.part(tensor) if target else None for _, target in described]
        moves = moves_of(own, wanted, take_turns=take_turns)
        found[kind_of(name, own)].append(moves)
    return found


def move_buckets(
    by_kind: Mapping[TrafficKind, list[list[Move]]], bucket_bytes: int
) -> Iterator[MoveBucket]:
    """Tensors in buckets of which no member receives more, unless by a single tensor.

    Nor more than an eighth of what the busiest member receives in all.
    """
    received: dict[int, int] = defaultdict(int)
    for tensors in by_kind.values():
        for moves in tensors:
            for move in moves:
                received[move.target] += move.nbytes
    bucket_bytes = bucket_size(bucket_bytes, max(received.values(), default=0))
    for kind, tensors in by_kind.items():
        chosen: list[Move] = []
        received = defaultdict(int)
        for moves in tensors:
            for move in moves:
                received[move.target] += move.nbytes
            if chosen and max(received.values()) > bucket_bytes:
                yield MoveBucket(kind, tuple(chosen))
                chosen, received = [], defaultdict(int)
                for move in moves:
                    received[move.target] += move.nbytes
            chosen += moves
        if chosen:
            yield MoveBucket(kind, tuple(chosen))


def cut(views: Mapping[Part, Tensor], move: Move) -> Tensor:
    """What moves, as a view or a copy out of the weights that hold it."""
    return views[move.held].reshape(move.held.shape)[move.sent.within(move.held)]
