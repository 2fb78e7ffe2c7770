"""Least seconds of an operator on a GPU: arithmetic at the peak, or bytes at full bandwidth."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from automap.planner.catalogue.hardware import GpuType
from automap.planner.catalogue.weight_formats import BLOCK_FORMATS
from automap.planner.layout import FloatArray

BF16_BYTES = 2
BYTES_PER_ELEMENT = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}
"""Bytes per element of a matrix product's operands by precision; 4-bit formats are blocks with
scales (catalogue.weight_formats)."""
PRECISIONS = (*BYTES_PER_ELEMENT, *BLOCK_FORMATS)
"""All precisions that are known."""
UNPACKING_SHARE = 0.8
"""Arithmetic rate of a product that unpacks 4-bit weights for 16-bit tensor cores, over that of one
whose weights are stored in 16 bits. A prior, of no table: such kernels keep the whole gain of
fewer bytes up to 16-32 tokens and a falling one up to 128 (MARLIN, arXiv:2408.11743); with more,
unpacking beside the products leaves them between 0.6 and 1 times as fast."""

Roofline = Callable[..., FloatArray]


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peak rates of a GPU that its rooflines need."""

    memory_bytes_per_second: float
    bf16_flops_per_second: float
    fp32_flops_per_second: float
    fp8_flops_per_second: float | None = None
    fp4_flops_per_second: float | None = None

    @classmethod
    def of(cls, gpu: GpuType) -> "Peaks":
        """The peaks of a GPU type."""
        return cls(
            gpu.memory_bytes_per_second,
            gpu.bf16_flops_per_second,
            gpu.fp32_flops_per_second,
            gpu.fp8_flops_per_second,
            gpu.fp4_flops_per_second,
        )

    def arithmetic(self, precision: str) -> str:
        """Precision of the activations, and so of the arithmetic, in products with such weights.

        Where tensor cores know 4-bit blocks with scales, nvfp4 multiplies in 4 bits and mxfp4 in 8
        (gpt-oss's activations); elsewhere, and int4 anywhere, weights are unpacked to 16 bits.
        """
        if precision not in BLOCK_FORMATS:
            return precision
        if self.fp4_flops_per_second is None:
            return "bf16"
        return {"nvfp4": "nvfp4", "mxfp4": "fp8"}.get(precision, "bf16")

    def flops_per_second(self, precision: str) -> float:
        """Dense peak rate; on a device without fp8 arithmetic fp8 weights multiply in bf16."""
        precision = self.arithmetic(precision)
        if precision == "nvfp4" and self.fp4_flops_per_second is not None:
            return self.fp4_flops_per_second
        if precision == "fp32":
            return self.fp32_flops_per_second
        if precision == "fp8" and self.fp8_flops_per_second is not None:
            return self.fp8_flops_per_second
        return self.bf16_flops_per_second


def gemm_roofline(
    peaks: Peaks, m: FloatArray, n: FloatArray, k: FloatArray, *, precision: str
) -> FloatArray:
    """Least seconds of C[m,n] = A[m,k]·B[k,n]: 2mnk FLOP, or A, B and C once over the memory.

    An fp8 product writes C in bf16, and so does one of 4-bit weights B.
    """
    if precision in BLOCK_FORMATS:
        return _block_gemm_roofline(peaks, m, n, k, precision=precision)
    operand = BYTES_PER_ELEMENT[precision]
    result = max(operand, BF16_BYTES)
    compute = 2.0 * m * n * k / peaks.flops_per_second(precision)
    memory = (operand * (m + n) * k + result * m * n) / peaks.memory_bytes_per_second
    return np.maximum(compute, memory)


def _block_gemm_roofline(
    peaks: Peaks, m: FloatArray, n: FloatArray, k: FloatArray, *, precision: str
) -> FloatArray:
    """Least seconds of a product with 4-bit weights; the kernel before writes A as it is read."""
    compute = 2.0 * m * n * k / _block_flops_per_second(peaks, precision)
    activation = weight_bytes_per_value(peaks.arithmetic(precision))
    operands = activation * m * k + weight_bytes_per_value(precision) * n * k
    memory = (operands + BF16_BYTES * m * n) / peaks.memory_bytes_per_second
    return np.maximum(compute, memory)


