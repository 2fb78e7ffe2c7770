"""Waiting for the slowest: of GPUs that differ in speed, of ranks that differ in tokens."""

import numpy as np
import pytest

from automap.planner.cost.batches import SequenceLengths, sequence_lengths
from automap.planner.cost.slowest import expected_largest, slowest_gpu, slowest_rank
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
    factor = slowest_rank(
        lengths, sequences_per_rank=ints(8, 8, 128), data_parallel_size=ints(1, 16, 16)
    )
    assert factor[0] == 1.0
    assert factor[1] > factor[2] > 1.0
    even = sequence_lengths(workload())
    constant = slowest_rank(even, sequences_per_rank=ints(1), data_parallel_size=ints(64))
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
    factor = slowest_rank(
        lengths, sequences_per_rank=ints(sequences), data_parallel_size=ints(ranks)
    )
    assert factor[0] == pytest.approx(simulated, rel=error)


def test_no_rank_has_more_than_the_longest_sequences() -> None:
    one = SequenceLengths(np.array([100.0, 200.0]), np.array([0.5, 0.5]), 200)
    factor = slowest_rank(one, sequences_per_rank=ints(1), data_parallel_size=ints(1024))
    assert factor[0] == pytest.approx(200 / 150)
