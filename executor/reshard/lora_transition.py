"""Generation weights of a model with LoRA: the base comes once, the adapter alone every time."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from automap.executor.reshard.ledger import Ledger
from automap.executor.reshard.parts import Held, full_tensor, of_whole
from automap.executor.reshard.transition import Transition


class AdapterTransition:
    """Adds an adapter's products to a base that is kept; takes the place of a `Transition`.

    What this rank reads of the base stays on the host, as it came: every product is added to that,
    so no rounding adds up, and the device holds nothing that the generation engine does not.
    """

    def __init__(
        self, base: Transition, adapter: Transition, *, scaling: float, dtype: torch.dtype
    ) -> None:
        """Nothing is sent yet.

        Args:
            base: brings the frozen weights, as they are kept.
            adapter: brings A and B of the weight `NAME.weight` as `NAME.lora_A.weight` and
                `NAME.lora_B.weight`; counts in the same ledger.
            scaling: of the product B·A.
            dtype: to generate in.
        """
        self._base, self._adapter = base, adapter
        self._scaling, self._dtype = scaling, dtype
        self._kept: dict[str, Held] | None = None
        self.ledger: Ledger = base.ledger

    @torch.no_grad()
    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """See `Transition.tensors`."""
        if self._kept is None:
            self._kept = {name: self._on_host(held) for name, held in self._base.parts()}
        factors = dict(self._adapter.tensors())
        device = next(iter(factors.values())).device
        for name, held in self._kept.items():
            tensor = full_tensor({part: each.to(device) for part, each in held.items()})
            self._add(name, tensor, held, factors)
            self.ledger.watch("assembly", [tensor])
            yield name, tensor.to(self._dtype)

    def parts(self) -> Iterator[tuple[str, Held]]:
        """What `tensors` brings, each as its one part."""
        for name, tensor in self.tensors():
            yield name, of_whole(name, tensor)

    def _on_host(self, held: Held) -> Held:
        kept: Held = {}
        for part, values in held.items():
            copy = torch.empty(part.shape, dtype=part.dtype, pin_memory=values.is_cuda)
            kept[part] = copy.copy_(values.reshape(part.shape))
        self.ledger.watch("host", kept.values())
        return kept

    def _add(self, name: str, tensor: Tensor, held: Held, factors: Mapping[str, Tensor]) -> None:
        """The adapter's product where this rank reads the tensor, in fp32 before it is rounded."""
        stem = name.removesuffix(".weight")
        first = factors.get(f"{stem}.lora_A.weight")
        if first is None:
            return
        second = factors[f"{stem}.lora_B.weight"]
        for part in held:
            rows, columns = part.index
            product = second[rows].float() @ first[:, columns].float()
            tensor[part.index] = tensor[part.index].float() + self._scaling * product
