"""Measured operator times of one GPU, as grids of logarithmic efficiency.

Efficiency is roofline seconds ÷ measured seconds. It varies slowly with the shape, so it is what
is interpolated; seconds are the roofline of the asked shape ÷ that efficiency. `Tables` reads one
GPU's Parquet files, each when first needed. docs/cost-model/operators.md has every formula.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as parquet

from planner.interpolation import INTERPOLATED, BoolArray, Grid, Lookup, median_of_known
from planner.layout import FloatArray, IntArray
from planner.roofline import (
    Peaks,
    Roofline,
    decode_attention_roofline,
    expert_share,
    gemm_roofline,
    moe_roofline,
    prefill_attention_roofline,
    tokens_per_expert_row,
)

ENGINE_COLLECTOR = "vllm"
"""Whose fp8 kernels count: the engine that plans run on. The engines' fp8 kernels quantise
differently and differ by a factor of 2, so a median over them would belong to none."""

CONFIG_NEIGHBOURS = 3
"""Measured configurations blended for one that was not measured."""
PREFILL_EMPHASIS = (1.0, 0.5, 2.0)
DECODE_EMPHASIS = (1.0, 2.0, 4.0)
"""Of heads, key-value heads, head_dim: how far apart a factor of two sets two configurations.
These, and the number of neighbours, gave the least error when each measured configuration in
turn was predicted from the others (H100, B200): 5 % at the median for prefill, 3 % for decode."""

TEXT_COLUMNS = {
    "gemm": ["precision", "collector"],
    "moe": ["precision", "routing"],
    "collectives": ["collective"],
}
ATTENTION_FEATURES = ("num_attention_heads", "num_key_value_heads", "head_dim")
MOE_FEATURES = (
    "hidden_size",
    "moe_intermediate_size",
    "num_experts",
    "num_experts_per_token",
    "expert_tensor_parallel_size",
    "expert_parallel_size",
)


@dataclass(frozen=True, slots=True)
class ConfigGrid:
    """One grid of log efficiency per measured configuration, all on the same axes."""

    configs: FloatArray
    """[configuration, feature]"""
    emphasis: FloatArray
    """Per feature: how far apart a factor of two sets two configurations."""
    grid: Grid
    """First axis: the configuration's number + 1."""

    def at(
        self,
        asked: FloatArray,
        *coordinates: FloatArray,
        density: tuple[FloatArray, FloatArray] | None = None,
    ) -> Lookup:
        """Log efficiency for rows of configurations [row, feature] at the coordinates.

        A configuration that was not measured gets the mean of its nearest neighbours (in the
        logarithm of its features), weighted by 1 ÷ squared distance, and is never `measured`.
        `density`: of the measured configurations and of the rows asked; the last coordinate is
        looked up in a neighbour where it has the same ratio to the density.
        """
        unique, inverse = np.unique(asked, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        near, weights = self._neighbours(unique)
        values = np.zeros(len(asked))
        source = np.zeros(len(asked), dtype=np.int64)
        for place in range(near.shape[1]):
            rows = np.flatnonzero(weights[inverse, place] > 0.0)
            if len(rows) == 0:
                continue
            number = near[inverse[rows], place]
            there = [c[rows] for c in coordinates]
            if density is not None:
                there[-1] = there[-1] * (density[0][number] / density[1][rows])
            found = self.grid.at(number + 1.0, *there)
            values[rows] += weights[inverse[rows], place] * found.values
            source[rows] = np.maximum(source[rows], found.source)
        blended = weights[inverse, 0] < 1.0
        return Lookup(values, np.where(blended, np.maximum(source, INTERPOLATED), source))

    def _neighbours(self, asked: FloatArray) -> tuple[IntArray, FloatArray]:
        gaps = np.log2(asked)[:, None, :] - np.log2(self.configs)[None, :, :]
        distance = ((self.emphasis * gaps) ** 2).sum(axis=2)
        near = np.argsort(distance, axis=1, kind="stable")[:, :CONFIG_NEIGHBOURS]
        closest = np.take_along_axis(distance, near, axis=1)
        weights = 1.0 / np.maximum(closest, 1e-9)
        weights[closest[:, 0] == 0.0] = np.eye(1, near.shape[1])
        return near, weights / weights.sum(axis=1, keepdims=True)


@dataclass(frozen=True, slots=True)
class MoeGrid:
    """Efficiency of one GPU's experts by its share of the layer and the group's tokens."""

    shares: ConfigGrid
    fixed_seconds: float
    """The least that was measured: sorting tokens by expert and starting the kernels."""

    def at(self, share: FloatArray, tokens: FloatArray) -> Lookup:
        """Log efficiency; a share not measured is like its neighbours at equal rows per expert."""
        density = tokens_per_expert_row(self.shares.configs), tokens_per_expert_row(share)
        return self.shares.at(share, tokens, density=density)


class Tables:
    """The measured operator times of one GPU, read on first use."""

    def __init__(self, folder: Path, peaks: Peaks) -> None:
        self._folder = folder
        self._peaks = peaks
        self._files: dict[str, parquet.lib.Table] = {}
        self._gemm: dict[str, Grid | None] = {}
        self._moe: dict[str, MoeGrid | None] = {}
        self._collectives: dict[str, Grid] = {}

    def gemm(self, precision: str) -> Grid | None:
        """Axes m, n, k; None where the precision was not measured."""
        if precision not in self._gemm:
            self._gemm[precision] = self._gemm_grid(precision)
        return self._gemm[precision]

    def _gemm_grid(self, precision: str) -> Grid | None:
        rows = self._is_text("gemm", "precision", precision)
        if not rows.any():
            return None
        m, n, k, seconds = self._columns("gemm", ("m", "n", "k", "seconds"), rows)
        efficiency = np.log(gemm_roofline(self._peaks, m, n, k, precision=precision) / seconds)
        collectors = self._texts("gemm", "collector")
        if precision == "fp8" and ENGINE_COLLECTOR in collectors:
            collectors = [ENGINE_COLLECTOR]
        axes = (np.unique(m), np.unique(n), np.unique(k))
        cells = _cells(axes, (m, n, k))
        layers = np.full((len(collectors), *map(len, axes)), np.nan)
        for number, collector in enumerate(collectors):
            own = self._is_text("gemm", "collector", collector)[rows]
            layers[number][tuple(cell[own] for cell in cells)] = efficiency[own]
        return Grid.of(axes, median_of_known(layers))

    @cached_property
    def prefill_attention(self) -> ConfigGrid:
        """Axes batch_size, sequence_length; features heads, key-value heads, head_dim."""
        names = ("batch_size", "sequence_length")
        return self._attention(
            "prefill_attention", names, prefill_attention_roofline, PREFILL_EMPHASIS
        )

    @cached_property
    def decode_attention(self) -> ConfigGrid:
        """Axes batch_size, kv_length; features heads, key-value heads, head_dim."""
        names = ("batch_size", "kv_length")
        return self._attention(
            "decode_attention", names, decode_attention_roofline, DECODE_EMPHASIS
        )

    def _attention(
        self,
        table: str,
        names: tuple[str, str],
        roofline: Roofline,
        emphasis: tuple[float, ...],
    ) -> ConfigGrid:
        batch, length, seconds = self._columns(table, (*names, "seconds"))
        features = self._columns(table, ATTENTION_FEATURES)
        efficiency = np.log(roofline(self._peaks, batch, length, *features) / seconds)
        return _config_grid(np.stack(features, axis=1), emphasis, (batch, length), efficiency)

    def moe(self, precision: str) -> MoeGrid | None:
        """The routed experts of one GPU; None where the precision was not measured."""
        if precision not in self._moe:
            self._moe[precision] = self._moe_grid(precision)
        return self._moe[precision]

    def _moe_grid(self, precision: str) -> MoeGrid | None:
        rows = self._is_text("moe", "precision", precision)
        balanced = self._is_text("moe", "routing", "balanced")
        if balanced.any():
            rows &= balanced
        else:
            # Uneven routing over several GPUs times the busiest one; on one GPU it costs 6 %.
            rows &= self._is_text("moe", "routing", "power_law_1.01")
            rows &= self._columns("moe", ("expert_parallel_size",))[0] == 1
        if not rows.any():
            return None
        share = expert_share(*self._columns("moe", MOE_FEATURES, rows))
        tokens, seconds = self._columns("moe", ("num_tokens", "seconds"), rows)
        roofline = moe_roofline(self._peaks, tokens, share, precision=precision)
        emphasis = (1.0,) * share.shape[1]
        grid = _config_grid(share, emphasis, (tokens,), np.log(roofline / seconds))
        return MoeGrid(grid, float(seconds.min()))

    def collective(self, collective: str) -> Grid:
        """Log bus bandwidth of an NCCL collective; axes group size, buffer bytes."""
        if collective not in self._collectives:
            rows = self._is_text("collectives", "collective", collective)
            parts = 2.0 if collective == "all_reduce" else 1.0
            self._collectives[collective] = self._bandwidth("collectives", parts, rows)
        return self._collectives[collective]

    @cached_property
    def custom_all_reduce(self) -> Grid:
        """Log bus bandwidth of the inference engine's all-reduce; axes as for `collective`."""
        return self._bandwidth("custom_all_reduce", 2.0)

    def _bandwidth(self, table: str, parts: float, rows: BoolArray | None = None) -> Grid:
        names = ("num_gpus", "size_bytes", "seconds")
        group, size, seconds = self._columns(table, names, rows)
        axes = (np.unique(group), np.unique(size))
        values = np.full((len(axes[0]), len(axes[1])), np.nan)
        values[_cells(axes, (group, size))] = np.log(size * parts * (group - 1.0) / group / seconds)
        return Grid.of(axes, values)

    def _columns(
        self, table: str, names: tuple[str, ...], rows: BoolArray | None = None
    ) -> list[FloatArray]:
        columns = [_plain(self._read(table)[n].combine_chunks()).astype(np.float64) for n in names]
        return columns if rows is None else [column[rows] for column in columns]

    def _is_text(self, table: str, name: str, text: str) -> BoolArray:
        column = self._read(table)[name].combine_chunks()
        texts = column.dictionary.to_pylist()
        codes = _plain(column.indices)
        if text not in texts:
            return np.zeros(len(codes), dtype=np.bool_)
        return np.asarray(codes == texts.index(text))

    def _texts(self, table: str, name: str) -> list[str]:
        return sorted(self._read(table)[name].combine_chunks().dictionary.to_pylist())

    def _read(self, table: str) -> "parquet.lib.Table":
        if table not in self._files:
            # Not parquet.read_table: that imports pyarrow's data set machinery, most of a second.
            file = parquet.ParquetFile(
                self._folder / f"{table}.parquet", read_dictionary=TEXT_COLUMNS.get(table, [])
            )
            self._files[table] = file.read(use_threads=False)
        return self._files[table]


def _plain(column: "parquet.lib.Array") -> npt.NDArray[np.generic]:
    # Not to_numpy(): where pandas is installed, pyarrow imports it for that, most of a second.
    return np.from_dlpack(column)


def _cells(
    axes: tuple[FloatArray, ...], coordinates: tuple[FloatArray, ...]
) -> tuple[IntArray, ...]:
    return tuple(np.searchsorted(a, c) for a, c in zip(axes, coordinates, strict=True))


def _config_grid(
    features: FloatArray,
    emphasis: tuple[float, ...],
    coordinates: tuple[FloatArray, ...],
    efficiency: FloatArray,
) -> ConfigGrid:
    configs, number = np.unique(features, axis=0, return_inverse=True)
    axes = tuple(np.unique(c) for c in coordinates)
    values = np.full((len(configs), *map(len, axes)), np.nan)
    values[(number.reshape(-1), *_cells(axes, coordinates))] = efficiency
    numbers = np.arange(1.0, len(configs) + 1.0)
    return ConfigGrid(configs, np.array(emphasis), Grid.of((numbers, *axes), values))
