"""8-bit products and routed experts in training: casts, dispatch, and what the host adds."""

from dataclasses import replace

import numpy as np
import pytest

from automap.planner.cost import constants
from automap.planner.cost.batches import sequence_lengths
from automap.planner.cost.communication import collective_seconds
from automap.planner.cost.gpu_generations import GENERATIONS, Generation, generation_of
from automap.planner.cost.layer.embedding_and_head import head_seconds
from automap.planner.cost.layer.experts import (
    bias_seconds,
    expert_exchange,
    experts_seconds,
    moe_layer_seconds,
    permutation_seconds,
)
from automap.planner.cost.layer.transformer_layer import (
    KernelContext,
    MicroBatch,
    linears_seconds,
    tensor_pair,
)
from automap.planner.cost.operators.operators import FASTEST
from automap.planner.cost.operators.profile import MEMORY_EFFICIENCY, load_profile
from automap.planner.cost.shards import Linear
from automap.planner.cost.stacks import STACKS
from automap.planner.cost.training.train_call import price_train
from tests.helpers.cost_model import call, ints, layouts, model, pool, workload

MOE = "qwen3-30b-a3b"


def setting(
    name: str = MOE, gpu: str = "b200-180gb-sxm", *, lora_rank: int | None = None, **changes: object
) -> KernelContext:
    where = pool(gpu)
    own = KernelContext(
        model(name, lora_rank=lora_rank),
        where,
        load_profile(where.gpu),
        "bf16",
        sequence_lengths(workload()),
    )
    return replace(own, **changes)


def batch(*, tokens: int = 4096, expert: int = 8, tensor: int = 1) -> MicroBatch:
    return MicroBatch(ints(tensor), ints(1), ints(expert), ints(1), ints(tokens))


def one_linear(of: KernelContext, tokens: int = 4096) -> tuple[float, float]:
    forward, backward = linears_seconds(of, ints(tokens), (Linear(ints(4096), ints(14336)),))
    return float(forward.seconds[0]), float(backward.seconds[0])


def test_the_heads_product_and_its_gather_stay_in_16_bits() -> None:
    wide = setting("llama-3.1-8b")
    low, of = replace(wide, product_precision="fp8"), batch(tensor=4)
    assert head_seconds(low, of).forward == head_seconds(wide, of).forward
    moved = head_seconds(wide, of).forward_communication
    assert head_seconds(low, of).forward_communication == moved
    assert tensor_pair(low, of).seconds < tensor_pair(wide, of).seconds


def eight_bit_seconds(of: KernelContext, *shape: int) -> float:
    """Seconds of a product whose operand is cast already, at the generation's rate."""
    generation = generation_of(of.pool.gpu)
    found = of.profile.gemm(*shape, precision="fp8", collector=FASTEST, captured=True)
    return float(found.seconds) / (generation.sustained_share * generation.eight_bit_gain)


def test_8_bit_products_are_the_fastest_kernel_without_the_cast_timed_with_it() -> None:
    of = setting("llama-3.1-8b", "h100-80gb-sxm", product_precision="fp8")
    shape = (16384, 2048, 6144)  # The cast of its operand took as long as 8 bits save.
    wide = of.profile.gemm(*shape, precision="bf16").seconds
    for name in ("vllm", "sglang", "trtllm"):
        one = of.profile.gemm(*shape, precision="fp8", collector=name).seconds
        assert one > 0.8 * wide
    assert one_linear(of)[0] == pytest.approx(eight_bit_seconds(of, 4096, 14336, 4096))
    low = linears_seconds(of, ints(16384), (Linear(ints(6144), ints(2048)),))[0]
    in_16 = replace(of, product_precision=None)
    high = linears_seconds(in_16, ints(16384), (Linear(ints(6144), ints(2048)),))[0]
    assert 0.5 < low.seconds[0] / high.seconds[0] < 0.65


def test_the_gradient_of_8_bit_products_is_cast_by_a_kernel_of_its_own() -> None:
    of = setting("llama-3.1-8b", "b200-180gb-sxm", product_precision="fp8")
    gradient, weight = (
        eight_bit_seconds(of, *shape) for shape in ((4096, 4096, 14336), (4096, 14336, 4096))
    )
    accumulated = of.profile.memory_bound(constants.GRADIENT_TRAFFIC_BYTES * 4096 * 14336)
    cast = of.profile.memory_bound(constants.CAST_BYTES * 4096 * 14336)
    whole = gradient + weight + float(accumulated.seconds) + float(cast.seconds)
    assert one_linear(of)[1] == pytest.approx(whole)


