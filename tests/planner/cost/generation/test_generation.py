"""Generation: batches that shrink, caches that limit, and published decode times."""

import numpy as np
import pytest

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import constants, memory
from automap.planner.cost.estimates import CallEstimates
from automap.planner.cost.generation.admission import BUSY_CELLS
from automap.planner.cost.generation.generate_call import price_generate
from automap.planner.cost.generation.kv_cache import (
    full_kv_cache_bytes,
    kv_bytes_per_token,
    minimum_kv_cache_bytes,
    response_process,
)
from automap.planner.cost.generation.rollout import Rollout, phases, rollout
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.rollout_engines import ENGINES
from automap.planner.layout import GenerationLayouts, IntArray
from automap.planner.spec import WorkloadSpec
from tests.helpers.cost_model import (
    GIB,
    assert_same_rows,
    call,
    expected_maximum,
    ints,
    layouts,
    model,
    pool,
    workload,
)

LONG_TAIL = {"p50": 600, "p90": 2500, "p99": 6000, "max": 8192}


def sizes(tensor: IntArray, data: IntArray, pipeline: IntArray | None = None) -> GenerationLayouts:
    ones = np.ones_like(tensor)
    return GenerationLayouts(tensor, ones if pipeline is None else pipeline, ones, data)


def price(
    engine: GenerationLayouts,
    *,
    share: float | np.ndarray = 1.0,
    name: str = "llama-2-7b",
    spec: WorkloadSpec | None = None,
    num_sequences: int = 1024,
    hardware: Pool | None = None,
) -> CallEstimates:
    actor, spec, hardware = model(name), spec or workload(), hardware or pool()
    generate = call("generate", num_sequences=num_sequences)
    least = minimum_kv_cache_bytes(actor, spec, engine)
    full = full_kv_cache_bytes(actor, generate, spec, engine)
    budget = np.maximum((full * share).astype(np.int64), least)
    return price_generate(
        actor,
        generate,
        spec,
        hardware,
        load_profile(hardware.gpu),
        engine,
        kv_cache_bytes=budget,
    )


def test_cache_bytes_of_a_token_are_those_of_the_architecture() -> None:
    """Llama-2-70B: 80 layers × 8 heads × 128 × 2 (key, value) × 2 bytes = 320 KiB."""
    per_token = kv_bytes_per_token(
        model("llama-2-70b"),
        sizes(ints(1, 8, 16, 1), ints(1, 1, 1, 1), ints(1, 1, 1, 4)),
        tokens=1000,
    )
    assert list(per_token) == [327_680, 40_960, 40_960, 81_920]


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [("deepseek-v3", 70_272), ("qwen2.5-72b", 327_680), ("llama-3.1-405b", 516_096)],
)
def test_cache_bytes_equal_published_ones(name: str, bytes_per_token: int) -> None:
    """DeepSeek-AI 2025 (arXiv:2505.09343), Table 1: bf16 cache of one token in all layers."""
    alone = sizes(ints(1), ints(1))
    assert kv_bytes_per_token(model(name), alone, tokens=1000) == [bytes_per_token]
    assert 2 * kv_bytes_per_token(model(name), alone, tokens=1000, precision="fp8") == [
        bytes_per_token
    ]


def test_constant_lengths_hold_prompt_and_response_at_the_end() -> None:
    engine = sizes(ints(1), ints(128))
    tokens = full_kv_cache_bytes(model(), call("generate"), workload(), engine) / (512 * 1024)
    assert tokens[0] == pytest.approx(8 * (2048 + 8), rel=1e-3)


def test_a_long_tail_holds_far_less_than_batch_times_maximum() -> None:
    spec = workload(response_length=LONG_TAIL)
    engine = sizes(ints(1), ints(16))
    tokens = full_kv_cache_bytes(model(), call("generate"), spec, engine) / (512 * 1024)
    assert tokens[0] < 0.35 * 64 * (1024 + 8192)
    assert tokens[0] > 64 * (1024 + 500) * 0.5


def test_full_budget_never_falls_below_one_longest_sequence() -> None:
    spec = workload(response_length=LONG_TAIL)
    engine = sizes(ints(1), ints(1024))
    generate = call("generate")
    full = full_kv_cache_bytes(model(), generate, spec, engine)
    assert full[0] == minimum_kv_cache_bytes(model(), spec, engine)[0]


def constant_process(tokens: float = 1000.0) -> Rollout:
    return rollout((tokens,), (1.0,), prompt_tokens=8.0, num_draws=1000)


