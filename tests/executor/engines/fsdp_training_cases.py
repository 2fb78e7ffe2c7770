"""Scoring and training with the FSDP engine, checked on every rank."""

import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from automap.executor.batch import Batch
from automap.executor.engines.training_engine import LossTerms
from automap.executor.layout import RankLayout
from automap.executor.settings import OptimizerSettings, TrainingSettings
from tests.executor.engines.fsdp_common import (
    LAYOUTS,
    OPTIMIZER,
    RATES,
    all_rows,
    assert_near,
    build,
    own_rows,
    same_everywhere,
    whole,
)
from tests.executor.engines.plain_training import (
    PlainTraining,
    PolicyLoss,
    ValueLoss,
    random_rows,
    tiny_config,
)

# Scoring


def scores_like_transformers(layout: str, family: str, folder: Path) -> None:
    engine = build(LAYOUTS[layout], family, training=None)
    plain = PlainTraining(tiny_config(family), whole(engine), OPTIMIZER)
    batch = random_rows(6, seed=3)
    got = engine.forward(batch, "log_probs", temperature=0.8)
    expected, _ = plain.predict(batch, temperature=0.8)
    assert list(got) == ["log_probs"]
    assert got.ragged("log_probs").lengths.equal(batch.ragged("response_tokens").lengths)
    torch.testing.assert_close(got.ragged("log_probs").values, expected, rtol=0, atol=1e-4)
    assert same_everywhere(got.ragged("log_probs").values.tolist())


def values_and_scores_like_transformers(layout: str, folder: Path) -> None:
    engine = build(LAYOUTS[layout], head="scalar", training=None)
    plain = PlainTraining(tiny_config("llama"), whole(engine), OPTIMIZER, scalar=True)
    batch = own_rows(engine, seed=4)
    values = engine.forward(batch, "values").ragged("values").values
    torch.testing.assert_close(values, plain.predict(batch)[0].detach(), rtol=0, atol=1e-4)
    scores = engine.forward(batch, "scores").tensor("scores")
    torch.testing.assert_close(scores, plain.scores(batch).detach(), rtol=0, atol=1e-4)


def a_rank_without_rows_takes_part(folder: Path) -> None:
    engine = build(LAYOUTS["data2"])
    batch = random_rows(5, seed=5).take([] if engine.place.data else range(5))
    assert engine.forward(batch, "log_probs").num_rows == batch.num_rows
    plain = PlainTraining(tiny_config("llama"), whole(engine), OPTIMIZER)
    got = engine.train_step(batch, PolicyLoss())
    expected = plain.step([random_rows(5, seed=5)], learning_rate=RATES[0])
    assert got["loss"] == pytest.approx(expected["loss"], rel=1e-5)


def random_weights_depend_on_the_seed_alone(folder: Path) -> None:
    first = whole(build(LAYOUTS["data2"], training=None))
    other = whole(build(LAYOUTS["tensor2"], training=None))
    assert all(first[name].equal(other[name]) for name in first)
    head = first["lm_head.weight"]
    assert float(head.std()) == pytest.approx(0.05, rel=0.02)
    assert not head.equal(whole(build(LAYOUTS["data2"], training=None, seed=8))["lm_head.weight"])


# Training


def trains_like_one_process(
    layout: str,
    family: str,
    sharding: str,
    recompute: str,
    folder: Path,
    *,
    head: str = "language_model",
    micro_batch_tokens: int = 24,
) -> None:
    """Losses, norms, metrics and weights of three steps: 1e-5 relative."""
    engine = build(
        LAYOUTS[layout],
        family,
        sharding=sharding,
        recompute=recompute,
        head=head,
        micro_batch_tokens=micro_batch_tokens,
    )
    scalar = head == "scalar"
    plain = PlainTraining(tiny_config(family), whole(engine), OPTIMIZER, scalar=scalar)
    loss = ValueLoss() if scalar else PolicyLoss()
    for step, rate in enumerate(RATES):
        got = engine.train_step(own_rows(engine, seed=step), loss, temperature=0.9)
        expected = plain.step(
            all_rows(LAYOUTS[layout], seed=step), learning_rate=rate, temperature=0.9
        )
        assert got.pop("learning_rate") == pytest.approx(rate)
        assert got == pytest.approx(expected, rel=1e-5, abs=1e-6), f"step {step}"
        assert got["grad_norm"] > OPTIMIZER.clip_grad_norm
        assert same_everywhere(got)
    for name, expected_weight in plain.weights().items():
        assert_near(whole(engine)[name], expected_weight, 1e-5, name)


