"""Operator seconds on one GPU type, interpolated from measurements, with their provenance."""

import hashlib
from collections.abc import Callable
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from automap.planner.catalogue import gpu_type, node_type
from automap.planner.catalogue.hardware import GpuType
from automap.planner.cost.operators.host_work import HostWork
from automap.planner.cost.operators.interpolation import ANALYTICAL, Grid, Lookup, Timed
from automap.planner.cost.operators.operators import ConfigGrid, MoeGrid, Tables
from automap.planner.cost.operators.roofline import (
    PRECISIONS,
    Peaks,
    Roofline,
    decode_attention_roofline,
    expert_share,
    gemm_roofline,
    moe_roofline,
    prefill_attention_roofline,
)
from automap.planner.layout import FloatArray, IntArray
from automap.planner.profiles.corrections import FILE as CORRECTIONS
from automap.planner.profiles.corrections import NONE, Corrections, read_corrections
from automap.planner.profiles.folder import is_of_shipped_tables

__all__ = ["Profile", "Timed", "load_profile", "measured_profile"]

PROFILES = Path(__file__).parents[2] / "profiles" / "shipped"

MEMORY_EFFICIENCY = 0.8
"""Part of memory bandwidth that norms, elementwise kernels and optimizer steps reach."""
ROOFLINE_EFFICIENCY = 0.7
"""Part of the roofline that operators reach where nothing was measured: large bf16 GEMMs of the
six measured GPUs reach 0.60 to 0.80 of their arithmetic, thin ones 0.65 to 0.80 of bandwidth."""
KERNEL_SECONDS = 3e-6
"""Least time of one kernel: what the smallest measured GEMMs take (2–3 µs)."""

_Grid = TypeVar("_Grid", Grid, MoeGrid)


