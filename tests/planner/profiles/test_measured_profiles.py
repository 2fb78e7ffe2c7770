"""Measured profiles in plans: read where they apply, told in the plan, refused elsewhere."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from automap.planner.assembly.assumptions import warnings
from automap.planner.catalogue import gpu_type
from automap.planner.cost.batches import sequence_lengths
from automap.planner.cost.communication import collective_seconds
from automap.planner.cost.constants import CORE_CALL_SECONDS
from automap.planner.cost.gpu_generations import Generation, generation_of, over_tables
from automap.planner.cost.layer.attention import attention_seconds
from automap.planner.cost.layer.transformer_layer import (
    KernelContext,
    MicroBatch,
    dense_layer_seconds,
)
from automap.planner.cost.operators.host_work import CallWork, EngineWork, HostWork, LayerWork
from automap.planner.cost.operators.interpolation import INTERPOLATED, MEASURED
from automap.planner.cost.operators.profile import MEMORY_EFFICIENCY, Profile, load_profile
from automap.planner.cost.pricing import Pricing
from automap.planner.cost.stacks import STACKS
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.planning import make_plan
from automap.planner.profiles.folder import disturbances
from automap.planner.spec import ClusterSpec
from tests.helpers.cost_model import ints, model, pool, workload
from tests.helpers.measured_profiles import host_work, tiny_spec
from tests.helpers.profile_folders import all_reduces, attention, memory_bound, profile_folder
from tests.helpers.small_jobs import small_job

CPU = gpu_type("cpu")
KERNELS = memory_bound(
    {
        1024: {"add": 10e-6, "rms_norm": 30e-6, "copy": 12e-6},
        65_536: {"add": 40e-6, "rms_norm": 44e-6, "copy": 42e-6},
    }
)


def test_a_memory_bound_kernel_takes_the_median_of_those_measured(tmp_path: Path) -> None:
    profile = Profile(CPU, folder=profile_folder(tmp_path, KERNELS))
    found = profile.memory_bound(np.array([1024.0, 65_536.0, 8192.0]))
    assert found.seconds[:2] == pytest.approx([12e-6, 42e-6])
    # Linear in the logarithms: 8 KiB is half way between 1 KiB and 64 KiB.
    assert found.seconds[2] == pytest.approx(np.sqrt(12e-6 * 42e-6))
    assert found.source.tolist() == [MEASURED, MEASURED, INTERPOLATED]


def test_a_kernel_smaller_than_any_measured_takes_as_long_as_the_smallest(tmp_path: Path) -> None:
    profile = Profile(CPU, folder=profile_folder(tmp_path, KERNELS))
    assert profile.memory_bound(np.array([0.0, 16.0])).seconds == pytest.approx([12e-6, 12e-6])


def test_a_larger_kernel_follows_the_bandwidth_last_measured(tmp_path: Path) -> None:
    profile = Profile(CPU, folder=profile_folder(tmp_path, KERNELS))
    assert profile.memory_bound(1_048_576).seconds == pytest.approx(16 * 42e-6)


def test_shipped_tables_have_no_kernels_and_keep_the_formula() -> None:
    profile = load_profile(gpu_type("h100"))
    bandwidth = MEMORY_EFFICIENCY * profile.peaks.memory_bytes_per_second
    assert profile.memory_bound(bandwidth).seconds == pytest.approx(1.0, rel=1e-4)
    assert (
        profile.prefill_attention_backward(
            batch_size=1,
            sequence_length=1024,
            num_attention_heads=32,
            num_key_value_heads=8,
            head_dim=128,
        )
        is None
    )


def test_the_backward_pass_of_attention_is_what_was_measured(tmp_path: Path) -> None:
    points = {(batch, length): 1e-6 * batch * length for batch in (1, 16) for length in (8, 128)}
    profile = Profile(
        CPU, folder=profile_folder(tmp_path, attention("prefill_attention_backward", points))
    )
    found = profile.prefill_attention_backward(
        batch_size=np.array([1, 16]),
        sequence_length=np.array([128, 8]),
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
    )
    assert found is not None
    assert found.seconds == pytest.approx([128e-6, 128e-6])
    assert set(found.source) == {MEASURED}


def flash_seconds(profile: Profile, stack: str) -> tuple[float, float]:
    """(forward, backward) of one layer's attention, both measured as 1 µs a token."""
    forward, backward = attention_seconds(
        model("llama-2-7b").architecture,
        replace(pool(), gpu=profile.gpu),
        profile,
        STACKS[stack],  # type: ignore[index]
        sequence_lengths(workload()),
        precision="bf16",
        tensor_parallel_size=ints(1),
        context_parallel_size=ints(1),
        num_sequences=ints(1),
    )
    return float(forward.seconds[0]), float(backward.seconds[0])


