"""Operator times: exact where measured, close where held out, sane where extrapolated."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

from automap.planner.catalogue import gpu_type
from automap.planner.cost.operators.interpolation import (
    ANALYTICAL,
    INTERPOLATED,
    MEASURED,
    Grid,
    distinct_rows,
    fill_gaps,
)
from automap.planner.cost.operators.profile import (
    KERNEL_SECONDS,
    MEMORY_EFFICIENCY,
    PROFILES,
    ROOFLINE_EFFICIENCY,
    Profile,
    load_profile,
)

MEASURED_GPUS = sorted(path.name for path in PROFILES.iterdir() if path.is_dir())
LLAMA_8B_HEADS = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
QWEN3_30B_EXPERTS = {
    "hidden_size": 2048,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_token": 8,
}


def profile(name: str) -> Profile:
    return load_profile(gpu_type(name))


def rows(gpu: str, table: str) -> dict[str, np.ndarray]:
    file = parquet.ParquetFile(PROFILES / gpu / f"{table}.parquet").read()
    return {name: np.array(file[name].to_pylist()) for name in file.column_names}


def errors(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    return np.abs(predicted / measured - 1.0)


def test_tables_of_six_gpus_are_shipped() -> None:
    assert MEASURED_GPUS == [
        "a100-80gb-sxm",
        "b200-180gb-sxm",
        "gb200-192gb",
        "h100-80gb-sxm",
        "h200-141gb-sxm",
        "l40s-48gb",
    ]
    assert len({profile(name).version for name in MEASURED_GPUS}) == 6
    for name in MEASURED_GPUS:
        assert profile(name).table_gpu == name
        assert not profile(name).derived


@pytest.mark.parametrize("gpu", MEASURED_GPUS)
def test_a_measured_product_comes_back_as_the_median_of_its_collectors(gpu: str) -> None:
    table = rows(gpu, "gemm")
    bf16 = table["precision"] == "bf16"
    shapes = np.stack([table[x][bf16] for x in ("m", "n", "k")], axis=1)
    unique, inverse = np.unique(shapes, axis=0, return_inverse=True)
    chosen = np.random.default_rng(1).choice(len(unique), 300, replace=False)
    found = profile(gpu).gemm(*unique[chosen].T, precision="bf16")
    for number, seconds in zip(chosen, found.seconds, strict=True):
        several = table["seconds"][bf16][inverse == number]
        # The median of efficiencies: of two collectors it is the geometric mean of the seconds.
        assert np.exp(np.median(np.log(several))) == pytest.approx(seconds, rel=1e-6)
    assert set(found.source) == {MEASURED}


@pytest.mark.parametrize("gpu", [gpu for gpu in MEASURED_GPUS if "a100" not in gpu])
def test_fp8_products_are_those_of_the_engine(gpu: str) -> None:
    table = rows(gpu, "gemm")
    own = (table["precision"] == "fp8") & (table["collector"] == "vllm")
    found = profile(gpu).gemm(*(table[x][own] for x in ("m", "n", "k")), precision="fp8")
    np.testing.assert_allclose(found.seconds, table["seconds"][own], rtol=1e-6)
    assert set(found.source) == {MEASURED}


@pytest.mark.parametrize("gpu", MEASURED_GPUS)
@pytest.mark.parametrize(
    ("operator", "length"),
    [("prefill_attention", "sequence_length"), ("decode_attention", "kv_length")],
)
def test_measured_attention_comes_back(gpu: str, operator: str, length: str) -> None:
    table = rows(gpu, operator)
    names = ["batch_size", length, *LLAMA_8B_HEADS]
    found = getattr(profile(gpu), operator)(**{name: table[name] for name in names})
    np.testing.assert_allclose(found.seconds, table["seconds"], rtol=1e-6)
    assert set(found.source) == {MEASURED}


@pytest.mark.parametrize("gpu", [gpu for gpu in MEASURED_GPUS if "a100" not in gpu])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_measured_experts_come_back(gpu: str, precision: str) -> None:
    table = rows(gpu, "moe")
    own = (table["precision"] == precision) & (table["routing"] == "balanced")
    names = ["num_tokens", *QWEN3_30B_EXPERTS]
    names += ["expert_tensor_parallel_size", "expert_parallel_size"]
    found = profile(gpu).moe(**{name: table[name][own] for name in names}, precision=precision)
    bf16 = profile(gpu).moe(**{name: table[name][own] for name in names}, precision="bf16")
    # An fp8 kernel that is slower than that of bf16 is an untuned one.
    kept = (table["seconds"][own] < bf16.seconds * (1 - 1e-6)) | (precision == "bf16")
    assert kept.any()
    np.testing.assert_allclose(found.seconds[kept], table["seconds"][own][kept], rtol=1e-6)
    assert set(found.source[kept]) == {MEASURED}
    assert np.all(found.seconds[~kept] <= bf16.seconds[~kept] * (1 + 1e-6))


@pytest.mark.parametrize("gpu", MEASURED_GPUS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_held_out_products_are_interpolated(gpu: str, axis: int) -> None:
    """Every second value of m, n or k is taken out, so neighbours are twice as far as shipped."""
    tables = profile(gpu).tables
    grid = tables.gemm("bf16") if tables else None
    assert grid is not None
    out = np.arange(1, len(grid.axes[axis]) - 1, 2)
    kept = np.setdiff1d(np.arange(len(grid.axes[axis])), out)
    coarse_axes = list(grid.axes)
    coarse_axes[axis] = grid.axes[axis][kept]
    coarse = Grid(
        tuple(coarse_axes),
        np.ascontiguousarray(grid.values.take(kept, axis)),
        grid.measured.take(kept, axis),
    )
    fine_axes = list(grid.axes)
    fine_axes[axis] = grid.axes[axis][out]
    asked = [mesh.ravel() for mesh in np.meshgrid(*fine_axes, indexing="ij")]
    measured = grid.measured.take(out, axis).ravel()
    found = coarse.at(*asked)
    gaps = np.abs(np.expm1(found.values - grid.values.take(out, axis).ravel()))[measured]
    assert np.median(gaps) < 0.06
    assert np.mean(gaps) < 0.11
    assert MEASURED not in found.source


@pytest.mark.parametrize("gpu", ["h100-80gb-sxm", "b200-180gb-sxm"])
@pytest.mark.parametrize(
    ("operator", "bound"), [("prefill_attention", 0.06), ("decode_attention", 0.05)]
)
def test_held_out_head_counts_are_close(gpu: str, operator: str, bound: float) -> None:
    shipped = getattr(profile(gpu).tables, operator)
    gaps = []
    for number, config in enumerate(shipped.configs):
        others = np.arange(len(shipped.configs)) != number
        grid = Grid(
            (np.arange(1.0, others.sum() + 1.0), *shipped.grid.axes[1:]),
            shipped.grid.values[others],
            shipped.grid.measured[others],
        )
        without = type(shipped)(shipped.configs[others], shipped.emphasis, grid)
        known = shipped.grid.measured[number]
        batch, length = np.meshgrid(*shipped.grid.axes[1:], indexing="ij")
        asked = np.broadcast_to(config, (int(known.sum()), 3))
        found = without.at(asked, batch[known], length[known])
        assert MEASURED not in found.source
        gaps.append(np.abs(np.expm1(found.values - shipped.grid.values[number][known])))
    assert np.median(np.concatenate(gaps)) < bound


@pytest.mark.parametrize("gpu", MEASURED_GPUS)
def test_four_times_the_work_is_not_faster(gpu: str) -> None:
    """A few rows may be: the libraries' kernels for one row are often slower than those for 8."""
    rng = np.random.default_rng(3)
    m, n, k = (np.exp(rng.uniform(np.log(512), np.log(32768), 2000)) for _ in range(3))
    less = profile(gpu).gemm(m, n, k, precision="bf16").seconds
    for more in ((4 * m, n, k), (m, 4 * n, k), (m, n, 4 * k)):
        assert np.all(profile(gpu).gemm(*more, precision="bf16").seconds > less)
    few = np.exp(rng.uniform(0, np.log(512), 2000)).round()
    less, more_rows = (profile(gpu).gemm(x, n, k, precision="bf16").seconds for x in (few, 4 * few))
    assert np.median(more_rows / less) > 1.0
    assert np.mean(more_rows < 0.9 * less) < 0.05


