"""Measured operator times of one GPU, as grids of logarithmic efficiency.

Efficiency is roofline seconds ÷ measured seconds. It varies slowly with the shape, so it is what
is interpolated; seconds are the roofline of the asked shape ÷ that efficiency. `Tables` reads one
GPU's Parquet files, each when first needed. Every formula: docs/concepts/cost-model/operators.md.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from automap.planner.cost.operators.interpolation import (
    INTERPOLATED,
    Grid,
    Lookup,
    distinct_rows,
    median_of_known,
)
from automap.planner.cost.operators.roofline import (
    Peaks,
    Roofline,
    decode_attention_roofline,
    expert_share,
    gemm_roofline,
    moe_roofline,
    prefill_attention_roofline,
    tokens_per_expert_row,
)
from automap.planner.cost.operators.sweeps import SlowGroup, Sweep
from automap.planner.cost.operators.table_reader import TableReader
from automap.planner.layout import FloatArray, IntArray

ENGINE_COLLECTOR = "vllm"
"""The engine whose fp8 kernels count where none is named. Engines' fp8 kernels quantise
differently and differ by a factor of 2, so a median over them would belong to none."""
FASTEST = "fastest"
"""Stands for a collector's name and means the fastest kernel that any measured at a shape. Training
has these for fp8 products, as its library chooses among kernels."""

CONFIG_NEIGHBOURS = 3
"""Number of measured configurations that are blended for one that was not measured."""
PREFILL_EMPHASIS = (1.0, 0.5, 2.0)
DECODE_EMPHASIS = (1.0, 2.0, 4.0)
"""How far apart a factor of two in (heads, key-value heads, head_dim) sets two configurations.
These values, and the number of neighbours, gave the least error when each measured configuration
in turn was predicted from the others (H100, B200): 5 % at the median for prefill, 3 % for
decode."""

ATTENTION_FEATURES = ("num_attention_heads", "num_key_value_heads", "head_dim")
LAYER_SIZES = (
    "num_sequences",
    "sequence_length",
    "hidden_size",
    "intermediate_size",
    *ATTENTION_FEATURES,
)
LayerTable = dict[str, FloatArray]
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
    """[feature]: how far apart a factor of two sets two configurations."""
    grid: Grid
    """Log efficiency; its first axis is the configuration's number + 1."""

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
        unique, inverse = distinct_rows(asked)
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

    def at(self, share: FloatArray, tokens: FloatArray) -> Lookup:
        """Log efficiency; a share not measured is like its neighbours at equal rows per expert."""
        density = tokens_per_expert_row(self.shares.configs), tokens_per_expert_row(share)
        return self.shares.at(share, tokens, density=density)


