"""Attention of training: kernels by software, and what the shapes do to them."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.cost import constants
from automap.planner.cost.batches import sequence_lengths
from automap.planner.cost.gpu_generations import generation_of
from automap.planner.cost.layer.attention import attention_seconds
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.stacks import STACKS, SoftwareStack
from automap.planner.cost.training.train_call import price_train
from automap.planner.spec import TrainingStack
from tests.helpers.cost_model import call, layouts, model, pool, workload

ONES = np.ones(1, dtype=np.int64)


def seconds(
    stack: SoftwareStack,
    *,
    gpu: str = "a100-80gb-sxm",
    length: int = 2048,
    context: int = 1,
    arch: ModelArchitecture | None = None,
) -> tuple[float, float]:
    half = length // 2
    lengths = sequence_lengths(
        workload(
            prompt_length={"mean": half, "max": half}, response_length={"mean": half, "max": half}
        )
    )
    where = pool(gpu)
    forward, backward = attention_seconds(
        arch or model().architecture,
        where,
        load_profile(where.gpu),
        stack,
        lengths,
        precision="bf16",
        tensor_parallel_size=ONES,
        context_parallel_size=context * ONES,
        num_sequences=ONES,
    )
    return float(forward.seconds[0]), float(backward.seconds[0])


def test_every_stack_of_a_spec_has_constants() -> None:
    assert set(STACKS) == set(get_args(TrainingStack))
    assert all(stack.name == name for name, stack in STACKS.items())


def test_flash_attention_is_the_profiles_kernel_at_the_stacks_share() -> None:
    stack = STACKS["megatron-core"]
    where, arch = pool(), model().architecture
    kernel = load_profile(where.gpu).prefill_attention(
        batch_size=ONES,
        sequence_length=2048.0 * ONES,
        num_attention_heads=arch.num_attention_heads * ONES,
        num_key_value_heads=arch.num_key_value_heads * ONES,
        head_dim=arch.head_dim,
    )
    forward, backward = seconds(stack)
    generation = generation_of(where.gpu)
    share = generation.sustained_share * generation.attention_share * stack.attention_share
    assert forward == pytest.approx(float(kernel.seconds[0]) / share)
    assert backward == pytest.approx(constants.ATTENTION_BACKWARD_RATIO * forward)


def test_only_later_gpus_run_kernels_written_for_ampere_at_a_share() -> None:
    plain, faster = STACKS["fsdp"], replace(STACKS["fsdp"], attention="unfused")
    for gpu in ("a100-80gb-sxm", "h100-80gb-sxm"):
        where = pool(gpu)
        generation = generation_of(where.gpu)
        assert (generation.attention_share < 1.0) == gpu.startswith("h100")
        here = generation.sustained_share * generation.attention_share
        arch = model().architecture
        kernel = load_profile(where.gpu).prefill_attention(
            batch_size=ONES,
            sequence_length=2048.0 * ONES,
            num_attention_heads=arch.num_attention_heads * ONES,
            num_key_value_heads=arch.num_key_value_heads * ONES,
            head_dim=arch.head_dim,
        )
        share = here * plain.attention_share
        assert seconds(plain, gpu=gpu)[0] == pytest.approx(float(kernel.seconds[0]) / share)
    assert seconds(faster)[0] > seconds(plain)[0]


def test_unfused_attention_moves_every_score_and_grows_with_the_square() -> None:
    """The whole square of scores: at least 2 elements read or written each, forward."""
    stack = replace(STACKS["megatron-2021"], attention_share=1.0)
    arch = model().architecture
    short, long = seconds(stack, length=4096)[0], seconds(stack, length=8192)[0]
    assert long / short == pytest.approx(4.0, rel=0.1)
    least = 2 * 2 * arch.num_attention_heads * 8192.0**2 / pool().gpu.memory_bytes_per_second
    assert long > least
    assert seconds(stack, length=8192, context=4)[0] == pytest.approx(long / 4)


def test_rows_that_are_no_multiple_of_16_bytes_miss_the_tensor_cores() -> None:
    """BLOOM's tuning notes: heads of 225 or 150 made a step a third longer than heads of 216."""
    stack = STACKS["megatron-2021"]
    arch = model().architecture.model_copy(update={"head_dim": 216})
    odd = arch.model_copy(update={"head_dim": 225})
    assert seconds(stack, arch=odd)[0] > 3.0 * seconds(stack, arch=arch)[0]
    assert sum(seconds(STACKS["megatron-core"], arch=odd)) < 2.0 * sum(
        seconds(STACKS["megatron-core"], arch=arch)
    )


def test_a_call_is_priced_with_the_stack_of_the_spec() -> None:
    totals = {}
    for name in STACKS:
        spec = workload(training_stack=name)
        where = pool("h100-80gb-sxm")
        estimates = price_train(
            model(),
            call("train"),
            spec,
            where,
            load_profile(where.gpu),
            layouts(tensor=8, data=16),
            micro_batch_size=2 * ONES,
            recompute=0 * ONES,
        )
        totals[name] = float(estimates.seconds.total[0])
    # Of a dense model, frameworks for RL train as their libraries do, but balance lengths.
    assert totals.pop("nemo-rl") <= totals["megatron-core"]
    assert totals.pop("verl") == totals.pop("transformers-filled") <= totals["transformers"]
    # They differ in what they keep, and in what a compiler makes of their small kernels.
    assert totals.pop("torchtitan") == totals["fsdp"] < totals["transformers"]
    assert totals.pop("verl-megatron") <= totals["automap-megatron"]
    assert totals["megatron-core"] == min(totals.values())
    # No step times are published of training with all state in bf16: it moves fewer bytes of
    # state, and more between its operations.
    assert 0.7 * totals["fsdp-eager"] < totals.pop("pytorch-bf16") < 1.3 * totals["fsdp-eager"]
    assert len(set(totals.values())) == len(totals)
