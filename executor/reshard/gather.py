"""The transition of the 3D hybrid engine: one all-gather per micro-data-parallel group.

Afterwards every member of the group has had in its hands what all members hold, bucket by bucket
and never more than one bucket at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from automap.executor.engines.training_engine import Piece
from automap.executor.reshard.buckets import (
    Bucket,
    Unit,
    aligned,
    bucket_size,
    buckets_of,
    units_of,
)
from automap.executor.reshard.ledger import Ledger
from automap.executor.reshard.parts import Held, Part, by_name, part_of, view_bytes

BUCKET_BYTES = 256 * 2**20


class AllGather:
    """Brings together what the members of one group hold.

    Building it is collective over the group, and so is every `run`; groups are independent.
    """

    def __init__(
        self,
        pieces: Callable[[], Iterable[Piece]],
        group: dist.ProcessGroup,
        *,
        dtype: torch.dtype | None = None,
        keep: Sequence[bool] | None = None,
        only: Callable[[str], bool] = lambda name: True,
        bucket_bytes: int = BUCKET_BYTES,
        ledger: Ledger | None = None,
    ) -> None:
        """Agree with the group's members on who sends what.

        Args:
            pieces: this rank's weights, asked for at every run; always the same but for values.
            group: ranks that together hold a generation shard, or more.
            dtype: to send floating-point weights in; None: as they are.
            keep: of each member, whether what it holds is wanted here; None: all.
            only: whether a tensor travels at all; the same on all members.
            bucket_bytes: of a bucket, over all members, and no more than an eighth of all that
                travels; a single tensor may exceed it.
            ledger: to count in; None: one of its own.
        """
        self._pieces, self._group, self._dtype, self._only = pieces, group, dtype, only
        self._member = dist.get_rank(group)
        self.num_members = dist.get_world_size(group)
        self.ledger = ledger if ledger is not None else Ledger()
        own = self.views()
        members: list[list[Part]] = [[] for _ in range(self.num_members)]
        dist.all_gather_object(members, list(own), group=group)
        kept = [True] * self.num_members if keep is None else keep
        self.wanted = dict.fromkeys(
            part for parts, yes in zip(members, kept, strict=True) if yes for part in parts
        )
        """The parts that a run leaves here: the generation shard."""
        units = units_of(members)
        size = bucket_size(bucket_bytes, sum(sum(unit.sizes) for unit in units))
        self._buckets = list(buckets_of(units, size))
        self.device = _device_of(own.values())

    def views(self) -> dict[Part, Tensor]:
        """This rank's weights as they are now: parts as they travel, views as they train."""
        return {
            part_of(piece, self._dtype): piece.view
            for piece in self._pieces()
            if self._only(piece.name)
        }

    def run(self, views: Mapping[Part, Tensor] | None = None) -> Iterator[tuple[str, Held]]:
        """Every tensor with its wanted parts, this rank's own among them.

        Own parts that travel in the dtype they train in are the weights themselves. The others
        lie in the bucket, and are valid only until the next tensor is asked for. Must be
        exhausted on all members. Views are made at once: a caller may empty the weights that it
        has been given.

        Args:
            views: to send and return instead of `views()`.
        """
        return self._run(self.views() if views is None else views)

    @torch.no_grad()
    def _run(self, views: Mapping[Part, Tensor]) -> Iterator[tuple[str, Held]]:
        own = by_name(views)
        most = max((sum(bucket.sizes) for bucket in self._buckets), default=0)
        memory = torch.empty(most, dtype=torch.uint8, device=self.device)
        self.ledger.watch("bucket", [memory])
        for bucket in self._buckets:
            regions = self._exchange(bucket, views, memory)
            starts = [0] * len(regions)
            for unit in bucket.units:
                received = self._received(unit, regions, starts)
                trained = {part: views[part] for part in own.get(unit.name, [])}
                held = self._held(trained, received)
                if held:
                    yield unit.name, held
                starts = [at + size for at, size in zip(starts, unit.sizes, strict=True)]

    def _exchange(
        self, bucket: Bucket, views: Mapping[Part, Tensor], memory: Tensor
    ) -> Sequence[Tensor]:
        """The bytes that each member sends, all in the memory given."""
        used = memory[: sum(bucket.sizes)]
        regions = torch.split(used, list(bucket.sizes))
        mine, at = regions[self._member], 0
        for unit in bucket.units:
            for part, values in slots(unit.sent[self._member], mine, at):
                values.view(views[part].shape).copy_(views[part])
            at += unit.sizes[self._member]
        if bucket.is_even and len(used):
            dist.all_gather_single(used, mine, group=self._group)
            self.ledger.receive("all_gather", bucket.kind, used.nbytes - mine.nbytes)
        elif len(used):
            self._broadcast(bucket, regions)
        return regions

    def _broadcast(self, bucket: Bucket, regions: Sequence[Tensor]) -> None:
        for member, region in enumerate(regions):
            if len(region):
                dist.broadcast(region, group=self._group, group_src=member)
                received = 0 if member == self._member else region.nbytes
                self.ledger.receive("broadcast", bucket.kind, received)

    def _received(self, unit: Unit, regions: Sequence[Tensor], starts: Sequence[int]) -> Held:
        """What travelled of a tensor, this rank's own parts included."""
        return {
            part: values
            for parts, region, at in zip(unit.sent, regions, starts, strict=True)
            for part, values in slots(parts, region, at)
            if part in self.wanted
        }

    def _held(self, trained: Mapping[Part, Tensor], received: Held) -> Held:
        held = dict(received)
        for part, view in trained.items():
            if part in self.wanted and (view.dtype == part.dtype or part not in received):
                held[part] = view.to(part.dtype)
        return held


def _device_of(views: Iterable[Tensor]) -> torch.device:
    for view in views:
        return view.device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def slots(parts: Sequence[Part], region: Tensor, at: int = 0) -> Iterator[tuple[Part, Tensor]]:
    """Views of a region of bytes, from a byte on, shaped like the parts that lie in it."""
    for part in parts:
        yield part, view_bytes(region[at:], part)
        at += aligned(part.nbytes)
