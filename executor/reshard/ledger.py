"""Bytes of weights: which storages are alive, and what each collective brought.

Counted from the tensors themselves where they are made and sent, never from a formula.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

MemoryKind = Literal["training", "generation", "bucket", "assembly", "host"]
"""Weights that train; received ones that generate; in transit; full-shape tensors on their way
into the generation engine; copies on the host."""
TrafficKind = Literal["layers", "ends", "replicated"]
"""Split weights of layers; of embedding and head; and what several ranks hold alike."""


@dataclass(slots=True)
class Ledger:
    """One rank's account. Storages count once, however many tensors share them, until freed."""

    received: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Bytes by collective and kind of traffic."""
    calls: Counter[str] = field(default_factory=Counter)
    """Collectives called, by name."""
    peaks: Counter[str] = field(default_factory=Counter)
    """Most bytes alive at once by kind of memory."""
    peak_bytes: int = 0
    """Most bytes alive at once in all kinds together, the host left out."""
    _watched: dict[str, dict[int, StorageWeakRef]] = field(default_factory=dict)

    def watch(self, kind: MemoryKind, tensors: Iterable[Tensor]) -> None:
        """Count these tensors' storages from now on for as long as they live."""
        watched = self._watched.setdefault(kind, {})
        for tensor in tensors:
            reference = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
            watched[reference.cdata] = reference
        self.sample()

    def sample(self) -> None:
        """Note a peak if there is one. Called whenever a storage is added, before any is freed."""
        alive = {kind: self.alive(kind) for kind in self._watched}
        for kind, nbytes in alive.items():
            self.peaks[kind] = max(self.peaks[kind], nbytes)
        on_device = sum(nbytes for kind, nbytes in alive.items() if kind != "host")
        self.peak_bytes = max(self.peak_bytes, on_device)

    def forget_peaks(self) -> None:
        """Peaks are those from now on."""
        self.peaks.clear()
        self.peak_bytes = 0
        self.sample()

    def alive(self, *kinds: str) -> int:
        """Bytes of the storages of these kinds that exist now; an emptied storage has none."""
        return sum(map(self._alive, kinds))

    def receive(self, collective: str, kind: TrafficKind, nbytes: int) -> None:
        """Note what a collective brought from other ranks."""
        self.calls[collective] += 1
        self.received[collective, kind] += nbytes

    def received_bytes(self, *kinds: TrafficKind) -> int:
        """In all collectives, of these kinds of traffic; of all if none is named."""
        return sum(
            nbytes for (_, kind), nbytes in self.received.items() if not kinds or kind in kinds
        )

    def _alive(self, kind: str) -> int:
        watched = self._watched.get(kind, {})
        total = 0
        for key, reference in list(watched.items()):
            storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
            if storage is None:
                del watched[key]
            else:
                total += storage.nbytes()
        return total
