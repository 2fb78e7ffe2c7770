"""Tensors that wait on the host while others use the device."""

import torch
from torch import Tensor


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


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
