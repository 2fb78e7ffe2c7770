"""From any layout to any other on the same ranks, by the general rule.

Each rank receives its generation shard less what it already holds: M·(n−1)/n bytes from n FSDP
ranks for a replica on one rank. One all-to-all per bucket. Where all ranks want everything, the
all-gather of `gather` brings as many bytes and sends fewer.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from automap.executor.engines.training_engine import Piece
from automap.executor.reshard.gather import BUCKET_BYTES
from automap.executor.reshard.ledger import Ledger
from automap.executor.reshard.moves import Move, MoveBucket, cut, move_buckets, moves_by_tensor
from automap.executor.reshard.parts import Held, Part, Target, by_name, part_of, view_bytes


class Exchange:
    """Gives each member of a group what it generates with, from what all of them train."""

    def __init__(
        self,
        pieces: Callable[[], Iterable[Piece]],
        group: dist.ProcessGroup,
        target: Target,
        *,
        dtype: torch.dtype | None = None,
        bucket_bytes: int = BUCKET_BYTES,
        ledger: Ledger | None = None,
    ) -> None:
        """Agree with the group's members on who sends what. Collective, as every `run` is.

        Args:
            pieces: this rank's weights, asked for at every run; always the same but for values.
            group: ranks that together hold the model.
            target: what this rank generates with.
            dtype: to send floating-point weights in; None: as they are.
            bucket_bytes: most that a member receives at once, unless by a single tensor.
            ledger: to count in; None: one of its own.

        Raises:
            ValueError: the group holds less of a tensor than a target reads.
        """
        self._pieces, self._group, self._dtype = pieces, group, dtype
        self._member, self.num_members = dist.get_rank(group), dist.get_world_size(group)
        self.ledger = ledger if ledger is not None else Ledger()
        views = self._views()
        described: list[tuple[list[Part], Target]] = [([], target)] * self.num_members
        dist.all_gather_object(described, (list(views), target), group=group)
        self._buckets = list(move_buckets(moves_by_tensor(described), bucket_bytes))
        self._device = next(iter(views.values())).device

    @torch.no_grad()
    def run(self) -> Iterator[tuple[str, Held]]:
        """Every tensor that this rank wants something of, with what it wants, in parts.

        The values are valid until the next tensor is asked for. Must be exhausted on all members.
        """
        views = self._views()
        splits = [bucket.splits(self._member, self.num_members) for bucket in self._buckets]
        # One memory for all buckets: a caller may still hold views of the last one.
        memories = [
            torch.empty(max(map(sum, both)), dtype=torch.uint8, device=self._device)
            for both in zip(*splits, strict=True)
        ]
        self.ledger.watch("bucket", memories)
        for bucket in self._buckets:
            received = self._exchange(bucket, views, *memories)
            own = [move for move in bucket.moves if move.target == self._member]
            for name, parts in by_name(move.sent for move in own).items():
                held = {part: received[part] for part in parts if part in received}
                for move in own:
                    if move.sent.name == name and move.source == self._member:
                        held[move.sent] = cut(views, move).to(move.sent.dtype)
                yield name, held

    def _views(self) -> dict[Part, Tensor]:
        return {part_of(piece, self._dtype): piece.view for piece in self._pieces()}

    def _exchange(
        self, bucket: MoveBucket, views: Mapping[Part, Tensor], outgoing: Tensor, incoming: Tensor
    ) -> Held:
        """What comes from others."""
        sends, receives = bucket.splits(self._member, self.num_members)
        outgoing, incoming = outgoing[: sum(sends)], incoming[: sum(receives)]
        for move, memory in self._places(bucket, outgoing, sends, sending=True):
            view_bytes(memory, move.sent).copy_(cut(views, move))
        if any(move.nbytes for move in bucket.moves):
            dist.all_to_all_single(incoming, outgoing, receives, sends, group=self._group)
            self.ledger.receive("all_to_all", bucket.kind, incoming.nbytes)
        found = self._places(bucket, incoming, receives, sending=False)
        return {move.sent: view_bytes(memory, move.sent) for move, memory in found}

    def _places(
        self, bucket: MoveBucket, memory: Tensor, splits: Sequence[int], *, sending: bool
    ) -> Iterator[tuple[Move, Tensor]]:
        """Where each move lies: by the other member, and in the order of the moves."""
        starts = [sum(splits[:member]) for member in range(self.num_members)]
        for move in bucket.moves:
            own, other = (move.source, move.target) if sending else (move.target, move.source)
            if own == self._member and other != own:
                yield move, memory[starts[other] :]
                starts[other] += move.nbytes
