"""What Megatron-core needs of CUDA, stood in for on machines without it.

Only the name `torch` inside Megatron's own modules is replaced, by a proxy whose CUDA device is the
CPU. PyTorch itself, and whatever else lives in the process, is left as it was.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

_FACTORIES = ("arange", "empty", "full", "ones", "rand", "randn", "tensor", "zeros")


class _Stream:
    """The one order of execution that a CPU has."""

    def __init__(self, *args: object, **kwargs: object) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: object) -> None: ...

    def wait_event(self, event: object) -> None: ...

    def record_event(self, event: object = None) -> "_Event":
        return _Event()


class _Event:
    def __init__(self, *args: object, **kwargs: object) -> None: ...

    def record(self, stream: object = None) -> None: ...

    def wait(self, stream: object = None) -> None: ...

    def synchronize(self) -> None: ...


class _Cuda(ModuleType):
    """torch.cuda as far as Megatron uses it."""

    Stream = _Stream
    Event = _Event

    @staticmethod
    def current_device() -> torch.device:
        return torch.device("cpu")

    @staticmethod
    def synchronize(device: object = None) -> None: ...

    @staticmethod
    def empty_cache() -> None: ...

    @staticmethod
    def current_stream(device: object = None) -> _Stream:
        return _Stream()

    default_stream = current_stream

    @staticmethod
    def stream(stream: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @staticmethod
    def manual_seed(seed: int) -> None: ...

    @staticmethod
    def get_rng_state(device: object = None) -> Tensor:
        return torch.empty(0, dtype=torch.uint8)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cuda, name)


class _Torch(ModuleType):
    """torch, but for `cuda` and for tensors made on it."""

    cuda = _Cuda("torch.cuda")

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch, name)
        if name in _FACTORIES:
            found = _on_host(found)
        setattr(self, name, found)
        return found


def _on_host(factory: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(*args: Any, **kwargs: Any) -> Tensor:
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return factory(*args, **kwargs)

    return make


def install() -> None:
    """Put the stand-ins into Megatron's modules that are imported so far; once is enough."""
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.moe import token_dispatcher

    proxy = _Torch("torch")
    for name, module in list(sys.modules.items()):
        if name.startswith("megatron.") and vars(module).get("torch") is torch:
            vars(module)["torch"] = proxy
    # The states of random generators that are never drawn from: models have no dropout here.
    vars(random)["_get_cuda_rng_state"] = lambda *args, **kwargs: torch.empty(0)
    vars(random)["_set_cuda_rng_state"] = lambda *args, **kwargs: None
    # On the way from the device Megatron turns counts into what torch.distributed takes.
    vars(token_dispatcher)["maybe_move_tensor_to_cpu"] = _to_counts


def _to_counts(counts: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
    return counts.numpy() if as_numpy and isinstance(counts, Tensor) else counts


@contextlib.contextmanager
def cuda_type_names(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Let `type()` of parameters on the CPU name the CUDA type that the optimizers insist on."""
    renamed = [each for each in parameters if not each.is_cuda]
    for each in renamed:
        name = f"torch.cuda.{each.type().removeprefix('torch.')}"
        vars(each)["type"] = lambda name=name: name
    try:
        yield
    finally:
        for each in renamed:
            del vars(each)["type"]
