"""The weights that a rank generates with, in blocks of which one can be the weights it trains."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import torch
from torch import Tensor

from automap.executor.engines.offload import HostCopies
from automap.executor.reshard.buckets import aligned
from automap.executor.reshard.gather import AllGather
from automap.executor.reshard.parts import Held, Part, by_name

Training = Literal["shared", "released", "host"]


class GenerationBuffer:
    """One rank's generation shard: what it trains, and what the others of its group hold.

    Between `fill` and `release` the training weights are, as `training` says,

    - `shared`: a block of the shard themselves. Nothing is copied, and no byte is held twice
      unless weights travel in another dtype than they train in;
    - `released`: freed. `release` fills them again, from the shard or by `rebuild`;
    - `host`: on the host.

    A rank never holds more than its generation shard and one bucket; in the two latter modes also
    its training shard twice while that is packed or filled again.
    """

    def __init__(
        self,
        gather: AllGather,
        weights: Callable[[], Iterable[Tensor]],
        *,
        training: Training = "shared",
        rebuild: Callable[[], None] | None = None,
    ) -> None:
        """Takes no memory yet.

        Args:
            gather: brings what the others hold.
            weights: the parameters that train, in which the gather's pieces lie.
            training: what becomes of them, see above.
            rebuild: fills released weights again, such as from fp32 masters; None: the shard does.

        Raises:
            ValueError: the shard could not fill released weights again.
        """
        self._gather, self._weights = gather, weights
        self._training, self._rebuild = training, rebuild
        self._host = HostCopies()
        self._emptied: list[tuple[torch.UntypedStorage, int]] = []
        self._own: dict[Part, Tensor] = {}
        self._held: dict[Part, Tensor] = {}
        gather.ledger.watch("training", weights())
        if training == "released" and rebuild is None:
            self._check_complete()

    def fill(self) -> None:
        """Gather the shard. Collective over the gather's group."""
        if self._training != "shared":
            self._put_away()
        views = self._own or self._gather.views()
        shared = {part for part, view in views.items() if view.dtype == part.dtype}
        received = self._block(part for part in self._gather.wanted if part not in shared)
        for _, held in self._gather.run(views):
            for part, values in held.items():
                if part in received:
                    received[part].copy_(values.reshape(part.shape))
                else:
                    self._held[part] = values
        self._held |= received

    def tensors(self) -> Iterator[tuple[str, Held]]:
        """Every tensor of the shard with the parts of it that are here."""
        for name, parts in by_name(self._held).items():
            yield name, {part: self._held[part] for part in parts}

    @property
    def shard_bytes(self) -> int:
        """Bytes of the generation shard; replicated weights count once."""
        return sum(part.nbytes for part in self._gather.wanted)

    @torch.no_grad()
    def release(self) -> None:
        """Give up the shard; the training weights are as they were before `fill`."""
        self._held = {}
        for storage, nbytes in self._emptied:
            storage.resize_(nbytes)
        self._host.give_back()
        self._gather.ledger.watch("training", self._weights())
        if self._emptied and self._rebuild is not None:
            self._rebuild()
        elif self._emptied:
            for part, view in self._gather.views().items():
                view.copy_(self._own[part].view(view.shape))
        self._emptied, self._own = [], {}

    @torch.no_grad()
    def _put_away(self) -> None:
        views = self._gather.views()
        self._own = self._block(views)
        for part, view in views.items():
            self._own[part].view(view.shape).copy_(view)
        if self._training == "host":
            self._host.take(list(self._weights()))
            return
        for weight in self._weights():
            storage = weight.untyped_storage()
            self._emptied.append((storage, storage.nbytes()))
            storage.resize_(0)

    def _block(self, parts: Iterable[Part]) -> dict[Part, Tensor]:
        """Room for parts, in one storage."""
        chosen = list(parts)
        nbytes = sum(aligned(part.nbytes) for part in chosen)
        memory = torch.empty(nbytes, dtype=torch.uint8, device=self._gather.device)
        self._gather.ledger.watch("generation", [memory])
        places, at = {}, 0
        for part in chosen:
            places[part] = memory[at : at + part.nbytes].view(part.dtype).view(part.shape)
            at += aligned(part.nbytes)
        return places

    def _check_complete(self) -> None:
        views = self._gather.views()
        changed = [part.name for part, view in views.items() if view.dtype != part.dtype]
        if changed:
            raise ValueError(f"released weights need rebuild: {changed[0]} changes its dtype")
        storages = {
            each.untyped_storage()._cdata: each.untyped_storage() for each in self._weights()
        }
        missing = sum(storage.nbytes() for storage in storages.values()) - sum(
            part.nbytes for part in views
        )
        if missing:
            raise ValueError(
                f"released weights need rebuild: {missing} bytes of them are in no tensor"
            )
