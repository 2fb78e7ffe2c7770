"""From processes that train to others that generate, on devices of their own.

The two sets are torch worlds apart. They meet at a store, agree there on who sends what, and
join small groups of one sender and the receivers that read the same of its shard: one broadcast
per shard and bucket brings each receiver exactly what it generates with. Neither set's default
group is needed; to replace a set, both ends are built anew under another name.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from automap.executor.engines.training_engine import Piece
from automap.executor.layout import RankLayout
from automap.executor.reshard.buckets import aligned
from automap.executor.reshard.gather import BUCKET_BYTES, slots
from automap.executor.reshard.ledger import Ledger
from automap.executor.reshard.moves import MoveBucket, cut, move_buckets, moves_by_tensor
from automap.executor.reshard.parts import Held, Part, Target, by_name, part_of

Channel = tuple[int, ...]
"""A sender and its receivers, by their numbers among all members."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where both sets of processes meet, and how many they are."""

    store: c10d.Store
    """Open to both."""
    name: str
    """Another for every meeting at the same store."""
    num_senders: int
    num_receivers: int
    timeout: timedelta = field(default=timedelta(minutes=30))
    """To wait for a member, and for a broadcast."""


def sender_ranks(layout: RankLayout) -> list[int]:
    """The fewest first ranks of each stage that together hold the model, in order.

    Those of its first copy, and where experts lie on more ranks than one copy has, on these.
    """
    ranks = range(layout.world_size)
    return [rank for rank in ranks if layout.expert_coordinates(rank).expert_data == 0]


class _End:
    """What senders and receivers have in common: the plan, and the groups."""

    def __init__(
        self,
        meeting: Meeting,
        member: int,
        announced: dict[str, Any],
        device: torch.device,
        ledger: Ledger | None,
    ) -> None:
        self.ledger = ledger if ledger is not None else Ledger()
        self._meeting, self._member, self._device = meeting, member, device
        meeting.store.set(f"{meeting.name}/{member}", json.dumps(announced))
        members = [self._read(each) for each in range(_size(meeting))]
        bucket_bytes = members[0]["bucket_bytes"]
        moves = moves_by_tensor([_described(each) for each in members], take_turns=False)
        self._buckets = list(move_buckets(moves, bucket_bytes))
        channels = sorted({each for bucket in self._buckets for each in _channels(bucket)})
        # All join in one order, so nobody waits for somebody who waits for him.
        self._groups = {
            channel: self._join(channel, number)
            for number, channel in enumerate(channels)
            if member in channel
        }

    def _read(self, member: int) -> dict[str, Any]:
        key = f"{self._meeting.name}/{member}"
        self._meeting.store.wait([key], self._meeting.timeout)
        announced: dict[str, Any] = json.loads(self._meeting.store.get(key))
        return announced

    def _join(self, channel: Channel, number: int) -> Any:
        store = c10d.PrefixStore(f"{self._meeting.name}/channel/{number}", self._meeting.store)
        rank, timeout = channel.index(self._member), self._meeting.timeout
        if self._device.type == "cuda":
            options = c10d.ProcessGroupNCCL.Options()
            options._timeout = timeout
            return c10d.ProcessGroupNCCL(store, rank, len(channel), options)
        return c10d.ProcessGroupGloo(store, rank, len(channel), timeout)

    def _own_channels(self, bucket: MoveBucket) -> list[tuple[Channel, list[Part]]]:
        """The channels that this process is in, in the order that all processes keep to."""
        return [each for each in _channels(bucket).items() if self._member in each[0]]

    def _nbytes(self, bucket: MoveBucket) -> int:
        return sum(_nbytes(parts) for _, parts in self._own_channels(bucket))

    def _memory(self, nbytes: int) -> Tensor:
        """Memory of `nbytes` bytes that one bucket after the other uses."""
        memory = torch.empty(nbytes, dtype=torch.uint8, device=self._device)
        self.ledger.watch("bucket", [memory])
        return memory

    def _broadcast(self, channel: Channel, memory: Tensor) -> None:
        self._groups[channel].broadcast(memory, 0).wait()


