"""The sizes of a neural network and what follows from them: parameters, by part."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Size = Annotated[int, Field(ge=1, le=10**7)]
Count = Annotated[int, Field(ge=0, le=10**7)]


class ModelArchitecture(BaseModel):
    """A decoder-only transformer: dense or mixture of experts, MHA, GQA or (approximated) MLA.

    Field names are those of Hugging Face configs where they agree among themselves.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_layers: Annotated[int, Field(ge=1, le=10_000)]
    hidden_size: Size
    intermediate_size: Size
    num_attention_heads: Size
    num_key_value_heads: Size
    head_dim: Size
    vocab_size: Size
    max_position_embeddings: Size = 4096
    gated_mlp: bool = True
    tied_embeddings: bool = False
    learned_position_embeddings: bool = False
    attention_bias: bool = False
    """Bias on the query, key and value projections (Qwen2)."""
    linear_bias: bool = False
    """Bias on every linear layer (GPT-2, GPT-3, NeoX)."""
    query_key_norm: bool = False
    """RMSNorm on queries and keys (Qwen3)."""
    norm_bias: bool = False
    """LayerNorm with bias instead of RMSNorm."""
    num_experts: Count = 0
    num_experts_per_token: Count = 0
    moe_intermediate_size: Count = 0
    shared_expert_intermediate_size: Count = 0
    num_dense_layers: Count = 0
    """Leading layers without experts in a mixture-of-experts model."""
    attention_parameters_per_layer: Count = 0
    """Overrides the attention parameters of one layer where the attention is approximated (MLA)."""
    key_value_bytes_per_token_per_layer: Count = 0
    """Overrides the cache bytes of one token in one layer where attention is approximated (MLA)."""
    approximation: str = ""
    """What is approximated, in words; empty when nothing is."""
    kind: Literal["decoder"] = "decoder"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads={self.num_attention_heads} is not a multiple of "
                f"num_key_value_heads={self.num_key_value_heads}"
            )
        return self
