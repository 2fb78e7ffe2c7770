"""vLLM's weights as plain tensors, whose memory comes and goes and which are filled in place.

Where kernels read a model's weights as they are, nothing has to be packed, and no layer is put
together twice. vLLM's own loaders say where each element of a Hugging Face tensor belongs: they
are given tensors without values once, and the copies that they would make are written down.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers import utils

from automap.executor.reshard.parts import Held, Part, full_tensor, whole


@dataclass(frozen=True, slots=True)
class Place:
    """A box of a Hugging Face tensor, and the view of vLLM's weights that it goes to."""

    part: Part
    view: Tensor


@dataclass(frozen=True, slots=True)
class _Tensor:
    """What vLLM makes of one Hugging Face tensor."""

    places: tuple[Place, ...]
    parameters: frozenset[str]
    """vLLM's names of the parameters that it goes to."""
    needs_loader: bool
    """Whether vLLM does more with it than to copy boxes."""


class PlainWeights:
    """The parameters of a vLLM model on this rank, each in memory of its own."""

    def __init__(self, model: nn.Module, config: VllmConfig) -> None:
        """The model was built `without_packing`."""
        self._model, self._config = model, config
        self._parameters = dict(model.named_parameters())
        self._sizes = {
            _key(each): each.untyped_storage().nbytes() for each in self._parameters.values()
        }
        every = dict(model.named_parameters(remove_duplicate=False))
        self._tied = every.keys() - self._parameters.keys()
        """Other names of parameters; tensors of these names are not read."""
        self._known: dict[tuple[str, tuple[int, ...]], _Tensor] = {}

    def tensors(self) -> Sequence[Tensor]:
        """All parameters."""
        return list(self._parameters.values())

    def places(self, part: Part) -> Sequence[Place]:
        """Where the elements of a part's whole tensor go on this rank; none if they go nowhere."""
        return self._of(part).places

    @torch.no_grad()
    def fill(self, name: str, held: Held) -> frozenset[str]:
        """Copy what vLLM reads of a tensor to where it reads it, taking memory for that.

        Returns:
            vLLM's names of the parameters that it goes to.
        """
        first = next(iter(held))
        tensor = self._of(first)
        for parameter in tensor.parameters & self._parameters.keys():
            self.take(self._parameters[parameter])
        if tensor.needs_loader:
            with set_current_vllm_config(self._config):
                self._load([(name, full_tensor(held))])
            return tensor.parameters
        for place in tensor.places:
            for part, values in held.items():
                if common := part.common(place.part):
                    source = values.reshape(part.shape)[common.within(part)]
                    place.view[common.within(place.part)].copy_(source)
        return tensor.parameters

    def missing(self, filled: frozenset[str]) -> list[str]:
        """Names of the parameters that nothing went to."""
        return sorted(set(self._parameters) - filled)

    def take(self, tensor: Tensor) -> None:
        """Memory for a parameter, if it has none; zeros, as what pads it stays."""
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            storage.resize_(self._sizes[_key(tensor)])
            tensor.zero_()

    def give_back(self) -> None:
        """Free the memory of all parameters."""
        for each in self._parameters.values():
            each.untyped_storage().resize_(0)

    @contextmanager
    def room(self) -> Iterator[None]:
        """While it lasts, views of all parameters can be made: of addresses, not of memory.

        What nobody writes to takes none of the machine's.
        """
        empty = [each.untyped_storage() for each in self.tensors()]
        empty = [each for each in empty if not each.nbytes()]
        for storage in empty:
            storage.resize_(self._sizes[storage._cdata])
        try:
            yield
        finally:
            for storage in empty:
                storage.resize_(0)

    def _of(self, part: Part) -> _Tensor:
        key = (part.name, part.full_shape)
        if key not in self._known:
            self._known[key] = self._ask(whole(part))
        return self._known[key]

    def _ask(self, tensor: Part) -> _Tensor:
        """What vLLM's loader does with a tensor: copies of boxes, or more."""
        if tensor.name in self._tied:
            return _Tensor((), frozenset(), needs_loader=False)
        meta = torch.empty(tensor.full_shape, dtype=tensor.dtype, device="meta")
        with self.room(), set_current_vllm_config(self._config), _Copies() as copies:
            names = self._load([(tensor.name, meta)])
        found = [_place(tensor, view, source) for view, source in copies.found]
        places = tuple(each for each in found if each is not None)
        if len(places) < len(found) or (names and not found):
            return _Tensor((), frozenset(names), needs_loader=True)
        return _Tensor(places, frozenset(names), needs_loader=False)

    def _load(self, tensors: list[tuple[str, Tensor]]) -> set[str]:
        return cast("set[str]", cast("Any", self._model).load_weights(tensors))


class _Copies(TorchDispatchMode):
    """Notes copies of tensors without values instead of making them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten.copy_.default and args[1].is_meta:
            self.found.append((args[0].detach(), args[1]))
            return args[0]
        if func is torch.ops.aten.fill_.Scalar:  # what pads: zeros come with the memory
            return args[0]
        return func(*args, **(kwargs or {}))


def _place(tensor: Part, view: Tensor, source: Tensor) -> Place | None:
    """The box of the whole tensor that a source without values is a view of; None: it is none."""
    strides = [math.prod(tensor.full_shape[dim + 1 :]) for dim in range(len(tensor.full_shape))]
    if list(source.stride()) != strides or source.shape != view.shape:
        return None
    start, rest = [], source.storage_offset()
    for stride in strides:
        start.append(rest // stride)
        rest %= stride
    shape = tuple(source.shape)
    part = Part(tensor.name, tensor.full_shape, tuple(start), shape, tensor.dtype)
    return Place(part, view)


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


@contextmanager
def without_packing() -> Iterator[None]:
    """While it lasts, vLLM leaves the weights of linear layers on a CPU as they are.

    Else oneDNN's kernels, and others of some processors, keep a copy in a format of their own.
    Kernels for experts pack always.
    """
    given = utils.dispatch_cpu_unquantized_gemm

    def dispatch(layer: nn.Module, remove_weight: bool) -> None:
        weight = cast("Tensor", layer.weight)
        if weight.is_meta or weight.ndim != 2:
            given(layer, remove_weight)
        else:
            layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]

    utils.dispatch_cpu_unquantized_gemm = dispatch
    try:
        yield
    finally:
        utils.dispatch_cpu_unquantized_gemm = given
