"""The sizes of a layer and what follows from them: parameters, by part.

Each count is written once, here; h is hidden_size, a and g the attention and key-value heads,
d head_dim, f the width of an MLP. Weight matrices follow Vaswani et al. 2017 (arXiv:1706.03762)
with gated MLPs (Shazeer 2020, arXiv:2002.05202), grouped-query attention (Ainslie et al. 2023,
arXiv:2305.13245) and routed experts (Fedus et al. 2021, arXiv:2101.03961); layer_kinds.py has what
stands in attention's place.
"""

from operator import not_
from typing import Annotated

from pydantic import Field

from automap.planner.catalogue.layer_kinds import (
    Block,
    Count,
    GatedDeltaNet,
    Indexer,
    LatentAttention,
    Mamba2,
    Matrix,
    Mixer,
    Mlp,
    Size,
)

RARE = Field(exclude_if=not_)
"""What few models have is written only where they have it, so that the sizes of most stay short."""
RareFlag = Annotated[bool, RARE]
RareCount = Annotated[Count, RARE]
CACHE_OVERRIDE_BYTES_PER_ELEMENT = 2
"""Precision (bf16) in which `key_value_bytes_per_token_per_layer` is stated."""


class LayerSizes(Block):
    """The sizes of a model's layers, or of its layers of one kind."""

    # The strings under the fields are their descriptions in the published JSON Schema.
    hidden_size: Size
    intermediate_size: Size
    num_attention_heads: Size
    num_key_value_heads: Size
    head_dim: Size
    gated_mlp: bool = True
    """Three matrices in each MLP (SwiGLU) instead of two."""
    attention_bias: bool = False
    """Bias on the query, key and value projections alone (Qwen2)."""
    attention_output_bias: RareFlag = False
    """Bias on the output projection of attention."""
    linear_bias: bool = False
    """Bias on every linear layer of attention and MLP (GPT-2, GPT-3, NeoX, gpt-oss)."""
    query_key_norm: bool = False
    """RMSNorm on queries and keys, head by head (Qwen3)."""
    query_key_norm_over_heads: RareFlag = False
    """RMSNorm on all queries and on all keys of a token (OLMo 2, MiniMax-M2)."""
    attention_output_gate: RareFlag = False
    """A gate as wide as the queries on attention's output (Qwen3-Next)."""
    attention_sinks: RareFlag = False
    """A learned score per head beside those of tokens (gpt-oss)."""
    shared_key_value: RareFlag = False
    """Values are the keys, without a projection of their own (Gemma 4's full layers)."""
    norm_bias: bool = False
    """LayerNorm with bias instead of RMSNorm."""
    sandwich_norms: RareFlag = False
    """Norms after attention and after the MLP beside those before them (Gemma, GLM-4)."""
    num_experts: Count = 0
    """Routed experts of a layer; 0 in a dense model."""
    num_experts_per_token: Count = 0
    """Routed experts that one token is sent to."""
    moe_intermediate_size: Count = 0
    """Width of one routed expert."""
    shared_expert_intermediate_size: Count = 0
    """Width of all shared experts of a layer together."""
    shared_expert_gate: RareFlag = False
    """A gate of one output on the shared expert (Qwen2-MoE, Qwen3-Next)."""
    expert_latent_size: RareCount = 0
    """Width that routed experts work on, between two projections; 0: the hidden size."""
    router_bias: RareFlag = False
    """A bias of the router that is trained; biases that only balance its choice are no weights."""
    expert_norms: RareFlag = False
    """Three norms more in a layer with experts, and a router that scales its input and each expert
    (Gemma 4)."""
    mixer: Annotated[Mixer, Field(exclude_if=lambda mixer: mixer == "attention")] = "attention"
    """What mixes tokens."""
    sliding_window: RareCount = 0
    """Last tokens that a token attends to, and that are cached; 0: all."""
    attention_chunk_size: RareCount = 0
    """Tokens of a chunk that attend to one another alone (Llama 4); 0: all."""
    latent_attention: Annotated[LatentAttention | None, RARE] = None
    """Attention is latent (MLA); then `num_key_value_heads` is `num_attention_heads`, and
    `head_dim` the width of a value head."""
    indexer: Annotated[Indexer | None, RARE] = None
    """Attention is sparse: it attends to the tokens that an indexer picks."""
    runs_indexer: Annotated[bool, Field(exclude_if=bool)] = True
    """The layer has an indexer of its own; otherwise it takes the choice of a layer before."""
    gated_delta_net: Annotated[GatedDeltaNet | None, RARE] = None
    """Sizes of layers with gated linear attention."""
    mamba2: Annotated[Mamba2 | None, RARE] = None
    """Sizes of state space layers."""
    attention_parameters_per_layer: Annotated[int, Field(ge=0, le=10**12)] = 0
    """Overrides the attention parameters of one layer where attention is approximated."""
    key_value_bytes_per_token_per_layer: Count = 0
    """Overrides a token's bf16 cache bytes in one layer where attention is approximated."""

    @property
    def query_size(self) -> int:
        """Width of all query heads together, a·d; it need not equal hidden_size (Qwen3)."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        """Width of all key heads together, and of all value heads: g·d."""
        return self.num_key_value_heads * self.head_dim

    @property
    def attention_parameters(self) -> int:
        """Weights of one layer's mixer; 2·h·a·d (query, output) + 2·h·g·d (key, value) if plain.

        Plus biases, norms of queries and keys, sinks, convolutions. The override wins.
        """
        if self.attention_parameters_per_layer:
            return self.attention_parameters_per_layer
        weights = sum(inputs * outputs for inputs, outputs, _ in self.mixer_matrices)
        return weights + self.other_mixer_parameters

    @property
    def mixer_matrices(self) -> tuple[Matrix, ...]:
        """The projections of the mixer, into it first and out of it last."""
        hidden = self.hidden_size
        if self.mixer == "none":
            return ()
        if self.mixer == "gated_delta_net":
            assert self.gated_delta_net is not None, "the validator wants its sizes"
            return self.gated_delta_net.matrices(hidden)
        if self.mixer == "mamba2":
            assert self.mamba2 is not None, "the validator wants its sizes"
            return self.mamba2.matrices(hidden)
        if self.latent_attention is not None:
            indexer: tuple[Matrix, ...] = ()
            if self.has_indexer:
                assert self.indexer is not None, "it has one"
                indexer = self.indexer.matrices(hidden, self.latent_attention.q_lora_rank)
            return indexer + self.latent_attention.matrices(hidden, self.num_attention_heads)
        query = self.query_size * (2 if self.attention_output_gate else 1)
        key_value = self.key_value_size * (1 if self.shared_key_value else 2)
        return (hidden, query + key_value, "column"), (self.query_size, hidden, "row")

    @property
    def has_indexer(self) -> bool:
        """Whether the layer has an indexer of its own."""
        return self.mixer == "attention" and self.indexer is not None and self.runs_indexer

    @property
    def other_mixer_parameters(self) -> int:
        """Weights of the mixer that are no matrices: biases, norms inside it, convolutions."""
        if self.mixer == "none":
            return 0
        if self.mixer == "gated_delta_net":
            assert self.gated_delta_net is not None, "the validator wants its sizes"
            return self.gated_delta_net.other_parameters
        if self.mixer == "mamba2":
            assert self.mamba2 is not None, "the validator wants its sizes"
            return self.mamba2.other_parameters
        if self.latent_attention is not None:
            own = self.indexer.norm_parameters if self.indexer and self.runs_indexer else 0
            return self.latent_attention.norm_parameters + own
        return self._other_attention_parameters

    @property
    def _other_attention_parameters(self) -> int:
        found = 2 * self.head_dim if self.query_key_norm else 0
        if self.attention_bias or self.linear_bias:
            found += self.query_size + 2 * self.key_value_size
        if self.attention_output_bias or self.linear_bias:
            found += self.hidden_size
        if self.query_key_norm_over_heads:
            found += self.query_size + self.key_value_size
        return found + (self.num_attention_heads if self.attention_sinks else 0)

    def _mlp_parameters(self, width: int, hidden_size: int) -> int:
        """Three matrices h × width when gated, else two, with their biases."""
        into = 2 if self.gated_mlp else 1
        biases = into * width + hidden_size if self.linear_bias else 0
        return (into + 1) * hidden_size * width + biases

    @property
    def mlp_parameters(self) -> int:
        """MLP weights of one dense layer: 3·h·f gated, 2·h·f otherwise, plus biases."""
        return self._mlp_parameters(self.intermediate_size, self.hidden_size)

    @property
    def expert_hidden_size(self) -> int:
        """Width of a token that routed experts get."""
        return self.expert_latent_size or self.hidden_size

    @property
    def expert_parameters(self) -> int:
        """Weights of one routed expert: 3·h·f with f = moe_intermediate_size; 0 if dense."""
        if not self.num_experts:
            return 0
        return self._mlp_parameters(self.moe_intermediate_size, self.expert_hidden_size)

    @property
    def shared_expert_parameters(self) -> int:
        """Weights of the shared experts of one layer together; 0 where there are none."""
        if not self.shared_expert_intermediate_size:
            return 0
        gate = self.hidden_size if self.shared_expert_gate else 0
        return self._mlp_parameters(self.shared_expert_intermediate_size, self.hidden_size) + gate

    @property
    def router_parameters(self) -> int:
        """Weights around one layer's routed experts.

        The router (h·num_experts, with its bias or scales), and the two projections of a latent.
        """
        bias = self.num_experts if self.router_bias else 0
        scales = self.hidden_size + self.num_experts if self.expert_norms else 0
        latent = 2 * self.hidden_size * self.expert_latent_size
        return self.hidden_size * self.num_experts + bias + scales + latent

    @property
    def norm_parameters(self) -> int:
        """One norm: h weights, and h biases in a LayerNorm with bias."""
        return self.hidden_size * (2 if self.norm_bias else 1)

    def norm_parameters_per_layer(self, mlp: Mlp) -> int:
        """The norms of one layer: one before its mixer and one before its MLP, or around them."""
        blocks = (self.mixer != "none") + (mlp != "none")
        norms = blocks * (2 if self.sandwich_norms else 1)
        if mlp == "experts" and self.expert_norms:
            norms += 3
        return norms * self.norm_parameters

    @property
    def dense_layer_parameters(self) -> int:
        """One layer without experts: attention, MLP and norms."""
        return self.layer_parameters("dense")

    def layer_parameters(self, mlp: Mlp) -> int:
        """One layer with such an MLP."""
        found = self.attention_parameters + self.norm_parameters_per_layer(mlp)
        if mlp == "dense":
            found += self.mlp_parameters
        if mlp == "experts":
            found += self.router_parameters + self.shared_expert_parameters
            found += self.num_experts * self.expert_parameters
        return found

    def lora_parameters_per_layer(self, rank: int, mlp: Mlp) -> int:
        """Adapter parameters of one layer, rank·(in + out) for each linear layer.

        Source: Hu et al. 2021 (arXiv:2106.09685). Adapters sit on the mixer's projections, the MLP
        and every expert; not on routers. Where attention is approximated the projections are taken
        from heads and head_dim.
        """
        plain = self.mixer == "attention" and self.latent_attention is None
        if plain and not (self.attention_output_gate or self.shared_key_value):
            widths = self.query_size, self.key_value_size
            found = sum(2 * rank * (self.hidden_size + width) for width in widths)
        else:
            found = sum(rank * (inputs + outputs) for inputs, outputs, _ in self.mixer_matrices)
        matrices = 3 if self.gated_mlp else 2
        if mlp == "dense":
            found += matrices * rank * (self.hidden_size + self.intermediate_size)
        if mlp == "experts":
            each = matrices * rank * (self.expert_hidden_size + self.moe_intermediate_size)
            found += self.num_experts * each
            shared = self.shared_expert_intermediate_size
            found += matrices * rank * (self.hidden_size + shared) if shared else 0
        return found
