"""Runs learn: the reward of a verifiable task rises well above the untrained policy's."""

from pathlib import Path

import pytest

from benchmarks.learning import NAMES, learn, t_statistic

pytestmark = pytest.mark.many_processes


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_reward_rises_over_three_seeds(name: str, tmp_path: Path) -> None:
    curves = [learn(name, seed=seed, folder=tmp_path / str(seed)) for seed in range(3)]
    gains = [curve.gain for curve in curves]
    # 0.25 is the most that a policy can earn that ignores the prompt; the untrained earns 1/256.
    assert min(gains) > 0.25, gains
    assert t_statistic(gains) > 2.92, gains
