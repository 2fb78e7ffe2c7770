"""Rewards and advantages: cases worked by hand, and properties on random rows."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from automap.executor.algorithms import numerics
from automap.executor.algorithms.defaults import resolve_settings
from automap.executor.batch import Ragged
from automap.executor.settings import AlgorithmSettings

TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}


def column(*rows: list[float]) -> Ragged:
    return Ragged.of([torch.tensor(row, dtype=torch.float64) for row in rows])


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(actual: Tensor, *expected: float) -> None:
    torch.testing.assert_close(actual, tensor(*expected).to(actual), **TOLERANCE)


seeds = st.integers(0, 2**31 - 1)
few = settings(max_examples=25, deadline=None)


def random_rows(seed: int, *, rows: int = 6) -> tuple[Ragged, Ragged, torch.Generator]:
    """Two columns of the same lengths."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 8, (rows,), generator=generator)
    first, second = torch.randn((2, int(lengths.sum())), generator=generator, dtype=torch.float64)
    return Ragged(first, lengths), Ragged(second, lengths), generator


class TestRewards:
    def test_score_stands_at_the_last_token(self) -> None:
        rewards = numerics.penalise_kl(
            tensor(5, 7), None, None, response_lengths=torch.tensor([3, 1]), coefficient=0.5
        )
        close(rewards.values, 0, 0, 5, 7)

    @pytest.mark.parametrize(
        ("estimator", "penalties"),
        [
            ("k1", [-1.0, 2.0]),
            ("k2", [0.5, 2.0]),
            ("k3", [math.e - 1 - 1, math.exp(-2) - 1 + 2]),
        ],
    )
    def test_kl_is_paid_at_every_token(self, estimator: str, penalties: list[float]) -> None:
        rewards = numerics.penalise_kl(
            tensor(4),
            column([-2.0, -1.0]),
            column([-1.0, -3.0]),
            response_lengths=torch.tensor([2]),
            coefficient=0.1,
            estimator=estimator,  # type: ignore[arg-type]
        )
        close(rewards.values, -0.1 * penalties[0], 4 - 0.1 * penalties[1])

    def test_an_empty_response_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"responses \[1\] have no token"):
            numerics.at_last_token(tensor(1, 2), torch.tensor([2, 0]))

    def test_a_reference_without_log_probs_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no log_probs"):
            numerics.penalise_kl(
                tensor(1),
                None,
                column([0.0]),
                response_lengths=torch.tensor([1]),
                coefficient=1,
            )

    def test_columns_of_other_responses_are_refused(self) -> None:
        with pytest.raises(ValueError, match="reference has rows of"):
            numerics.penalise_kl(
                tensor(1, 1),
                column([0.0, 1.0], [0.0]),
                column([0.0], [0.0, 1.0]),
                response_lengths=torch.tensor([2, 1]),
                coefficient=1,
            )

    def test_overlong(self) -> None:
        lengths = torch.tensor([1, 6, 7, 8, 10, 11])
        penalised = numerics.penalise_overlong(
            tensor(1, 1, 1, 1, 1, 1), response_lengths=lengths, maximum_length=10, buffer=4
        )
        close(penalised, 1, 1, 0.75, 0.5, 0, 0)
        close(
            numerics.penalise_overlong(
                tensor(3), response_lengths=torch.tensor([10]), maximum_length=10, buffer=0
            ),
            3,
        )
        with pytest.raises(ValueError, match="overlong_buffer_tokens=11"):
            numerics.penalise_overlong(
                tensor(3), response_lengths=torch.tensor([10]), maximum_length=10, buffer=11
            )

    @given(seeds)
    @few
    def test_k3_is_never_negative_and_its_gradient_is_one_minus_the_ratio(self, seed: int) -> None:
        ours, reference, _ = random_rows(seed)
        log_probs = ours.values.clone().requires_grad_()
        estimate = numerics.kl_estimate(log_probs, reference.values, "k3")
        assert (estimate >= 0).all()
        estimate.sum().backward()
        expected = 1 - (reference.values - ours.values).exp()
        torch.testing.assert_close(log_probs.grad, expected, **TOLERANCE)

    def test_estimators_find_the_kl_of_two_distributions(self) -> None:
        """Exactly, by summing over all outcomes instead of sampling."""
        policy, reference = tensor(0.5, 0.3, 0.2), tensor(0.2, 0.2, 0.6)
        exact = float((policy * (policy / reference).log()).sum())
        for estimator in ("k1", "k3"):
            sampled = numerics.kl_estimate(policy.log(), reference.log(), estimator)  # type: ignore[arg-type]
            assert float((policy * sampled).sum()) == pytest.approx(exact, abs=1e-12)

    def test_a_huge_ratio_stays_finite(self) -> None:
        estimate = numerics.kl_estimate(tensor(-900), tensor(0), "k3")
        assert torch.isfinite(estimate).all()


