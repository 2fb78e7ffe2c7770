"""What differs between inference engines, and the terms of a step that all of them share."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import ValidationError

from automap.planner.catalogue.hardware import GpuType
from automap.planner.cost.batches import SequenceLengths
from automap.planner.cost.estimates import CallEstimates
from automap.planner.cost.generation.decode import EngineShapes, step_tables
from automap.planner.cost.generation.forward_pass import (
    ForwardPass,
    busiest_share,
    eager_seconds,
    forward_pass_seconds,
    hit_share,
)
from automap.planner.cost.generation.generate_call import price_generate
from automap.planner.cost.generation.kv_cache import full_kv_cache_bytes
from automap.planner.cost.layer.transformer_layer import KernelContext
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.rollout_engines import ENGINES
from automap.planner.layout import GenerationLayouts
from tests.helpers.cost_model import call, ints, model, pool, workload

EIGHT = GenerationLayouts(ints(8), ints(1), ints(1), ints(1))


def price(name: str, *, num_sequences: int = 64, **changes: Any) -> CallEstimates:
    """Llama-3.1-70B on one node of H200, everything at once."""
    spec = workload(
        prompts_per_iteration=num_sequences, updates_per_epoch=1, rollout_engine=name, **changes
    )
    hardware, actor = pool("h200-141gb-sxm", num_nodes=1), model("llama-3.1-70b")
    generate = call("generate", num_sequences=num_sequences)
    cache = full_kv_cache_bytes(actor, generate, spec, EIGHT)
    profile = load_profile(hardware.gpu)
    return price_generate(actor, generate, spec, hardware, profile, EIGHT, kv_cache_bytes=cache)


def setting(name: str, engine: str = "vllm", precision: str = "bf16") -> KernelContext:
    hardware = pool("h200-141gb-sxm", num_nodes=2)
    lengths = SequenceLengths(np.array([1024.0]), np.array([1.0]), 1024)
    profile = load_profile(hardware.gpu)
    return KernelContext(model(name), hardware, profile, precision, lengths, engine=ENGINES[engine])


def tokens(*counts: int, captured: bool) -> ForwardPass:
    ones = np.ones(len(counts), dtype=np.int64)
    return ForwardPass(8 * ones, ones, ones, ints(*counts), ints(*counts), captured=captured)


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_takes_longer_for_more_tokens_and_sequences(name):
    seconds = price(name).seconds.total[0]
    double = {"mean": 2048, "max": 2048}
    assert price(name, response_length=double).seconds.total[0] > 1.8 * seconds
    assert price(name, prompt_length=double).seconds.total[0] > seconds
    by_batch = [price(name, num_sequences=count).seconds.total[0] for count in (8, 16, 32, 64, 128)]
    assert np.all(np.diff(by_batch) > 0)


EQUAL = {"prompt_length": {"mean": 1024, "max": 1024}, "response_length": {"mean": 512, "max": 512}}


def priced_as(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> float:
    """Seconds of 64 equally long responses by an engine with other settings."""
    with monkeypatch.context() as patched:
        patched.setitem(ENGINES, "vllm", replace(ENGINES["vllm"], **changes))
        return float(price("vllm", **EQUAL).seconds.total[0])


def test_an_engine_with_fewer_slots_generates_in_waves(monkeypatch):
    free = priced_as(monkeypatch)
    assert priced_as(monkeypatch, max_sequences=64) == free
    assert priced_as(monkeypatch, max_sequences=1000) == free
    few = price("vllm", num_sequences=16, **EQUAL).seconds.total[0]
    waves = priced_as(monkeypatch, max_sequences=16)
    assert waves == pytest.approx(4 * few, rel=0.02)
    assert priced_as(monkeypatch, max_sequences_per_gpu=2) == waves  # a replica has eight GPUs
    halves = priced_as(monkeypatch, max_sequences=32)
    assert free < halves < waves


def test_responses_of_many_lengths_take_a_slot_as_soon_as_it_is_free(monkeypatch):
    lengths = {"mean": 512, "max": 4096}

    def seconds(slots: int | None) -> float:
        with monkeypatch.context() as patched:
            patched.setitem(ENGINES, "vllm", replace(ENGINES["vllm"], max_sequences=slots))
            return float(price("vllm", response_length=lengths).seconds.total[0])

    by_slots = [seconds(slots) for slots in (8, 16, 32, 64)]
    assert by_slots == sorted(by_slots, reverse=True)
    assert by_slots[-1] == seconds(None)
    # Waves that each wait for their longest would take eight times as long.
    assert by_slots[0] < 4 * by_slots[-1]


def test_steps_outside_graphs_take_no_less_than_their_launches(monkeypatch):
    eager = priced_as(monkeypatch, captured=False, prefill_layer_seconds=2e-3)
    steps = 512 * 80 * 2e-3
    assert steps < eager < 1.2 * steps
    assert eager > priced_as(monkeypatch)


def test_host_work_after_the_launches_shows_where_it_takes_longer_than_the_gpu(monkeypatch):
    free = priced_as(monkeypatch, sequence_seconds=0.0)
    hidden = priced_as(monkeypatch, sequence_seconds=0.0, launched_token_seconds=1e-12)
    assert hidden == free
    steps, tokens = 512, 1024 + 256
    each = {"launched_sequence_seconds": 1e-3, "launched_token_seconds": 2e-6}
    longer = priced_as(monkeypatch, sequence_seconds=0.0, **each)
    host = steps * 64 * (1e-3 + 2e-6 * tokens)
    assert host < longer < 1.1 * host
    waited = priced_as(monkeypatch, sequence_seconds=1e-3, **each)
    assert waited - longer == pytest.approx(steps * 64 * 1e-3, rel=0.02)


def test_generations_with_a_cache_in_fp8_are_those_of_the_catalogue():
    known = set(get_args(GpuType.model_fields["generation"].annotation))
    for engine in ENGINES.values():
        assert set(engine.fp8_cache_generations) <= known
        # What an engine does on Blackwell it does on its successor.
        assert {"blackwell", "blackwell-ultra"} <= set(engine.fp8_cache_generations)


def test_engines_differ_and_the_default_is_the_one_that_runs():
    totals = {name: price(name).seconds.total[0] for name in ENGINES}
    assert len(set(totals.values())) == len(ENGINES)
    assert max(totals, key=lambda name: totals[name]) == "vllm"
    assert workload().rollout_engine == "vllm"


def test_an_unknown_engine_is_named_with_those_there_are():
    with pytest.raises(ValidationError, match="'vllm', 'sglang' or 'trtllm'"):
        workload(rollout_engine="tgi")
    with pytest.raises(ValidationError, match="'bf16' or 'fp8'"):
        workload(rollout_cache_precision="fp4")


def test_a_cache_in_fp8_takes_half_the_bytes_and_is_read_faster():
    long = {"mean": 8192, "max": 8192}
    wide, narrow = (
        price("vllm", prompt_length=long, rollout_cache_precision=name) for name in ("bf16", "fp8")
    )
    assert 2 * narrow.transient.kv_cache[0] == wide.transient.kv_cache[0]
    assert 0.5 * wide.seconds.total[0] < narrow.seconds.total[0] < 0.95 * wide.seconds.total[0]


def test_random_routing_hits_fewer_experts_than_an_even_hand_out():
    """Oracle: tokens that draw their experts, forty times."""
    arch = model("qwen3-30b-a3b").architecture
    rng = np.random.default_rng(0)
    counts, shares = ints(1, 4, 16, 64, 512), []
    for count in counts:
        rows = count * arch.num_experts_per_token
        draws = rng.permuted(np.tile(np.arange(arch.num_experts), (40, count, 1)), axis=2)[
            :, :, : arch.num_experts_per_token
        ].reshape(40, rows)
        hit = np.mean([len(np.unique(draw)) for draw in draws])
        shares.append(hit / min(rows, arch.num_experts))
    np.testing.assert_allclose(hit_share(arch, counts), shares, rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("expert_parallel_size", [1, 4, 8])
def test_the_busiest_gpu_of_an_expert_group_reads_more_than_the_mean(expert_parallel_size):
    """Oracle: tokens that draw their experts, two hundred times."""
    arch = model("qwen3-30b-a3b").architecture
    rng = np.random.default_rng(0)
    counts, shares = ints(1, 4, 16, 64, 512), []
    for count in counts:
        hit = np.zeros((200, arch.num_experts), dtype=bool)
        for trial in range(200):
            for _ in range(count):
                hit[trial, rng.choice(arch.num_experts, arch.num_experts_per_token, False)] = True
        each = hit.reshape(200, expert_parallel_size, -1).sum(axis=2)
        shares.append(each.max(axis=1).mean() / each.mean())
    group = np.full(len(counts), expert_parallel_size)
    np.testing.assert_allclose(busiest_share(arch, counts, group), shares, rtol=0.08)


def test_a_decode_step_waits_for_the_busiest_gpu_of_its_experts():
    """At few tokens a tensor group, which splits every expert, is faster by as much."""
    context, ones = setting("qwen3-30b-a3b"), ints(1, 1)

    def compute(tensor: int, expert: int) -> np.ndarray:
        sizes = (tensor * ones, ones, expert * ones)
        rows = ForwardPass(*sizes, ints(8, 2048), ints(8, 2048), captured=True)
        return np.asarray(forward_pass_seconds(context, rows)[0].seconds)

    few, many = compute(8, 8) / compute(8, 1)
    assert few > 1.1 * many


def test_an_engine_without_a_kernel_of_its_own_reduces_as_nccl_does():
    context = setting("llama-3.1-70b")
    rows = tokens(256, captured=True)
    plain = replace(context, engine=replace(ENGINES["vllm"], custom_all_reduce=False))
    own, nccl = (forward_pass_seconds(each, rows)[1].seconds[0] for each in (context, plain))
    assert nccl > 1.2 * own


def test_a_step_of_a_mixture_takes_longer_the_more_tokens_draw_experts():
    """Up to 2 %: measured kernels are not perfectly monotonic in the batch."""
    compute, _ = forward_pass_seconds(
        setting("qwen3-30b-a3b"), tokens(*(2**power for power in range(10)), captured=True)
    )
    assert np.all(compute.seconds[1:] > 0.98 * compute.seconds[:-1])
    assert compute.seconds[-1] > 1.5 * compute.seconds[0]


def test_latent_attention_reads_one_vector_for_all_heads():
    """DeepSeek-V3: 576 elements per token and layer on every GPU of the tensor group."""
    deepseek = setting("deepseek-v3")
    tables = step_tables(
        deepseek,
        EngineShapes(ints(8), ints(1), ints(1)),
        largest_batch=64,
        cache_lengths=np.array([1024.0, 32768.0]),
    )
    assert tables.batches[12] == pytest.approx(64)
    added = tables.attention[0, 12, 1] - tables.attention[0, 12, 0]
    read = 61 * 64 * (32768 - 1024) * 576 * 2 / deepseek.pool.gpu.memory_bytes_per_second
    assert read < added < 2 * read


def test_a_graph_hides_the_launches_of_quantised_products():
    wide, narrow = (
        forward_pass_seconds(
            setting("llama-3.1-70b", "trtllm", precision), tokens(4, captured=True)
        )[0]
        for precision in ("bf16", "fp8")
    )
    eager, _ = forward_pass_seconds(
        setting("llama-3.1-70b", "trtllm", "fp8"), tokens(4, captured=False)
    )
    assert narrow.seconds[0] < wide.seconds[0]
    assert narrow.seconds[0] < eager.seconds[0]


def test_a_short_prefill_takes_as_long_as_its_launches():
    assert eager_seconds(setting("llama-3.1-70b", "trtllm")) == pytest.approx(
        80 * ENGINES["trtllm"].prefill_layer_seconds
    )
    short, shorter = (
        price("trtllm", num_sequences=1, prompt_length={"mean": size, "max": size})
        for size in (64, 32)
    )
    assert short.seconds.total[0] == pytest.approx(shorter.seconds.total[0], rel=0.02)
