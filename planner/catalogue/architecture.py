"""The sizes of a neural network and what follows from them: parameters, by part.

Each count is written once, here; h is hidden_size, a and g the attention and key-value heads,
d head_dim, f the width of an MLP, v vocab_size. Weight matrices follow Vaswani et al. 2017
(arXiv:1706.03762) with gated MLPs (Shazeer 2020, arXiv:2002.05202), grouped-query attention
(Ainslie et al. 2023, arXiv:2305.13245) and routed experts (Fedus et al. 2021, arXiv:2101.03961).
The counts are checked against published ones in tests/planner/catalogue/test_catalogue.py.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from automap.planner.errors import FieldValueError

Size = Annotated[int, Field(ge=1, le=10**7)]
Count = Annotated[int, Field(ge=0, le=10**7)]

CACHE_OVERRIDE_BYTES_PER_ELEMENT = 2
"""Precision (bf16) in which `key_value_bytes_per_token_per_layer` is stated."""


class ModelArchitecture(BaseModel):
    """A decoder-only transformer: dense or mixture of experts, MHA, GQA or (approximated) MLA.

    Field names are those of Hugging Face configs where they agree among themselves.
    """

    # The strings under the fields are their descriptions in the published JSON Schema.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )

    num_layers: Annotated[int, Field(ge=1, le=10_000)]
    hidden_size: Size
    intermediate_size: Size
    num_attention_heads: Size
    num_key_value_heads: Size
    head_dim: Size
    vocab_size: Size
    max_position_embeddings: Size = 4096
    gated_mlp: bool = True
    """Three matrices in each MLP (SwiGLU) instead of two."""
    tied_embeddings: bool = False
    """The output head is the embedding table."""
    learned_position_embeddings: bool = False
    attention_bias: bool = False
    """Bias on the query, key and value projections alone (Qwen2)."""
    linear_bias: bool = False
    """Bias on every linear layer of attention and MLP (GPT-2, GPT-3, NeoX)."""
    query_key_norm: bool = False
    """RMSNorm on queries and keys (Qwen3)."""
    norm_bias: bool = False
    """LayerNorm with bias instead of RMSNorm."""
    num_experts: Count = 0
    """Routed experts of a layer; 0 in a dense model."""
    num_experts_per_token: Count = 0
    """Routed experts that one token is sent to."""
    moe_intermediate_size: Count = 0
    """Width of one routed expert."""
    shared_expert_intermediate_size: Count = 0
    """Width of all shared experts of a layer together."""
    num_dense_layers: Count = 0
    """Leading layers without experts in a mixture-of-experts model."""
    attention_parameters_per_layer: Annotated[int, Field(ge=0, le=10**12)] = 0
    """Overrides the attention parameters of one layer where attention is approximated (MLA)."""
    key_value_bytes_per_token_per_layer: Count = 0
    """Overrides a token's bf16 cache bytes in one layer where attention is approximated (MLA)."""
    approximation: Annotated[str, Field(max_length=1000)] = ""
    """What is approximated, in words; empty when nothing is."""
    kind: Literal["decoder"] = "decoder"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise FieldValueError(
                "num_attention_heads",
                f"num_attention_heads={self.num_attention_heads} is not a multiple of "
                f"num_key_value_heads={self.num_key_value_heads}",
                remedy="every key-value head serves as many query heads",
            )
        if self.num_experts:
            self._check_experts()
        else:
            self._check_no_experts()
        return self

    def _check_experts(self) -> None:
        if not 1 <= self.num_experts_per_token <= self.num_experts:
            raise FieldValueError(
                "num_experts_per_token",
                f"num_experts_per_token={self.num_experts_per_token} of "
                f"num_experts={self.num_experts}",
                remedy=f"use a number from 1 to {self.num_experts}",
            )
        if self.moe_intermediate_size == 0:
            raise FieldValueError(
                "moe_intermediate_size",
                f"num_experts={self.num_experts} needs it, and it is 0 or missing",
                remedy="give the width of one expert",
            )
        if self.num_dense_layers > self.num_layers:
            raise FieldValueError(
                "num_dense_layers",
                f"num_dense_layers={self.num_dense_layers} exceeds num_layers={self.num_layers}",
                remedy=f"use at most {self.num_layers}",
            )

    def _check_no_experts(self) -> None:
        expert_fields = {
            "num_experts_per_token": self.num_experts_per_token,
            "moe_intermediate_size": self.moe_intermediate_size,
            "shared_expert_intermediate_size": self.shared_expert_intermediate_size,
            "num_dense_layers": self.num_dense_layers,
        }
        given = {name: value for name, value in expert_fields.items() if value}
        if given:
            listed = ", ".join(f"{name}={value}" for name, value in given.items())
            raise FieldValueError(
                next(iter(given)),
                f"{listed} without num_experts",
                remedy="give num_experts, or leave them out of a dense model",
            )

    @property
    def query_size(self) -> int:
        """Width of all query heads together, a·d; it need not equal hidden_size (Qwen3)."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        """Width of all key heads together, and of all value heads: g·d."""
        return self.num_key_value_heads * self.head_dim

    @property
    def num_moe_layers(self) -> int:
        """Layers with routed experts; 0 in a dense model."""
        return self.num_layers - self.num_dense_layers if self.num_experts else 0

    @property
    def attention_parameters(self) -> int:
        """Attention weights of one layer: 2·h·a·d (query, output) + 2·h·g·d (key, value).

        Plus biases (a·d + 2·g·d, and h on the output when every linear layer has one) and the
        two RMSNorms of width d where queries and keys are normalised. The override wins.
        """
        if self.attention_parameters_per_layer:
            return self.attention_parameters_per_layer
        weights = 2 * self.hidden_size * (self.query_size + self.key_value_size)
        biases = 0
        if self.attention_bias or self.linear_bias:
            biases += self.query_size + 2 * self.key_value_size
        if self.linear_bias:
            biases += self.hidden_size
        norms = 2 * self.head_dim if self.query_key_norm else 0
        return weights + biases + norms

    def _mlp_parameters(self, width: int) -> int:
        """Three matrices h × width when gated, else two, with their biases."""
        into = 2 if self.gated_mlp else 1
        biases = into * width + self.hidden_size if self.linear_bias else 0
        return (into + 1) * self.hidden_size * width + biases

    @property
    def mlp_parameters(self) -> int:
        """MLP weights of one dense layer: 3·h·f gated, 2·h·f otherwise, plus biases."""
        return self._mlp_parameters(self.intermediate_size)

    @property
    def expert_parameters(self) -> int:
        """Weights of one routed expert: 3·h·f with f = moe_intermediate_size; 0 if dense."""
        return self._mlp_parameters(self.moe_intermediate_size) if self.num_experts else 0

    @property
    def shared_expert_parameters(self) -> int:
        """Weights of the shared experts of one layer together; 0 where there are none.

        Leaves out the gate of h weights that Qwen2-MoE puts on its shared expert.
        """
        if not self.shared_expert_intermediate_size:
            return 0
        return self._mlp_parameters(self.shared_expert_intermediate_size)

    @property
    def router_parameters(self) -> int:
        """Weights of one layer's router: h·num_experts."""
        return self.hidden_size * self.num_experts

    @property
    def norm_parameters(self) -> int:
        """One norm: h weights, and h biases in a LayerNorm with bias."""
        return self.hidden_size * (2 if self.norm_bias else 1)

    @property
    def norm_parameters_per_layer(self) -> int:
        """The two norms of one layer, before attention and before the MLP."""
        return 2 * self.norm_parameters

    @property
    def final_norm_parameters(self) -> int:
        """The norm after the last layer."""
        return self.norm_parameters

    @property
    def dense_layer_parameters(self) -> int:
        """One layer without experts: attention, MLP and norms."""
        return self.attention_parameters + self.mlp_parameters + self.norm_parameters_per_layer

    @property
    def moe_layer_parameters(self) -> int:
        """One layer with experts: attention, norms, router, all routed and shared experts."""
        return (
            self.attention_parameters
            + self.norm_parameters_per_layer
            + self.router_parameters
            + self.num_experts * self.expert_parameters
            + self.shared_expert_parameters
        )

    @property
    def embedding_parameters(self) -> int:
        """The token embedding table: v·h."""
        return self.vocab_size * self.hidden_size

    @property
    def position_embedding_parameters(self) -> int:
        """The learned position table: max_position_embeddings·h; 0 with rotary positions."""
        if not self.learned_position_embeddings:
            return 0
        return self.max_position_embeddings * self.hidden_size

    @property
    def head_parameters(self) -> int:
        """Output head of its own: h·v; 0 when it shares the embedding table."""
        return 0 if self.tied_embeddings else self.hidden_size * self.vocab_size

    @property
    def scalar_head_parameters(self) -> int:
        """Head of a critic, reward or cost model: one output per token, h weights."""
        return self.hidden_size

    def num_parameters(self, scalar_head: bool = False) -> int:
        """All parameters; with `scalar_head` the vocabulary head gives way to one output."""
        num_moe_layers = self.num_moe_layers
        return (
            self.embedding_parameters
            + self.position_embedding_parameters
            + (self.num_layers - num_moe_layers) * self.dense_layer_parameters
            + num_moe_layers * self.moe_layer_parameters
            + self.final_norm_parameters
            + (self.scalar_head_parameters if scalar_head else self.head_parameters)
        )

    def active_parameters(self) -> int:
        """Parameters one token passes: all but the routed experts it is not sent to.

        The embedding table counts whole, as in the published counts of active parameters.
        """
        idle_experts = self.num_experts - self.num_experts_per_token
        idle = self.num_moe_layers * idle_experts * self.expert_parameters
        return self.num_parameters() - idle

    def _lora_mlp_parameters(self, rank: int, width: int) -> int:
        matrices = 3 if self.gated_mlp else 2
        return matrices * rank * (self.hidden_size + width)

    def lora_parameters(self, rank: int) -> int:
        """Adapter parameters, rank·(in + out) for each linear layer (Hu et al., arXiv:2106.09685).

        Adapters sit on the attention projections, the MLPs and every expert; not on routers,
        embeddings or a head.
        Where attention is approximated the projections are taken from heads and head_dim.
        """
        attention = rank * (
            2 * (self.hidden_size + self.query_size) + 2 * (self.hidden_size + self.key_value_size)
        )
        dense_mlp = self._lora_mlp_parameters(rank, self.intermediate_size)
        experts = self.num_experts * self._lora_mlp_parameters(rank, self.moe_intermediate_size)
        if self.shared_expert_intermediate_size:
            experts += self._lora_mlp_parameters(rank, self.shared_expert_intermediate_size)
        num_moe_layers = self.num_moe_layers
        return (
            self.num_layers * attention
            + (self.num_layers - num_moe_layers) * dense_mlp
            + num_moe_layers * experts
        )
