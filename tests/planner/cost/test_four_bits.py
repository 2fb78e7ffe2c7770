"""Rollout weights in 4 bits: bytes against hand arithmetic, seconds against bytes and peaks."""

import numpy as np
import pytest

from automap.planner import catalogue
from automap.planner.catalogue.weight_formats import BLOCK_FORMATS, weight_bytes
from automap.planner.check.check import violations
from automap.planner.cost import intervals, memory, transition
from automap.planner.cost.generation.generate_call import generation_phases
from automap.planner.cost.generation.kv_cache import full_kv_cache_bytes
from automap.planner.cost.intervals import SPREADS
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.operators.roofline import UNPACKING_SHARE, Peaks, gemm_roofline
from automap.planner.job.resolution import resolve
from automap.planner.layout import GenerationLayouts, layers_per_stage
from automap.planner.planning import make_plan
from tests.helpers.cost_model import call, ints, layouts, model, pool, workload
from tests.helpers.small_jobs import small_job

BILLION = 1e9


def test_a_70b_model_in_int4_weighs_what_its_checkpoints_do() -> None:
    """80 layers of 855.6 million weights in 4 bits, a 2-byte scale per 128 of them; embedding and
    head of 128,256 x 8,192 and 161 norms of 8,192 in 16 bits: 39.5 GB, as AWQ checkpoints have."""
    layer = 2 * 8192 * (8192 + 1024) + 3 * 8192 * 28672
    in_four_bits = 80 * layer
    kept = 2 * 128_256 * 8192 + 161 * 8192
    expected = in_four_bits / 2 + in_four_bits / 128 * 2 + 2 * kept
    assert expected / BILLION == pytest.approx(39.5, abs=0.1)
    assert sum(weight_bytes(catalogue.architecture("llama-3.1-70b"), "int4")) == expected


def test_deepseek_v3_in_nvfp4_keeps_attention_embeddings_and_routers_in_16_bits() -> None:
    """A byte per two weights and one per 16: its NVFP4 checkpoints take about 400 GB."""
    arch = catalogue.architecture("deepseek-v3")
    expert = 3 * 7168 * 2048
    mlp = 3 * expert * 9 + 58 * expert  # three dense layers of width 18,432; one shared expert
    experts = 58 * 256 * expert
    kept = arch.num_parameters() - mlp - experts
    rest, routed = weight_bytes(arch, "nvfp4")
    assert routed == experts * (1 / 2 + 1 / 16)
    assert rest == mlp * (1 / 2 + 1 / 16) + 2 * kept
    assert 380 < (rest + routed) / BILLION < 410


def test_mxfp4_is_of_experts_alone() -> None:
    arch = catalogue.architecture("mixtral-8x7b")
    experts = 32 * 8 * 3 * 4096 * 14336
    rest, routed = weight_bytes(arch, "mxfp4")
    assert rest == weight_bytes(arch, "bf16")[0]
    assert routed == experts * (1 / 2 + 1 / 32)


@pytest.mark.parametrize("precision", sorted(BLOCK_FORMATS))
@pytest.mark.parametrize("name", ["llama-3.1-70b", "mixtral-8x7b", "deepseek-v3", "qwen2.5-0.5b"])
def test_gpus_share_the_bytes_of_the_whole_model(name: str, precision: str) -> None:
    """Attention's fused projection of a latent model is not of its parts, but keeps 16 bits."""
    whole = sum(weight_bytes(catalogue.architecture(name), precision))
    one, eight = memory.weight_bytes(model(name), layouts(tensor=[1, 8]), precision=precision)
    assert one == pytest.approx(whole, rel=2e-3)
    assert whole / 8 * 0.999 < eight < whole / 8 * 1.3  # norms, routers and heads repeat