@pytest.mark.parametrize("gpu", MEASURED_GPUS)
def test_attention_over_more_tokens_is_not_faster(gpu: str) -> None:
    batch, length = np.meshgrid(4.0 ** np.arange(4), 4.0 ** np.arange(4, 8))
    steps = profile(gpu).decode_attention(batch_size=batch, kv_length=length, **LLAMA_8B_HEADS)
    prefills = profile(gpu).prefill_attention(
        batch_size=batch, sequence_length=length, **LLAMA_8B_HEADS
    )
    for seconds in (steps.seconds, prefills.seconds):
        for axis in (0, 1):
            growth = np.diff(np.log(seconds), axis=axis)
            assert growth.min() > -0.1


def test_beyond_the_grid_seconds_follow_the_roofline() -> None:
    h100 = profile("h100-80gb-sxm")
    far = h100.gemm(np.array([2**19, 2**20]), 8192, 8192, precision="bf16")
    assert far.seconds[1] / far.seconds[0] == pytest.approx(2.0, rel=1e-3)
    assert list(far.source) == [ANALYTICAL, ANALYTICAL]
    assert h100.gemm(8192, 128256, 4096, precision="bf16").source == INTERPOLATED
    assert h100.gemm(8192, 8192, 8192, precision="bf16").source == MEASURED
    long = h100.prefill_attention(
        batch_size=1, sequence_length=np.array([131072, 262144]), **LLAMA_8B_HEADS
    )
    assert long.seconds[1] / long.seconds[0] == pytest.approx(4.0, rel=1e-3)
    cache = h100.decode_attention(batch_size=256, kv_length=[65536, 131072], **LLAMA_8B_HEADS)
    assert cache.seconds[1] / cache.seconds[0] == pytest.approx(2.0, rel=0.05)


