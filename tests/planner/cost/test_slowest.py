"""Waiting for the slowest: of GPUs that differ in speed, of ranks that differ in tokens."""

import numpy as np
import pytest

from automap.executor.even_parts import even_parts
from automap.planner.cost import constants
from automap.planner.cost.batches import SequenceLengths, sequence_lengths
from automap.planner.cost.slowest import (
    Waits,
    expected_largest,
    fullest,
    slowest_gpu,
    token_waits,
)
from automap.planner.cost.stacks import STACKS
from automap.planner.layout import IntArray
from tests.helpers.cost_model import ints, layouts, workload
from tests.planner.cost.test_latency import OPTIMIZER, forward, train

SPREAD = {"p50": 400, "p90": 1200, "max": 4096}
LONG = {"p50": 2_000, "p90": 20_000, "max": 32_768}
"""Responses of a model that reasons."""


@pytest.mark.parametrize("count", [1, 2, 4, 16, 300])
def test_the_largest_draw_is_that_of_many_trials(count: int) -> None:
    drawn = np.random.default_rng(0).standard_normal((20_000, count)).max(axis=1).mean()
    assert expected_largest(count) == pytest.approx(drawn, abs=0.03)


def test_a_nodes_slowest_gpu_is_in_the_other_constants() -> None:
    np.testing.assert_array_equal(slowest_gpu(ints(1, 4, 8)), 1.0)


def test_more_gpus_have_a_slower_one() -> None:
    """Oracle: draw speeds that spread by 1.5 %, and compare means of the slowest."""
    speeds = 1.0 + 0.015 * np.random.default_rng(0).standard_normal((20_000, 128))
    node, cluster = speeds[:, :8].max(axis=1).mean(), speeds.max(axis=1).mean()
    found = slowest_gpu(ints(16, 64, 128))
    assert 1.0 < found[0] < found[1] < found[2]
    assert found[2] == pytest.approx(cluster / node, abs=1e-3)


def test_passes_wait_for_the_slowest_gpu() -> None:
    """A quarter of the work on each of four times the GPUs, whose slowest is slower."""
    few = layouts(tensor=2, data=4, sharding=OPTIMIZER)
    many = layouts(tensor=2, data=16, sharding=OPTIMIZER)
    for price in (train, forward):
        ratio = 4.0 * price(many).seconds.compute[0] / price(few).seconds.compute[0]
        assert ratio == pytest.approx(slowest_gpu(ints(32))[0], rel=1e-6), price


def test_uneven_lengths_leave_ranks_waiting() -> None:
    """None with one rank or one length, less with more sequences."""
    lengths = sequence_lengths(workload(response_length=SPREAD))
    factor = fullest(lengths, sequences=ints(8, 8, 128), draws=ints(1, 16, 16))
    assert factor[0] == 1.0
    assert factor[1] > factor[2] > 1.0
    even = sequence_lengths(workload())
    constant = fullest(even, sequences=ints(1), draws=ints(64))
    assert constant[0] == 1.0


@pytest.mark.parametrize(("spread", "error"), [(SPREAD, 0.06), (LONG, 0.10)])
@pytest.mark.parametrize(
    ("ranks", "sequences"), [(2, 4), (8, 1), (8, 8), (16, 32), (64, 2), (64, 8), (128, 1)]
)
def test_the_fullest_rank_is_that_of_dealt_sequences(
    ranks: int, sequences: int, spread: dict[str, int], error: float
) -> None:
    """Oracle: deal random lengths to ranks and take the fullest."""
    lengths = sequence_lengths(workload(response_length=spread))
    rng = np.random.default_rng(0)
    dealt = rng.choice(lengths.points, size=(400, ranks, sequences), p=lengths.weights).sum(axis=2)
    simulated = (dealt.max(axis=1) / dealt.mean()).mean()
    factor = fullest(lengths, sequences=ints(sequences), draws=ints(ranks))
    assert factor[0] == pytest.approx(simulated, rel=error)


def test_no_rank_has_more_than_the_longest_sequences() -> None:
    one = SequenceLengths(np.array([100.0, 200.0]), np.array([0.5, 0.5]), 200)
    factor = fullest(one, sequences=ints(1), draws=ints(1024))
    assert factor[0] == pytest.approx(200 / 150)