def test_the_stage_with_an_embedding_in_16_bits_is_the_fullest() -> None:
    """Four stages of llama-3.1-405b: most parameters lie on a middle one of 32 layers, but most
    bytes on the first, with 31 and an embedding of 2.1 billion."""
    layer = 2 * 16384 * (16384 + 1024) + 3 * 16384 * 53248
    embedding = 128_256 * 16384
    assert layers_per_stage(126, 4) == (31, 32, 32, 31)
    assert 32 * layer > 31 * layer + embedding
    (found,) = memory.weight_bytes(model("llama-3.1-405b"), layouts(pipeline=4), precision="int4")
    assert found == pytest.approx(31 * layer * (1 / 2 + 2 / 128) + 2 * embedding, rel=1e-3)
    assert found > 1.01 * 32 * layer * (1 / 2 + 2 / 128)


def test_an_int4_rollout_on_a_home_holds_a_whole_quantised_shard() -> None:
    """What travels stays in 16 bits: nothing is received, all is held a second time in 4 bits."""
    actor, hardware = model("llama-3.1-70b"), pool("h100-80gb-sxm", num_nodes=1)
    _, received, transient = transition.reshard(
        actor,
        workload(rollout_precision="int4"),
        hardware,
        load_profile(hardware.gpu),
        layouts(tensor=8),
        tensor_parallel_size=ints(8),
        pipeline_parallel_size=ints(1),
        expert_parallel_size=ints(1),
    )
    assert received[0] == 0
    whole = sum(weight_bytes(actor.architecture, "int4"))
    assert transient[0] == pytest.approx(whole / 8, rel=0.01)


def test_a_weight_sync_sends_16_bits_and_the_shadow_keeps_4() -> None:
    actor = model("llama-3.1-70b")
    low, full = workload(rollout_precision="int4"), workload()
    assert transition.sync_bytes(actor, low) == transition.sync_bytes(actor, full)
    rows = layouts(tensor=8)
    held = memory.shadow_resident_bytes(actor, low, rows).weights[0]
    assert held < 0.3 * memory.shadow_resident_bytes(actor, full, rows).weights[0]


def test_adapters_beside_4_bit_weights_keep_16() -> None:
    plain, adapted = model("llama-3.1-70b"), model("llama-3.1-70b", lora_rank=16)
    bytes_of = [
        memory.weight_bytes(each, layouts(), precision="int4")[0] for each in (plain, adapted)
    ]
    assert bytes_of[1] - bytes_of[0] == 2 * adapted.architecture.lora_parameters(16)


def decode_seconds(
    precision: str, gpu: str, *, name: str = "llama-3.1-70b", batch: int = 4
) -> float:
    """Seconds of the products of a decode step on eight GPUs."""
    hardware = pool(gpu, num_nodes=2)
    engine = GenerationLayouts(*(ints(size) for size in (2, 1, 1, 1)))
    actor, spec = (
        model(name),
        workload(rollout_precision=precision, prompts_per_iteration=batch, updates_per_epoch=1),
    )
    generate = call("generate", num_sequences=batch)
    phases = generation_phases(
        actor,
        generate,
        spec,
        hardware,
        load_profile(hardware.gpu),
        engine,
        kv_cache_bytes=full_kv_cache_bytes(actor, generate, spec, engine),
    )
    return float(phases.tables.compute[0, 4])


@pytest.mark.parametrize("gpu", ["a100-80gb-sxm", "h100-80gb-sxm", "b200-180gb-sxm"])
@pytest.mark.parametrize("precision", ["int4", "nvfp4"])
def test_a_decode_step_of_few_sequences_takes_as_long_as_its_bytes(
    gpu: str, precision: str
) -> None:
    """What is saved is what is not read, at the share of bandwidth that kernels reach."""
    arch = catalogue.architecture("llama-3.1-70b")
    wide, low = decode_seconds("bf16", gpu), decode_seconds(precision, gpu)
    saved = (sum(weight_bytes(arch, "bf16")) - sum(weight_bytes(arch, precision))) / 2
    seconds = saved / catalogue.gpu_type(gpu).memory_bytes_per_second
    assert seconds < wide - low < 1.5 * seconds
    assert low < decode_seconds("fp8", gpu) < wide