@pytest.mark.parametrize("gpu", ["h100-80gb-sxm", "b200-180gb-sxm", "b300-288gb-sxm"])
def test_what_was_measured_here_is_not_corrected_as_shipped_tables_are(
    tmp_path: Path, gpu: str
) -> None:
    points = {(batch, length): 1e-6 * batch * length for batch in (1, 16) for length in (8, 2048)}
    rows = [
        (table, shape | {"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128}, s)
        for table in ("prefill_attention", "prefill_attention_backward")
        for _, shape, s in attention(table, points)
    ]
    here = gpu_type(gpu)
    profile = Profile(here, folder=profile_folder(tmp_path, rows, device_type=gpu))
    assert profile.measured_here
    assert not load_profile(here).measured_here
    clock = min(generation_of(here).sustained_share, Generation().sustained_share)
    assert clock < 1.0
    for stack in ("megatron-core", "fsdp"):
        assert flash_seconds(profile, stack) == pytest.approx((2048e-6 / clock,) * 2)
    assert over_tables(profile) == Generation(sustained_share=clock)
    assert over_tables(load_profile(here)) == generation_of(here)


def test_layers_and_engine_steps_take_the_host_work_measured(tmp_path: Path) -> None:
    measured = {
        ("megatron-core", "layer_forward"): 0.002,
        ("megatron-core", "layer_training"): 0.007,
        ("vllm", "engine_step"): 0.003,
        ("vllm", "engine_sequence"): 0.0001,
    }
    profile = Profile(CPU, folder=profile_folder(tmp_path, host_work(measured)))
    engine = EngineWork(step=0.003, sequence=0.0001)
    assert profile.host_work("megatron-core") == HostWork(
        LayerWork(0.002),
        LayerWork(0.005),
        CallWork(0.02),
        CallWork(0.02),
        engine,
        beside_kernels=False,
    )
    # Of another framework nothing was measured but the engine.
    constants = load_profile(CPU).host_work("fsdp")
    assert profile.host_work("fsdp") == replace(constants, engine=engine)
    plan, without = make_plan(tiny_spec(tmp_path)), make_plan(tiny_spec(None))
    calls = {call.id: call for call in plan.calls}
    before = {call.id: call for call in without.calls}
    # 32 responses an engine: a step for the prompts, 8 of 3 ms and 0.1 ms for each.
    overhead = calls["actor.generate"].seconds_by_part.overhead - CORE_CALL_SECONDS
    assert overhead == pytest.approx(0.003 + 8 * (0.003 + 32 * 0.0001), rel=0.01)
    # Two layers, two micro-batches of 16 on each of two GPUs.
    more = calls["critic.forward"].end_seconds - calls["critic.forward"].start_seconds
    less = before["critic.forward"].end_seconds - before["critic.forward"].start_seconds
    assert more - less == pytest.approx(4 * 0.002, abs=4 * 0.0007)


def test_every_stack_takes_the_host_work_of_the_framework_it_is_built_on(tmp_path: Path) -> None:
    seconds = {"megatron-core": 0.5, "fsdp": 0.7}
    rows = host_work({(name, "layer_forward"): each for name, each in seconds.items()})
    profile = Profile(CPU, folder=profile_folder(tmp_path, rows))
    one = MicroBatch(*(ints(1) for _ in range(4)), tokens=ints(16))
    built_on = {"nemo-rl": "megatron-core", "verl": "fsdp", "megatron-2021": "megatron-core"}
    assert {stack.host_work for stack in STACKS.values()} == set(seconds)
    for name, framework in (built_on | {name: name for name in seconds}).items():
        stack = STACKS[name]  # type: ignore[index]
        tiny, lengths = model("tiny-llama"), sequence_lengths(workload())
        where = replace(pool(), gpu=CPU)
        setting = KernelContext(tiny, where, profile, "bf16", lengths, stack=stack)
        found = float(dense_layer_seconds(setting, one).forward[0])
        assert found == pytest.approx(seconds[framework], abs=0.15)


def test_a_plan_is_priced_with_the_profile_and_says_so(tmp_path: Path) -> None:
    slow = [*KERNELS, *all_reduces({1024: 0.05, 1_048_576: 0.06})]
    folder = profile_folder(tmp_path / "profile", slow)
    plan, without = make_plan(tiny_spec(folder)), make_plan(tiny_spec(None))
    # The gradients of the critic are all-reduced once per update, 50 ms each.
    assert plan.iteration_seconds > without.iteration_seconds + 0.05
    version = Profile(CPU, folder=folder).version
    assert plan.provenance.measured_profiles == {"cpu": f"{version} in {folder}"}
    assert plan.provenance.operator_tables == {"cpu": "cpu"}
    assert without.provenance.measured_profiles == {}
    assert not any("operator tables" in line for line in plan.assumptions)


def test_measured_collectives_are_not_scaled_by_the_link_that_a_spec_names(tmp_path: Path) -> None:
    folder = profile_folder(tmp_path, [*KERNELS, *all_reduces({1024: 0.05, 1_048_576: 0.06})])
    spec = tiny_spec(folder)
    pool = spec.cluster.pools[0]  # type: ignore[union-attr]
    faster = pool.model_copy(update={"intra_node_bytes_per_second": 64e9})
    job = resolve(spec.model_copy(update={"cluster": ClusterSpec(pools=[faster])}))
    found = collective_seconds(
        job.pools[0],
        Pricing(job).profile(job.pools[0]),
        "all_reduce",
        np.array([1024.0, 1_048_576.0]),
        group_size=2,
        stride=1,
    )
    assert found.seconds == pytest.approx([0.05, 0.06])
    assert set(found.source) == {MEASURED}


def test_own_collectives_that_contradict_themselves_are_priced_as_measured_and_told(
    tmp_path: Path,
) -> None:
    slow = [
        ("collectives", {"collective": "all_gather", "num_gpus": size, "size_bytes": 1 << 30}, each)
        for size, each in ((2, 0.03), (8, 0.8))
    ]
    folder = profile_folder(tmp_path, slow, device_type="l40s-48gb")
    gpus = {"name": "l40s", "gpu": "l40s", "num_nodes": 1, "profile": str(folder)}
    job = resolve(small_job(cluster__pools=[gpus]))
    profile = Pricing(job).profile(job.pools[0])
    found = collective_seconds(job.pools[0], profile, "all_gather", 1 << 30, group_size=8, stride=1)
    assert found.seconds == pytest.approx(0.8)
    assert [line for line in warnings(job) if "profile" in line] == [
        "pools.l40s: in its profile all_gather among 8 GPUs reached 1.2 GB/s where fewer reached "
        "18, which links alone do not explain; it is priced as measured: look for what disturbed "
        "it, and measure it again"
    ]


def test_a_plan_tells_of_a_busy_machine_and_a_slow_clock(tmp_path: Path) -> None:
    session = {"began": {"load": 7.5, "cores": 2, "busy": True}, "throttled": True}
    folder = profile_folder(tmp_path, KERNELS, session=session)
    lines = [line for line in make_plan(tiny_spec(folder)).assumptions if "profile" in line]
    assert lines == [
        "pools.cpu: while its profile was measured, others kept the machine busy (load 7.5, "
        "2 cores)",
        "pools.cpu: while its profile was measured, the clock slowed down meanwhile",
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "holds no profile: no fingerprint.json in it"),
        (
            lambda folder: profile_folder(folder, device_type="h100-80gb-sxm"),
            "was measured on h100-80gb-sxm, the pool has cpu",
        ),
        (profile_folder, "has no tables yet"),
    ],
)
def test_a_folder_that_is_no_profile_of_the_pool_is_refused(
    tmp_path: Path, make: Any, message: str
) -> None:
    make(tmp_path / "x")
    with pytest.raises(SpecError, match=message) as refused:
        make_plan(tiny_spec(tmp_path / "x"))
    assert refused.value.field == "cluster.pools.0.profile"
    assert "automap profile" in refused.value.remedy


