"""The losses: cases worked by hand, gradients, splits, rows that pad, and what is refused."""

import math
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from automap.executor.algorithms.defaults import resolve_settings
from automap.executor.algorithms.losses import Clip, PolicyLoss, ValueLoss, build_loss
from automap.executor.algorithms.off_policy import OffPolicyCorrection
from automap.executor.algorithms.ppo_ptx import join_pretrain, pretrain_row_weight
from automap.executor.batch import Batch, Ragged
from automap.executor.engines.training_engine import Loss
from automap.executor.settings import AlgorithmSettings
from tests.executor.padding import pad_rows

SETTINGS = AlgorithmSettings(clip_high=0.2, aggregate="token_mean", kl_estimator="k3")
CLIP = Clip(0.2, 0.2)


def column(*rows: list[float]) -> Ragged:
    return Ragged.of([torch.tensor(row, dtype=torch.float64) for row in rows])


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def batch_of(**columns: Ragged) -> Batch:
    lengths = next(iter(columns.values())).lengths
    tokens = Ragged(torch.zeros(int(lengths.sum()), dtype=torch.int64), lengths)
    return Batch({"response_tokens": tokens, **columns})


def value_and_gradient(loss: Loss, prediction: Tensor, batch: Batch) -> tuple[float, Tensor]:
    """Of the mean that engines minimise."""
    leaf = prediction.clone().requires_grad_()
    total = loss.terms(leaf, None, batch).loss_sum / loss.weight(batch)
    total.backward()
    assert leaf.grad is not None
    return float(total.detach()), leaf.grad


class TestClipping:
    @pytest.mark.parametrize(
        ("ratio", "advantage", "expected", "moves"),
        [
            (1.0, 2.0, -2.0, True),
            (1.1, 2.0, -2.2, True),
            (1.5, 2.0, -2.4, False),  # good already: no further
            (0.5, 2.0, -1.0, True),  # has to come back
            (0.5, -2.0, 1.6, False),  # bad already: no further
            (1.5, -2.0, 3.0, True),  # has to come back
        ],
    )
    def test_by_hand(self, ratio: float, advantage: float, expected: float, moves: bool) -> None:
        batch = batch_of(advantages=column([advantage]), old_log_probs=column([-1.0]))
        loss = PolicyLoss("token_mean", CLIP)
        prediction = tensor(-1 + math.log(ratio))
        value, gradient = value_and_gradient(loss, prediction, batch)
        assert value == pytest.approx(expected, abs=1e-12)
        # d(−A·ratio)/d log π = −A·ratio
        assert float(gradient) == pytest.approx(-advantage * ratio if moves else 0, abs=1e-12)
        metrics = loss.terms(prediction, None, batch).metric_sums
        assert float(metrics["actor/pg_clipfrac"]) == (0 if moves else 1)
        assert float(metrics["actor/ppo_kl"]) == pytest.approx(-math.log(ratio), abs=1e-12)
        assert float(metrics["actor/pg_loss"]) == pytest.approx(expected, abs=1e-12)

    def test_the_upper_bound_may_be_higher(self) -> None:
        batch = batch_of(advantages=column([1.0]), old_log_probs=column([0.0]))
        for high, expected in ((0.2, -1.2), (0.28, -1.25)):
            loss = PolicyLoss("token_mean", Clip(0.2, high))
            value, _ = value_and_gradient(loss, tensor(math.log(1.25)), batch)
            assert value == pytest.approx(expected, abs=1e-12)

    def test_the_dual_bound_holds_only_for_bad_actions(self) -> None:
        batch = batch_of(advantages=column([-1.0, 1.0]), old_log_probs=column([0.0, 0.0]))
        prediction = tensor(math.log(5), math.log(5))
        loss = PolicyLoss("token_mean", Clip(0.2, 0.2, dual=3.0))
        value, gradient = value_and_gradient(loss, prediction, batch)
        assert value == pytest.approx((3.0 - 1.2) / 2, abs=1e-12)
        assert gradient.tolist() == [0, 0]
        metrics = loss.terms(prediction, None, batch).metric_sums
        assert float(metrics["actor/pg_clipfrac_lower"]) == 1
        _, free = value_and_gradient(PolicyLoss("token_mean", CLIP), prediction, batch)
        assert float(free[0]) == pytest.approx(5 / 2, abs=1e-12)

    def test_without_old_log_probs_the_first_step_is_the_same(self) -> None:
        """At the ratio 1 PPO's gradient is REINFORCE's."""
        prediction = tensor(-1.0, -2.0, -0.5)
        batch = batch_of(advantages=column([1.0, -2.0], [3.0])).with_columns(
            old_log_probs=column([-1.0, -2.0], [-0.5])
        )
        gradients = [
            value_and_gradient(loss, prediction, batch)[1]
            for loss in (
                PolicyLoss("token_mean", CLIP),
                PolicyLoss("token_mean", CLIP, reads_old_log_probs=False),
                PolicyLoss("token_mean", None),
            )
        ]
        torch.testing.assert_close(gradients[0], gradients[1])
        torch.testing.assert_close(gradients[0], gradients[2])
        torch.testing.assert_close(gradients[0], -tensor(1, -2, 3) / 3)

    def test_a_huge_ratio_stays_finite(self) -> None:
        batch = batch_of(advantages=column([-1.0]), old_log_probs=column([-800.0]))
        value, gradient = value_and_gradient(PolicyLoss("token_mean", CLIP), tensor(0.0), batch)
        assert math.isfinite(value)
        assert torch.isfinite(gradient).all()


