"""What a layer has in place of plain attention, and in what layers of one model differ.

Field names are those of Hugging Face configurations. Every block counts its own weights, without
the norm before it.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from automap.planner.documented import Documented

Size = Annotated[int, Field(ge=1, le=10**7)]
Count = Annotated[int, Field(ge=0, le=10**7)]
Mixer = Literal["attention", "gated_delta_net", "mamba2", "none"]
"""What mixes a layer's tokens: attention (latent where the model has it), gated linear attention,
a state space, or nothing where the layer is an MLP alone."""
Mlp = Literal["dense", "experts", "none"]
"""What follows the mixer in a layer."""
Matrix = tuple[int, int, Literal["column", "row", "whole"]]
"""(inputs, outputs, how tensor parallelism splits it: by outputs, by inputs, not at all)."""

STATE_BYTES = 4
"""Bytes of an element of a recurrent state: engines keep it in fp32."""


class Block(Documented, BaseModel):
    """Sizes that belong together."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class LatentAttention(Block):
    """Multi-head latent attention: keys and values of all heads from one vector per token.

    Source: DeepSeek-V2 report (arXiv:2405.04434), section 2.1 and appendix C.
    """

    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    v_head_dim: Size
    q_lora_rank: Count = 0
    """Width of the bottleneck of queries; 0: none."""

    @property
    def query_key_head_dim(self) -> int:
        """Width of a head of queries and keys: with rotary positions, and without."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def cache_elements(self) -> int:
        """Elements that a token has in a layer's cache, for all heads together."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    def matrices(self, hidden_size: int, num_heads: int) -> tuple[Matrix, ...]:
        """The projections of one layer: down to the latent vectors, up to the heads, out."""
        query = num_heads * self.query_key_head_dim
        down, up = self.cache_elements, num_heads * (self.qk_nope_head_dim + self.v_head_dim)
        first: tuple[Matrix, ...] = (
            (hidden_size, query, "column"),
            (hidden_size, down, "whole"),
        )
        if self.q_lora_rank:
            first = (
                (hidden_size, self.q_lora_rank + down, "whole"),
                (self.q_lora_rank, query, "column"),
            )
        return (
            *first,
            (self.kv_lora_rank, up, "column"),
            (num_heads * self.v_head_dim, hidden_size, "row"),
        )

    @property
    def norm_parameters(self) -> int:
        """The norms on both latent vectors."""
        return self.q_lora_rank + self.kv_lora_rank


class Indexer(Block):
    """Picks the tokens that sparse latent attention attends to.

    Source: DeepSeek-V3.2 report (arXiv:2512.02556), section 2.1.
    """

    index_n_heads: Size
    index_head_dim: Size
    index_topk: Size
    """Tokens that are attended to."""

    def matrices(self, hidden_size: int, query_rank: int) -> tuple[Matrix, ...]:
        """Queries from the bottleneck; one key, and a weight of each head, from the token."""
        width = self.index_n_heads * self.index_head_dim
        return (
            (query_rank or hidden_size, width, "whole"),
            (hidden_size, self.index_head_dim + self.index_n_heads, "whole"),
        )

    @property
    def norm_parameters(self) -> int:
        """The norm with bias on the key."""
        return 2 * self.index_head_dim


class GatedDeltaNet(Block):
    """Gated linear attention with a delta rule; a state of fixed size takes the cache's place.

    Source: Yang et al. 2024 (arXiv:2412.06464); Qwen3-Next has it with a short convolution.
    """

    linear_num_key_heads: Size
    linear_num_value_heads: Size
    linear_key_head_dim: Size
    linear_value_head_dim: Size
    linear_conv_kernel_dim: Size = 4

    @property
    def key_size(self) -> int:
        """Width of all key heads together."""
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_size(self) -> int:
        """Width of all value heads together."""
        return self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def convolved_size(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_size + self.value_size

    def matrices(self, hidden_size: int) -> tuple[Matrix, ...]:
        """Queries, keys, values, output gate, decay and strength in one projection; and out."""
        inputs = self.convolved_size + self.value_size + 2 * self.linear_num_value_heads
        return (hidden_size, inputs, "column"), (self.value_size, hidden_size, "row")

    @property
    def other_parameters(self) -> int:
        """The convolution, decay and its offset by head, and the norm of a head."""
        heads = 2 * self.linear_num_value_heads
        return (
            self.convolved_size * self.linear_conv_kernel_dim + heads + self.linear_value_head_dim
        )

    @property
    def state_elements(self) -> int:
        """Elements of the recurrent state of one sequence in a layer."""
        return self.value_size * self.linear_key_head_dim

    @property
    def convolution_elements(self) -> int:
        """Elements of one sequence that the convolution still needs in a layer."""
        return self.convolved_size * (self.linear_conv_kernel_dim - 1)


class Mamba2(Block):
    """A state space layer; a state of fixed size takes the cache's place.

    Source: Dao and Gu 2024 (arXiv:2405.21060).
    """

    mamba_num_heads: Size
    mamba_head_dim: Size
    ssm_state_size: Size
    n_groups: Size = 8
    conv_kernel: Size = 4

    @property
    def inner_size(self) -> int:
        """Width of all heads together."""
        return self.mamba_num_heads * self.mamba_head_dim

    @property
    def convolved_size(self) -> int:
        """Channels of the convolution: inputs, and the two matrices of each group."""
        return self.inner_size + 2 * self.n_groups * self.ssm_state_size

    def matrices(self, hidden_size: int) -> tuple[Matrix, ...]:
        """Gate, inputs, groups' matrices and time steps in one projection; and out."""
        inputs = self.inner_size + self.convolved_size + self.mamba_num_heads
        return (hidden_size, inputs, "column"), (self.inner_size, hidden_size, "row")

    @property
    def other_parameters(self) -> int:
        """The convolution with bias; decay, its offset and a skip by head; the norm."""
        convolution = self.convolved_size * (self.conv_kernel + 1)
        return convolution + 3 * self.mamba_num_heads + self.inner_size

    @property
    def state_elements(self) -> int:
        """Elements of the recurrent state of one sequence in a layer."""
        return self.inner_size * self.ssm_state_size

    @property
    def convolution_elements(self) -> int:
        """Elements of one sequence that the convolution still needs in a layer."""
        return self.convolved_size * (self.conv_kernel - 1)


class LayerKind(Block):
    """Layers of one kind: in what they differ from the sizes of the model; null: in nothing."""

    letter: Annotated[str, Field(pattern=r"^\S$")]
    """The letter that stands for such a layer in `layer_pattern`."""
    mixer: Mixer | None = None
    mlp: Mlp | None = None
    """Null: experts where the model has them, else dense."""
    sliding_window: Count | None = None
    attention_chunk_size: Count | None = None
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    shared_key_value: bool | None = None
    runs_indexer: bool | None = None