def test_what_no_stack_keeps_cast_is_cast_in_both_passes() -> None:
    kept = setting("llama-3.1-8b", "h100-80gb-sxm", product_precision="fp8")
    anew = replace(kept, stack=STACKS["fsdp"])
    weights, tokens = 4096 * 14336, 4096

    def cast(elements: int) -> float:
        return float(kept.profile.memory_bound(constants.CAST_BYTES * elements).seconds)

    there, back = (b - a for a, b in zip(one_linear(kept), one_linear(anew), strict=True))
    assert there == pytest.approx(cast(weights + tokens * 4096))
    outgoing = tokens * 14336
    assert back == pytest.approx(cast(weights + outgoing) - cast(outgoing))


def test_biases_of_experts_move_each_copy_again_and_again() -> None:
    of, tokens = setting("gpt-oss-120b"), 8192
    arch = of.model.architecture
    forward, backward = bias_seconds(of, batch(tokens=tokens))
    rate = MEMORY_EFFICIENCY * of.profile.peaks.memory_bytes_per_second
    copies = arch.num_experts_per_token * tokens
    assert forward.seconds[0] == pytest.approx(28 * 2880 * copies / rate, rel=0.05)
    assert backward.seconds[0] == pytest.approx((36 * 2880 + 2 * 5760) * copies / rate, rel=0.05)
    plain = arch.model_copy(update={"linear_bias": False})
    bare = replace(of, model=replace(of.model, architecture=plain))
    assert bias_seconds(bare, batch(tokens=tokens))[1].seconds == 0.0
    whole, less = (moe_layer_seconds(one, batch(tokens=tokens)) for one in (of, bare))
    assert whole.forward - less.forward == pytest.approx(forward.seconds)
    assert whole.backward - less.backward == pytest.approx(backward.seconds)
    # An expert that is split over 8 ranks gives each of them all its results to add to.
    split, _ = bias_seconds(of, batch(tokens=tokens, expert=1, tensor=8))
    assert split.seconds[0] == pytest.approx(forward.seconds[0])
    halves, _ = bias_seconds(of, batch(tokens=tokens, expert=4, tensor=8))
    assert halves.seconds[0] == pytest.approx(forward.seconds[0] / 4, rel=0.03)


def test_what_arrives_at_experts_is_cast_once() -> None:
    of = setting("qwen3-30b-a3b", "h100-80gb-sxm", product_precision="fp8")
    anew = replace(of, stack=replace(of.stack, memory=STACKS["fsdp"].memory))
    shape = batch(tokens=65536, expert=8)
    arch = of.model.architecture
    local, rows = arch.num_experts // 8, 65536 * arch.num_experts_per_token // arch.num_experts
    weights = 3 * arch.hidden_size * arch.moe_intermediate_size

    def cast(elements: int) -> float:
        return float(of.profile.memory_bound(constants.CAST_BYTES * elements).seconds)

    (kept, _), (each, _) = experts_seconds(of, shape), experts_seconds(anew, shape)
    assert rows > 1000
    assert each.seconds[0] - kept.seconds[0] == pytest.approx(local * cast(weights), rel=1e-6)


def test_every_generation_has_constants_and_ultra_gpus_sustain_more() -> None:
    fields = GENERATIONS["hopper"].__dataclass_fields__
    assert all(0.3 < getattr(one, name) < 2.5 for one in GENERATIONS.values() for name in fields)
    for gpu, faster in (("b200", "b300"), ("gb200", "gb300")):
        one, other = (generation_of(pool(name).gpu) for name in (gpu, faster))
        assert other.sustained_share > one.sustained_share
    assert GENERATIONS["ampere"] == Generation()


def test_sorting_moves_every_copy_and_more_when_copies_travel() -> None:
    of = setting()
    arch = of.model.architecture
    copies, tokens = arch.num_experts_per_token, 4096
    rate = MEMORY_EFFICIENCY * of.profile.peaks.memory_bytes_per_second
    alone = permutation_seconds(of, batch(expert=1)).seconds[0]
    moved = 2 * (2 * copies + 2) * arch.hidden_size * tokens
    assert alone == pytest.approx(moved / rate, rel=0.1)
    spread = permutation_seconds(of, batch(expert=8)).seconds[0]
    assert spread / alone == pytest.approx((6 * copies + 2) / (2 * copies + 2), rel=0.06)
    # With tensor parallelism each GPU sorts its own part of the tokens.
    shared = permutation_seconds(of, batch(tensor=2)).seconds[0]
    assert shared == pytest.approx(spread / 2, rel=0.06)


