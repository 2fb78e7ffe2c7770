"""The random generators of one process: Python's, numpy's and torch's global ones."""

import base64
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from automap.executor.checkpoints.errors import CheckpointError

FOLDER = "random"


class RandomState(BaseModel):
    """The state of all global generators, as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    python: tuple[int, tuple[int, ...], float | None]
    numpy_keys: list[int]
    numpy_position: int
    numpy_gauss: float | None
    """The second of a pair of normal numbers, if it is still to be given out."""
    torch_cpu: str
    """The bytes, base64; likewise below."""
    torch_cuda: list[str]
    """State of every visible GPU's generator; empty on a machine without."""
    trackers: dict[str, str]
    """A library's own generators by name, such as Megatron's of model-parallel ranks."""

    @classmethod
    def capture(cls, trackers: Mapping[str, Tensor] | None = None) -> Self:
        """State of this process's generators now; `trackers`: states of further ones, uint8."""
        numpy = np.random.get_state(legacy=False)
        version, words, gauss = random.getstate()
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return cls(
            python=(version, words, gauss),
            numpy_keys=numpy["state"]["key"].tolist(),
            numpy_position=numpy["state"]["pos"],
            numpy_gauss=numpy["gauss"] if numpy["has_gauss"] else None,
            torch_cpu=_encoded(torch.get_rng_state()),
            torch_cuda=[_encoded(state) for state in cuda],
            trackers={name: _encoded(state) for name, state in (trackers or {}).items()},
        )

    def restore(self) -> dict[str, Tensor]:
        """Set the generators of this process back; returns the trackers' states to set.

        GPUs of which the state has none keep theirs.
        """
        random.setstate(self.python)
        np.random.set_state(
            {
                "bit_generator": "MT19937",
                "state": {
                    "key": np.array(self.numpy_keys, dtype=np.uint32),
                    "pos": self.numpy_position,
                },
                "has_gauss": int(self.numpy_gauss is not None),
                "gauss": self.numpy_gauss or 0.0,
            }
        )
        torch.set_rng_state(_decoded(self.torch_cpu))
        if torch.cuda.is_available():
            for device, state in enumerate(self.torch_cuda[: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(_decoded(state), device)
        return {name: _decoded(state) for name, state in self.trackers.items()}

    def save(self, folder: Path, process: str) -> None:
        """Into a checkpoint's folder, under the name of a process.

        Raises:
            CheckpointError: the disk refuses.
        """
        path = folder / FOLDER / f"{process}.json"
        try:
            path.parent.mkdir(exist_ok=True)
            write_synced(path, self.model_dump_json())
        except OSError as error:
            raise CheckpointError(f"{path} cannot be written: {error}") from error

    @classmethod
    def load(cls, folder: Path, process: str) -> Self | None:
        """What a process of that name saved; None: the layout had none of that name."""
        path = folder / FOLDER / f"{process}.json"
        return cls.model_validate_json(path.read_text()) if path.exists() else None


def write_synced(path: Path, text: str) -> None:
    """Write a file and have it on the disk before returning."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _encoded(state: Tensor) -> str:
    return base64.b64encode(state.cpu().numpy().tobytes()).decode()


def _decoded(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
