"""In which order and in which buckets the parts of a group's members travel. Pure.

Members of one all-gather should send equally much. Tensor-parallel peers do by themselves. Those
of different pipeline stages hold different tensors, so tensors of equal size are paired up, one
of each stage; what finds no partner (an embedding, a longer stage) goes by broadcasts.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from automap.executor.reshard.ledger import TrafficKind
from automap.executor.reshard.parts import Part, by_name, layer_of

_ALIGNMENT = 8
"""Bytes; a part begins where any dtype may."""


_BUCKETS = 8
"""Chosen: in so many buckets or more weights travel, so that small models have small ones too."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One tensor: the parts that each member of the group sends of it."""

    name: str
    kind: TrafficKind
    sent: tuple[tuple[Part, ...], ...]
    """By member."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes by member."""
        return tuple(sum(aligned(part.nbytes) for part in parts) for parts in self.sent)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tensors that travel together, all of one kind."""

    units: tuple[Unit, ...]

    @property
    def kind(self) -> TrafficKind:
        return self.units[0].kind

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes by member."""
        return tuple(map(sum, zip(*(unit.sizes for unit in self.units), strict=True)))

    @property
    def is_even(self) -> bool:
        """Whether all members send equally much: one all-gather will do."""
        return len(set(self.sizes)) == 1


def aligned(nbytes: int) -> int:
    """Bytes that a part takes in a bucket."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def bucket_size(bucket_bytes: int, nbytes: int) -> int:
    """Bytes of a bucket of which there are several, if `nbytes` travel in all."""
    return min(bucket_bytes, -(-nbytes // _BUCKETS))


def units_of(parts: Sequence[Sequence[Part]]) -> list[Unit]:
    """Every tensor of which some member of the group holds parts.

    A part that several members hold alike is sent by the first of them, and by none if all hold
    it. Tensors follow in the order of the first member that holds any of them.

    Args:
        parts: what each member holds.
    """
    holders: dict[Part, list[int]] = defaultdict(list)
    for member, of_member in enumerate(parts):
        for part in dict.fromkeys(of_member):
            holders[part].append(member)
    units = []
    for name, own in by_name(holders).items():
        sent: list[list[Part]] = [[] for _ in parts]
        held: list[list[Part]] = [[] for _ in parts]
        for part in own:
            for member in holders[part]:
                held[member].append(part)
            if len(holders[part]) < len(parts):
                sent[holders[part][0]].append(part)
        units.append(Unit(name, kind_of(name, held), tuple(map(tuple, sent))))
    return units


def buckets_of(units: Iterable[Unit], bucket_bytes: int) -> Iterator[Bucket]:
    """Units in buckets of at most `bucket_bytes` over all members, or of a single round of units.

    Even buckets first within each kind; layers keep their order.
    """
    by_kind: dict[TrafficKind, list[Unit]] = defaultdict(list)
    for unit in units:
        by_kind[unit.kind].append(unit)
    for same_kind in by_kind.values():
        even, uneven = _rounds(same_kind)
        for rounds in (even, uneven):
            yield from _fill(rounds, bucket_bytes, lambda round_: sum(Bucket(round_).sizes))


def kind_of(name: str, held: Sequence[Sequence[Part]]) -> TrafficKind:
    """How a tensor's bytes are counted.

    Args:
        name: of the tensor.
        held: its parts on each member.
    """
    parts = [part for own in held for part in dict.fromkeys(own)]
    if len(set(parts)) < len(parts):
        return "replicated"
    return "ends" if layer_of(name) is None else "layers"


Round = tuple[Unit, ...]


def _rounds(units: Sequence[Unit]) -> tuple[list[Round], list[Round]]:
    """Units that together are even, and those that remain."""
    even: list[Round] = []
    uneven: list[Round] = []
    waiting: dict[int, dict[frozenset[int], list[Unit]]] = defaultdict(lambda: defaultdict(list))
    for unit in units:
        senders = frozenset(member for member, size in enumerate(unit.sizes) if size)
        sizes = {unit.sizes[member] for member in senders}
        if len(senders) in (0, len(unit.sizes)) and len(sizes) <= 1:
            even.append((unit,))
        elif len(sizes) == 1:
            waiting[sizes.pop()][senders].append(unit)
        else:
            uneven.append((unit,))
    for by_senders in waiting.values():
        paired = _pairs(by_senders)
        even += paired
        used = {unit.name for round_ in paired for unit in round_}
        uneven += [(unit,) for own in by_senders.values() for unit in own if unit.name not in used]
    order = {unit.name: index for index, unit in enumerate(units)}
    for rounds in (even, uneven):
        rounds.sort(key=lambda round_: order[round_[0].name])
    return even, uneven


def _pairs(by_senders: dict[frozenset[int], list[Unit]]) -> list[Round]:
    """One unit of each set of senders, if the sets are disjoint and leave no member out."""
    num_members = len(next(iter(by_senders.values()))[0].sizes)
    senders = [member for group in by_senders for member in group]
    if sorted(senders) != list(range(num_members)):
        return []
    return list(zip(*by_senders.values(), strict=False))


def _fill(
    rounds: Iterable[Round], bucket_bytes: int, size: Callable[[Round], int]
) -> Iterator[Bucket]:
    units: list[Unit] = []
    filled = 0
    for round_ in rounds:
        nbytes = size(round_)
        if units and filled + nbytes > bucket_bytes:
            yield Bucket(tuple(units))
            units, filled = [], 0
        units += round_
        filled += nbytes
    if units:
        yield Bucket(tuple(units))