def test_the_exchange_is_two_all_to_alls_that_no_software_shortens() -> None:
    of = setting()
    arch = of.model.architecture
    alone = collective_seconds(
        of.pool,
        of.profile,
        "all_to_all",
        4096 * arch.hidden_size * 2 * arch.num_experts_per_token,
        group_size=8,
        stride=1,
    ).seconds
    assert expert_exchange(of, batch()).seconds[0] == pytest.approx(2 * float(alone))
    slower = replace(of, stack=replace(of.stack, collective_slowdown=2.0))
    assert expert_exchange(slower, batch()).seconds == expert_exchange(of, batch()).seconds


def test_the_host_bounds_small_8_bit_experts_unless_tokens_are_dropped() -> None:
    of = setting(product_precision="fp8")
    local = of.model.architecture.num_experts // 8
    least = local * 2 * (constants.LAUNCH_SECONDS + constants.EXPERT_OPERAND_HOST_SECONDS)
    small, large = batch(tokens=256), batch(tokens=65536)
    for found in experts_seconds(of, small):
        assert found.seconds[0] == pytest.approx(least)
    dropping = replace(of, drops_tokens=True)
    for ahead, waiting in zip(
        experts_seconds(dropping, small), experts_seconds(of, small), strict=True
    ):
        assert ahead.seconds[0] < waiting.seconds[0]
    for ahead, waiting in zip(
        experts_seconds(dropping, large), experts_seconds(of, large), strict=True
    ):
        assert ahead.seconds == waiting.seconds > least
    # In 16 bits nothing is cast, so the host only launches the products.
    for found in experts_seconds(setting(), small):
        assert local * 2 * constants.LAUNCH_SECONDS <= found.seconds[0] < least


def test_adapters_before_attention_alone_leave_other_linears_frozen() -> None:
    both = (Linear(ints(4096), ints(6144)), Linear(ints(4096), ints(28672)))
    own = setting("llama-3.1-8b", lora_rank=16)
    every, first = own, replace(own, adapters="query-key-value")
    frozen, trained = own.frozen, setting("llama-3.1-8b")

    def total(of: KernelContext, linears: tuple[Linear, ...]) -> float:
        return float(sum(part.seconds[0] for part in linears_seconds(of, ints(4096), linears)))

    assert total(first, both) == pytest.approx(total(every, both[:1]) + total(frozen, both[1:]))
    assert total(frozen, both) < total(first, both) < total(every, both) < total(trained, both)
    # Nothing is frozen where nothing is adapted.
    assert trained.frozen == trained


def test_messages_between_interleaved_stages_hide_behind_another_chunk() -> None:
    rows = layouts(tensor=1, pipeline=4, data=2, virtual=[1, 4])

    def moved(stack: str) -> np.ndarray:
        where = pool()
        return price_train(
            model("llama-2-13b"),
            call("train", num_updates=1),
            workload(updates_per_epoch=1, training_stack=stack),
            where,
            load_profile(where.gpu),
            rows,
            micro_batch_size=ints(1, 1),
            recompute=ints(0, 0),
        ).seconds.communication

    plain, hidden = moved("megatron-2021"), moved("megatron-core")
    assert plain[1] > 3 * plain[0]
    assert hidden[1] < 2 * hidden[0]


def test_a_layer_with_experts_takes_what_its_stack_launches() -> None:
    stack = STACKS["nemo-rl"]
    for tokens, bound in ((1024, True), (131072, False)):
        core = moe_layer_seconds(setting(), batch(tokens=tokens))
        slow = moe_layer_seconds(setting(stack=stack), batch(tokens=tokens))
        np.testing.assert_array_equal(slow.forward_communication, core.forward_communication)
        forward = slow.forward + slow.forward_communication
        backward = slow.backward + slow.backward_communication
        if bound:
            np.testing.assert_allclose(forward, stack.expert_layer_seconds)
            np.testing.assert_allclose(backward, 2.0 * stack.expert_layer_seconds)
        else:
            np.testing.assert_array_equal(slow.forward, core.forward)
            np.testing.assert_array_equal(slow.backward, core.backward)