def corrected(
    log_probs: np.ndarray,
    old: np.ndarray,
    behaviour: np.ndarray,
    advantages: np.ndarray,
    *,
    cap: float,
    masks: bool,
) -> np.ndarray:
    """−w·min(r·A, clip(r)·A), r = π/π_p, w = π_p/μ; above the cap w is 0, or the cap."""
    ratio, weight = np.exp(log_probs - old), np.exp(old - behaviour)
    weight = np.where(weight <= cap, weight, 0.0 if masks else cap)
    return -weight * np.minimum(ratio * advantages, np.clip(ratio, 0.8, 1.2) * advantages)


class TestOffPolicyCorrection:
    CORRECTIONS = ("decoupled_ppo", "truncated_importance_sampling")

    def loss(self, name: str | None, cap: float | None) -> Loss:
        settings = AlgorithmSettings(off_policy_correction=name, importance_weight_cap=cap)  # type: ignore[arg-type]
        resolved = resolve_settings(settings, algorithm="ppo", kl="none")
        return build_loss("ppo_clip", resolved, {"advantages": 0, "old_log_probs": 0})

    @pytest.mark.parametrize("cap", [None, 1.5, 3.0])
    @pytest.mark.parametrize("name", CORRECTIONS)
    def test_value_and_gradient_are_those_of_the_formula(
        self, name: str, cap: float | None
    ) -> None:
        prediction, old, behaviour, advantages = (
            each.numpy()
            for each in torch.randn(
                (4, 400), generator=torch.Generator().manual_seed(3), dtype=torch.float64
            )
        )
        old = prediction + 0.3 * old
        batch = batch_of(
            advantages=column(advantages.tolist()),
            old_log_probs=column(old.tolist()),
            behaviour_log_probs=column(behaviour.tolist()),
        )
        most = cap or {"decoupled_ppo": 5.0, "truncated_importance_sampling": 2.0}[name]

        def by_formula(log_probs: np.ndarray) -> np.ndarray:
            return corrected(
                log_probs, old, behaviour, advantages, cap=most, masks=name == "decoupled_ppo"
            )

        leaf = torch.from_numpy(prediction)
        value, gradient = value_and_gradient(self.loss(name, cap), leaf, batch)
        assert value == pytest.approx(by_formula(prediction).mean(), abs=1e-12)
        # Each token's loss depends on its own log-probability alone.
        step = 1e-6
        slope = (by_formula(prediction + step) - by_formula(prediction - step)) / (2 * step)
        np.testing.assert_allclose(gradient.numpy() * len(slope), slope, atol=1e-7)
        weights = np.exp(old - behaviour)
        metrics = self.loss(name, cap).terms(leaf, None, batch).metric_sums
        assert 0 < float(metrics["actor/importance_capfrac"]) == (weights > most).sum()
        assert float(metrics["actor/behaviour_kl"]) == pytest.approx((behaviour - old).sum())
        assert float(metrics["actor/pg_loss"]) == pytest.approx(by_formula(prediction).sum())

    @pytest.mark.parametrize("name", CORRECTIONS)
    def test_what_the_same_policy_generated_is_not_weighed(self, name: str) -> None:
        prediction, _, batch = random_batch()
        batch = batch_for(self.loss(name, None), batch)
        batch = batch.with_columns(behaviour_log_probs=batch.ragged("old_log_probs"))
        plain = value_and_gradient(self.loss(None, None), prediction, batch)
        weighed = value_and_gradient(self.loss(name, None), prediction, batch)
        assert weighed[0] == plain[0]
        assert torch.equal(weighed[1], plain[1])

    @pytest.mark.parametrize("name", CORRECTIONS)
    def test_huge_weights_and_losses_without_a_ratio(self, name: str) -> None:
        batch = batch_of(
            advantages=column([1.0]),
            old_log_probs=column([0.0]),
            behaviour_log_probs=column([-900.0]),
        )
        value, gradient = value_and_gradient(self.loss(name, None), tensor(0.0), batch)
        expected = 0.0 if name == "decoupled_ppo" else -2.0
        assert (value, float(gradient)) == (expected, expected)
        settings = AlgorithmSettings(off_policy_correction=name)  # type: ignore[arg-type]
        resolved = resolve_settings(settings, algorithm="remax", kl="none")
        with pytest.raises(ValueError, match="'policy_gradient' has no ratio to correct"):
            build_loss("policy_gradient", resolved, {"advantages": 0})
        with pytest.raises(ValueError, match="importance_weight_cap must be set"):
            OffPolicyCorrection.of(settings)


