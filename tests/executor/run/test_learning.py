"""Runs learn: the reward of a verifiable task rises well above the untrained policy's."""

from collections import defaultdict
from pathlib import Path
from statistics import mean

import pytest

from benchmarks.asynchronous import ALLOWED_LOSS, CONTINUOUS, SYNCHRONOUS, job
from benchmarks.learning import LAST, NAMES, learn, metrics_of, t_statistic

pytestmark = pytest.mark.many_processes


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_reward_rises_over_three_seeds(name: str, tmp_path: Path) -> None:
    curves = [learn(name, seed=seed, folder=tmp_path / str(seed)) for seed in range(3)]
    gains = [curve.gain for curve in curves]
    # 0.25 is the most that a policy can earn that ignores the prompt; the untrained earns 1/256.
    assert min(gains) > 0.25, gains
    assert t_statistic(gains) > 2.92, gains


@pytest.mark.slow
def test_old_rollouts_cost_at_most_a_tenth_of_the_reward(tmp_path: Path) -> None:
    """Continuous rollouts, staleness 1 and 4, beside the synchronous run, over three seeds.

    The reward waits, so that engines have time to be ahead.
    """
    earned: dict[str, list[float]] = defaultdict(list)
    for name in (SYNCHRONOUS, *CONTINUOUS):
        for seed in range(3):
            plan, settings = job(
                name, seed=seed, iterations=40, learning_rate=0.002, slow_reward=True
            )
            metrics = metrics_of(plan, settings, folder=tmp_path / f"{name}-{seed}")
            earned[name].append(mean(each["critic/score/mean"] for each in metrics[-LAST:]))
            oldest = max(each.get("rollout/staleness_max", 0) for each in metrics)
            assert oldest in range(name != SYNCHRONOUS, CONTINUOUS.get(name, 0) + 1)
    least = (1 - ALLOWED_LOSS) * mean(earned[SYNCHRONOUS])
    assert all(mean(earned[name]) >= least for name in CONTINUOUS), earned