class TestGae:
    def test_by_hand(self) -> None:
        """γ = 0.5, λ = 0.5: δ = [0 + 0.5·2 − 1, 4 − 2] = [0, 2]; A = [0 + 0.25·2, 2]."""
        advantages, returns = numerics.gae(
            column([0.0, 4.0], [3.0]),
            column([1.0, 2.0], [1.0]),
            gamma=0.5,
            lam=0.5,
            whiten=False,
        )
        close(advantages.values, 0.5, 2, 2)
        close(returns.values, 1.5, 4, 3)

    def test_scores_count_at_the_end(self) -> None:
        values = column([1.0, 2.0], [1.0])
        numbers = {"gamma": 0.9, "lam": 0.8, "whiten": False}
        plain = numerics.gae(tensor(4, 3), values, **numbers)  # type: ignore[arg-type]
        ragged = numerics.gae(column([0.0, 4.0], [3.0]), values, **numbers)  # type: ignore[arg-type]
        assert torch.equal(plain[0].values, ragged[0].values)

    @given(seeds)
    @few
    def test_with_lambda_1_it_is_the_discounted_return_minus_the_value(self, seed: int) -> None:
        rewards, values, _ = random_rows(seed)
        advantages, returns = numerics.gae(rewards, values, gamma=0.9, lam=1.0, whiten=False)
        expected = [
            sum(0.9**ahead * float(reward) for ahead, reward in enumerate(row[start:]))
            for row in rewards.rows()
            for start in range(len(row))
        ]
        close(returns.values, *expected)
        torch.testing.assert_close(advantages.values, returns.values - values.values, **TOLERANCE)

    @given(seeds)
    @few
    def test_with_lambda_0_it_is_the_td_error(self, seed: int) -> None:
        rewards, values, _ = random_rows(seed)
        advantages, _ = numerics.gae(rewards, values, gamma=0.9, lam=0.0, whiten=False)
        expected = []
        for reward, value in zip(rewards.rows(), values.rows(), strict=True):
            following = [*value[1:].tolist(), 0.0]
            expected += [
                float(reward[t]) + 0.9 * following[t] - float(value[t]) for t in range(len(value))
            ]
        close(advantages.values, *expected)

    @given(seeds)
    @few
    def test_whitening_gives_zero_mean_and_unit_sample_variance(self, seed: int) -> None:
        rewards, values, _ = random_rows(seed)
        plain, returns = numerics.gae(rewards, values, gamma=1, lam=0.95, whiten=False)
        white, same = numerics.gae(rewards, values, gamma=1, lam=0.95, whiten=True)
        assert torch.equal(returns.values, same.values)
        assert float(white.values.mean()) == pytest.approx(0, abs=1e-9)
        assert float(white.values.var(unbiased=True)) == pytest.approx(1, abs=1e-6)
        order = plain.values.argsort()
        assert torch.equal(order, white.values.argsort())

    def test_equal_advantages_whiten_to_zero(self) -> None:
        zeros = column([0.0], [0.0], [0.0])
        advantages, _ = numerics.gae(tensor(2, 2, 2), zeros, gamma=1, lam=1, whiten=True)
        close(advantages.values, 0, 0, 0)

    def test_the_dtype_is_that_of_the_values(self) -> None:
        values = Ragged.of([torch.zeros(2)])
        for result in numerics.gae(torch.ones(1), values, gamma=1, lam=1, whiten=True):
            assert result.values.dtype == torch.float32