class TestAggregation:
    def test_over_tokens_and_over_sequences(self) -> None:
        batch = batch_of(advantages=column([1.0, 1.0, 1.0], [5.0]))
        prediction = tensor(-1, -1, -1, -1)
        by_token, _ = value_and_gradient(PolicyLoss("token_mean", None), prediction, batch)
        by_sequence, _ = value_and_gradient(PolicyLoss("sequence_mean", None), prediction, batch)
        assert by_token == pytest.approx((1 + 1 + 1 + 5) / 4)
        assert by_sequence == pytest.approx((1 + 5) / 2)

    def test_kl_and_entropy_by_hand(self) -> None:
        batch = batch_of(advantages=column([0.0, 0.0]), reference_log_probs=column([-1.0, -1.0]))
        loss = PolicyLoss(
            "token_mean",
            None,
            kl_estimator="k3",
            kl_coefficient=0.5,
            entropy_coefficient=0.1,
        )
        terms = loss.terms(tensor(-2.0, -1.0), tensor(3.0, 1.0), batch)
        divergence = math.e - 1 - 1
        assert float(terms.loss_sum) == pytest.approx(0.5 * divergence - 0.1 * 4)
        assert float(terms.metric_sums["actor/kl_loss"]) == pytest.approx(divergence)
        assert float(terms.metric_sums["actor/entropy"]) == 4
        with pytest.raises(ValueError, match="gave no entropy"):
            loss.terms(tensor(-2.0, -1.0), None, batch)


class TestValue:
    @pytest.mark.parametrize(
        ("prediction", "expected", "gradient"),
        [
            (1.1, 0.5 * 0.9**2, -0.9),  # within the clip: its own error
            (1.5, 0.5 * 0.8**2, 0.0),  # too fast towards the return: the clipped error is larger
            (0.5, 0.5 * 1.5**2, -1.5),  # away from it: its own error is larger
        ],
    )
    def test_by_hand(self, prediction: float, expected: float, gradient: float) -> None:
        batch = batch_of(values=column([1.0]), returns=column([2.0]))
        loss = ValueLoss("token_mean", 0.2)
        value, slope = value_and_gradient(loss, tensor(prediction), batch)
        assert value == pytest.approx(expected, abs=1e-12)
        assert float(slope) == pytest.approx(gradient, abs=1e-12)
        metrics = loss.terms(tensor(prediction), None, batch).metric_sums
        assert float(metrics["critic/vpred_mean"]) == pytest.approx(prediction)
        assert float(metrics["critic/vf_clipfrac"]) == (gradient == 0)
        assert float(metrics["critic/vf_loss"]) == pytest.approx(expected)

    def test_without_old_values_nothing_is_clipped(self) -> None:
        batch = batch_of(returns=column([2.0]))
        value, slope = value_and_gradient(ValueLoss("token_mean", None), tensor(9.0), batch)
        assert (value, float(slope)) == (24.5, 7.0)


