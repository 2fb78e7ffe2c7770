"""Norms and residual sums of a tensor group, with and without sequence parallelism."""

from dataclasses import replace

import pytest

from automap.planner.cost.batches import sequence_lengths
from automap.planner.cost.layer.transformer_layer import (
    KernelContext,
    MicroBatch,
    elementwise_seconds,
)
from automap.planner.cost.operators.profile import MEMORY_EFFICIENCY, load_profile
from automap.planner.cost.stacks import STACKS
from tests.helpers.cost_model import ints, model, pool, workload

TOKENS = 16_384


def seconds(tensor: int, *, sequence_parallel: bool) -> float:
    a100 = pool("a100-80gb-sxm")
    stack = replace(
        STACKS["megatron-2021"], sequence_parallel=sequence_parallel, elementwise_passes=1.0
    )
    of = KernelContext(
        model("gpt-3-175b"),
        a100,
        load_profile(a100.gpu),
        "bf16",
        sequence_lengths(workload()),
        stack=stack,
    )
    batch = MicroBatch(ints(tensor), ints(1), ints(1), ints(1), ints(TOKENS))
    return float(elementwise_seconds(of, batch, ints(4 * 12_288 // tensor)).seconds[0])


def test_without_it_every_rank_has_all_tokens_there() -> None:
    """Korthikanti et al. 2022 (arXiv:2205.05198), section 4.2.2: what tensor parallelism leaves."""
    split, whole = (seconds(8, sequence_parallel=flag) for flag in (True, False))
    rate = MEMORY_EFFICIENCY * load_profile(pool("a100-80gb-sxm").gpu).peaks.memory_bytes_per_second
    norms_and_sums = 2 * 10 * 12_288 * TOKENS / rate
    assert whole - split == pytest.approx(norms_and_sums * 7 / 8, rel=0.02)
    # A tensor group of one has nothing to split.
    assert seconds(1, sequence_parallel=True) == seconds(1, sequence_parallel=False)
