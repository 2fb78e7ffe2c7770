"""Model FLOPs and tokens of calls, against counts by hand and published parameter counts."""

import pytest

from automap.planner.cost.model_flops import (
    model_flops,
    peak_flops_per_second,
    tokens_processed,
)
from automap.planner.job.resolution import resolve
from automap.planner.planning import make_plan
from tests.helpers.cost_model import call, model, pool, workload
from tests.helpers.small_jobs import small_job

SEQUENCES, PROMPT, RESPONSE = 1024, 1024, 1024
TOKENS = SEQUENCES * (PROMPT + RESPONSE)
ATTENTION_7B = 2.0 * 32 * 32 * 128  # per squared token: layers, heads, head size


def test_a_dense_forward_is_two_flops_per_weight_and_token_and_causal_attention() -> None:
    products = 2.0 * (6_738_415_616 - 32000 * 4096 - (2 * 32 + 1) * 4096)  # embedding, norms
    expected = TOKENS * products + SEQUENCES * ATTENTION_7B * 2048**2
    found = model_flops(model("llama-2-7b"), call("forward"), workload())
    assert found == pytest.approx(expected, rel=1e-12)


def test_training_is_three_forwards_per_epoch_and_recomputation_does_not_count() -> None:
    one, spec = model("llama-2-7b"), workload()
    forward = model_flops(one, call("forward"), spec)
    assert model_flops(one, call("train"), spec) == pytest.approx(3 * forward, rel=1e-12)
    twice = call("train", epochs=2, extra_forward_sequences=512)
    assert model_flops(one, twice, spec) == pytest.approx(7.5 * forward, rel=1e-12)
    assert tokens_processed(twice, spec) == 2.5 * TOKENS


def test_frozen_weights_under_adapters_have_no_gradient_of_their_own() -> None:
    full = model_flops(model("llama-2-7b"), call("train"), workload())
    adapted = model_flops(model("llama-2-7b", lora_rank=16), call("train"), workload())
    attention = 3 * SEQUENCES * ATTENTION_7B * 2048**2
    adapters = 2.0 * 16 * 32 * ((4096 + 12288) + 2 * 4096 + (4096 + 2 * 11008) + (11008 + 4096))
    expected = (full - attention) * 2 / 3 + attention + 3 * TOKENS * adapters
    assert adapted == pytest.approx(expected, rel=1e-12)


def test_a_mixture_counts_the_experts_that_a_token_is_sent_to() -> None:
    """Qwen3-30B-A3B: 3.3e9 active parameters, 2.7e9 of them in products after the embedding."""
    one = model("qwen3-30b-a3b")
    arch = one.architecture
    weights = arch.active_parameters() - arch.embedding_parameters
    squares = SEQUENCES * 2.0 * 2048**2 * arch.num_layers * arch.num_attention_heads * arch.head_dim
    found = model_flops(one, call("forward"), workload()) - squares
    # Routers and norms, which are not counted, are 0.5 % of them.
    assert 0.99 < found / (2.0 * TOKENS * weights) < 1.0


def test_a_scalar_head_is_no_product() -> None:
    language, scores = model("llama-2-7b"), model("llama-2-7b", scalar_head=True)
    one, spec = call("forward"), workload()
    head = 2.0 * TOKENS * 4096 * 32000
    found = model_flops(language, one, spec) - model_flops(scores, one, spec)
    assert found == pytest.approx(head, rel=1e-9)


def test_generation_passes_a_prompt_once_for_all_its_responses() -> None:
    one, spec = model("llama-2-7b"), workload()
    grouped = workload(prompts_per_iteration=64, responses_per_prompt=16)
    alone = model_flops(one, call("generate"), spec)
    shared = model_flops(one, call("generate"), grouped)
    forward = model_flops(one, call("forward"), spec)
    head_of_prompts = 2.0 * SEQUENCES * PROMPT * 4096 * 32000
    assert alone == pytest.approx(forward - head_of_prompts, rel=1e-12)
    layers = 2.0 * (6_738_415_616 - 2 * 32000 * 4096 - (2 * 32 + 1) * 4096)
    prompt = PROMPT * layers + ATTENTION_7B * PROMPT**2
    assert alone - shared == pytest.approx((SEQUENCES - 64) * prompt, rel=1e-12)
    assert tokens_processed(call("generate"), spec) == SEQUENCES * RESPONSE


def test_the_peak_is_that_of_the_precision() -> None:
    one, where = model("llama-2-7b"), pool("h100-80gb-sxm")
    in_eight_bits = workload(rollout_precision="fp8")
    bf16, fp8 = where.gpu.bf16_flops_per_second, where.gpu.fp8_flops_per_second
    assert peak_flops_per_second(one, call("train"), in_eight_bits, where) == bf16
    assert peak_flops_per_second(one, call("generate"), in_eight_bits, where) == fp8
    assert peak_flops_per_second(one, call("generate"), workload(), where) == bf16


def test_a_plan_states_both_for_calls_on_gpus_and_neither_for_functions() -> None:
    function = {"function": True, "seconds_per_response": 0.001}
    spec = small_job(models__reward=function)
    plan = make_plan(spec)
    job = resolve(spec)
    calls = {one.id: one for one in job.dataflow.calls}
    copies = {copy.id: copy for copy in plan.copies}
    for one in plan.calls:
        if one.copy_id is None:
            assert one.model_flops_utilization is one.tokens_per_second_per_gpu is None
            continue
        gpu_seconds = copies[one.copy_id].num_gpus * (one.end_seconds - one.start_seconds)
        wanted = calls[one.id]
        flops = model_flops(job.models[wanted.model or ""], wanted, spec.workload)
        assert one.model_flops_utilization == pytest.approx(flops / gpu_seconds / 312e12)
        tokens = tokens_processed(wanted, spec.workload)
        assert one.tokens_per_second_per_gpu == pytest.approx(tokens / gpu_seconds)