LOSSES = {
    "clipped": PolicyLoss(
        "token_mean",
        Clip(0.1, 0.3, 2.0),
        kl_estimator="k3",
        kl_coefficient=0.1,
        entropy_coefficient=0.05,
    ),
    "clipped by sequence": PolicyLoss("sequence_mean", CLIP, kl_estimator="k2", kl_coefficient=1.0),
    "decoupled": PolicyLoss(
        "token_mean", CLIP, correction=OffPolicyCorrection(1.5, leaves_out=True)
    ),
    "truncated by sequence": PolicyLoss(
        "sequence_mean",
        CLIP,
        pretrain_coefficient=0.7,
        correction=OffPolicyCorrection(1.5, leaves_out=False),
    ),
    "policy gradient": PolicyLoss("token_mean", None),
    "with pre-train rows": PolicyLoss("token_mean", CLIP, pretrain_coefficient=0.7),
    "value": ValueLoss("token_mean", 0.2),
    "value by sequence": ValueLoss("sequence_mean", 0.2),
}


COLUMNS = (
    "advantages",
    "old_log_probs",
    "reference_log_probs",
    "values",
    "returns",
    "behaviour_log_probs",
)


def random_batch() -> tuple[Tensor, Tensor, Batch]:
    generator = torch.Generator().manual_seed(5)
    lengths = torch.tensor([3, 1, 4, 2, 6])
    total = int(lengths.sum())
    data = torch.randn((len(COLUMNS) + 2, total), generator=generator, dtype=torch.float64)
    columns = {
        name: Ragged(values, lengths) for name, values in zip(COLUMNS, data[2:], strict=True)
    }
    batch = batch_of(**columns)
    marks = torch.tensor([False, True, False, False, True])
    return data[0], data[1].abs(), batch.with_columns(pretrain=marks)


def batch_for(loss: Loss, batch: Batch) -> Batch:
    if isinstance(loss, PolicyLoss) and loss.pretrain_coefficient is not None:
        return batch
    return batch.only(*(name for name in batch if name != "pretrain"))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
class TestEveryLoss:
    def test_micro_batches_add_up(self, loss: Loss) -> None:
        prediction, entropy, batch = random_batch()
        batch = batch_for(loss, batch)
        rows = Ragged(torch.arange(len(prediction)), batch.ragged("returns").lengths)
        whole = loss.terms(prediction, entropy, batch)
        parts = [[4, 0], [2], [1, 3]]
        terms = []
        for part in parts:
            places = torch.cat([rows.rows()[row] for row in part])
            terms.append(loss.terms(prediction[places], entropy[places], batch.take(part)))
        assert sum(loss.weight(batch.take(part)) for part in parts) == pytest.approx(
            loss.weight(batch)
        )
        total = sum(float(each.loss_sum) for each in terms)
        assert total == pytest.approx(float(whole.loss_sum), abs=1e-12)
        for name, value in whole.metric_sums.items():
            split = sum(float(each.metric_sums[name]) for each in terms)
            assert split == pytest.approx(float(value), abs=1e-12)

    def test_rows_that_pad_change_nothing(self, loss: Loss) -> None:
        """Though all their values are NaN."""
        prediction, entropy, batch = random_batch()
        batch = batch_for(loss, batch)
        padded = pad_rows(batch, 7)
        tokens = len(prediction)
        for name in COLUMNS:
            spoiled = padded.ragged(name).values.clone()
            spoiled[tokens:] = torch.nan
            padded = padded.with_columns(**{name: padded.ragged(name).with_values(spoiled)})
        nan = torch.full((2 * 3,), torch.nan, dtype=torch.float64)
        leaves = [prediction.clone().requires_grad_(), torch.cat([prediction, nan])]
        leaves[1].requires_grad_()
        alone = loss.terms(leaves[0], entropy, batch)
        both = loss.terms(leaves[1], torch.cat([entropy, nan]), padded)
        assert loss.weight(padded) == loss.weight(batch)
        assert both.loss_sum.item() == alone.loss_sum.item()
        assert {name: float(value) for name, value in both.metric_sums.items()} == {
            name: float(value) for name, value in alone.metric_sums.items()
        }
        alone.loss_sum.backward()
        both.loss_sum.backward()
        assert leaves[0].grad is not None
        assert leaves[1].grad is not None
        assert torch.equal(leaves[1].grad[:tokens], leaves[0].grad)
        assert not leaves[1].grad[tokens:].any()

    def test_a_micro_batch_of_padding_alone_still_has_a_gradient(self, loss: Loss) -> None:
        """Every rank must run its backward pass, or the others wait for it."""
        prediction, entropy, batch = random_batch()
        weights = torch.zeros(batch.num_rows)
        batch = batch_for(loss, batch).with_columns(weight=weights)
        leaf = prediction.clone().requires_grad_()
        terms = loss.terms(leaf, entropy, batch)
        terms.loss_sum.backward()
        assert loss.weight(batch) == 0
        assert leaf.grad is not None
        assert not leaf.grad.any()
        full = loss.terms(prediction, entropy, batch_for(loss, random_batch()[2]))
        assert terms.metric_sums.keys() == full.metric_sums.keys()

    def test_it_travels(self, loss: Loss) -> None:
        assert pickle.loads(pickle.dumps(loss)) == loss

    def test_a_prediction_of_another_batch_is_refused(self, loss: Loss) -> None:
        prediction, entropy, batch = random_batch()
        with pytest.raises(ValueError, match="15 predictions for 16 response tokens"):
            loss.terms(prediction[:15], entropy, batch_for(loss, batch))