class TestGroups:
    def test_group_normalise_by_hand(self) -> None:
        """Outcomes 1, 3 (mean 2, sample deviation √2) and 5, 5; groups need not be contiguous."""
        rewards = column([0.25, 0.75], [5.0], [1.0, 1.0, 1.0], [2.0, 3.0])
        advantages = numerics.group_normalise(rewards, group=torch.tensor([7, 2, 7, 2]))
        x = 1 / (math.sqrt(2) + 1e-6)
        close(advantages.values, -x, -x, 0, x, x, x, 0, 0)

    def test_equal_outcomes_give_exactly_zero(self) -> None:
        """Though (0.1 + 0.1 + 0.1) / 3 is not 0.1."""
        rewards = column([0.1], [0.1], [0.1])
        advantages = numerics.group_normalise(rewards, group=torch.zeros(3, dtype=torch.int64))
        assert advantages.values.tolist() == [0, 0, 0]

    def test_leave_one_out_by_hand(self) -> None:
        rewards = column([1.0, 1.0], [4.0], [6.0], [10.0], [2.0])
        advantages = numerics.leave_one_out(rewards, group=torch.tensor([0, 0, 0, 1, 1]))
        close(advantages.values, 2 - 5, 2 - 5, 4 - 4, 6 - 3, 8, -8)

    @given(seeds)
    @few
    def test_a_shift_of_a_group_changes_nothing(self, seed: int) -> None:
        rewards, _, generator = random_rows(seed)
        group = torch.tensor([0, 1, 1, 0, 1, 0])
        shift = torch.randn(2, generator=generator, dtype=torch.float64)[group]
        last = rewards.lengths.cumsum(0) - 1
        moved = rewards.values.clone()
        moved[last] += shift
        for function in (numerics.group_normalise, numerics.leave_one_out):
            torch.testing.assert_close(
                function(rewards.with_values(moved), group=group).values,
                function(rewards, group=group).values,
                rtol=1e-6,
                atol=1e-6,
            )

    @given(seeds)
    @few
    def test_a_scale_changes_only_what_is_not_normalised(self, seed: int) -> None:
        rewards, _, _ = random_rows(seed)
        group = torch.tensor([0, 1, 1, 0, 1, 0])
        scaled = rewards.with_values(rewards.values * 3)
        torch.testing.assert_close(
            numerics.group_normalise(scaled, group=group).values,
            numerics.group_normalise(rewards, group=group).values,
            rtol=1e-4,
            atol=1e-4,
        )
        torch.testing.assert_close(
            numerics.leave_one_out(scaled, group=group).values,
            3 * numerics.leave_one_out(rewards, group=group).values,
            **TOLERANCE,
        )

    @given(seeds)
    @few
    def test_advantages_of_a_group_sum_to_zero(self, seed: int) -> None:
        rewards, _, _ = random_rows(seed)
        group = torch.tensor([0, 1, 1, 0, 1, 0])
        for function in (numerics.group_normalise, numerics.leave_one_out):
            per_row = torch.stack([row[0] for row in function(rewards, group=group).rows()])
            for number in (0, 1):
                assert float(per_row[group == number].sum()) == pytest.approx(0, abs=1e-9)

    @pytest.mark.parametrize(
        "function", [numerics.group_normalise, numerics.leave_one_out, numerics.mixed_groups]
    )
    def test_a_single_response_is_refused(self, function) -> None:  # type: ignore[no-untyped-def]
        scores = tensor(1, 2, 3)
        rewards = scores if function is numerics.mixed_groups else column([1.0], [2.0], [3.0])
        with pytest.raises(ValueError, match=r"prompts \[4\] have one; set responses_per_prompt"):
            function(rewards, group=torch.tensor([3, 4, 3]))

    def test_mixed_groups(self) -> None:
        scores = tensor(1, 0, 1, 1, 0, 0)
        mask = numerics.mixed_groups(scores, group=torch.tensor([0, 0, 1, 1, 2, 2]))
        assert mask.tolist() == [True, True, False, False, False, False]


