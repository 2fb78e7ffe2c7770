"""Tensors that wait on the host while others use the device."""

from typing import Literal

import torch
from torch import Tensor

Offload = Literal["optimizer", "weights"]


def device() -> torch.device:
    """Where the model lives: this process's GPU, or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


class HostCopies:
    """Contents of tensors whose device storages are freed meanwhile.

    The storages are emptied in place, so every tensor that shares them comes back by itself. On a
    CPU the same happens, from memory to memory.
    """

    def __init__(self) -> None:
        self._copies: list[tuple[torch.UntypedStorage, Tensor]] = []

    def take(self, tensors: list[Tensor]) -> None:
        """Copy the tensors' storages to pinned host memory and free them."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage.nbytes() == 0:
                continue
            content = _bytes_of(storage)
            copy = torch.empty(content.shape, dtype=torch.uint8, pin_memory=content.is_cuda)
            self._copies.append((storage, copy.copy_(content)))
            del content
            storage.resize_(0)

    def give_back(self) -> None:
        """Fill the storages again and drop the copies."""
        for storage, copy in self._copies:
            storage.resize_(len(copy))
            _bytes_of(storage).copy_(copy, non_blocking=True)
        if self._copies and self._copies[0][0].device.type == "cuda":
            torch.cuda.synchronize()
        self._copies = []

    def __bool__(self) -> bool:
        return bool(self._copies)

    def nbytes(self) -> int:
        """Bytes on the host."""
        return sum(len(copy) for _, copy in self._copies)


class Offloadable:
    """A model of which the optimizer's state, or that and the weights, can wait on the host."""

    def __init__(self) -> None:
        self._away: dict[Offload, HostCopies] = {"optimizer": HostCopies(), "weights": HostCopies()}

    def weight_tensors(self) -> list[Tensor]:
        """Local tensors of the weights."""
        raise NotImplementedError

    def optimizer_tensors(self) -> list[Tensor]:
        """Local masters (where they are not the weights) and moments; a model alone has none."""
        return []

    def offload(self, what: Offload) -> None:
        """Move masters and moments, or them and the weights, to host memory until `reload`."""
        if what == "weights":
            self._away["weights"].take(self.weight_tensors())
        elif what != "optimizer":
            raise ValueError(f"offload must be optimizer or weights, got {what!r}")
        self._away["optimizer"].take(self.optimizer_tensors())

    def reload(self, *, optimizer: bool = True) -> None:
        """Bring back what `offload` moved, or of it the weights alone."""
        self._away["weights"].give_back()
        if optimizer:
            self._away["optimizer"].give_back()

    def offloaded_bytes(self) -> int:
        """Bytes of this rank's state that are on the host."""
        return sum(copies.nbytes() for copies in self._away.values())

    def require_on_device(self, what: Offload) -> None:
        """RuntimeError if it is on the host."""
        if self._away[what]:
            raise RuntimeError(f"the {what} of the model are on the host: call reload() first")


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
