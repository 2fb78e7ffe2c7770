"""What the config.json of models says beside their sizes, and Megatron-LM has to be told.

How tokens find their experts: a mixture without dense layers and shared experts is taken to route
as Mixtral and Qwen3 do; of others only those are known that are named here.
"""

from collections.abc import Mapping
from functools import cache
from typing import Literal

from automap.planner.catalogue import ModelArchitecture, architectures

Routing = Literal["softmax of the chosen", "softmax of all", "sigmoid"]
"""What weighs a token's experts. Of the chosen ones: these have all of the weight. Of all: the
chosen ones keep their share. Sigmoid: shares of the chosen ones' sum, of groups of experts that are
chosen first, by scores to which a bias is added that is no weight (DeepSeek-V3, section 2.1.2)."""
ROUTING: Mapping[str, Routing] = {
    "deepseek-v2-lite": "softmax of all",
    "deepseek-v3": "sigmoid",
    "moonlight-16b-a3b": "sigmoid",
    "glm-4.5": "sigmoid",
    "glm-4.5-air": "sigmoid",
    "glm-4.7-flash": "sigmoid",
}
"""Name in the catalogue → its routing. Source: config.json on Hugging Face (`scoring_func`,
`topk_method`, `norm_topk_prob`), and Transformers' model for GLM, whose file has no such fields."""
SCALED = ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b")
"""Names in the catalogue whose positions are scaled as Llama 3.1's: by 8 (`rope_scaling`)."""
UNSAID: Mapping[str, str] = {
    "deepseek-v2": "groups of experts by their best one (topk_method group_limited_greedy)",
    "kimi-k2": "YaRN between other bounds than 32 and 1 (beta_fast 1)",
    "llama-3.2-1b": "positions scaled as Llama 3.1's, by 32 instead of 8",
    "llama-3.2-3b": "positions scaled as Llama 3.1's, by 32 instead of 8",
    "phi-4-mini": "scaled positions of a part of each head (longrope)",
    "deepseek-r1-0528-qwen3-8b": "YaRN without latent attention",
}
"""Name in the catalogue → what its config.json has that no argument of Megatron-LM says."""
_BESIDE = {"approximation": "", "max_position_embeddings": 1}
"""Fields in which models of one routing may differ."""


def routing_of(architecture: ModelArchitecture) -> Routing | None:
    """How a model routes tokens; None: it has no experts, or it is not known."""
    if not architecture.num_experts:
        return None
    known = _routing_by_sizes().get(architecture.model_copy(update=_BESIDE))
    if known is not None:
        return known
    usual = not (
        architecture.latent_attention
        or architecture.num_dense_layers
        or architecture.shared_expert_intermediate_size
    )
    return "softmax of the chosen" if usual else None


def scales_positions(architecture: ModelArchitecture) -> bool:
    """Whether positions are scaled as Llama 3.1's, as far as the catalogue knows."""
    return _name_of(architecture) in SCALED


def unsaid_of(architecture: ModelArchitecture) -> str | None:
    """What Megatron-LM has no argument for in a model of the catalogue; None: nothing is known."""
    return UNSAID.get(_name_of(architecture))


def _name_of(architecture: ModelArchitecture) -> str:
    """The name of a model whose positions are known here; empty: it is none."""
    return _names_by_sizes().get(architecture.model_copy(update={"approximation": ""}), "")


@cache
def _routing_by_sizes() -> Mapping[ModelArchitecture, Routing]:
    known = architectures()
    return {
        known[name].architecture.model_copy(update=_BESIDE): found
        for name, found in ROUTING.items()
    }


@cache
def _names_by_sizes() -> Mapping[ModelArchitecture, str]:
    known = architectures()
    return {
        known[name].architecture.model_copy(update={"approximation": ""}): name
        for name in (*SCALED, *UNSAID)
    }
