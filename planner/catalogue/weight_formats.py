"""Formats of a model's weights: bytes of each, and which parts of a model a 4-bit one leaves alone.

Formats of 4 bits keep a scale for every block of values along a row of a matrix. They are of the
matrices in the layers; embeddings, output head, norms, biases and routers stay in 16 bits, and so
does latent attention (MLA), as in published 4-bit checkpoints of DeepSeek-V3 and Kimi-K2.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from automap.planner.catalogue.architecture import ModelArchitecture, layers_by_mixer
from automap.planner.layout import IntArray

BYTES_PER_WEIGHT = MappingProxyType({"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1})
KEPT_BYTES = 2
"""Bytes of a weight that a 4-bit format leaves alone, and of an activation beside it."""

_Counts = TypeVar("_Counts", int, IntArray)


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """A format of 4-bit values with a scale per block."""

    block_values: int
    """Values that share a scale."""
    scale_bits: int
    experts_only: bool = False
    """Whether all but routed experts stays in 16 bits."""

    @property
    def bytes_per_value(self) -> float:
        """Bytes of a value, with its part of a scale."""
        return (4 * self.block_values + self.scale_bits) / (8 * self.block_values)

    def bytes_of(self, values: _Counts) -> _Counts:
        """Bytes of so many values with their scales, rounded up."""
        bits, whole = 4 * self.block_values + self.scale_bits, 8 * self.block_values
        return -(-values * bits // whole)


BLOCK_FORMATS = MappingProxyType(
    {
        "int4": BlockFormat(block_values=128, scale_bits=16),
        "nvfp4": BlockFormat(block_values=16, scale_bits=8),
        "mxfp4": BlockFormat(block_values=32, scale_bits=8, experts_only=True),
    }
)
"""4-bit formats. int4: as GPTQ and AWQ have it (arXiv:2210.17323, 2306.00978), symmetric; nvfp4: of
Blackwell's tensor cores, whose second scale is one number per matrix; mxfp4: the OCP microscaling
format (v1.0, 2023), which gpt-oss ships its experts in."""


class PartPrecisions(NamedTuple):
    """Precisions of the matrix products of a layer's parts."""

    attention: str
    mlp: str
    """Dense MLP and shared experts."""
    experts: str


def part_precisions(architecture: ModelArchitecture, precision: str) -> PartPrecisions:
    """Precisions of the parts of a model whose weights are in one format."""
    found = BLOCK_FORMATS.get(precision)
    if found is None:
        return PartPrecisions(precision, precision, precision)
    others = "bf16" if found.experts_only else precision
    latent = architecture.latent_attention is not None
    latent |= architecture.attention_parameters_per_layer > 0
    return PartPrecisions("bf16" if latent else others, others, precision)


def weight_bytes(
    architecture: ModelArchitecture, precision: str, *, scalar_head: bool = False
) -> tuple[int, int]:
    """(bytes outside routed experts, bytes of routed experts) of a whole model."""
    layers = architecture.num_moe_layers
    experts = layers * architecture.num_experts * architecture.expert_parameters
    others = architecture.num_parameters(scalar_head) - experts
    found = BLOCK_FORMATS.get(precision)
    if found is None:
        size = BYTES_PER_WEIGHT[precision]
        return size * others, size * experts
    low_others, low_experts = _block_values(architecture, precision)
    return (
        found.bytes_of(low_others) + KEPT_BYTES * (others - low_others),
        found.bytes_of(low_experts) + KEPT_BYTES * (experts - low_experts),
    )


def _block_values(architecture: ModelArchitecture, precision: str) -> tuple[int, int]:
    """(outside routed experts, of routed experts): weights of a whole model that have 4 bits."""
    parts, hidden = part_precisions(architecture, precision), architecture.hidden_size
    matrices = 3 if architecture.gated_mlp else 2
    moe, dense = architecture.num_moe_layers, architecture.num_dense_mlp_layers
    others = 0
    for sizes, layers in layers_by_mixer(architecture):
        if part_precisions(sizes, precision).attention == precision:
            values = sum(inputs * outputs for inputs, outputs, _ in sizes.mixer_matrices)
            others += layers * values
    if parts.mlp == precision:
        others += dense * matrices * hidden * architecture.intermediate_size
        others += moe * matrices * hidden * architecture.shared_expert_intermediate_size
    expert = matrices * architecture.expert_hidden_size * architecture.moe_intermediate_size
    return others, moe * architecture.num_experts * expert