class TestOthers:
    def test_subtract_by_hand(self) -> None:
        """From the token on: [−1 + 2 + 4, 2 + 4, 4] − 3; the baseline rows have another order."""
        advantages = numerics.subtract(
            column([-1.0, 2.0, 4.0], [1.0]),
            tensor(10, 3),
            group=torch.tensor([5, 8]),
            baseline_group=torch.tensor([8, 5]),
        )
        close(advantages.values, 2, 3, 1, -9)

    def test_a_prompt_without_a_baseline_is_refused(self) -> None:
        for known in ([0], []):
            with pytest.raises(ValueError, match=r"prompts \[.*6\] have no greedy response"):
                numerics.subtract(
                    column([1.0], [1.0]),
                    torch.ones(len(known)),
                    group=torch.tensor([0, 6]),
                    baseline_group=torch.tensor(known, dtype=torch.int64),
                )

    def test_batch_normalise_by_hand(self) -> None:
        """γ = 0.5: returns [1 + 0.5·2, 2] and [5]: mean 3, sample variance 3."""
        advantages = numerics.batch_normalise(column([1.0, 2.0], [5.0]), gamma=0.5)
        scale = 1 / math.sqrt(3 + 1e-8)
        close(advantages.values, -scale, -scale, 2 * scale)

    def test_lagrangian_of_rewards_and_of_advantages(self) -> None:
        rewards = column([1.0, 2.0], [3.0])
        close(numerics.lagrangian(rewards, tensor(4, 0), multiplier=1.0).values, 0.5, -1, 1.5)
        costs = column([1.0, 4.0], [0.0])
        close(numerics.lagrangian(rewards, costs, multiplier=3.0).values, -0.5, -2.5, 0.75)

    def test_the_multiplier_is_a_gradient_step_of_its_logarithm(self) -> None:
        log_multiplier = tensor(0.3).requires_grad_()
        ((1.7 - 0.5) * log_multiplier.exp()).sum().backward()
        expected = (log_multiplier + 0.1 * log_multiplier.grad).exp().item()
        actual = numerics.update_multiplier(
            math.exp(0.3), mean_cost=1.7, cost_limit=0.5, learning_rate=0.1, maximum=10
        )
        assert actual == pytest.approx(expected, abs=1e-12)

    def test_the_multiplier_falls_below_the_limit_and_stops_at_its_maximum(self) -> None:
        numbers = {"cost_limit": 1.0, "learning_rate": 0.1, "maximum": 5.0}
        assert numerics.update_multiplier(1.0, mean_cost=0.0, **numbers) < 1.0
        assert numerics.update_multiplier(1.0, mean_cost=1.0, **numbers) == 1.0
        assert numerics.update_multiplier(1.0, mean_cost=1e9, **numbers) == 5.0

    def test_mean_outcome(self) -> None:
        assert numerics.mean_outcome(tensor(1, 2)) == 1.5
        assert numerics.mean_outcome(column([1.0, 2.0], [5.0])) == 4.0

    def test_defaults_yield_to_what_is_given(self) -> None:
        plain = AlgorithmSettings()
        grpo = resolve_settings(plain, algorithm="grpo", kl="loss")
        assert (grpo.aggregate, grpo.kl_estimator) == ("sequence_mean", "k3")
        ppo = resolve_settings(plain, algorithm="ppo", kl="reward")
        assert (ppo.aggregate, ppo.kl_estimator, ppo.whiten_advantages) == (
            "token_mean",
            "k1",
            True,
        )
        assert resolve_settings(plain, algorithm="safe_rlhf", kl="none").whiten_advantages is False
        own = AlgorithmSettings(
            aggregate="token_mean", clip_high=0.3, whiten_advantages=False, kl_estimator="k2"
        )
        assert resolve_settings(own, algorithm="grpo", kl="loss") == own