def test_constant_lengths_that_all_fit_end_together() -> None:
    found = phases(
        constant_process(), sequences=ints(60), cache_tokens=ints(60 * 1010), num_sequences=60
    )
    assert found.steps.sum() == pytest.approx(1000)
    np.testing.assert_allclose(found.batch[0, BUSY_CELLS:], 60)
    assert found.evicted_tokens[0] == 0


def test_a_short_cache_takes_as_much_longer_as_it_is_too_small() -> None:
    """Prompts are short: a sequence holds half its response on average, or more, since the youngest
    are the ones that are sent back."""
    sequences = np.full(3, 1000)
    found = phases(
        constant_process(),
        sequences=sequences,
        cache_tokens=ints(20_000, 40_000, 80_000),
        num_sequences=1000,
    )
    expected = 1000 * 1000 / (np.array([20_000, 40_000, 80_000]) / 508)
    longer = found.steps.sum(axis=1) / expected
    assert np.all((longer > 1.0) & (longer < 1.25))
    evicted = found.evicted_tokens / (1000 * 1000)
    assert np.all((evicted > 0.8) & (evicted <= 1.0))


@pytest.mark.parametrize("share", [2.0, 0.9, 0.5, 0.2, 0.1])
def test_every_token_is_generated(share: float) -> None:
    """Steps times running sequences are n·mean tokens, whatever waits."""
    process = response_process(call("generate"), workload(response_length=LONG_TAIL))
    cache = np.array([64 * process.peak_tokens * share]).astype(np.int64)
    found = phases(process, sequences=ints(64), cache_tokens=cache, num_sequences=1024)
    own = phases(process, sequences=ints(64), cache_tokens=cache, num_sequences=64)
    tokens = (own.steps * own.batch).sum()
    assert tokens == pytest.approx(64 * process.mean_tokens, rel=0.04)
    assert found.steps.sum() > own.steps.sum()  # the longest of all replicas ends the call


@pytest.mark.parametrize("number", [4, 32, 512])
def test_the_longest_of_the_call_ends_it(number: int) -> None:
    spec = workload(response_length=LONG_TAIL)
    process = response_process(call("generate", num_sequences=number), spec)
    found = phases(process, sequences=ints(number), cache_tokens=ints(10**9), num_sequences=number)
    longest = expected_maximum(spec.response_length, number)
    assert found.steps.sum() == pytest.approx(longest, rel=0.02)


def test_a_bigger_cache_is_never_slower() -> None:
    """Up to 2 %: measured kernels are not perfectly monotonic in the batch."""
    for lengths in ({"mean": 1024, "max": 1024}, LONG_TAIL):
        spec = workload(response_length=lengths)
        shares = np.linspace(0.05, 1.2, 24)
        engine = sizes(np.full(24, 2), np.full(24, 16))
        total = price(engine, share=shares, spec=spec).seconds.total
        assert np.all(total[1:] <= 1.02 * total[:-1]), lengths
        assert total[0] > 1.5 * total[-1]


def test_longer_responses_and_prompts_are_never_faster() -> None:
    engine = sizes(ints(2), ints(16))
    by_response = [
        price(engine, spec=workload(response_length={"mean": size, "max": size})).seconds.total[0]
        for size in (256, 512, 1024, 2048)
    ]
    assert np.all(np.diff(by_response) > 0)
    by_prompt = [
        price(engine, spec=workload(prompt_length={"mean": size, "max": size})).seconds.total[0]
        for size in (256, 512, 1024, 2048)
    ]
    assert np.all(np.diff(by_prompt) > 0)


def test_more_replicas_are_never_slower() -> None:
    total = price(sizes(np.full(5, 4), ints(2, 4, 8, 16, 32))).seconds.total
    assert np.all(np.diff(total) < 0)


def test_the_tail_decides_not_the_mean() -> None:
    even = workload(response_length={"mean": 1000, "max": 1000})
    tail = workload(response_length={"histogram": [[500, 0.9], [5500, 0.1]]})
    engine = sizes(ints(2), ints(64))
    assert price(engine, spec=tail).seconds.total[0] > 2 * price(engine, spec=even).seconds.total[0]


def test_shared_prompts_are_prefilled_once() -> None:
    """Same responses, 16 per prompt: the difference is prefill alone, to a sixteenth."""
    engine = sizes(ints(2), ints(8))
    alone = workload(prompts_per_iteration=1024, prompt_length={"mean": 4096, "max": 4096})
    shared = workload(
        prompts_per_iteration=64,
        responses_per_prompt=16,
        prompt_length={"mean": 4096, "max": 4096},
    )
    one, other = price(engine, spec=alone).seconds, price(engine, spec=shared).seconds
    assert one.compute[0] > other.compute[0]
    # 64 chunks of prompts against 4, each a step of the engine.
    steps = 60 * ENGINES["vllm"].step_seconds
    assert one.overhead[0] - other.overhead[0] == pytest.approx(steps)


