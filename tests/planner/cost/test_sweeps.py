"""Which measured collectives contradict those of smaller groups."""

import numpy as np
import pytest

from automap.planner.catalogue import gpu_type
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.operators.sweeps import SlowGroup, Sweep

LARGE = float(1 << 29)
SMALL = float(1 << 12)


def sweep(bandwidths: dict[int, float]) -> Sweep:
    """Gathers in groups of these sizes, of one buffer at latency and one at these bandwidths."""
    group = np.repeat(np.array(list(bandwidths), dtype=np.float64), 2)
    size = np.tile([SMALL, LARGE], len(bandwidths))
    transfer = size * (group - 1.0) / group / np.repeat(list(bandwidths.values()), 2)
    seconds = np.where(size == SMALL, 20e-6 * group, transfer)
    return Sweep.of("all_gather", group=group, size=size, seconds=seconds)


@pytest.mark.parametrize(
    ("bandwidths", "slow"),
    [
        ({2: 20e9, 4: 22e9, 8: 21e9}, []),
        # Two GPUs behind one uplink of a switch have half of it each.
        ({2: 20e9, 4: 11e9, 8: 11e9}, []),
        ({2: 20e9, 4: 5e9, 8: 1.2e9}, [4, 8]),
        ({2: 20e9, 4: 19e9, 8: 1.2e9}, [8]),
        # What is slow itself puts no other group in doubt, and clears none.
        ({2: 20e9, 4: 5e9, 8: 6e9, 16: 15e9}, [4, 8]),
        ({8: 1e9}, []),
    ],
)
def test_groups_below_half_of_a_smaller_one_are_slow(
    bandwidths: dict[int, float], slow: list[int]
) -> None:
    found = sweep(bandwidths)
    assert [each.num_gpus for each in found.slow_groups()] == slow
    left = found.without_slow_groups()
    assert left.groups.tolist() == [size for size in bandwidths if size not in slow]
    assert left.grid().values[0, -1] == pytest.approx(np.log(next(iter(bandwidths.values()))))


def test_a_slow_group_is_told_with_both_bandwidths() -> None:
    (slow,) = sweep({2: 20e9, 8: 1.2e9}).slow_groups()
    assert slow == SlowGroup("all_gather", 8, pytest.approx(1.2e9), pytest.approx(20e9))


def test_buffers_that_smaller_groups_do_not_have_put_nothing_in_doubt() -> None:
    group, size = np.array([2.0, 8.0]), np.array([SMALL, LARGE])
    apart = Sweep.of("all_gather", group=group, size=size, seconds=np.array([1e-6, 1.0]))
    assert apart.slow_groups() == []


@pytest.mark.parametrize("gpu", ["a100", "h100", "h200", "b200", "gb200"])
def test_no_group_joined_by_nvlink_is_slow(gpu: str) -> None:
    tables = load_profile(gpu_type(gpu)).tables
    assert tables is not None
    assert tables.slow_groups() == []