class TestPretrain:
    def joined(self, coefficient: float, aggregate: str) -> Batch:
        batch = Batch(
            {
                "prompt_tokens": Ragged.of([torch.tensor([5, 6]), torch.tensor([7])]),
                "response_tokens": Ragged.of([torch.tensor([8, 9, 10]), torch.tensor([11])]),
                "advantages": column([1.0, 1.0, 1.0], [1.0]),
                "group": torch.tensor([3, 4]),
            }
        )
        pretrain = Batch(
            {"tokens": Ragged.of([torch.tensor([20, 21]), torch.tensor([30, 31, 32])])}
        )
        row_weight = pretrain_row_weight(
            batch.ragged("response_tokens").lengths,
            pretrain.ragged("tokens").lengths,
            coefficient=coefficient,
            aggregate=aggregate,  # type: ignore[arg-type]
        )
        return join_pretrain(batch, pretrain, row_weight=row_weight)

    def test_rows_by_turns(self) -> None:
        joined = self.joined(1.0, "token_mean")
        assert [row.tolist() for row in joined.ragged("prompt_tokens").rows()] == [
            [5, 6],
            [20],
            [7],
            [30],
        ]
        assert [row.tolist() for row in joined.ragged("response_tokens").rows()] == [
            [8, 9, 10],
            [21],
            [11],
            [31, 32],
        ]
        assert joined.tensor("pretrain").tolist() == [False, True, False, True]
        assert joined.ragged("advantages").values.tolist() == [1, 1, 1, 0, 1, 0, 0]

    @pytest.mark.parametrize(
        ("aggregate", "likelihood"),
        [("token_mean", (2 + 3 + 5) / 3), ("sequence_mean", (2 + (3 + 5) / 2) / 2)],
    )
    def test_the_sum_is_policy_loss_plus_coefficient_times_likelihood(
        self, aggregate: str, likelihood: float
    ) -> None:
        joined = self.joined(0.25, aggregate)
        loss = PolicyLoss(aggregate, None, pretrain_coefficient=0.25)  # type: ignore[arg-type]
        prediction = tensor(-1, -1, -1, -2, -1, -3, -5)
        value, _ = value_and_gradient(loss, prediction, joined)
        assert value == pytest.approx(1 + 0.25 * likelihood, rel=1e-6)
        metrics = loss.terms(prediction, None, joined).metric_sums
        metric = float(metrics["actor/pretrain_loss"]) / loss.weight(joined)
        assert metric == pytest.approx(likelihood, rel=1e-6)
        assert float(metrics["actor/pg_loss"]) / loss.weight(joined) == pytest.approx(1)

    def test_pretrain_rows_take_no_part_in_the_policy_loss(self) -> None:
        joined = self.joined(0.25, "token_mean")
        zeros = joined.ragged("advantages").with_values(torch.zeros(7, dtype=torch.float64))
        joined = joined.with_columns(old_log_probs=zeros, reference_log_probs=zeros)
        loss = PolicyLoss(
            "token_mean", CLIP, kl_estimator="k1", kl_coefficient=1.0, pretrain_coefficient=0.25
        )
        spoiled = tensor(-1, -1, -1, -9, -1, -9, -9)
        metrics = loss.terms(spoiled, None, joined).metric_sums
        assert float(metrics["actor/ppo_kl"]) == 4
        assert float(metrics["actor/kl_loss"]) == -4
        likelihood = float(metrics["actor/pretrain_loss"]) * 0.25
        total = float(metrics["actor/pg_loss"]) - 4 + likelihood
        assert float(loss.terms(spoiled, None, joined).loss_sum) == pytest.approx(total)

    def test_bad_rows_are_refused(self) -> None:
        batch = batch_of(advantages=column([1.0]))
        one = Batch({"tokens": Ragged.of([torch.tensor([1])])})
        with pytest.raises(ValueError, match="needs two tokens"):
            join_pretrain(batch, one, row_weight=1.0)
        with pytest.raises(ValueError, match="2 pre-train rows for 1"):
            join_pretrain(batch, one.take([0, 0]), row_weight=1.0)