class WeightSender(_End):
    """A training process's end: sends this rank's shard to those who read of it."""

    def __init__(
        self,
        meeting: Meeting,
        index: int,
        pieces: Callable[[], Iterable[Piece]],
        *,
        dtype: torch.dtype | None = None,
        bucket_bytes: int = BUCKET_BYTES,
        ledger: Ledger | None = None,
    ) -> None:
        """Waits until all members are there.

        Args:
            meeting: the same for all members.
            index: of this process among the senders; see `sender_ranks`.
            pieces: this rank's weights, asked for at every `send`.
            dtype: to send floating-point weights in; None: as they are.
            bucket_bytes: most that a receiver receives at once, unless by a single tensor; the
                first sender's counts.
            ledger: to count in; None: one of its own.

        Raises:
            ValueError: the senders hold less of a tensor than a receiver reads.
            torch.distributed.DistStoreError: a member did not come in time.
        """
        self._pieces, self._dtype = pieces, dtype
        views = self._views()
        announced = {"parts": [_to_json(part) for part in views], "bucket_bytes": bucket_bytes}
        super().__init__(meeting, index, announced, next(iter(views.values())).device, ledger)

    @torch.no_grad()
    def send(self) -> None:
        """Send the weights as they are now; returns when they are on their way."""
        views = self._views()
        whole = self._memory(max(map(self._nbytes, self._buckets), default=0))
        for bucket in self._buckets:
            held = {move.sent: move for move in bucket.moves if move.source == self._member}
            for channel, parts in self._own_channels(bucket):
                memory = whole[: _nbytes(parts)]
                for part, values in slots(parts, memory):
                    values.copy_(cut(views, held[part]))
                self._broadcast(channel, memory)

    def _views(self) -> dict[Part, Tensor]:
        return {part_of(piece, self._dtype): piece.view for piece in self._pieces()}


class WeightReceiver(_End):
    """A generating process's end; takes the place of a gather in a `Transition`."""

    num_members: int = 2  # what comes is never the training weight itself

    def __init__(
        self,
        meeting: Meeting,
        index: int,
        target: Target,
        *,
        device: torch.device | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """Waits until all members are there.

        Args:
            meeting: the same for all members.
            index: of this process among the receivers.
            target: what it generates with.
            device: to receive on; None: the current GPU, or the CPU where there is none.
            ledger: to count in; None: one of its own.

        Raises:
            ValueError: the senders hold less of a tensor than a receiver reads.
            torch.distributed.DistStoreError: a member did not come in time.
        """
        if device is None:
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        member = meeting.num_senders + index
        super().__init__(meeting, member, {"target": asdict(target)}, device, ledger)

    @torch.no_grad()
    def run(self) -> Iterator[tuple[str, Held]]:
        """Every tensor with what this rank reads of it; valid until the next is asked for."""
        whole = self._memory(max(map(self._nbytes, self._buckets), default=0))
        for bucket in self._buckets:
            held: Held = {}
            at = 0
            for channel, parts in self._own_channels(bucket):
                memory = whole[at : at + _nbytes(parts)]
                at += len(memory)
                self._broadcast(channel, memory)
                self.ledger.receive("broadcast", bucket.kind, memory.nbytes)
                held.update(slots(parts, memory))
            for name, parts in by_name(held).items():
                yield name, {part: held[part] for part in parts}


def _channels(bucket: MoveBucket) -> dict[Channel, list[Part]]:
    """What is sent in a bucket, by who takes part."""
    receivers: dict[tuple[int, Part], list[int]] = {}
    for move in bucket.moves:
        receivers.setdefault((move.source, move.sent), []).append(move.target)
    channels: dict[Channel, list[Part]] = {}
    for (source, part), targets in receivers.items():
        channels.setdefault((source, *targets), []).append(part)
    return dict(sorted(channels.items()))


def _nbytes(parts: Iterable[Part]) -> int:
    return sum(aligned(part.nbytes) for part in parts)


def _size(meeting: Meeting) -> int:
    return meeting.num_senders + meeting.num_receivers


def _described(announced: dict[str, Any]) -> tuple[list[Part], Target | None]:
    if "target" not in announced:
        return [_from_json(part) for part in announced["parts"]], None
    target = announced["target"]
    for name in ("layers", "experts"):
        target[name] = tuple(target[name]) if target[name] else None
    return [], Target(**target)


def _to_json(part: Part) -> dict[str, Any]:
    return asdict(part) | {"dtype": str(part.dtype).removeprefix("torch.")}


def _from_json(part: dict[str, Any]) -> Part:
    return Part(
        name=part["name"],
        full_shape=tuple(part["full_shape"]),
        start=tuple(part["start"]),
        shape=tuple(part["shape"]),
        dtype=getattr(torch, part["dtype"]),
    )
