"""What the ranks of a context group exchange around attention, by the kind of software."""

from dataclasses import replace

import numpy as np
import pytest

from automap.planner import catalogue
from automap.planner.cost.batches import sequence_lengths
from automap.planner.cost.communication import collective_seconds
from automap.planner.cost.layer.transformer_layer import (
    KernelContext,
    MicroBatch,
    UnitSeconds,
    context_exchange,
    dense_layer_seconds,
    layer_attention,
)
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.stacks import STACKS
from automap.planner.cost.training.train_call import price_train
from automap.planner.job.job import Model
from automap.planner.targets import AUTOMAP
from tests.helpers.cost_model import call, layouts, model, pool, workload

LENGTH = 16_384
HALF = {"mean": LENGTH // 2, "max": LENGTH // 2}
LONG = workload(prompt_length=HALF, response_length=HALF)
POOL = pool("h100-80gb-sxm")


def kernels(architecture: str = "llama-3-8b", stack: str = "fsdp") -> KernelContext:
    """Of one model on H100s, at the tables' own speed of collectives."""
    shape = catalogue.architecture(architecture)
    return KernelContext(
        model=Model("actor", shape, scalar_head=False, trainable=True, lora_rank=None),
        pool=POOL,
        profile=load_profile(POOL.gpu),
        precision="bf16",
        lengths=sequence_lengths(LONG),
        stack=replace(STACKS[stack], collective_slowdown=1.0),  # type: ignore[index]
    )


def micro_batch(*, tensor: int = 1, context: int = 1) -> MicroBatch:
    """One sequence of LENGTH tokens."""
    sizes = (tensor, context, 1, 1, LENGTH // context)
    return MicroBatch(*(np.array([size]) for size in sizes))


def layer(context: int, *, stack: str = "fsdp") -> UnitSeconds:
    return dense_layer_seconds(kernels(stack=stack), micro_batch(context=context))


@pytest.mark.parametrize(
    ("tensor", "context", "key_value_heads"),
    [(1, 2, 8), (1, 8, 8), (2, 4, 4), (1, 16, 16), (4, 4, 4)],
)
def test_ulysses_is_four_all_to_alls_of_what_a_rank_holds(
    tensor: int, context: int, key_value_heads: int
) -> None:
    """Llama-3 8B: 32 heads of 128, 8 key-value heads, repeated where there are fewer than ranks."""
    tokens, kernel = LENGTH // context, kernels()
    queries = 2 * tokens * 32 * 128 // tensor
    keys = 2 * tokens * key_value_heads * 128
    expected = sum(
        float(
            collective_seconds(
                POOL, kernel.profile, "all_to_all", size, group_size=context, stride=tensor
            ).seconds
        )
        for size in (queries, keys, keys, queries)
    )
    batch = micro_batch(tensor=tensor, context=context)
    found = context_exchange(kernel, batch, layer_attention(kernel, batch)[0])
    assert expected > 0
    assert float(found.forward.seconds[0]) == pytest.approx(expected)


def test_a_rank_alone_exchanges_nothing() -> None:
    for stack in ("fsdp", "megatron-core"):
        alone = layer(1, stack=stack)
        assert alone.forward_communication == alone.backward_communication == 0
        assert alone.selective_communication == 0


def test_each_pass_exchanges_as_much_and_selective_recomputation_once_more() -> None:
    found = layer(4)
    assert found.forward_communication == found.backward_communication > 0
    assert found.selective_communication == found.forward_communication
    ring = layer(4, stack="megatron-core")
    assert ring.selective_communication == 0
    assert ring.backward_communication == pytest.approx(2 * ring.forward_communication)


def test_recomputation_repeats_the_all_to_alls() -> None:
    spec = LONG.model_copy(update={"training_stack": "fsdp"})
    one, modes = np.ones(1, dtype=np.int64), (0, 1, 2)
    seconds = [
        price_train(
            model("llama-3-8b"),
            call("train"),
            spec,
            POOL,
            load_profile(POOL.gpu),
            layouts(context=8, data=16),
            micro_batch_size=one,
            recompute=mode * one,
        ).seconds.communication[0]
        for mode in modes
    ]
    assert seconds[0] < seconds[1] == pytest.approx(seconds[2])


def test_engines_exchange_as_the_software_that_prices_them() -> None:
    engines = [each for each in AUTOMAP.training if "context" in each.dimensions]
    assert [each.name for each in engines] == ["fsdp"]
    for engine in engines:
        kinds = {STACKS[name].context_parallelism for name in engine.stacks}
        assert kinds == {engine.context_parallelism}