def test_environment_time_is_on_the_path() -> None:
    engine = sizes(ints(2), ints(8))
    plain = price(engine).seconds.total[0]
    turns = workload(turns=4, environment_seconds_per_turn=2.5)
    assert price(engine, spec=turns).seconds.total[0] == pytest.approx(plain + 10.0)


def test_fp8_weights_decode_faster_on_hopper() -> None:
    hardware = pool("h100-80gb-sxm", num_nodes=2)
    engine = sizes(ints(2), ints(8))
    small = {"num_sequences": 64, "name": "llama-3.1-70b", "hardware": hardware}
    plain = price(engine, **small).seconds.compute[0]
    fp8 = workload(rollout_precision="fp8")
    assert price(engine, spec=fp8, **small).seconds.compute[0] < 0.85 * plain


def test_the_training_tensor_size_generates_slowest_in_hybridflows_setting() -> None:
    """arXiv:2409.19256, figure 15: 7B on 16 A100, 1024 + 1024 tokens, best-effort cache beside the
    other colocated models: of t_g = 2, 4, 8 the training size 8 is the slowest. By how much is not
    asked for: they ran the vLLM of early 2024, whose host took far longer for a sequence."""
    tensor = ints(2, 4, 8)
    engine = sizes(tensor, 16 // tensor)
    actor, spec, hardware = model(), workload(), pool(num_nodes=2)
    free = memory.usable_bytes(hardware) - 24 * GIB
    shards = memory.weight_bytes(actor, layouts(tensor=tensor, data=16 // tensor), precision="bf16")
    full = full_kv_cache_bytes(actor, call("generate"), spec, engine)
    estimates = price_generate(
        actor,
        call("generate"),
        spec,
        hardware,
        load_profile(hardware.gpu),
        engine,
        kv_cache_bytes=np.minimum(full, free - shards),
    )
    total = estimates.seconds.total
    assert total[2] > max(total[0], total[1])


@pytest.mark.parametrize(
    ("tensor", "concurrency", "milliseconds"), [(8, 16, 8.93), (2, 8, 15.90), (4, 64, 17.31)]
)
def test_decode_step_of_a_served_model(tensor: int, concurrency: int, milliseconds: float) -> None:
    """vLLM, Qwen3-32B bf16 on H100, 1024 + 1024 tokens: mean time per output token as published in
    aiconfigurator's silicon samples (NVIDIA, Apache 2.0). It includes prefills that interrupt."""
    hardware = pool("h100-80gb-sxm", num_nodes=1)
    estimate = price(
        sizes(ints(tensor), ints(1)),
        name="qwen3-32b",
        num_sequences=concurrency,
        spec=workload(prompts_per_iteration=concurrency, updates_per_epoch=1),
        hardware=hardware,
    )
    assert 1000 * estimate.seconds.total[0] / 1024 == pytest.approx(milliseconds, rel=0.15)


def test_rows_priced_together_equal_rows_priced_alone() -> None:
    tensor = ints(1, 2, 4, 8, 2, 8, 2)
    engine = sizes(tensor, ints(16, 8, 4, 2, 5, 1, 1), pipeline=ints(1, 1, 2, 2, 1, 4, 1))
    spec = workload(response_length=LONG_TAIL)
    # The last holds a handful of prompts: it runs larger batches only where nothing else is priced.
    budget = np.append(ints(3, 5, 9, 20, 7, 11) * GIB, GIB // 2)
    actor, hardware = model(), pool()
    profile = load_profile(hardware.gpu)

    def priced(rows: IntArray) -> CallEstimates:
        return price_generate(
            actor,
            call("generate"),
            spec,
            hardware,
            profile,
            engine.take(rows),
            kv_cache_bytes=budget[rows],
        )

    whole = priced(np.arange(len(tensor)))
    for row in range(len(tensor)):
        assert_same_rows(whole, priced(ints(row)), row)


def test_seconds_sum_and_bytes_contain_the_budget() -> None:
    estimate = price(sizes(ints(2, 4), ints(8, 4), pipeline=ints(1, 2)))
    parts = estimate.seconds
    np.testing.assert_allclose(
        parts.total, parts.compute + parts.communication + parts.bubble + parts.overhead
    )
    assert np.all(parts.bubble >= 0)
    assert np.all(estimate.transient.kv_cache > 0)
    assert np.all(estimate.transient.workspace == constants.ENGINE_GRAPH_BYTES)


def test_no_candidates_give_no_rows() -> None:
    none = ints()
    assert len(price(sizes(none, none)).seconds.total) == 0
