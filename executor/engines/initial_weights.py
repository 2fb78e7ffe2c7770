"""Random weights that depend on seed and name alone, never on the layout or the engine."""

import hashlib

import torch
from torch import Tensor


def initial_tensor(
    name: str,
    shape: tuple[int, ...],
    *,
    standard_deviation: float,
    seed: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """The whole tensor of a Hugging Face name, float32, as transformers draws its models.

    Norms are ones, biases zeros, all else normal with the configuration's initializer_range. The
    values on a GPU are others than on a CPU.
    """
    if name.endswith(".bias"):
        return torch.zeros(shape, device=device)
    if len(shape) == 1:
        return torch.ones(shape, device=device)
    return seeded(name, seed, device=device, shape=shape) * standard_deviation


def seeded(
    name: str, seed: int, *, shape: tuple[int, ...], device: torch.device | str = "cpu"
) -> Tensor:
    """Standard normal values of a name's own random stream, float32."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    generator = torch.Generator(device).manual_seed(int.from_bytes(digest, "little") >> 1)
    return torch.randn(shape, generator=generator, device=device)