class Tables:
    """The measured operator times of one GPU as grids; None where nothing was measured."""

    def __init__(self, folder: Path, peaks: Peaks, *, of_many: bool = False) -> None:
        """Read the tables of a folder, each when first needed.

        `of_many`: what one machine measured stands for all of its kind, so that collectives of
        groups that it shows to be slow are left out. Otherwise it is the machine that is priced,
        and all that it measured counts.
        """
        self._reader = TableReader(folder)
        self._of_many = of_many
        self.peaks = peaks
        self._gemm: dict[tuple[str, str | None], Grid | None] = {}
        self._moe: dict[str, MoeGrid | None] = {}
        self._collectives: dict[str, Grid | None] = {}
        self._fixed_seconds: dict[str, float] = {}

    def fixed_seconds(self, table: str) -> float:
        """Least seconds that were measured of an operator: what starting its kernels takes.

        Raises:
            ValueError: the table has no rows.
        """
        if table not in self._fixed_seconds:
            (seconds,) = self._reader.columns(table, ("seconds",), self._reader.rows(table))
            self._fixed_seconds[table] = float(seconds.min())
        return self._fixed_seconds[table]

    def gemm(self, precision: str, collector: str | None = None) -> Grid | None:
        """Log efficiency of matrix products over axes m, n, k; in fp8 of one collector's kernels.

        None where the precision was not measured.
        """
        key = precision, collector
        if key not in self._gemm:
            self._gemm[key] = self._gemm_grid(precision, collector)
        return self._gemm[key]

    def _gemm_grid(self, precision: str, collector: str | None) -> Grid | None:
        rows = self._reader.rows("gemm", precision=precision)
        if not rows.any():
            return None
        m, n, k, seconds = self._reader.columns("gemm", ("m", "n", "k", "seconds"), rows)
        efficiency = np.log(gemm_roofline(self.peaks, m, n, k, precision=precision) / seconds)
        collectors = self._reader.texts("gemm", "collector")
        wanted = (collector or ENGINE_COLLECTOR) if precision == "fp8" else None
        if wanted in collectors:
            collectors = [wanted]
        axes = (np.unique(m), np.unique(n), np.unique(k))
        cells = _cells(axes, (m, n, k))
        layers = np.full((len(collectors), *map(len, axes)), np.nan)
        for number, name in enumerate(collectors):
            own = self._reader.rows("gemm", collector=name)[rows]
            layers[number][tuple(cell[own] for cell in cells)] = efficiency[own]
        if wanted == FASTEST:
            return Grid.of(axes, np.fmax.reduce(layers))
        return Grid.of(axes, median_of_known(layers))

    @cached_property
    def prefill_attention(self) -> ConfigGrid | None:
        """Log efficiency of causal attention over axes batch_size, sequence_length.

        Features are heads, key-value heads, head_dim.
        """
        axes = ("batch_size", "sequence_length")
        return self._attention(
            "prefill_attention", axes, prefill_attention_roofline, PREFILL_EMPHASIS
        )

    @cached_property
    def prefill_attention_backward(self) -> ConfigGrid | None:
        """Log efficiency of attention's backward pass, over the roofline of the forward one.

        Axes and features are those of `prefill_attention`.
        """
        axes = ("batch_size", "sequence_length")
        return self._attention(
            "prefill_attention_backward", axes, prefill_attention_roofline, PREFILL_EMPHASIS
        )

    @cached_property
    def memory_bound(self) -> Grid | None:
        """Log efficiency over the bytes moved: the median of the kernels measured at a size."""
        rows = self._reader.rows("memory_bound")
        if not rows.any():
            return None
        num_bytes, seconds = self._reader.columns("memory_bound", ("num_bytes", "seconds"), rows)
        efficiency = np.log(num_bytes / self.peaks.memory_bytes_per_second / seconds)
        sizes = np.unique(num_bytes)
        medians = [float(np.median(efficiency[num_bytes == size])) for size in sizes]
        return Grid.of((sizes,), np.array(medians))

    def host_seconds(self, framework: str, part: str) -> float | None:
        """Host work of a framework without recomputation; None where it was not measured."""
        rows = self._reader.rows("host_work", framework=framework, part=part, recompute="none")
        (seconds,) = self._reader.columns("host_work", ("seconds",), rows)
        return float(seconds[0]) if len(seconds) else None

    def layers(self, framework: str, recompute: str, part: str, precision: str) -> LayerTable:
        """Whole layers measured in a framework: numeric columns of the table, by name."""
        texts = {"framework": framework, "recompute": recompute, "part": part}
        rows = self._reader.rows("layers", **texts, precision=precision)
        columns = self._reader.columns("layers", (*LAYER_SIZES, "seconds"), rows)
        return dict(zip((*LAYER_SIZES, "seconds"), columns, strict=True))

    @cached_property
    def decode_attention(self) -> ConfigGrid | None:
        """Log efficiency of a decode step's attention over axes batch_size, kv_length.

        Features are heads, key-value heads, head_dim.
        """
        axes = ("batch_size", "kv_length")
        return self._attention("decode_attention", axes, decode_attention_roofline, DECODE_EMPHASIS)

    def _attention(
        self,
        table: str,
        axes: tuple[str, str],
        roofline: Roofline,
        emphasis: tuple[float, ...],
    ) -> ConfigGrid | None:
        rows = self._reader.rows(table)
        if not rows.any():
            return None
        batch, length, seconds = self._reader.columns(table, (*axes, "seconds"), rows)
        features = self._reader.columns(table, ATTENTION_FEATURES, rows)
        efficiency = np.log(roofline(self.peaks, batch, length, *features) / seconds)
        return _config_grid(np.stack(features, axis=1), emphasis, (batch, length), efficiency)

    def moe(self, precision: str) -> MoeGrid | None:
        """Log efficiency of one GPU's routed experts; None where they were not measured."""
        if precision not in self._moe:
            self._moe[precision] = self._moe_grid(precision)
        return self._moe[precision]

    def _moe_grid(self, precision: str) -> MoeGrid | None:
        rows = self._reader.rows("moe", precision=precision, routing="balanced")
        if not rows.any():
            # Uneven routing over several GPUs times the busiest one; on one GPU it costs
            # 7 % with many tokens (H100).
            rows = self._reader.rows("moe", precision=precision, routing="power_law_1.01")
            alone = self._reader.columns("moe", ("expert_parallel_size",), rows)[0] == 1
            rows[rows] = alone
        if not rows.any():
            return None
        share = expert_share(*self._reader.columns("moe", MOE_FEATURES, rows))
        tokens, seconds = self._reader.columns("moe", ("num_tokens", "seconds"), rows)
        roofline = moe_roofline(self.peaks, tokens, share, precision=precision)
        emphasis = (1.0,) * share.shape[1]
        grid = _config_grid(share, emphasis, (tokens,), np.log(roofline / seconds))
        return MoeGrid(grid)

    def collective(self, collective: str) -> Grid | None:
        """Log bus bandwidth of an NCCL collective; axes group size, buffer bytes."""
        if collective not in self._collectives:
            sweep = self._sweep("collectives", collective)
            self._collectives[collective] = self._bandwidth(sweep)
        return self._collectives[collective]

    @cached_property
    def custom_all_reduce(self) -> Grid | None:
        """Log bus bandwidth of the inference engine's all-reduce; axes as for `collective`."""
        return self._bandwidth(self._sweep("custom_all_reduce", "all_reduce"))

    def slow_groups(self) -> list[SlowGroup]:
        """Groups whose NCCL collectives are slower than those of smaller ones leave possible."""
        names = self._reader.texts("collectives", "collective")
        return [slow for name in names for slow in self._sweep("collectives", name).slow_groups()]

    def _bandwidth(self, sweep: Sweep) -> Grid | None:
        if not len(sweep.groups):
            return None
        return (sweep.without_slow_groups() if self._of_many else sweep).grid()

    def _sweep(self, table: str, collective: str) -> Sweep:
        named = {"collective": collective} if table == "collectives" else {}
        names = ("num_gpus", "size_bytes", "seconds")
        columns = self._reader.columns(table, names, self._reader.rows(table, **named))
        group, size, seconds = columns
        return Sweep.of(collective, group=group, size=size, seconds=seconds)


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
    numbers = np.arange(1, len(configs) + 1).astype(np.float64)
    return ConfigGrid(configs, np.array(emphasis), Grid.of((numbers, *axes), values))