def test_a_matrix_thinner_than_measured_takes_as_long_as_the_thinnest() -> None:
    h100 = profile("h100-80gb-sxm")
    thin = h100.gemm(16, [8, 32], 4096, precision="bf16").seconds
    assert thin[0] == thin[1]


def test_large_products_stay_below_the_peak() -> None:
    for name in MEASURED_GPUS:
        gpu = gpu_type(name)
        seconds = load_profile(gpu).gemm(16384, 16384, 16384, precision="bf16").seconds
        efficiency = 2 * 16384**3 / seconds / gpu.bf16_flops_per_second
        assert 0.4 < efficiency < 1.0


def test_precisions() -> None:
    h100, a100 = profile("h100-80gb-sxm"), profile("a100-80gb-sxm")
    size = (4096, 4096, 4096)
    bf16 = h100.gemm(*size, precision="bf16")
    assert h100.gemm(*size, precision="fp16") == bf16
    assert h100.gemm(*size, precision="fp8").seconds < bf16.seconds
    fp32 = h100.gemm(*size, precision="fp32")
    ratio = h100.gpu.bf16_flops_per_second / h100.gpu.fp32_flops_per_second
    assert fp32.seconds / bf16.seconds == pytest.approx(ratio, rel=0.05)
    assert fp32.source == ANALYTICAL
    # No fp8 arithmetic: products run in bf16, and only the weights' bytes shrink.
    assert a100.gemm(*size, precision="fp8").source == ANALYTICAL
    large = a100.gemm(8192, 8192, 8192, precision="fp8").seconds
    assert large == pytest.approx(a100.gemm(8192, 8192, 8192, precision="bf16").seconds, rel=0.01)
    with pytest.raises(ValueError, match=r"int8.*bf16, fp16, fp8, fp32, int4"):
        h100.gemm(*size, precision="int8")


def test_a_gpu_without_tables_takes_its_relatives_efficiency() -> None:
    small, large = profile("a100-40gb-sxm"), profile("a100-80gb-sxm")
    assert small.derived
    assert small.table_gpu == "a100-80gb-sxm"
    assert small.version == large.version
    step = {"batch_size": 256, "kv_length": 1024, **LLAMA_8B_HEADS}
    slower = small.decode_attention(**step)
    bandwidth = large.peaks.memory_bytes_per_second / small.peaks.memory_bytes_per_second
    assert slower.seconds / large.decode_attention(**step).seconds == pytest.approx(
        bandwidth, rel=0.02
    )
    assert slower.source == ANALYTICAL
    product = small.gemm(8192, 8192, 8192, precision="bf16")
    assert product.seconds == pytest.approx(
        large.gemm(8192, 8192, 8192, precision="bf16").seconds, rel=1e-6
    )
    assert product.source == ANALYTICAL


