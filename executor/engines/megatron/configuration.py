"""Megatron-core's configuration of a model, from its architecture and how it is to run."""

from typing import Any, Literal

import torch
from megatron.core.transformer.enums import LayerType
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.functional import silu

from automap.executor.engines.megatron.architecture import Architecture
from automap.executor.layout import RankLayout
from automap.planner.layout import layers_per_stage

Precision = Literal["fp32", "bf16", "fp16"]
Recompute = Literal["none", "selective", "full"]

DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
_RECOMPUTE: dict[Recompute, dict[str, Any]] = {
    "none": {},
    "selective": {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]},
    "full": {
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    },
}


def build_configuration(
    architecture: Architecture,
    layout: RankLayout,
    *,
    precision: Precision,
    recompute: Recompute,
    sequence_parallel: bool,
    virtual_pipeline_parallel_size: int,
) -> TransformerConfig:
    """No dropout, no biases but those of queries, keys and values; weights are left unset.

    Raises:
        ValueError: sizes that do not go with the model.
    """
    _check(architecture, layout, virtual_pipeline_parallel_size)
    _, rope_factor = architecture.inverse_frequencies()
    stages = layout.pipeline_parallel_size
    arguments = _RECOMPUTE[recompute] | _experts(architecture, layout)
    if stages > 1:
        arguments = arguments | {
            "pipeline_model_parallel_layout": stage_layers(
                architecture.num_layers, stages * virtual_pipeline_parallel_size
            ),
            "pipeline_dtype": DTYPES[precision],
            # Packed micro-batches are of unlike lengths: stages tell each other the shape first.
            # Interleaved, on two stages, those messages would cross: lengths are made alike.
            "variable_seq_lengths": virtual_pipeline_parallel_size == 1,
            "batch_p2p_comm": virtual_pipeline_parallel_size == 1,
            "deallocate_pipeline_outputs": True,
        }
    return TransformerConfig(
        num_layers=architecture.num_layers,
        hidden_size=architecture.hidden_size,
        ffn_hidden_size=architecture.intermediate_size,
        num_attention_heads=architecture.num_attention_heads,
        num_query_groups=architecture.num_key_value_heads,
        kv_channels=architecture.head_dim,
        # Rotations are applied without the factor that some variants put on sine and cosine.
        softmax_scale=rope_factor**2 * architecture.head_dim**-0.5,
        normalization="RMSNorm",
        layernorm_epsilon=architecture.norm_epsilon,
        qk_layernorm=architecture.qk_norm,
        gated_linear_unit=True,
        activation_func=silu,
        add_bias_linear=False,
        add_qkv_bias=architecture.qkv_bias,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        perform_initialization=False,
        params_dtype=DTYPES[precision],
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        tensor_model_parallel_size=layout.tensor_parallel_size,
        pipeline_model_parallel_size=stages,
        sequence_parallel=sequence_parallel and layout.tensor_parallel_size > 1,
        # The default refuses unlike lengths, even without experts.
        moe_token_dispatcher_type="alltoall",
        # Gradients are sums; the engine divides by the weight of the whole mini-batch.
        calculate_per_token_loss=True,
        **arguments,
    )


def _experts(architecture: Architecture, layout: RankLayout) -> dict[str, Any]:
    """Every token goes to its experts, none is dropped; no loss to balance them."""
    if not architecture.num_experts:
        return {}
    return {
        "num_moe_experts": architecture.num_experts,
        "moe_router_topk": architecture.experts_per_token,
        "moe_ffn_hidden_size": architecture.expert_intermediate_size,
        "moe_router_pre_softmax": not architecture.normalises_routing,
        "moe_router_load_balancing_type": "none",
        "moe_aux_loss_coeff": 0.0,
        "expert_model_parallel_size": layout.expert_parallel_size,
        "expert_tensor_parallel_size": layout.expert_tensor_parallel_size,
    }


def stage_layers(num_layers: int, count: int) -> list[list[LayerType]]:
    """What each of `count` stages, or of their chunks, holds, in the order of the layers."""
    layers = [[LayerType.decoder] * each for each in layers_per_stage(num_layers, count)]
    layers[0].insert(0, LayerType.embedding)
    layers[-1].append(LayerType.loss)
    return layers


def _check(architecture: Architecture, layout: RankLayout, chunks: int) -> None:
    """ValueError naming the first size that the engine cannot follow."""
    if layout.context_parallel_size != 1:
        raise ValueError(f"context_parallel_size must be 1, got {layout.context_parallel_size}")
    tensor, experts = layout.tensor_parallel_size, layout.expert_parallel_size
    width = layout.expert_tensor_parallel_size
    multiples = [("num_attention_heads", "tensor_parallel_size", tensor)]
    if architecture.num_experts:
        multiples.append(("num_experts", "expert_parallel_size", experts))
        multiples.append(("expert_intermediate_size", "expert_tensor_parallel_size", width))
    elif experts > 1:
        raise ValueError(f"expert_parallel_size must be 1 for a dense model, got {experts}")
    else:
        multiples.append(("intermediate_size", "tensor_parallel_size", tensor))
    for name, divisor, size in multiples:
        count = getattr(architecture, name)
        if count % size:
            raise ValueError(f"{name} {count} must be a multiple of {divisor} {size}")
    heads = architecture.num_key_value_heads
    if heads % tensor and tensor % heads:
        raise ValueError(
            f"num_key_value_heads {heads} must be a multiple or a divisor of "
            f"tensor_parallel_size {tensor}"
        )
    _check_stages(architecture.num_layers, layout.pipeline_parallel_size, chunks)


def _check_stages(num_layers: int, stages: int, chunks: int) -> None:
    if chunks > 1 and stages == 1:
        raise ValueError(f"virtual_pipeline_parallel_size {chunks} needs a pipeline")
    if stages * chunks > num_layers:
        raise ValueError(
            f"pipeline_parallel_size {stages} × virtual_pipeline_parallel_size {chunks} exceeds "
            f"num_layers {num_layers}"
        )