def _block_flops_per_second(peaks: Peaks, precision: str) -> float:
    """Rate of products with 4-bit weights: the peak, or less where they are unpacked first."""
    unpacked = peaks.arithmetic(precision) == "bf16"
    return peaks.flops_per_second(precision) * (UNPACKING_SHARE if unpacked else 1.0)


def weight_bytes_per_value(precision: str) -> float:
    """Bytes of a value of a matrix, with its part of a scale."""
    if precision in BLOCK_FORMATS:
        return BLOCK_FORMATS[precision].bytes_per_value
    return BYTES_PER_ELEMENT[precision]


def prefill_attention_roofline(
    peaks: Peaks,
    batch_size: FloatArray,
    length: FloatArray,
    heads: FloatArray,
    kv_heads: FloatArray,
    head_dim: FloatArray,
) -> FloatArray:
    """Least seconds of causal attention: half of the two products; Q, K, V and output once."""
    flops = 2.0 * batch_size * length**2 * heads * head_dim
    elements = batch_size * length * (2 * heads + 2 * kv_heads) * head_dim
    return np.maximum(
        flops / peaks.bf16_flops_per_second,
        BF16_BYTES * elements / peaks.memory_bytes_per_second,
    )


def decode_attention_roofline(
    peaks: Peaks,
    batch_size: FloatArray,
    length: FloatArray,
    heads: FloatArray,
    kv_heads: FloatArray,
    head_dim: FloatArray,
    *,
    cache_bytes: float = 2 * BF16_BYTES,
) -> FloatArray:
    """Least seconds of a decode step's attention: the KV cache of `length` tokens read once.

    `cache_bytes`: bytes of an element of a key and of its value together.
    """
    flops = 4.0 * batch_size * length * heads * head_dim
    num_bytes = batch_size * (cache_bytes * length * kv_heads + 2 * BF16_BYTES * heads) * head_dim
    return np.maximum(
        flops / peaks.bf16_flops_per_second, num_bytes / peaks.memory_bytes_per_second
    )


def expert_share(
    hidden_size: FloatArray,
    moe_intermediate_size: FloatArray,
    num_experts: FloatArray,
    num_experts_per_token: FloatArray,
    expert_tensor_parallel_size: FloatArray,
    expert_parallel_size: FloatArray,
) -> FloatArray:
    """One GPU's share of a layer with experts [row, column].

    Columns: hidden size, width of its part of an expert, its number of experts, experts per
    token, expert_parallel_size.
    """
    return np.stack(
        [
            hidden_size,
            moe_intermediate_size / expert_tensor_parallel_size,
            num_experts / expert_parallel_size,
            num_experts_per_token,
            expert_parallel_size,
        ],
        axis=1,
    )


def tokens_per_expert_row(share: FloatArray) -> FloatArray:
    """Tokens of the expert group for each row that an expert multiplies, balanced routing."""
    density: FloatArray = share[:, 2] * share[:, 4] / share[:, 3]
    return density


def moe_roofline(
    peaks: Peaks, tokens: FloatArray, share: FloatArray, *, precision: str
) -> FloatArray:
    """Least seconds of one GPU's share of an MoE layer's gated experts, balanced routing.

    Of the group's `tokens`, tokens × experts per token ÷ expert_parallel_size rows meet this
    GPU's experts: three products a row; each expert hit is read once, each row's input, three
    intermediates and output move once in bf16.
    """
    hidden, width, experts, per_token, expert_parallel = share.T
    rows = tokens * per_token / expert_parallel
    hit = np.clip(rows, 1.0, np.maximum(experts, 1.0))
    flops = 2.0 * rows * 3.0 * hidden * width
    num_bytes = hit * 3.0 * hidden * width * weight_bytes_per_value(precision)
    num_bytes = num_bytes + rows * (2.0 * hidden + 3.0 * width) * BF16_BYTES
    block = precision in BLOCK_FORMATS
    rate = _block_flops_per_second if block else Peaks.flops_per_second
    compute: FloatArray = flops / rate(peaks, precision)
    memory: FloatArray = num_bytes / peaks.memory_bytes_per_second
    return np.maximum(compute, memory)
