"""Operators of one GPU: their roofline seconds, and the measured efficiency against them.

Efficiency is roofline seconds ÷ measured seconds. It varies slowly with the shape, so it is what
is interpolated; seconds are the roofline of the asked shape ÷ that efficiency. `Tables` reads one
GPU's Parquet files, each when first needed. docs/cost-model/operators.md has every formula.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as parquet

from planner.interpolation import (
    INTERPOLATED,
    BoolArray,
    Grid,
    Lookup,
    median_of_known,
)
from planner.layout import FloatArray, IntArray

BF16_BYTES = 2
BYTES_PER_ELEMENT = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}
"""Of a matrix product's operands, by precision; the keys are all the precisions known here."""

ENGINE_COLLECTOR = "vllm"
"""Whose fp8 kernels count: the engine that plans run on. The engines' fp8 kernels quantise
differently and differ by a factor of 2, so a median over them would belong to none."""

TEXT_COLUMNS = {
    "gemm": ["precision", "collector"],
    "moe": ["precision", "routing"],
    "collectives": ["collective"],
}

CONFIG_NEIGHBOURS = 4
"""Measured configurations blended for one that was not measured."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """What a roofline needs of a GPU."""

    memory_bytes_per_second: float
    bf16_flops_per_second: float
    fp32_flops_per_second: float
    fp8_flops_per_second: float | None = None

    def flops_per_second(self, precision: str) -> float:
        """Dense peak; fp8 weights on a device without fp8 arithmetic are multiplied in bf16."""
        if precision == "fp32":
            return self.fp32_flops_per_second
        if precision == "fp8" and self.fp8_flops_per_second is not None:
            return self.fp8_flops_per_second
        return self.bf16_flops_per_second


def gemm_roofline(
    peaks: Peaks, m: FloatArray, n: FloatArray, k: FloatArray, *, precision: str
) -> FloatArray:
    """Least seconds of C[m,n] = A[m,k]·B[k,n]: 2mnk FLOP, or A, B and C once over the memory.

    An fp8 product writes C in bf16.
    """
    operand = BYTES_PER_ELEMENT[precision]
    result = max(operand, BF16_BYTES)
    compute = 2.0 * m * n * k / peaks.flops_per_second(precision)
    memory = (operand * (m + n) * k + result * m * n) / peaks.memory_bytes_per_second
    return np.maximum(compute, memory)


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
) -> FloatArray:
    """Least seconds of one decode step: the KV cache of `length` tokens read once, in bf16."""
    flops = 4.0 * batch_size * length * heads * head_dim
    elements = batch_size * (2 * length * kv_heads + 2 * heads) * head_dim
    return np.maximum(
        flops / peaks.bf16_flops_per_second,
        BF16_BYTES * elements / peaks.memory_bytes_per_second,
    )


def moe_roofline(
    peaks: Peaks,
    tokens: FloatArray,
    config: FloatArray,
    *,
    precision: str,
) -> FloatArray:
    """Least seconds of one GPU's share of an MoE layer's gated experts, balanced routing.

    `config` columns: hidden_size, moe_intermediate_size, num_experts_per_token, num_experts,
    expert_tensor_parallel_size, expert_parallel_size. The GPU multiplies
    tokens × experts per token ÷ expert_parallel_size rows, and reads each expert hit once.
    """
    hidden, width, per_token, experts, tensor, expert = config.T
    rows = tokens * per_token / expert
    hit = np.maximum(np.minimum(experts, tokens * per_token) / expert, 1.0)
    width = width / tensor
    weight = BYTES_PER_ELEMENT[precision]
    flops = 2.0 * rows * 3.0 * hidden * width
    num_bytes = hit * 3.0 * hidden * width * weight + rows * (2 * hidden + 3 * width) * BF16_BYTES
    compute: FloatArray = flops / peaks.flops_per_second(precision)
    memory: FloatArray = num_bytes / peaks.memory_bytes_per_second
    return np.maximum(compute, memory)


Roofline = Callable[..., FloatArray]


@dataclass(frozen=True, slots=True)
class ConfigGrid:
    """One grid of log efficiency per measured configuration, all on the same axes."""

    configs: FloatArray
    """[configuration, feature]"""
    grid: Grid
    """First axis: the configuration's number + 1."""

    def at(self, asked: FloatArray, *coordinates: FloatArray) -> Lookup:
        """Log efficiency for rows of configurations [row, feature] at the coordinates.

        A configuration that was not measured gets the mean of its nearest neighbours (in the
        logarithm of its features), weighted by 1 ÷ squared distance, and is never `measured`.
        """
        unique, inverse = np.unique(asked, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        near, weights = self._neighbours(unique)
        values = np.zeros(len(asked))
        source = np.zeros(len(asked), dtype=np.int64)
        exact = weights[inverse, 0] == 1.0
        for place in range(near.shape[1]):
            rows = np.flatnonzero(weights[inverse, place] > 0.0)
            if len(rows) == 0:
                continue
            number = near[inverse[rows], place] + 1.0
            found = self.grid.at(number, *(c[rows] for c in coordinates))
            values[rows] += weights[inverse[rows], place] * found.values
            source[rows] = np.maximum(source[rows], found.source)
        return Lookup(values, np.where(exact, source, np.maximum(source, INTERPOLATED)))

    def _neighbours(self, asked: FloatArray) -> tuple[IntArray, FloatArray]:
        gaps = np.log2(asked)[:, None, :] - np.log2(self.configs)[None, :, :]
        distance = (gaps**2).sum(axis=2)
        near = np.argsort(distance, axis=1, kind="stable")[:, :CONFIG_NEIGHBOURS]
        closest = np.take_along_axis(distance, near, axis=1)
        weights = 1.0 / np.maximum(closest, 1e-9)
        weights[closest[:, 0] == 0.0] = np.eye(1, near.shape[1])
        return near, weights / weights.sum(axis=1, keepdims=True)


class Tables:
    """The measured operator times of one GPU, as grids of log efficiency; read on first use."""

    def __init__(self, folder: Path, peaks: Peaks) -> None:
        self._folder = folder
        self._peaks = peaks
        self._gemm: dict[str, Grid | None] = {}
        self._moe: dict[str, ConfigGrid | None] = {}
        self._collectives: dict[str, Grid] = {}

    def column(self, table: str, name: str) -> FloatArray:
        """One numeric column of a table."""
        return _plain(self._read(table)[name].combine_chunks()).astype(np.float64)

    def is_text(self, table: str, name: str, text: str) -> BoolArray:
        """Which rows of a text column hold the text."""
        column = self._read(table)[name].combine_chunks()
        texts = column.dictionary.to_pylist()
        codes = _plain(column.indices)
        if text not in texts:
            return np.zeros(len(codes), dtype=np.bool_)
        return np.asarray(codes == texts.index(text))

    def texts(self, table: str, name: str) -> list[str]:
        """The distinct values of a text column."""
        return sorted(self._read(table)[name].combine_chunks().dictionary.to_pylist())

    def _read(self, table: str) -> "parquet.lib.Table":
        if table not in self._cache:
            # Not parquet.read_table: that imports pyarrow's data set machinery, most of a second.
            file = parquet.ParquetFile(
                self._folder / f"{table}.parquet", read_dictionary=TEXT_COLUMNS.get(table, [])
            )
            self._cache[table] = file.read(use_threads=False)
        return self._cache[table]

    @cached_property
    def _cache(self) -> "dict[str, parquet.lib.Table]":
        return {}

    def gemm(self, precision: str) -> Grid | None:
        """Axes m, n, k; None where the precision was not measured."""
        if precision not in self._gemm:
            self._gemm[precision] = self._gemm_grid(precision)
        return self._gemm[precision]

    def _gemm_grid(self, precision: str) -> Grid | None:
        rows = self.is_text("gemm", "precision", precision)
        if not rows.any():
            return None
        m, n, k, seconds = (self.column("gemm", name)[rows] for name in ("m", "n", "k", "seconds"))
        efficiency = np.log(gemm_roofline(self._peaks, m, n, k, precision=precision) / seconds)
        axes = (np.unique(m), np.unique(n), np.unique(k))
        cells = tuple(np.searchsorted(axis, x) for axis, x in zip(axes, (m, n, k), strict=True))
        collectors = self.texts("gemm", "collector")
        if precision == "fp8" and ENGINE_COLLECTOR in collectors:
            collectors = [ENGINE_COLLECTOR]
        layers = np.full((len(collectors), *map(len, axes)), np.nan)
        for number, collector in enumerate(collectors):
            own = self.is_text("gemm", "collector", collector)[rows]
            layers[number][tuple(cell[own] for cell in cells)] = efficiency[own]
        return Grid.of(axes, median_of_known(layers))

    @cached_property
    def prefill_attention(self) -> ConfigGrid:
        """Axes batch_size, sequence_length; features heads, key-value heads, head_dim."""
        return self._attention("prefill_attention", "sequence_length", prefill_attention_roofline)

    @cached_property
    def decode_attention(self) -> ConfigGrid:
        """Axes batch_size, kv_length; features heads, key-value heads, head_dim."""
        return self._attention("decode_attention", "kv_length", decode_attention_roofline)

    def _attention(self, table: str, length_name: str, roofline: Roofline) -> ConfigGrid:
        batch, length = self.column(table, "batch_size"), self.column(table, length_name)
        features = [
            self.column(table, name)
            for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
        ]
        seconds = self.column(table, "seconds")
        efficiency = np.log(roofline(self._peaks, batch, length, *features) / seconds)
        return _config_grid(np.stack(features, axis=1), (batch, length), efficiency)

    def moe(self, precision: str) -> ConfigGrid | None:
        """Axis: tokens; features as in moe_roofline. None where the precision is not measured."""
        if precision not in self._moe:
            self._moe[precision] = self._moe_grid(precision)
        return self._moe[precision]

    def collective(self, collective: str) -> Grid:
        """Log bus bandwidth of an NCCL collective; axes group size, buffer bytes."""
        if collective not in self._collectives:
            rows = self.is_text("collectives", "collective", collective)
            parts = 2.0 if collective == "all_reduce" else 1.0
            self._collectives[collective] = self._bandwidth("collectives", rows, parts)
        return self._collectives[collective]

    @cached_property
    def custom_all_reduce(self) -> Grid:
        """Log bus bandwidth of the inference engine's all-reduce; axes as for `collective`."""
        rows = np.ones(len(self.column("custom_all_reduce", "seconds")), dtype=np.bool_)
        return self._bandwidth("custom_all_reduce", rows, 2.0)

    def _bandwidth(self, table: str, rows: BoolArray, parts: float) -> Grid:
        group, size, seconds = (
            self.column(table, name)[rows] for name in ("num_gpus", "size_bytes", "seconds")
        )
        axes = (np.unique(group), np.unique(size))
        values = np.full((len(axes[0]), len(axes[1])), np.nan)
        cells = tuple(np.searchsorted(a, c) for a, c in zip(axes, (group, size), strict=True))
        values[cells] = np.log(size * parts * (group - 1.0) / group / seconds)
        return Grid.of(axes, values)

    def _moe_grid(self, precision: str) -> ConfigGrid | None:
        names = (
            "hidden_size",
            "moe_intermediate_size",
            "num_experts_per_token",
            "num_experts",
            "expert_tensor_parallel_size",
            "expert_parallel_size",
        )
        rows = self.is_text("moe", "precision", precision)
        balanced = self.is_text("moe", "routing", "balanced")
        if balanced.any():
            rows &= balanced
        else:
            # Uneven routing over several GPUs times the busiest one; on one GPU it costs 6 %.
            rows &= self.is_text("moe", "routing", "power_law_1.01")
            rows &= self.column("moe", "expert_parallel_size") == 1
        if not rows.any():
            return None
        config = np.stack([self.column("moe", name)[rows] for name in names], axis=1)
        tokens, seconds = (self.column("moe", name)[rows] for name in ("num_tokens", "seconds"))
        roofline = moe_roofline(self._peaks, tokens, config, precision=precision)
        return _config_grid(config, (tokens,), np.log(roofline / seconds))


def _plain(column: "parquet.lib.Array") -> npt.NDArray[np.generic]:
    # Not to_numpy(): where pandas is installed, pyarrow imports it for that, most of a second.
    return np.from_dlpack(column)


def _config_grid(
    features: FloatArray, coordinates: tuple[FloatArray, ...], efficiency: FloatArray
) -> ConfigGrid:
    configs, number = np.unique(features, axis=0, return_inverse=True)
    axes = tuple(np.unique(c) for c in coordinates)
    values = np.full((len(configs), *map(len, axes)), np.nan)
    cells = tuple(np.searchsorted(a, c) for a, c in zip(axes, coordinates, strict=True))
    values[(number.reshape(-1), *cells)] = efficiency
    numbers = np.arange(1.0, len(configs) + 1.0)
    filled = Grid.of((numbers, *axes), values)
    return ConfigGrid(configs, filled)