@pytest.mark.parametrize(
    ("gpu", "relative", "bound"),
    [("h200-141gb-sxm", "h100-80gb-sxm", 0.09), ("gb200-192gb", "b200-180gb-sxm", 0.05)],
)
def test_carrying_efficiency_over_is_close_where_both_are_measured(
    gpu: str, relative: str, bound: float
) -> None:
    own = profile(gpu)
    derived = Profile(gpu_type(gpu).model_copy(update={"profile": relative}))
    m, n, k = (x.ravel() for x in np.meshgrid(*[2.0 ** np.arange(5, 15)] * 3))
    own_seconds = own.gemm(m, n, k, precision="bf16").seconds
    derived_seconds = derived.gemm(m, n, k, precision="bf16").seconds
    assert np.median(errors(derived_seconds, own_seconds)) < bound
    batch, length = (x.ravel() for x in np.meshgrid(2.0 ** np.arange(9), 2.0 ** np.arange(6, 14)))
    step = {"batch_size": batch, "kv_length": length, **LLAMA_8B_HEADS}
    gaps = errors(derived.decode_attention(**step).seconds, own.decode_attention(**step).seconds)
    assert np.median(gaps) < bound


def test_a_gpu_without_relatives_is_a_roofline() -> None:
    cpu = profile("cpu")
    assert cpu.table_gpu is None
    found = cpu.gemm(128, 256, 512, precision="fp32")
    flops = 2 * 128 * 256 * 512
    expected = flops / cpu.gpu.fp32_flops_per_second / ROOFLINE_EFFICIENCY + KERNEL_SECONDS
    assert found.seconds == pytest.approx(expected)
    assert found.source == ANALYTICAL
    shapes = {"batch_size": 2, **LLAMA_8B_HEADS}
    assert cpu.prefill_attention(sequence_length=64, **shapes).seconds > 0
    assert cpu.decode_attention(kv_length=64, **shapes).seconds > 0


def test_a100_experts_over_several_gpus_are_never_called_measured() -> None:
    found = profile("a100-80gb-sxm").moe(
        num_tokens=1024,
        **QWEN3_30B_EXPERTS,
        expert_tensor_parallel_size=1,
        expert_parallel_size=[1, 8],
        precision="bf16",
    )
    assert list(found.source) == [MEASURED, INTERPOLATED]


def test_memory_bound_kernels() -> None:
    h100 = profile("h100-80gb-sxm")
    found = h100.memory_bound(np.array([0.0, 3.35e9]))
    assert found.seconds == pytest.approx([3e-6, 3e-6 + 1e-3 / MEMORY_EFFICIENCY])
    assert list(found.source) == [ANALYTICAL, ANALYTICAL]


def test_arguments_broadcast() -> None:
    h100 = profile("h100-80gb-sxm")
    table = h100.gemm(np.array([[1], [64]]), np.array([128, 256, 512]), 1024, precision="bf16")
    assert table.seconds.shape == table.source.shape == (2, 3)
    assert table.seconds[1, 2] == h100.gemm(64, 512, 1024, precision="bf16").seconds
    assert h100.gemm(64, 512, 1024, precision="bf16").seconds.shape == ()


def test_tables_elsewhere_may_be_incomplete(tmp_path: Path) -> None:
    """What a profiler wrote for this machine: products measured, nothing else yet."""
    source = PROFILES / "l40s-48gb" / "gemm.parquet"
    (tmp_path / "gemm.parquet").write_bytes(source.read_bytes())
    own = Profile(gpu_type("a6000-48gb"), folder=tmp_path)
    assert not own.derived
    found = own.gemm(4096, 4096, 4096, precision="bf16")
    assert found.source == MEASURED
    assert found.seconds == profile("l40s-48gb").gemm(4096, 4096, 4096, precision="bf16").seconds
    step = own.decode_attention(batch_size=8, kv_length=1024, **LLAMA_8B_HEADS)
    assert step.source == ANALYTICAL
    experts = own.moe(
        num_tokens=[64, 64],
        **QWEN3_30B_EXPERTS,
        expert_tensor_parallel_size=1,
        expert_parallel_size=[1, 8],
        precision="bf16",
    )
    assert experts.seconds[1] < experts.seconds[0]
    assert own.version != profile("l40s-48gb").version