def test_many_tokens_gain_only_where_tensor_cores_know_4_bits() -> None:
    m = n = k = np.array([16384.0])

    def seconds(gpu: str, precision: str) -> float:
        peaks = Peaks.of(catalogue.gpu_type(gpu))
        return float(gemm_roofline(peaks, m, n, k, precision=precision)[0])

    for precision in ("int4", "nvfp4", "mxfp4"):
        unpacked = seconds("h100-80gb-sxm", precision)
        assert unpacked == pytest.approx(seconds("h100-80gb-sxm", "bf16") / UNPACKING_SHARE)
    assert seconds("b200-180gb-sxm", "nvfp4") == pytest.approx(seconds("b200-180gb-sxm", "fp8") / 2)
    assert seconds("b200-180gb-sxm", "mxfp4") == seconds("b200-180gb-sxm", "fp8")
    assert seconds("b200-180gb-sxm", "int4") > seconds("b200-180gb-sxm", "bf16")


def test_a_thin_product_reads_weights_in_4_bits_and_activations_in_16() -> None:
    peaks = Peaks.of(catalogue.gpu_type("h100-80gb-sxm"))
    m, n, k = (np.array([size]) for size in (4.0, 8192.0, 8192.0))
    num_bytes = 8192 * 8192 * (4 / 8 + 2 / 128) + 2 * 4 * (8192 + 8192)
    found = gemm_roofline(peaks, m, n, k, precision="int4")[0]
    assert found == pytest.approx(num_bytes / peaks.memory_bytes_per_second)


def test_only_experts_are_faster_in_mxfp4() -> None:
    mixture, dense = (
        decode_seconds("mxfp4", "h100-80gb-sxm", name=name)
        / decode_seconds("bf16", "h100-80gb-sxm", name=name)
        for name in ("mixtral-8x7b", "llama-3.1-70b")
    )
    assert mixture < 0.6
    assert dense == 1.0


def test_intervals_are_those_of_4_bits() -> None:
    """No table has their kernels, so published runs lie further off."""
    small = small_job(search__target="any", workload__rollout_precision="int4")
    plan = make_plan(small)
    assert plan.runs_with == []
    (generate,) = (each for each in plan.calls if each.kind == "generate")
    assert generate.seconds_interval is not None
    width = generate.seconds_interval.high / (generate.end_seconds - generate.start_seconds)
    # Nobody published what an engine takes on this GPU.
    kind = "generation, dense, 4-bit, unseen"
    spread = plan.provenance.spreads[kind]
    assert width == pytest.approx(np.exp(spread), rel=0.05)
    assert spread > plan.provenance.spreads["generation, dense"]
    experts = catalogue.architecture("qwen3-30b-a3b")
    for precision in BLOCK_FORMATS:
        assert intervals.call_kind("generate", experts, precision) == "generation, experts, 4-bit"
    assert violations(resolve(small), plan) == []
    usual = plan.provenance.spreads | {kind: SPREADS["generation, dense"]}
    provenance = plan.provenance.model_copy(update={"spreads": usual})
    assert violations(resolve(small), plan.model_copy(update={"provenance": provenance}))


def test_peaks_in_4_bits_are_at_least_twice_those_in_8() -> None:
    with_peak = {
        gpu.name: gpu for gpu in catalogue.gpu_types().values() if gpu.fp4_flops_per_second
    }
    nvidia = {
        "b200-180gb-sxm",
        "b300-288gb-sxm",
        "gb200-192gb",
        "gb300-288gb",
        "rtxpro6000-96gb",
        "rtx5090-32gb",
    }
    assert set(with_peak) == {*nvidia, "mi355x-288gb"}
    for gpu in with_peak.values():
        ratio = (gpu.fp4_flops_per_second or 0) / (gpu.fp8_flops_per_second or 1)
        # A GeForce card has half the rate with fp32 sums in 8 bits, and the whole in 4.
        geforce = gpu.name == "rtx5090-32gb"
        expected = 4 if geforce else 3 if gpu.generation == "blackwell-ultra" else 2
        # Data sheets round each peak by itself.
        assert ratio == pytest.approx(expected, rel=1e-3)