class Profile:
    """Operator seconds on one GPU. Arguments broadcast; answers have the broadcast shape."""

    def __init__(
        self,
        gpu: GpuType,
        *,
        folder: Path | None = None,
        link_bytes_per_second: float | None = None,
        learnt: Path | None = None,
    ) -> None:
        """Take the tables shipped for `gpu.profile`, or those in `folder`, measured on this GPU.

        `link_bytes_per_second`: bandwidth of the link inside the node on which collectives were
        measured; None: the catalogue's. `learnt`: the folder with corrections of the shipped
        tables; those of the tables in `folder` are in `folder` itself.

        `table_gpu`: the GPU whose measured tables apply; None: there are none, and everything is
        a roofline. `derived`: the tables are another GPU's (or there are none), so its efficiency
        is carried over to this GPU's peaks and nothing counts as measured. `measured_here`: they
        are those in a folder, of this very hardware and the kernels that train on it.
        """
        self.gpu = gpu
        self.measured_here = folder is not None
        self.peaks = Peaks.of(gpu)
        shipped = PROFILES / gpu.profile
        self.table_gpu = gpu.name if folder else gpu.profile if shipped.is_dir() else None
        self.derived = self.table_gpu != gpu.name
        relative = gpu_type(gpu.profile) if self.table_gpu and self.derived else gpu
        self._table_node = relative.node
        self._link_bytes_per_second = link_bytes_per_second
        self._folder = folder or shipped
        self._learnt = folder or learnt
        self._host_work: dict[str, HostWork] = {}
        there = Peaks.of(relative)
        self.tables = (
            Tables(self._folder, there, of_many=folder is None) if self.table_gpu else None
        )

    @cached_property
    def table_link_bytes_per_second(self) -> float:
        """Bandwidth, one way, of the link in the node on which the collectives were measured."""
        if self._link_bytes_per_second is not None:
            return self._link_bytes_per_second
        return node_type(self._table_node).intra_node_bytes_per_second

    @cached_property
    def corrections(self) -> Corrections:
        """Corrections that runs have taught of a measured profile, or of the shipped tables."""
        return read_corrections(self._learnt) if self._learnt else NONE

    @cached_property
    def version(self) -> str:
        """Hash of tables and corrections, twelve hexadecimal digits; not of the GPU's figures."""
        digest = hashlib.sha256()
        learnt = self._learnt.glob(CORRECTIONS) if self._learnt else ()
        for path in sorted([*self._folder.glob("*.parquet"), *learnt], key=lambda path: path.name):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()[:12]

    def gemm(
        self,
        m: FloatArray | IntArray | float,
        n: FloatArray | IntArray | float,
        k: FloatArray | IntArray | float,
        *,
        precision: str,
        collector: str | None = None,
        captured: bool = False,
    ) -> Timed:
        """Seconds of the matrix product C[m,n] = A[m,k]·B[k,n].

        fp16 is as fast as bf16; fp32 and 4-bit weights take the efficiency of bf16 at the same
        shape. `collector`
        names whose fp8 kernels count (default: vLLM's). The fp8 products were measured with a
        quantisation and a launch of their own each. `captured`: without both, in a CUDA graph or
        where operands are cast already; then one takes at most what the efficiency of bf16 gives.
        """
        precision = known_precision(precision)
        if captured and precision == "fp8":
            eager = self.gemm(m, n, k, precision="fp8", collector=collector)
            return self._least(eager, m, n, k)
        (rows, columns, inner), shape = broadcast_columns(m, n, k)

        def of_collector(tables: Tables, precision: str) -> Grid | None:
            return tables.gemm(precision, collector)

        grid, stored = self._measured(precision, of_collector)
        if grid:
            # A matrix thinner than any measured one takes as long as the thinnest.
            columns = np.maximum(columns, grid.axes[1][0])
            inner = np.maximum(inner, grid.axes[2][0])
        found = grid.at(rows, columns, inner) if grid else None

        def roofline(peaks: Peaks, precision: str) -> FloatArray:
            return gemm_roofline(peaks, rows, columns, inner, precision=precision)

        return _shaped(*self._timed("gemm", roofline, found, precision, stored), shape)

    def _least(
        self,
        eager: Timed,
        m: FloatArray | IntArray | float,
        n: FloatArray | IntArray | float,
        k: FloatArray | IntArray | float,
    ) -> Timed:
        """Seconds of an fp8 product: the eager one's, or fewer at the efficiency of bf16."""
        if self.tables is None:
            return eager
        wide = self.gemm(m, n, k, precision="bf16")
        rows, columns, inner = (np.asarray(size, dtype=np.float64) for size in (m, n, k))
        ratio = gemm_roofline(self.peaks, rows, columns, inner, precision="fp8") / gemm_roofline(
            self.peaks, rows, columns, inner, precision="bf16"
        )
        fixed = np.minimum(self.tables.fixed_seconds("gemm"), wide.seconds)
        tuned = fixed + (wide.seconds - fixed) * ratio
        faster = tuned < eager.seconds
        return Timed(
            np.where(faster, tuned, eager.seconds), np.where(faster, ANALYTICAL, eager.source)
        )

    def prefill_attention(
        self,
        *,
        batch_size: FloatArray | IntArray | float,
        sequence_length: FloatArray | IntArray | float,
        num_attention_heads: FloatArray | IntArray | float,
        num_key_value_heads: FloatArray | IntArray | float,
        head_dim: FloatArray | IntArray | float,
    ) -> Timed:
        """Seconds of one layer's causal attention forward, in bf16, with one GPU's heads."""
        columns, shape = broadcast_columns(
            batch_size, sequence_length, num_attention_heads, num_key_value_heads, head_dim
        )
        grid = self.tables.prefill_attention if self.tables else None
        roofline = prefill_attention_roofline
        return self._attention("prefill_attention", roofline, grid, columns, shape)

    def prefill_attention_backward(
        self,
        *,
        batch_size: FloatArray | IntArray | float,
        sequence_length: FloatArray | IntArray | float,
        num_attention_heads: FloatArray | IntArray | float,
        num_key_value_heads: FloatArray | IntArray | float,
        head_dim: FloatArray | IntArray | float,
    ) -> Timed | None:
        """Seconds of one layer's causal attention backward; None where it was not measured."""
        grid = self.tables.prefill_attention_backward if self.tables else None
        if grid is None:
            return None
        columns, shape = broadcast_columns(
            batch_size, sequence_length, num_attention_heads, num_key_value_heads, head_dim
        )
        roofline = prefill_attention_roofline
        return self._attention("prefill_attention_backward", roofline, grid, columns, shape)

    def decode_attention(
        self,
        *,
        batch_size: FloatArray | IntArray | float,
        kv_length: FloatArray | IntArray | float,
        num_attention_heads: FloatArray | IntArray | float,
        num_key_value_heads: FloatArray | IntArray | float,
        head_dim: FloatArray | IntArray | float,
        cache_bytes: float | None = None,
    ) -> Timed:
        """Seconds of one layer's attention in a decode step over a cache of `kv_length` tokens.

        `cache_bytes`: bytes of an element of a key and of its value together where that is not 4
        (both in bf16, as measured): 2 in fp8, or where a latent cache serves as both.
        """
        columns, shape = broadcast_columns(
            batch_size, kv_length, num_attention_heads, num_key_value_heads, head_dim
        )
        grid = self.tables.decode_attention if self.tables else None
        roofline = decode_attention_roofline
        narrow = cache_bytes and partial(roofline, cache_bytes=cache_bytes)
        return self._attention("decode_attention", roofline, grid, columns, shape, narrow or None)

    def _attention(
        self,
        table: str,
        roofline: Roofline,
        grid: ConfigGrid | None,
        columns: list[FloatArray],
        shape: tuple[int, ...],
        narrow: Roofline | None = None,
    ) -> Timed:
        """Seconds of attention, from the grid's efficiency and the roofline.

        `narrow` is the roofline of a cache in another format than the measured bf16.
        """
        batch_size, length, *features = columns
        found = grid.at(np.stack(features, axis=1), batch_size, length) if grid else None

        def by_peaks(peaks: Peaks, cache: str) -> FloatArray:
            return (roofline if cache == "bf16" or narrow is None else narrow)(peaks, *columns)

        wanted = "narrow" if narrow else "bf16"
        return _shaped(*self._timed(table, by_peaks, found, wanted, "bf16"), shape)

    def moe(
        self,
        *,
        num_tokens: FloatArray | IntArray | float,
        hidden_size: FloatArray | IntArray | float,
        moe_intermediate_size: FloatArray | IntArray | float,
        num_experts: FloatArray | IntArray | float,
        num_experts_per_token: FloatArray | IntArray | float,
        expert_tensor_parallel_size: FloatArray | IntArray | float,
        expert_parallel_size: FloatArray | IntArray | float,
        precision: str,
    ) -> Timed:
        """Seconds of one GPU's routed experts of a layer, gated (three matrices), balanced routing.

        `num_tokens` are the tokens of the whole expert group (all expert_parallel_size ×
        expert_tensor_parallel_size GPUs together). As in the measured tables, every GPU of the
        group holds all of them and skips those of other GPUs' experts.
        """
        columns, shape = broadcast_columns(
            num_tokens,
            hidden_size,
            moe_intermediate_size,
            num_experts,
            num_experts_per_token,
            expert_tensor_parallel_size,
            expert_parallel_size,
        )
        share = expert_share(*columns[1:])
        return _shaped(*self._experts(columns[0], share, known_precision(precision)), shape)

    def _experts(
        self, tokens: FloatArray, share: FloatArray, precision: str
    ) -> tuple[FloatArray, IntArray]:
        grid, stored = self._measured(precision, Tables.moe)
        found = grid.at(share, tokens) if grid else None

        def roofline(peaks: Peaks, precision: str) -> FloatArray:
            return moe_roofline(peaks, tokens, share, precision=precision)

        seconds, source = self._timed("moe", roofline, found, precision, stored)
        if stored != "fp8" or self.tables is None or (other := self.tables.moe("bf16")) is None:
            return seconds, source
        # On Hopper the measured fp8 kernel is an untuned one that with half the bytes takes longer
        # than that of bf16; engines choose kernels that reach at least the efficiency of bf16.
        wider = other.at(share, tokens)
        untuned = seconds > self._timed("moe", roofline, wider, "bf16", "bf16")[0]
        tuned, weaker = self._timed("moe", roofline, wider, "fp8", "bf16")
        return np.where(untuned, tuned, seconds), np.where(untuned, weaker, source)

    def memory_bound(self, num_bytes: FloatArray | IntArray | float) -> Timed:
        """Seconds of a kernel that only moves bytes: norm, elementwise, optimizer step, copy."""
        (num_bytes,), shape = broadcast_columns(num_bytes)
        grid = self.tables.memory_bound if self.tables else None
        if grid is not None:
            # A kernel that moves less than any measured one takes as long as the smallest.
            moved = np.maximum(num_bytes, grid.axes[0][0])

            def roofline(peaks: Peaks, _precision: str) -> FloatArray:
                least: FloatArray = moved / peaks.memory_bytes_per_second
                return least

            found = grid.at(moved)
            return _shaped(*self._timed("memory_bound", roofline, found, "bf16", "bf16"), shape)
        seconds = num_bytes / (MEMORY_EFFICIENCY * self.peaks.memory_bytes_per_second)
        return _shaped(seconds + KERNEL_SECONDS, np.full(len(seconds), ANALYTICAL), shape)

    def host_work(self, framework: str) -> HostWork:
        """Host work of a training framework and of the inference engine."""
        if framework not in self._host_work:
            measured = self.tables.host_seconds if self.tables else lambda *_: None
            on_host = self.gpu.is_core
            self._host_work[framework] = HostWork.of(framework, measured, on_host=on_host)
        return self._host_work[framework]

    def _measured(
        self, precision: str, table: Callable[[Tables, str], _Grid | None]
    ) -> tuple[_Grid | None, str]:
        """(grid for a precision, or else that of bf16; the precision that it is of)."""
        if self.tables is None:
            return None, precision
        grid = table(self.tables, precision)
        return (grid, precision) if grid else (table(self.tables, "bf16"), "bf16")

    def _timed(
        self,
        table: str,
        roofline: Callable[[Peaks, str], FloatArray],
        log_efficiency: Lookup | None,
        precision: str,
        stored: str,
    ) -> tuple[FloatArray, IntArray]:
        """Seconds from the roofline and the efficiency found for the precision `stored`.

        Where the efficiency is another GPU's or another precision's, only what exceeds that
        table's shortest kernel scales with the rooflines: starting a kernel does not.
        """
        own = roofline(self.peaks, precision)
        if log_efficiency is None or self.tables is None:
            seconds = own / ROOFLINE_EFFICIENCY + KERNEL_SECONDS
            return seconds, np.full(len(own), ANALYTICAL)
        if not self.derived and stored == precision:
            return own * np.exp(-log_efficiency.values), log_efficiency.source
        there = roofline(self.tables.peaks, stored)
        seconds = there * np.exp(-log_efficiency.values)
        fixed = np.minimum(self.tables.fixed_seconds(table), seconds)
        return fixed + (seconds - fixed) * (own / there), np.full(len(own), ANALYTICAL)