def pipeline_seconds(work: np.ndarray, stages: int) -> float:
    """Seconds of a 1F1B pipeline of equal stages over micro-batches of so much work on each.

    A backward pass takes twice a forward one. Each stage has passes in its order, and starts one as
    soon as it and what it needs are done.
    """
    number = len(work)
    order = [one_forward_one_backward(number, stages - each - 1) for each in range(stages)]
    ended: dict[tuple[str, int, int], float] = {}
    clock, place = [0.0] * stages, [0] * stages
    while any(each < 2 * number for each in place):
        for stage in range(stages):
            while place[stage] < 2 * number:
                kind, index = order[stage][place[stage]]
                back = ("back", stage + 1, index)
                before = ("on", stage - 1, index) if kind == "on" else back
                if before[1] == stages:
                    before = ("on", stage, index)
                if before[1] >= 0 and before not in ended:
                    break
                seconds = work[index] * (1 if kind == "on" else 2) / 3
                clock[stage] = max(clock[stage], ended.get(before, 0.0)) + seconds
                ended[kind, stage, index] = clock[stage]
                place[stage] += 1
    return max(clock)


def one_forward_one_backward(number: int, ahead: int) -> list[tuple[str, int]]:
    """Passes of a stage that is so many forward passes ahead of its first backward pass."""
    ahead = min(ahead, number)
    steady = [
        each for index in range(number - ahead) for each in (("on", index + ahead), ("back", index))
    ]
    last = [("back", index) for index in range(number - ahead, number)]
    return [("on", index) for index in range(ahead)] + steady + last


def forward_seconds(work: np.ndarray, stages: int) -> float:
    """Seconds of forward passes alone, whose stage keeps what it has until the next is free."""
    left = np.zeros(stages + 1)
    for each in work:
        now = left[0]
        for stage in range(stages):
            now = max(now + each, left[stage + 1] if stage + 1 < stages else 0.0)
            left[stage] = now
    return float(left[stages - 1])


@pytest.mark.parametrize("spread", [SPREAD, LONG], ids=["spread", "long"])
@pytest.mark.parametrize("sequences", [1, 2, 8])
@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("kind", ["train", "forward"])
def test_a_pipeline_waits_for_its_fullest_micro_batch(
    kind: str, stages: int, sequences: int, spread: dict[str, int]
) -> None:
    """Oracle: pipelines with micro-batches of drawn lengths, and of their mean."""
    lengths = sequence_lengths(workload(response_length=spread))
    rng, seconds = np.random.default_rng(0), forward_seconds
    if kind == "train":
        seconds = pipeline_seconds
    drawn = rng.choice(lengths.points, size=(8, 128, sequences), p=lengths.weights).sum(axis=2)
    found = np.mean(
        [seconds(each, stages) / seconds(0 * each + each.mean(), stages) for each in drawn]
    )
    waits = token_waits(
        lengths,
        layouts(pipeline=stages),
        dealt=True,
        filled=False,
        sequences_per_rank=ints(128 * sequences),
        micro_batch_size=ints(sequences),
        num_micro_batches=ints(128),
        in_step=np.array([False]),
        pipeline_share=constants.PIPELINE_WAIT_SHARE if kind == "train" else 1.0,
    )
    assert waits.work[0] == pytest.approx(found, rel=0.125)
    draws = fullest(lengths, sequences=ints(sequences), draws=ints(stages))[0]
    share = (found - 1) / (draws - 1)
    assert 0.7 < share < (1.0 if kind == "train" else 1.1)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_ranks_in_step_wait_at_every_micro_batch(ranks: int) -> None:
    """Oracle: the fullest rank of each micro-batch, one by one."""
    lengths = sequence_lengths(workload(response_length=SPREAD))
    rng = np.random.default_rng(0)
    drawn = rng.choice(lengths.points, size=(200, 16, ranks, 4), p=lengths.weights).sum(axis=3)
    found = (drawn.max(axis=2).sum(axis=1) / drawn.mean(axis=2).sum(axis=1)).mean()

    def waits(together: bool) -> float:
        return float(
            token_waits(
                lengths,
                layouts(data=ranks),
                dealt=True,
                filled=False,
                sequences_per_rank=ints(64),
                micro_batch_size=ints(4),
                num_micro_batches=ints(16),
                in_step=np.array([together]),
                pipeline_share=1.0,
            ).work[0]
        )

    assert waits(True) == pytest.approx(found, rel=0.08)
    assert waits(True) > waits(False) > 1.0


