"""The architecture of a model as slime's arguments: MODEL_ARGS."""

from automap.planner.catalogue import ModelArchitecture
from automap.planner.catalogue.routing import routing_of, scales_positions, unsaid_of
from automap.planner.exports.lines import Lines
from automap.planner.targets.slime import SLIME_MEGATRON

ROUTER = "--moe-router-score-function, --moe-router-pre-softmax, --moe-router-enable-expert-bias, "
ROUTER += "--moe-router-num-groups, --moe-router-group-topk and --moe-router-topk-scaling-factor"
"""Arguments that only a model's config.json can say."""


def unsaid(shape: ModelArchitecture) -> str | None:
    """What of a model its arguments cannot say, or an export does not know; None: it says all."""
    lacks = SLIME_MEGATRON.refuses_model(shape, lora=False, precision="bf16") or unsaid_of(shape)
    if lacks is not None:
        return f"it has {lacks}"
    if shape.num_experts and routing_of(shape) is None:
        return f"how it routes tokens is not known ({ROUTER})"
    return None


def add_model(shape: ModelArchitecture, lines: Lines) -> None:
    """Everything of the actor's sizes; what sizes leave open comes from its config.json."""
    why = f"models.actor: {shape.num_layers} layers of width {shape.hidden_size}"
    lines.add("model_layers", shape.num_layers, why)
    lines.add("model_hidden", shape.hidden_size, why)
    # A mixture without dense layers has no such MLP; Megatron asks for a width all the same.
    mlp = shape.intermediate_size or shape.moe_intermediate_size
    lines.add("model_mlp", mlp, why)
    lines.add("model_heads", shape.num_attention_heads, why)
    fewer = shape.num_key_value_heads < shape.num_attention_heads
    lines.add("model_groups", fewer, why)
    lines.add("model_key_value_heads", shape.num_key_value_heads if fewer else None, why)
    lines.add("model_head_size", shape.head_dim, why)
    lines.add("model_vocabulary", shape.vocab_size, why)
    lines.add("model_gated", True, why)
    lines.add("model_no_bias", True, why)
    lines.add("model_attention_bias", shape.attention_bias, why)
    # Latent attention has norms of its own, of what it reduces queries, keys and values to.
    norms = shape.query_key_norm or shape.latent_attention is not None
    lines.add("model_query_key_norm", norms, why)
    lines.add("model_norm", "RMSNorm", why)
    lines.add("model_own_head", not shape.tied_embeddings, why)
    lines.add("model_positions", True, why)
    lines.add("model_scaled_positions", scales_positions(shape), why)
    _add_latent_attention(shape, lines)
    _add_experts(shape, lines)


def _add_latent_attention(shape: ModelArchitecture, lines: Lines) -> None:
    latent = shape.latent_attention
    why = "models.actor: " + ("multi-head latent attention" if latent else "plain attention")
    lines.add("model_latent", latent is not None, why)
    if latent is None:
        return
    lines.add("model_query_rank", latent.q_lora_rank or None, why)
    lines.add("model_key_value_rank", latent.kv_lora_rank, why)
    lines.add("model_nope_size", latent.qk_nope_head_dim, why)
    lines.add("model_rope_size", latent.qk_rope_head_dim, why)
    lines.add("model_value_size", latent.v_head_dim, why)


def _add_experts(shape: ModelArchitecture, lines: Lines) -> None:
    why = f"models.actor: {shape.num_experts or 'no'} experts"
    lines.add("model_experts", shape.num_experts or None, why)
    if not shape.num_experts:
        return
    lines.add("model_experts_per_token", shape.num_experts_per_token, why)
    lines.add("model_expert_mlp", shape.moe_intermediate_size, why)
    shared = shape.shared_expert_intermediate_size
    lines.add("model_shared_experts", shared or None, why)
    lines.add("model_shared_gate", shape.shared_expert_gate, why)
    dense, sparse = shape.num_dense_layers, shape.num_layers - shape.num_dense_layers
    lines.add("model_layers_with_experts", f"([0]*{dense}+[1]*{sparse})", why)
    lines.add("model_grouped", True, why)
    lines.add("model_dispatch", "alltoall", why)
    _add_routing(shape, lines)


def _add_routing(shape: ModelArchitecture, lines: Lines) -> None:
    routing = routing_of(shape)
    if routing is None:
        return
    why = f"models.actor: weights of experts are {routing}"
    sigmoid, of_chosen = routing == "sigmoid", routing == "softmax of the chosen"
    lines.add("model_score", "sigmoid" if sigmoid else "softmax", why)
    lines.add("model_scores_first", not of_chosen, why)
    lines.add("model_router_precision", None if of_chosen else "fp32", why)
    lines.add("model_balancing_bias", sigmoid, why)
    # Megatron would go on to balance the experts, and so change what the model chooses.
    lines.add("model_bias_rate", 0 if sigmoid else None, why)