@cache
def load_profile(gpu: GpuType) -> Profile:
    """The operator times that apply to a GPU type, read lazily and once per process."""
    return Profile(gpu)


@cache
def measured_profile(gpu: GpuType, folder: Path, link_bytes_per_second: float) -> Profile:
    """The operator times in a folder, measured on that GPU type and link, read once per process.

    A folder that holds only corrections of shipped tables gives those tables with the corrections.
    """
    if is_of_shipped_tables(folder):
        return Profile(gpu, learnt=folder)
    return Profile(gpu, folder=folder, link_bytes_per_second=link_bytes_per_second)


def known_precision(precision: str) -> str:
    """The precision under which operators are stored: fp16 is bf16.

    Raises:
        ValueError: for any that is not in PRECISIONS.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision {precision!r} is none of {', '.join(PRECISIONS)}")
    return "bf16" if precision == "fp16" else precision


def broadcast_columns(
    *arguments: FloatArray | IntArray | float,
) -> tuple[list[FloatArray], tuple[int, ...]]:
    """(the arguments, broadcast together and flattened; the shape that they broadcast to)."""
    arrays = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in arguments))
    return [a.reshape(-1) for a in arrays], arrays[0].shape


def _shaped(seconds: FloatArray, source: IntArray, shape: tuple[int, ...]) -> Timed:
    return Timed(seconds.reshape(shape), source.reshape(shape))
