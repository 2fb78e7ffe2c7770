"""Tensor parallelism, recomputation and FSDP2, applied to a network on the meta device."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
from transformers import PreTrainedConfig

from automap.executor.engines.fsdp.network import PackedNetwork
from automap.executor.layout import RankLayout

Recompute = Literal["none", "selective", "full"]
Sharding = Literal["gradient", "full"]


def build_mesh(layout: RankLayout, device_type: str) -> DeviceMesh:
    """Two dimensions, data (all data shards) and tensor, over the default process group.

    Raises:
        ValueError: a size that FSDP2 has no use for, or one that does not fit the group.
    """
    for name in ("pipeline", "expert"):
        size = getattr(layout, f"{name}_parallel_size")
        if size != 1:
            raise ValueError(f"{name}_parallel_size must be 1 with the fsdp engine, got {size}")
    world_size = torch.distributed.get_world_size()
    if layout.world_size != world_size:
        raise ValueError(
            f"the layout has {layout.world_size} ranks, the process group {world_size}"
        )
    sizes = (layout.data_shards, layout.tensor_parallel_size)
    return init_device_mesh(device_type, sizes, mesh_dim_names=("data", "tensor"))


def check_tensor_parallel(config: PreTrainedConfig, size: int) -> None:
    """ValueError unless heads, widths and vocabulary split evenly over the tensor ranks."""
    for name in (
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "vocab_size",
    ):
        count = getattr(config, name)
        if count % size:
            raise ValueError(f"{name} {count} must be a multiple of tensor_parallel_size {size}")


def check_context_parallel(config: PreTrainedConfig, layout: RankLayout) -> None:
    """ValueError unless attention heads split evenly over context × tensor ranks.

    Fewer key-value heads must divide them. Rotary frequencies that follow the longest position
    would differ between the slices of a row.
    """
    ranks = layout.tensor_parallel_size * layout.context_parallel_size
    what = f"tensor_parallel_size × context_parallel_size {ranks}"
    if config.num_attention_heads % ranks:
        raise ValueError(
            f"num_attention_heads {config.num_attention_heads} must be a multiple of {what}"
        )
    if config.num_key_value_heads % ranks and ranks % config.num_key_value_heads:
        raise ValueError(
            f"num_key_value_heads {config.num_key_value_heads} must be a multiple or a divisor of "
            f"{what}"
        )
    kind = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    if kind in ("dynamic", "longrope"):
        raise ValueError(f"context_parallel_size must be 1 with rope_type {kind}")


_EMBEDDING = "embed_tokens"
"""Some plans name it and some do not: it is always split."""


def apply_tensor_parallel(network: PackedNetwork, mesh: DeviceMesh) -> frozenset[str]:
    """Split the linear layers by the model's own plan, and the vocabulary.

    Args:
        network: on the meta device.
        mesh: of the tensor ranks.

    Returns:
        Names of replicated parameters whose gradients must be summed over the tensor ranks,
        because each rank applies them to its own heads alone.
    """
    model = network.model
    plan: dict[str, ParallelStyle] = {}
    summed: list[str] = []
    for pattern, style in (network.backbone.config.base_model_tp_plan or {}).items():
        if pattern == _EMBEDDING:
            continue
        pattern = f"{model.base_model_prefix}.{pattern}"
        names = [name for name, _ in model.named_modules() if _matches(name, pattern)]
        if style == "replicated_with_grad_allreduce":
            summed += [f"{name}.weight" for name in names]
        elif style in ("colwise", "rowwise"):
            for name in names:
                plan.update(
                    _styles(name, column=style == "colwise", adapted=name in network.adapted)
                )
        else:
            raise ValueError(f"{type(model).__name__} splits {pattern} by an unknown way, {style}")
    if not plan:
        raise ValueError(f"{type(model).__name__} has no plan for tensor parallelism")
    embedding = model.get_input_embeddings()
    assert isinstance(embedding, nn.Embedding)
    parallelize_module(model, mesh, plan)
    parallelize_module(embedding, mesh, RowwiseParallel(input_layouts=Replicate()))
    # FSDP hooks the output of what it shards, and warns of a view, which the local part is.
    embedding.register_forward_hook(lambda _module, _inputs, output: output.clone())
    if network.head == "language_model":
        if model.config.tie_word_embeddings:
            network.head_layer.weight = embedding.weight
        else:
            # For its split weight alone: the network reads that and never calls the layer.
            parallelize_module(network.head_layer, mesh, ColwiseParallel())
    return frozenset(summed)


def _styles(name: str, *, column: bool, adapted: bool) -> dict[str, ParallelStyle]:
    if not adapted:
        return {name: ColwiseParallel() if column else RowwiseParallel()}
    if column:
        return {
            f"{name}.base_layer": ColwiseParallel(),
            f"{name}.lora_B.default": ColwiseParallel(),
        }
    return {f"{name}.base_layer": RowwiseParallel(), f"{name}.lora_A.default": RowwiseParallel()}


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(
        part == want or (want == "*" and part.isdigit())
        for part, want in zip(parts, wanted, strict=True)
    )


def apply_recompute(network: PackedNetwork, recompute: Recompute) -> None:
    """What training throws away and computes again.

    `full` keeps the input of every layer. `selective` also keeps what products and attention
    gave, and computes norms, rotations and activation functions again.
    """
    if recompute == "none":
        return
    arguments: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    # Stopping as soon as all is there again would leave the all-reduce of a layer with an adapter
    # without anyone who waits for it, and torch would keep its output for ever.
    arguments["early_stop"] = not network.adapted
    if recompute == "selective":
        arguments["context_fn"] = partial(create_selective_checkpoint_contexts, _keep_products)
    elif recompute != "full":
        raise ValueError(f"recompute must be none, selective or full, got {recompute!r}")
    network.model.gradient_checkpointing_enable(arguments)


_KEPT_OPERATORS = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::linear",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "torch_attn::_varlen_attn",
    "_c10d_functional::all_reduce",
)


def _keep_products(context: object, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    if operator.name().split(".")[0] in _KEPT_OPERATORS:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def apply_fsdp(
    network: PackedNetwork,
    mesh: DeviceMesh,
    *,
    sharding: Sharding,
    compute_dtype: torch.dtype,
) -> None:
    """Shard every layer and the rest over the data shards.

    Gradients are summed in fp32, not averaged: the caller divides by the weight of the whole
    mini-batch. `full` throws gathered weights away after each layer's forward, `gradient` keeps
    them until its backward.
    """
    shard: Callable[..., Any] = partial(
        fully_shard,
        mesh=mesh,
        mp_policy=MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=torch.float32),
        shard_placement_fn=partial(_along_tensor_parallel_dimension, mesh.size()),
        reshard_after_forward=sharding == "full",
    )
    for layer in network.layers:
        shard(layer)
    if not (network.head == "language_model" and network.model.config.tie_word_embeddings):
        shard(network.model.get_input_embeddings())
    # The root's weights, the last used, are the first that backward needs: keep them.
    shard(network, reshard_after_forward=False)
    for module in sharded_modules(network):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)


def sharded_modules(network: nn.Module) -> list[FSDPModule]:
    """All modules whose parameters FSDP gathers together."""
    return [module for module in network.modules() if isinstance(module, FSDPModule)]


def _along_tensor_parallel_dimension(data_shards: int, parameter: nn.Parameter) -> Shard | None:
    """Split where tensor parallelism does, so that a rank's part is one range of one dimension.

    FSDP2 splits other dimensions than the first only evenly; else the part is a block.
    """
    if not isinstance(parameter, DTensor):
        return None
    placement: Placement = parameter.placements[0]
    if (
        isinstance(placement, Shard)
        and parameter.to_local().shape[placement.dim] % data_shards == 0
    ):
        return Shard(placement.dim)
    return None