def test_reading_tables_imports_neither_pandas_nor_data_sets() -> None:
    """Each takes most of a second, more than planning a small job."""
    code = (
        "import sys; from automap.planner.catalogue import gpu_type;"
        "from automap.planner.cost.operators.profile import load_profile;"
        "load_profile(gpu_type('h100')).gemm(64, 64, 64, precision='bf16');"
        "print([x for x in ('pandas', 'pyarrow.dataset') if x in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_power_law_is_interpolated_exactly() -> None:
    axes = (np.array([1.0, 4.0, 32.0]), np.array([2.0, 64.0]))
    grid = Grid.of(axes, np.log(axes[0][:, None] ** 0.5 * axes[1][None, :] ** -1.5))
    x, y = np.array([1.0, 3.0, 20.0, 32.0]), np.array([2.0, 10.0, 63.0, 64.0])
    found = grid.at(x, y)
    np.testing.assert_allclose(found.values, np.log(x**0.5 * y**-1.5), rtol=1e-12)
    assert list(found.source) == [MEASURED, INTERPOLATED, INTERPOLATED, MEASURED]
    held = grid.at(np.array([64.0, 1000.0]), np.array([64.0, 64.0]))
    assert held.values[0] == held.values[1] == grid.values[2, 1]
    assert list(held.source) == [INTERPOLATED, ANALYTICAL]


def test_gaps_are_filled_between_and_beyond_measurements() -> None:
    nan = np.nan
    values = np.array([[nan, 1.0], [1.0, nan], [nan, nan], [4.0, 2.0], [nan, nan]])
    filled = fill_gaps(values, axis=0, positions=np.array([0.0, 1.0, 2.0, 4.0, 5.0]))
    np.testing.assert_allclose(filled[:, 0], [1.0, 1.0, 2.0, 4.0, 4.0])
    np.testing.assert_allclose(filled[:, 1], [1.0, 1.25, 1.5, 2.0, 2.0])
    grid = Grid.of((np.array([1.0, 2.0, 4.0]),), np.array([0.0, nan, 2.0]))
    assert grid.at(np.array([2.0])).source == INTERPOLATED


def test_distinct_rows_are_those_of_numpy() -> None:
    table = np.random.default_rng(7).integers(1, 4, (500, 4)).astype(float)
    table[:, 2] = 128.0
    rows_, inverse = distinct_rows(table)
    np.testing.assert_array_equal(rows_[inverse], table)
    assert len(rows_) == len(np.unique(table, axis=0)) == 27
    assert len(distinct_rows(np.zeros((0, 3)))[0]) == 0


def test_no_rows_give_no_seconds() -> None:
    none = np.zeros(0)
    h100 = profile("h100-80gb-sxm")
    assert h100.gemm(none, none, none, precision="bf16").seconds.shape == (0,)
    step = h100.decode_attention(batch_size=none, kv_length=none, **LLAMA_8B_HEADS)
    assert step.seconds.shape == step.source.shape == (0,)


@pytest.mark.parametrize("gpu", ["h100-80gb-sxm", "h200-141gb-sxm", "b200-180gb-sxm"])
def test_experts_in_fp8_are_no_slower_than_in_bf16(gpu: str) -> None:
    """The fp8 kernel measured on Hopper was up to three times slower than that of bf16."""
    tokens = 2.0 ** np.arange(2, 16)

    def seconds(precision: str) -> np.ndarray:
        return (
            profile(gpu)
            .moe(
                num_tokens=tokens,
                hidden_size=7168,
                moe_intermediate_size=2048,
                num_experts=256,
                num_experts_per_token=8,
                expert_tensor_parallel_size=1,
                expert_parallel_size=8,
                precision=precision,
            )
            .seconds
        )

    assert np.all(seconds("fp8") <= seconds("bf16"))