class TestBuild:
    def test_what_is_absent_is_not_read(self) -> None:
        inputs = {"advantages": object(), "old_log_probs": None, "reference_log_probs": None}
        assert build_loss("ppo_clip", SETTINGS, inputs) == PolicyLoss(
            "token_mean", CLIP, reads_old_log_probs=False, kl_coefficient=0.05
        )

    def test_numbers_of_the_call_go_first(self) -> None:
        given = AlgorithmSettings(
            aggregate="sequence_mean", kl_estimator="k2", clip_low=0.1, kl_coefficient=0.3
        )
        inputs = {
            "advantages": True,
            "old_log_probs": True,
            "reference_log_probs": True,
            "clip_high": 0.28,
        }
        assert build_loss("ppo_clip", given, inputs) == PolicyLoss(
            "sequence_mean", Clip(0.1, 0.28), kl_estimator="k2", kl_coefficient=0.3
        )

    def test_the_other_kinds(self) -> None:
        gradient = build_loss("policy_gradient", SETTINGS, {"advantages": 1, "pretrain": 1})
        assert isinstance(gradient, PolicyLoss)
        assert gradient.clip is None
        assert gradient.pretrain_coefficient == 1.0
        assert build_loss("value", SETTINGS, {"returns": 1, "values": 1}) == ValueLoss(
            "token_mean", 0.2
        )
        assert build_loss("value", SETTINGS, {"returns": 1}) == ValueLoss("token_mean", None)

    @pytest.mark.parametrize(
        ("kind", "inputs", "message"),
        [
            ("dpo", {}, "loss='dpo'; use one of ppo_clip, policy_gradient, value"),
            ("ppo_clip", {}, r"loss='ppo_clip' needs \['advantages'\]"),
            ("value", {"returns": 1, "clip_low": 0.1}, r"does not read \['clip_low'\]"),
            ("policy_gradient", {"advantages": 1, "old_log_probs": 1}, "does not read"),
            ("ppo_clip", {"advantages": 1, "clip_high": -1.0}, "clip_high"),
        ],
    )
    def test_mistakes_are_named(self, kind: str, inputs: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            build_loss(kind, SETTINGS, inputs)

    def test_open_settings_are_refused(self) -> None:
        with pytest.raises(ValueError, match="resolve_settings"):
            build_loss("ppo_clip", AlgorithmSettings(), {"advantages": 1})


@pytest.mark.parametrize(("algorithm", "expected"), [("dapo", 0.28), ("grpo", 0.2), ("own", 0.2)])
def test_the_upper_clip_is_the_algorithms_unless_it_is_given(
    algorithm: str, expected: float
) -> None:
    left_out = resolve_settings(AlgorithmSettings(), algorithm=algorithm, kl="none")
    assert left_out.clip_high == expected
    given = AlgorithmSettings(clip_high=0.5, clip_low=0.1)
    resolved = resolve_settings(given, algorithm=algorithm, kl="none")
    assert (resolved.clip_low, resolved.clip_high) == (0.1, 0.5)
