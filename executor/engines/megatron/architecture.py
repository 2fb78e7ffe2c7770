"""What the Megatron engine has to know of a model, read from its Hugging Face configuration."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

_FAMILIES = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe")
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Types of rotary embedding whose frequencies do not depend on a sequence's length."""
_VOCABULARY_MULTIPLE = 8
"""Rows of each rank's part of the vocabulary: tensor cores want 16-byte rows of logits."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder of the Llama family, dense or a mixture of experts in every layer."""

    config: Any
    """transformers' own."""
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    norm_epsilon: float
    standard_deviation: float
    """Standard deviation of the initial weights."""
    qkv_bias: bool
    qk_norm: bool
    tied_embeddings: bool
    num_experts: int
    """0: dense."""
    experts_per_token: int
    expert_intermediate_size: int
    normalises_routing: bool
    """Whether the weights of a token's experts add up to one."""

    @classmethod
    def of(cls, config: PreTrainedConfig | Path | str) -> "Architecture":
        """From a configuration, or from the one in a folder.

        Raises:
            ValueError: a field whose value the engine cannot follow.
        """
        if isinstance(config, PreTrainedConfig):
            own: Any = copy.deepcopy(config)
        else:
            own = AutoConfig.from_pretrained(config)  # nosec B615  # a local folder
        _check(own)
        return cls(
            config=own,
            num_layers=own.num_hidden_layers,
            hidden_size=own.hidden_size,
            num_attention_heads=own.num_attention_heads,
            num_key_value_heads=own.num_key_value_heads or own.num_attention_heads,
            head_dim=getattr(own, "head_dim", None) or own.hidden_size // own.num_attention_heads,
            intermediate_size=own.intermediate_size,
            vocab_size=own.vocab_size,
            norm_epsilon=own.rms_norm_eps,
            standard_deviation=own.initializer_range,
            qkv_bias=own.model_type == "qwen2",
            qk_norm=own.model_type in ("qwen3", "qwen3_moe"),
            tied_embeddings=bool(own.tie_word_embeddings),
            num_experts=getattr(own, "num_local_experts", None) or 0,
            experts_per_token=getattr(own, "num_experts_per_tok", None) or 0,
            expert_intermediate_size=getattr(own, "moe_intermediate_size", own.intermediate_size),
            normalises_routing=getattr(own, "norm_topk_prob", True),
        )

    def padded_vocab_size(self, tensor_parallel_size: int) -> int:
        """Rows of the embedding, so that tensor ranks hold equally many.

        Megatron-core would pad each rank's part to a multiple of 128; of 8 leaves most
        vocabularies as they are, and no rank with padding alone.

        Raises:
            ValueError: the vocabulary is too small for so many ranks.
        """
        multiple = _VOCABULARY_MULTIPLE * tensor_parallel_size
        padded = -(-self.vocab_size // multiple) * multiple
        if padded - self.vocab_size >= padded // tensor_parallel_size:
            raise ValueError(
                f"vocab_size {self.vocab_size} is too small for tensor_parallel_size "
                f"{tensor_parallel_size}"
            )
        return padded

    def inverse_frequencies(self) -> tuple[Tensor, float]:
        """Rotary embedding: float32 [head_dim ÷ 2], and the factor on cosine and sine."""
        rope = self.config.rope_parameters
        if rope["rope_type"] == "default":
            steps = torch.arange(0, self.head_dim, 2, dtype=torch.float32) / self.head_dim
            return 1.0 / rope["rope_theta"] ** steps, 1.0
        return ROPE_INIT_FUNCTIONS[rope["rope_type"]](self.config, torch.device("cpu"))


def _check(config: Any) -> None:
    """ValueError naming the first field that the engine cannot follow."""
    layer_types = set(getattr(config, "layer_types", None) or ["full_attention"])
    if config.model_type in ("mistral", "mixtral") and config.sliding_window is not None:
        layer_types = {"sliding_attention"}
    rope: dict[str, Any] = config.rope_parameters
    demands = {
        "model_type": (config.model_type, _FAMILIES),
        "hidden_act": (config.hidden_act, ("silu",)),
        "attention_bias": (bool(getattr(config, "attention_bias", False)), (False,)),
        "mlp_bias": (bool(getattr(config, "mlp_bias", False)), (False,)),
        "layer_types": (sorted(layer_types), (["full_attention"],)),
        "rope_type": (rope.get("rope_type"), _ROPE_TYPES),
        "use_sliding_window": (bool(getattr(config, "use_sliding_window", False)), (False,)),
        "decoder_sparse_step": (getattr(config, "decoder_sparse_step", 1), (1,)),
        "mlp_only_layers": (list(getattr(config, "mlp_only_layers", None) or []), ([],)),
        "router_jitter_noise": (getattr(config, "router_jitter_noise", 0.0), (0.0,)),
        "partial_rotary_factor": (rope.get("partial_rotary_factor", 1.0), (1.0,)),
    }
    for field, (value, valid) in demands.items():
        if value not in valid:
            allowed = ", ".join(map(str, valid))
            raise ValueError(f"{field} is {value!r}; the megatron engine knows {allowed}")