def waits_of_filled(lengths: SequenceLengths, **sizes: IntArray) -> Waits:
    """Of layouts in which others would wait for every rank, and every stage."""
    return token_waits(
        lengths,
        layouts(pipeline=4, data=4),
        dealt=True,
        filled=True,
        num_micro_batches=ints(64),
        in_step=np.array([True]),
        pipeline_share=1.0,
        **sizes,
    )


def test_filled_micro_batches_wait_at_the_ends_alone() -> None:
    lengths = sequence_lengths(workload(response_length=SPREAD))
    waits = waits_of_filled(
        lengths, sequences_per_rank=ints(64, 64, 1), micro_batch_size=ints(1, 8, 1)
    )
    np.testing.assert_array_equal(waits.work[:2], 1.0)
    # One longest sequence, eight of them at most, and all that a rank has.
    assert waits.ends[0] == pytest.approx(lengths.max_tokens / lengths.mean_tokens, rel=1e-3)
    assert waits.ends[0] > waits.ends[1] > waits.ends[2] == 1.0


@pytest.mark.parametrize("response", [SPREAD, {"p50": 2000, "p90": 4000, "max": 8192}])
@pytest.mark.parametrize("ranks", [4, 64])
@pytest.mark.parametrize("sequences", [1, 2, 4, 32])
def test_ranks_of_even_tokens_wait_for_the_longest_sequence(
    response: dict[str, float], ranks: int, sequences: int
) -> None:
    """Oracle: rows dealt as the executor deals them, equally many to each rank."""
    lengths = sequence_lengths(workload(response_length=response))
    assert lengths.tail is not None
    points, weights = lengths.tail
    rng = np.random.default_rng(0)
    found = []
    for _ in range(30):
        drawn = rng.choice(points, size=ranks * sequences, p=weights)
        parts = even_parts(drawn.tolist(), ranks, num_rows=[sequences] * ranks)
        found.append(max(drawn[part].sum() for part in parts) * ranks / drawn.sum())
    waits = token_waits(
        lengths,
        layouts(data=ranks),
        dealt=True,
        filled=True,
        sequences_per_rank=ints(sequences),
        micro_batch_size=ints(1),
        num_micro_batches=ints(sequences),
        in_step=np.array([True]),
        pipeline_share=1.0,
    )
    assert waits.work[0] == pytest.approx(np.mean(found), rel=0.12)


@pytest.mark.parametrize("ranks", [4, 64])
@pytest.mark.parametrize("sequences", [4, 32, 256])
def test_filled_ranks_with_sequences_as_they_come_wait_for_the_fullest(
    ranks: int, sequences: int
) -> None:
    """Oracle: sums of drawn lengths, which no order of a rank's micro-batches changes."""
    lengths = sequence_lengths(workload(response_length=SPREAD))
    assert lengths.tail is not None
    points, weights = lengths.tail
    drawn = np.random.default_rng(0).choice(points, size=(200, ranks, sequences), p=weights)
    sums = drawn.sum(axis=2)
    found = (sums.max(axis=1) / sums.mean(axis=1)).mean()
    waits = token_waits(
        lengths,
        layouts(data=ranks),
        dealt=False,
        filled=True,
        sequences_per_rank=ints(sequences),
        micro_batch_size=ints(2),
        num_micro_batches=ints(sequences // 2),
        in_step=np.array([True]),
        pipeline_share=1.0,
    )
    assert waits.work[0] == pytest.approx(found, rel=0.08)
    assert waits.work[0] > 1.0


def test_equal_lengths_wait_for_nothing() -> None:
    even = sequence_lengths(workload())
    waits = token_waits(
        even,
        layouts(pipeline=4, data=4),
        dealt=True,
        filled=False,
        sequences_per_rank=ints(16),
        micro_batch_size=ints(1),
        num_micro_batches=ints(16),
        in_step=np.array([True]),
        pipeline_share=1.0,
    )
    assert (waits.work[0], waits.ends[0]) == (1.0, 1.0)
    filled = waits_of_filled(even, sequences_per_rank=ints(16), micro_batch_size=ints(1))
    assert (filled.work[0], filled.ends[0]) == (1.0, 1.0)


def test_frameworks_for_rl_fill_micro_batches() -> None:
    assert {name for name, stack in STACKS.items() if stack.balances_tokens} == {
        "transformers-filled",
        "automap-fsdp",
        "automap-megatron",
        "nemo-rl",
        "verl",
        "verl-megatron",
    }
