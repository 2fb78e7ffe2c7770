"""New weights for a running vLLM model, in place."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

_EXPERT = re.compile(r"(.+\.experts)\.\d+\.(.+)")


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Bytes of one rank's generation weights."""

    tensors: int
    """In tensors of vLLM's model."""
    prepacked: int
    """In the CPU kernels' own format, which torch does not see; 0 on a GPU."""


@torch.no_grad()
def load_weights(runner: Any, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Load Hugging Face tensors layer by layer, as vLLM's `reload_weights` does.

    Unlike that, a weight that did not come is an error.

    Raises:
        ValueError: names the weights that did not come.
    """
    model, config = runner.get_model(), runner.vllm_config
    came: set[str] = set()
    with set_current_vllm_config(config):
        wanted = {name for name, _ in model.named_parameters()}
        _pack_experts_again(model)
        initialize_layerwise_reload(model)
        loaded = model.load_weights(_noted(tensors, came))
        finalize_layerwise_reload(model, runner.model_config)  # type: ignore[no-untyped-call]
        _pack_tied_heads(model)
    missing = sorted(wanted - loaded) if loaded is not None and not config.quant_config else []
    missing += sorted(_wanted_experts(model, came) - came)
    if missing:
        raise ValueError(f"no weights came for {', '.join(missing)}")


def _noted(tensors: Iterable[tuple[str, Tensor]], names: set[str]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors:
        names.add(name)
        yield name, tensor


def _wanted_experts(model: torch.nn.Module, came: set[str]) -> set[str]:
    """Tensors of this rank's experts, as any one of theirs is named that came.

    vLLM keeps all of a layer's experts in one weight, and takes it for loaded when one has come.
    """
    kinds = {match.groups() for name in came if (match := _EXPERT.fullmatch(name))}
    managers: list[Any] = [getattr(each, "expert_map_manager", None) for each in model.modules()]
    own = {expert for each in managers if each for expert in each.get_local_expert_ids()}
    return {f"{stem}.{expert}.{kind}" for stem, kind in kinds for expert in own}


def _pack_experts_again(model: torch.nn.Module) -> None:
    """Have kernels on a CPU pack the experts' weights that come now.

    vLLM has them packed with the first weights alone, when it makes the kernel; later ones would
    be read as if they were packed.
    """
    if torch.cuda.is_available():
        return
    for layer in model.modules():
        method: Any = getattr(layer, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def _pack_tied_heads(model: torch.nn.Module) -> None:
    """Have kernels that pack weights read those that an output layer shares with the embedding.

    They come as the embedding's, so that vLLM takes the output layer for one that nothing came for
    and leaves its packed copy as it was.
    """
    embeddings = [each for each in model.modules() if isinstance(each, VocabParallelEmbedding)]
    shared = {id(each.weight) for each in embeddings if not isinstance(each, ParallelLMHead)}
    for layer in embeddings:
        if isinstance(layer, ParallelLMHead) and id(layer.weight) in shared:
            layer.quant_method.process_weights_after_loading(layer)


def weight_bytes(runner: Any) -> WeightBytes:
    """Bytes of a model's weights that lie in tensors, and that kernels have packed away."""
    tensors = packed = 0
    for layer in runner.get_model().modules():
        recorded, _ = get_layerwise_info(layer).restore_metadata
        for name, weight in layer.named_parameters(recurse=False):
            tensors += weight.nbytes
            packed += recorded[name].nbytes - weight.nbytes if name in recorded else 0
    return WeightBytes(tensors, packed)