def test_a_table_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = profile_folder(tmp_path, KERNELS) / "memory_bound.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SpecError, match=r"memory_bound\.parquet' cannot be read: ") as refused:
        make_plan(tiny_spec(tmp_path))
    assert refused.value.field == "cluster.pools.0.profile"
    parquet.write_table(arrow.table({"num_bytes": [1], "seconds": [1.0]}), file)
    with pytest.raises(SpecError, match="has the columns num_bytes int64, seconds double; those"):
        make_plan(tiny_spec(tmp_path))


@pytest.mark.parametrize("session", [3, {"began": 3}, {"began": {"busy": True, "load": "?"}}])
def test_a_fingerprint_that_somebody_changed_is_read_as_far_as_it_goes(
    tmp_path: Path, session: Any
) -> None:
    found = disturbances(profile_folder(tmp_path, KERNELS, session=session))
    busy = "others kept the machine busy (load 0.0, unknown cores)"
    assert found == ([busy] if "?" in str(session) else [])


def test_calls_take_the_parts_measured_of_them(tmp_path: Path) -> None:
    measured = {
        ("megatron-core", "layer_forward"): 1e-6,
        ("megatron-core", "forward_call"): 0.5,
        ("megatron-core", "forward_micro_batch"): 0.1,
        ("megatron-core", "forward_sequence"): 0.01,
        ("megatron-core", "training_step"): 2.0,
        ("megatron-core", "training_step_layer"): 0.2,
        ("megatron-core", "training_micro_batch"): 0.3,
        ("megatron-core", "training_sequence"): 0.02,
        ("vllm", "engine_call"): 3.0,
        ("vllm", "engine_request"): 0.25,
        ("vllm", "weights_call"): 5.0,
        ("vllm", "weights_layer"): 0.5,
    }
    plan = make_plan(tiny_spec(profile_folder(tmp_path, host_work(measured))))
    without = {call.id: call for call in make_plan(tiny_spec(None)).calls}
    calls = {call.id: call.seconds_by_part for call in plan.calls}
    # 32 sequences a device in micro-batches of 16; two steps of one micro-batch; two layers.
    forward = CORE_CALL_SECONDS + 0.5 + 2 * (0.1 + 16 * 0.01)
    assert calls["critic.forward"].overhead == pytest.approx(forward, rel=1e-4)
    step = CORE_CALL_SECONDS + 2.0 + 2 * 0.2 + 1 * (0.3 + 16 * 0.02)
    assert calls["critic.train"].overhead == pytest.approx(2 * step, rel=1e-4)
    before = without["actor.generate"].seconds_by_part
    more = calls["actor.generate"].overhead - before.overhead
    assert more == pytest.approx(3.0 + 32 * 0.25, rel=1e-4)
    moved = calls["actor.generate"].transition - before.transition
    assert moved == pytest.approx(5.0 + 2 * 0.5, rel=1e-2)


def test_host_work_and_kernels_add_up_only_on_a_cpu(tmp_path: Path) -> None:
    seconds = {
        ("fsdp", "layer_forward"): 0.5,
        ("fsdp", "layer_forward_sequence"): 0.1,
        ("fsdp", "layer_training"): 2.0,
        ("fsdp", "forward_call"): 0.3,
        ("fsdp", "forward_micro_batch"): 0.2,
    }
    for gpu, beside in ((CPU, False), (gpu_type("h100"), True)):
        folder = profile_folder(tmp_path / gpu.name, host_work(seconds), device_type=gpu.name)
        work = Profile(gpu, folder=folder).host_work("fsdp")
        assert work.beside_kernels is beside
        host = work.forward.seconds(ints(4))
        assert host == pytest.approx(0.9)
        found = work.with_kernels(np.array([0.6, 2.0]), host)
        assert found == pytest.approx([0.9, 2.0] if beside else [1.5, 2.9])
        assert work.backward == LayerWork(1.5)
        assert work.scoring == CallWork(0.3, micro_batch=0.0 if beside else 0.2)
