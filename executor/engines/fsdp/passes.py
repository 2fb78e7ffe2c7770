"""Micro-batches through a sharded network: equally many on all ranks, or the gathers would hang."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from automap.executor.batch import Batch, Ragged
from automap.executor.engines.fsdp.attention import Sequences
from automap.executor.engines.fsdp.context_parallel import ContextGroup
from automap.executor.engines.fsdp.network import PackedNetwork
from automap.executor.engines.micro_batches import pack, split_rows
from automap.executor.engines.training_engine import Output


class Passes:
    """Runs the micro-batches of each call in turn."""

    def __init__(
        self,
        network: PackedNetwork,
        mesh: DeviceMesh,
        device: torch.device,
        context: ContextGroup,
    ) -> None:
        """Micro-batches are split over the mesh's data ranks; see `split_rows`."""
        self._network = network
        self._group = mesh["data"].get_group()
        self._device = device
        self._context = context

    def micro_batches(self, batch: Batch, max_tokens: int) -> Iterator[tuple[Tensor, bool]]:
        """The rows of each, which may be none, and whether it is the last; see `split_rows`."""
        own = split_rows(batch, max_tokens=max_tokens, group=self._group, device=self._device)
        for index, rows in enumerate(own):
            yield rows, index == len(own) - 1

    def run(
        self,
        batch: Batch,
        output: Output,
        *,
        temperature: float = 1.0,
        with_entropy: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Outputs of one micro-batch, and entropies if wanted; of no rows, one that is made up."""
        packed = pack(batch if batch.num_rows else _FILLER)
        places = packed.last if output == "scores" else packed.predicting
        # Before the row is cut: the token that a slice's last one predicts is in the next slice.
        targets = packed.tokens[(places + 1).clamp(max=len(packed.tokens) - 1)]
        own = self._context.slice_of(packed, places)
        outputs = own.outputs.to(self._device)
        prediction, entropy = self._network(
            own.tokens.to(self._device),
            own.positions.to(self._device),
            Sequences.of(own.lengths, self._device, self._context),
            own.places.to(self._device),
            targets[own.outputs].to(self._device),
            temperature,
            with_entropy,
        )
        prediction = self._context.gather(prediction, outputs, len(places))
        if entropy is not None:
            entropy = self._context.gather(entropy, outputs, len(places))
        return prediction, entropy


_FILLER = Batch(
    {
        "prompt_tokens": Ragged.of([torch.zeros(1, dtype=torch.int64)]),
        "response_tokens": Ragged.of([torch.zeros(1, dtype=torch.int64)]),
    }
)