class Operators(TorchDispatchMode):
    """Counts calls by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func.name().split(".")[0]] += 1
        return func(*args, **(kwargs or {}))

    def gathers(self) -> int:
        return sum(count for name, count in self.counts.items() if "allgather" in name)


def operators_of_a_step(**settings: object) -> Operators:
    batch = random_rows(4, seed=0)
    two = int(0.6 * batch.sequence_lengths().sum())
    engine = build(LAYOUTS["data2"], micro_batch_tokens=two, **settings)
    engine.train_step(batch, PolicyLoss())
    with Operators() as operators:
        engine.train_step(batch, PolicyLoss())
    return operators


def recomputes_what_it_says(folder: Path) -> None:
    """In two micro-batches of two layers with seven products each."""
    layers = 2 * 2
    counts = {
        mode: operators_of_a_step(recompute=mode).counts for mode in ("none", "selective", "full")
    }
    activations = {mode: each["aten::silu"] for mode, each in counts.items()}
    assert activations == {"none": layers, "selective": 2 * layers, "full": 2 * layers}
    products = {
        mode: each["aten::mm"] - counts["none"]["aten::mm"] for mode, each in counts.items()
    }
    assert products["selective"] == 0
    # The last product's input is there before it would run again.
    assert products["full"] == layers * 6
    name = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert counts["selective"][name] == counts["none"][name] > 0
    assert counts["full"][name] == 2 * counts["none"][name]


def sharding_decides_how_often_weights_are_gathered(folder: Path) -> None:
    """Two layers, the embedding and the rest; two micro-batches."""
    kept, thrown = (operators_of_a_step(sharding=each).gathers() for each in ("gradient", "full"))
    objects = operators_of_a_step(sharding="gradient", recompute="full").gathers() - kept
    assert objects == 0, "recomputation gathers nothing again"
    # gradient: 4 once. full: in both micro-batches layers and embedding forward and backward (the
    # embedding's backward needs no weights, but FSDP gathers them), the rest once.
    assert thrown - kept == 2 * (3 + 3 + 1) - 4


def bf16_computes_with_fp32_masters(folder: Path) -> None:
    small = TrainingSettings(optimizer=OptimizerSettings(learning_rate=1e-5))
    engine = build(LAYOUTS["data2"], precision="bf16", training=small)
    assert {tensor.dtype for _, tensor in engine.parameters()} == {torch.float32}
    plain = PlainTraining(tiny_config("llama"), whole(engine), small.optimizer)
    before = whole(engine)
    for step in range(3):
        got = engine.train_step(own_rows(engine, seed=step), PolicyLoss())
        expected = plain.step(all_rows(LAYOUTS["data2"], seed=step), learning_rate=1e-5)
        assert got["loss"] == pytest.approx(expected["loss"], rel=1e-2)
        assert got["loss"] != expected["loss"], "not computed in bf16"
    after = whole(engine)
    name = "model.layers.0.mlp.up_proj.weight"
    # Three steps of 1e-5 are far below bf16's resolution of weights around 0.05.
    moved = (after[name] - before[name]).abs()
    assert 1e-5 < float(moved.median()) < 4e-5
    assert_near(after[name] - before[name], plain.weights()[name] - before[name], 0.3, "update")


def not_finite_ends_alike_and_changes_nothing(folder: Path) -> None:
    engine = build(LAYOUTS["data2"])
    engine.train_step(own_rows(engine, seed=0), PolicyLoss())
    before = whole(engine)

    class OneRankFails(PolicyLoss):
        factor: float

        def terms(self, prediction: Tensor, entropy: Tensor | None, batch: Batch) -> LossTerms:
            terms = super().terms(prediction, entropy, batch)
            factor = self.factor if engine.place.data == 1 else 1.0
            return LossTerms(terms.loss_sum * factor, terms.metric_sums)

    class InfiniteGradient(OneRankFails):
        def terms(self, prediction: Tensor, entropy: Tensor | None, batch: Batch) -> LossTerms:
            # The derivative of a square root at zero.
            zero = (prediction - prediction.detach()).abs().sum().sqrt()
            terms = PolicyLoss.terms(self, prediction, entropy, batch)
            return LossTerms(terms.loss_sum + zero, terms.metric_sums)

    for loss, message in ((OneRankFails(), "loss is nan"), (InfiniteGradient(), "gradient norm")):
        loss.factor = math.nan
        with pytest.raises(FloatingPointError, match=message) as caught:
            engine.train_step(own_rows(engine, seed=1), loss)
        assert same_everywhere(str(caught.value))
        assert all(tensor.equal(before[name]) for name, tensor in whole(engine).items())
    # And goes on as if nothing had been.
    fresh = build(LAYOUTS["data2"])
    fresh.train_step(own_rows(fresh, seed=0), PolicyLoss())
    ours = engine.train_step(own_rows(engine, seed=2), PolicyLoss())
    assert ours == fresh.train_step(own_rows(fresh, seed=2), PolicyLoss())


def wrong_use_is_refused(folder: Path) -> None:
    engine = build(LAYOUTS["data2"], training=None)
    batch = random_rows(2, seed=0)
    with pytest.raises(ValueError, match=r"gives .*'log_probs'.*, not 'values'"):
        engine.forward(batch, "values")
    with pytest.raises(ValueError, match="training is None"):
        engine.train_step(batch, PolicyLoss())
    with pytest.raises(ValueError, match="lora_rank is None"):
        engine.adapter_disabled()
    for layout, message in (
        (RankLayout(pipeline_parallel_size=2), "pipeline_parallel_size must be 1"),
        (RankLayout(data_parallel_size=4), "4 ranks, the process group 2"),
    ):
        with pytest.raises(ValueError, match=message):
            build(layout)
    for settings, message in (
        ({"precision": "fp16"}, "precision must be bf16 or fp32"),
        ({"sharding": "optimizer"}, "sharding must be gradient or full"),
        ({"micro_batch_tokens": 0}, "micro_batch_tokens must be at least 1"),
        ({"forward_tokens": 0}, "forward_tokens must be at least 1"),
        ({"recompute": "some"}, "recompute must be"),
    ):
        with pytest.raises(ValueError, match=message):
            build(LAYOUTS["data2"], **settings)
    with pytest.raises(ValueError, match="vocab_size 255 must be a multiple"):
        build(LAYOUTS["tensor2"], vocab_size=255)
    nothing = batch.with_columns(weight=torch.zeros(2))
    trains = build(LAYOUTS["data2"])
    with pytest.raises(ValueError, match="weight of the mini-batch"):
        trains.train_step(nothing, PolicyLoss())
