"""What must hold of the Megatron engine, each checked on every rank of a process group."""

import math
from functools import cache, partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    MixtralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3MoeConfig,
)

from automap.executor.batch import Batch
from automap.executor.engines.megatron import MegatronEngine
from automap.executor.engines.megatron.parallel_groups import ParallelGroups
from automap.executor.engines.training_engine import LossTerms
from automap.executor.layout import RankLayout
from automap.executor.settings import OptimizerSettings, TrainingSettings
from tests.executor.engines.plain_training import (
    SIZES,
    PlainTraining,
    PolicyLoss,
    ValueLoss,
    as_in_folders,
    random_rows,
    tiny_config,
)
from tests.executor.ranks import Case

LAYOUTS = {
    "data2": RankLayout(data_parallel_size=2),
    "tensor2": RankLayout(tensor_parallel_size=2),
    "pipeline2": RankLayout(pipeline_parallel_size=2),
    "tensor4": RankLayout(tensor_parallel_size=4),
    "tensor2_data2": RankLayout(tensor_parallel_size=2, data_parallel_size=2),
    "tensor2_pipeline2": RankLayout(tensor_parallel_size=2, pipeline_parallel_size=2),
    "pipeline2_data2": RankLayout(pipeline_parallel_size=2, data_parallel_size=2),
    "data2_experts2": RankLayout(data_parallel_size=2, expert_parallel_size=2),
    "tensor2_experts2": RankLayout(tensor_parallel_size=2, expert_parallel_size=2),
    "tensor2_data2_experts2": RankLayout(
        tensor_parallel_size=2, data_parallel_size=2, expert_parallel_size=2
    ),
    "tensor2_data2_experts4": RankLayout(
        tensor_parallel_size=2, data_parallel_size=2, expert_parallel_size=4
    ),
    "pipeline2_data2_experts2": RankLayout(
        pipeline_parallel_size=2, data_parallel_size=2, expert_parallel_size=2
    ),
}
OPTIMIZER = OptimizerSettings(
    learning_rate=1e-2,
    minimum_learning_rate=1e-3,
    warmup_steps=2,
    decay="linear",
    decay_steps=4,
    clip_grad_norm=0.5,
    # Above the rounding errors of gradients, which AdamW would blow up to whole steps.
    epsilon=1e-4,
)
RATES = (0.5e-2, 1e-2, 1e-2)
"""Of the first three steps, worked out by hand."""
TRAINING = TrainingSettings(optimizer=OPTIMIZER)
WHOLE_NORMS = TrainingSettings(optimizer=OPTIMIZER, sequence_parallel=False)


def config_of(family: str, vocab_size: int = 256, layers: int = 2) -> PreTrainedConfig:
    sizes = SIZES | {"vocab_size": vocab_size, "num_experts_per_tok": 2}
    if family == "qwen3_moe":
        config = Qwen3MoeConfig(**sizes, num_experts=4, moe_intermediate_size=48)
        config.norm_topk_prob = True
    elif family == "mixtral":
        config = MixtralConfig(**sizes, num_local_experts=4)
    else:
        config = tiny_config(family, vocab_size=vocab_size)
    config.num_hidden_layers = layers
    if hasattr(config, "layer_types"):
        config.layer_types = ["full_attention"] * layers
    return config


def as_in_transformers(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """What `as_in_folders` took apart, together again."""
    found = {name: tensor for name, tensor in weights.items() if ".experts." not in name}
    stems = {name.split(".experts.")[0] for name in weights if ".experts." in name}
    for stem in stems:
        experts = [
            [weights[f"{stem}.experts.{i}.{each}_proj.weight"] for each in ("gate", "up", "down")]
            for i in range(4)
        ]
        found[f"{stem}.experts.gate_up_proj"] = torch.stack([torch.cat(e[:2]) for e in experts])
        found[f"{stem}.experts.down_proj"] = torch.stack([e[2] for e in experts])
    return found


def build(layout: str, family: str = "llama", **settings: object) -> MegatronEngine:
    defaults = {"precision": "fp32", "training": TRAINING, "micro_batch_tokens": 24, "seed": 7}
    if settings.get("virtual_pipeline_parallel_size", 1) == 1:
        defaults["groups"] = _groups_of(layout)
    config = config_of(family, settings.pop("vocab_size", 256), settings.pop("layers", 2))
    return MegatronEngine(config, layout=LAYOUTS[layout], **(defaults | settings))


@cache
def _groups_of(layout: str) -> ParallelGroups:
    """Each keeps dozens of communicators with threads of their own: one per layout is enough."""
    return ParallelGroups(LAYOUTS[layout])


def whole(engine: MegatronEngine) -> dict[str, Tensor]:
    """All ranks' shards, put together by what `pieces` says of each."""
    shards: list[dict[str, Tensor]] = [{}] * dist.get_world_size()
    dist.all_gather_object(shards, dict(engine.parameters()))
    built: dict[str, Tensor] = {}
    for rank, own in enumerate(shards):
        for name, shard in own.items():
            tensor_rank = engine.layout.coordinates(rank).tensor
            for piece in engine.pieces(name, shard, tensor_rank=tensor_rank):
                full = built.setdefault(piece.name, torch.full(piece.full_shape, math.nan))
                target = full.narrow(piece.dim, piece.start, piece.size)
                values = piece.view.reshape(piece.shape).float()
                assert target.isnan().all() or target.equal(values), f"copies of {name} differ"
                target.copy_(values)
    return built


def rows_of_data_rank(data: int, *, seed: int) -> Batch:
    """Unlike numbers of rows, so that ranks have unlike numbers of micro-batches."""
    return random_rows((7, 2)[data], seed=100 * seed + data)


def own_rows(engine: MegatronEngine, *, seed: int) -> Batch:
    return rows_of_data_rank(engine.place.data, seed=seed)


def all_rows(layout: str, *, seed: int) -> list[Batch]:
    ranks = LAYOUTS[layout].data_parallel_size
    return [rows_of_data_rank(data, seed=seed) for data in range(ranks)]


def assert_near(got: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    """Relative to the size of the tensor."""
    error = float((got - expected).norm() / expected.norm().clamp(min=1e-12))
    assert error <= tolerance, f"{what} differs by {error:.2e}, more than {tolerance}"


def same_everywhere(value: object) -> bool:
    everyone: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, value)
    return all(each == everyone[0] for each in everyone)


# Scoring


def scores_like_transformers(
    layout: str,
    family: str,
    folder: Path,
    *,
    rope: dict[str, object] | None = None,
    vocab_size: int = 256,
    layers: int = 2,
    **settings: object,
) -> None:
    """Log-probabilities to 1e-4, of weights that transformers wrote."""
    config = config_of(family, vocab_size, layers)
    if rope is not None:
        config.rope_parameters = rope
    place = folder / f"weights_{layout}_{family}_{vocab_size}_{layers}_{rope is None}"
    if dist.get_rank() == 0:
        unlike_model(config).save_pretrained(place)
    dist.barrier()
    groups = None if settings else _groups_of(layout)
    engine = MegatronEngine(
        place,
        layout=LAYOUTS[layout],
        precision="fp32",
        micro_batch_tokens=24,
        groups=groups,
        **settings,
    )
    engine.load(place)
    plain = PlainTraining(config, unlike_model(config).state_dict(), OPTIMIZER)
    batch = random_rows(6, seed=3, vocab_size=vocab_size, longest=40)
    got = engine.forward(batch, "log_probs", temperature=0.8)
    expected, _ = plain.predict(batch, temperature=0.8)
    assert float(expected.std()) > 0.5
    assert list(got) == ["log_probs"]
    assert got.ragged("log_probs").lengths.equal(batch.ragged("response_tokens").lengths)
    torch.testing.assert_close(got.ragged("log_probs").values, expected, rtol=0, atol=1e-4)
    assert same_everywhere(got.ragged("log_probs").values.tolist())


def unlike_model(config: object) -> PreTrainedModel:
    """Norms are not all ones, biases not zeros, and attention looks at more than the average."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0).add_(0.1 * torch.randn(parameter.shape))
    return model


def values_and_scores_like_transformers(layout: str, folder: Path) -> None:
    engine = build(layout, head="scalar", training=None)
    plain = PlainTraining(tiny_config("llama"), whole(engine), OPTIMIZER, scalar=True)
    batch = own_rows(engine, seed=4)
    values = engine.forward(batch, "values").ragged("values").values
    torch.testing.assert_close(values, plain.predict(batch)[0].detach(), rtol=0, atol=1e-4)
    scores = engine.forward(batch, "scores").tensor("scores")
    torch.testing.assert_close(scores, plain.scores(batch).detach(), rtol=0, atol=1e-4)


def a_rank_without_rows_takes_part(folder: Path) -> None:
    engine = build("data2")
    batch = random_rows(5, seed=5).take([] if engine.place.data else range(5))
    assert engine.forward(batch, "log_probs").num_rows == batch.num_rows
    plain = PlainTraining(tiny_config("llama"), whole(engine), OPTIMIZER)
    got = engine.train_step(batch, PolicyLoss())
    expected = plain.step([random_rows(5, seed=5)], learning_rate=RATES[0])
    assert got["loss"] == pytest.approx(expected["loss"], rel=1e-5)


def random_weights_depend_on_the_seed_alone(folder: Path) -> None:
    first = whole(build("data2", training=None, vocab_size=250))
    for layout in ("tensor2", "pipeline2"):
        other = whole(build(layout, training=None, vocab_size=250))
        assert all(first[name].equal(other[name]) for name in first)
    head = first["lm_head.weight"]
    assert float(head.std()) == pytest.approx(0.05, rel=0.02)
    assert not head.equal(whole(build("data2", training=None, seed=8))["lm_head.weight"])


# Training


def trains_like_one_process(layout: str, family: str, folder: Path, **settings: object) -> None:
    """Losses, norms, metrics and weights of three steps: 1e-5 relative."""
    layers, vocab_size = settings.get("layers", 2), settings.get("vocab_size", 256)
    engine = build(layout, family, **settings)
    scalar = settings.get("head") == "scalar"
    config = config_of(family, vocab_size, layers)
    weights = as_in_transformers(whole(engine))
    plain = PlainTraining(config, weights, OPTIMIZER, scalar=scalar)
    loss = ValueLoss() if scalar else PolicyLoss()
    for step, rate in enumerate(RATES):
        got = engine.train_step(own_rows(engine, seed=step), loss, temperature=0.9)
        expected = plain.step(all_rows(layout, seed=step), learning_rate=rate, temperature=0.9)
        assert got.pop("learning_rate") == pytest.approx(rate)
        assert got == pytest.approx(expected, rel=1e-5, abs=1e-6), f"step {step}: {got} {expected}"
        assert got["grad_norm"] > OPTIMIZER.clip_grad_norm
        assert same_everywhere(got)
    after = whole(engine)
    for name, expected_weight in as_in_folders(plain.weights()).items():
        assert_near(after[name], expected_weight, 1e-5, name)


def sixteen_bits_train_with_fp32_masters(
    precision: str, distributed_optimizer: bool, folder: Path
) -> None:
    small = TrainingSettings(optimizer=OptimizerSettings(learning_rate=1e-5))
    engine = build(
        "data2",
        precision=precision,
        training=small,
        distributed_optimizer=distributed_optimizer,
    )
    assert {each.element_size() for _, each in engine.parameters()} == {2}
    plain = PlainTraining(tiny_config("llama"), whole(engine), small.optimizer)
    before = dict(engine.state()["masters"])
    name = "model.layers.0.mlp.up_proj.weight"
    before = [part.clone() for _, part in before[name].parts] if name in before else []
    start = whole(engine)[name]
    for step in range(3):
        got = engine.train_step(own_rows(engine, seed=step), PolicyLoss())
        expected = plain.step(all_rows("data2", seed=step), learning_rate=1e-5)
        assert got["loss"] == pytest.approx(expected["loss"], rel=1e-2)
        assert got["loss"] != expected["loss"], "not computed in 16 bits"
    # Three steps of 1e-5 are far below bf16's resolution of weights around 0.05.
    moved = plain.weights()[name] - start
    assert 1e-5 < float(moved.abs().median()) < 4e-5
    if before:
        shards = engine.state()["masters"][name]
        for (offsets, part), old in zip(shards.parts, before, strict=True):
            assert part.dtype == torch.float32
            theirs = moved[
                tuple(slice(at, at + n) for at, n in zip(offsets, part.shape, strict=True))
            ]
            assert_near(part - old, theirs, 0.3, "update")
    masters = engine.state()["masters"]
    weights = engine.state()["weights"]
    for each, shards in masters.items():
        if not distributed_optimizer:
            for (_, part), (_, weight) in zip(shards.parts, weights[each].parts, strict=True):
                assert weight.equal(part.to(weight.dtype)), each


def not_finite_ends_alike_and_changes_nothing(
    layout: str, distributed_optimizer: bool, folder: Path
) -> None:
    engine = build(layout, distributed_optimizer=distributed_optimizer)
    engine.train_step(own_rows(engine, seed=0), PolicyLoss())
    before = whole(engine)
    culprit = LAYOUTS[layout].data_parallel_size - 1

    class OneRankFails(PolicyLoss):
        factor: float = math.nan

        def terms(self, prediction: Tensor, entropy: Tensor | None, batch: Batch) -> LossTerms:
            terms = super().terms(prediction, entropy, batch)
            factor = self.factor if engine.place.data == culprit else 1.0
            return LossTerms(terms.loss_sum * factor, terms.metric_sums)

    class InfiniteGradient(PolicyLoss):
        def terms(self, prediction: Tensor, entropy: Tensor | None, batch: Batch) -> LossTerms:
            # The derivative of a square root at zero.
            zero = (prediction - prediction.detach()).abs().sum().sqrt()
            terms = super().terms(prediction, entropy, batch)
            return LossTerms(terms.loss_sum + zero, terms.metric_sums)

    for loss, message in ((OneRankFails(), "loss is nan"), (InfiniteGradient(), "gradient norm")):
        with pytest.raises(FloatingPointError, match=message) as caught:
            engine.train_step(own_rows(engine, seed=1), loss)
        assert same_everywhere(str(caught.value))
        assert all(tensor.equal(before[name]) for name, tensor in whole(engine).items())
    # And goes on as if nothing had been.
    fresh = build(layout, distributed_optimizer=distributed_optimizer)
    fresh.train_step(own_rows(fresh, seed=0), PolicyLoss())
    ours = engine.train_step(own_rows(engine, seed=2), PolicyLoss())
    assert ours == fresh.train_step(own_rows(fresh, seed=2), PolicyLoss())


def engines_of_unlike_layouts_take_turns(folder: Path) -> None:
    """Two train and one scores, interleaved; each as if it were alone."""
    alone = {}
    for layout, head in (("tensor2", "language_model"), ("data2", "scalar")):
        engine = build(layout, head=head)
        loss = ValueLoss() if head == "scalar" else PolicyLoss()
        alone[layout] = [engine.train_step(own_rows(engine, seed=s), loss) for s in range(3)]

    actor = build("tensor2")
    critic = build("data2", head="scalar", distributed_optimizer=True)
    reference = build("pipeline2", training=None)
    batch = own_rows(reference, seed=9)
    scored = reference.forward(batch, "log_probs").ragged("log_probs").values
    for step in range(3):
        got = actor.train_step(own_rows(actor, seed=step), PolicyLoss())
        assert got == alone["tensor2"][step]
        assert reference.forward(batch, "log_probs").ragged("log_probs").values.equal(scored)
        got = critic.train_step(own_rows(critic, seed=step), ValueLoss())
        assert got == pytest.approx(alone["data2"][step], rel=1e-6)
    shared = build("tensor2", training=None, groups=actor.groups)
    assert not shared.forward(batch, "log_probs").ragged("log_probs").values.isnan().any()
    with pytest.raises(ValueError, match="groups are of layout"):
        build("data2", groups=actor.groups)


def plain_torch_is_as_before(folder: Path) -> None:
    """The stand-ins for CUDA reach Megatron alone."""
    import megatron.core.optimizer.optimizer as megatron_module

    build("tensor2").train_step(random_rows(3, seed=0), PolicyLoss())
    weight = torch.nn.Parameter(torch.zeros(2))
    assert weight.type() == "torch.FloatTensor"
    assert megatron_module.torch is not torch
    assert torch.cuda.is_available() == (torch.cuda.device_count() > 0)
    if not torch.cuda.is_available():
        with pytest.raises((AssertionError, RuntimeError)):
            torch.cuda.current_device()
        with pytest.raises((AssertionError, RuntimeError)):
            torch.zeros(1, device="cuda")
        with pytest.raises((AssertionError, RuntimeError)):
            torch.zeros(1).cuda()
    from megatron.core import parallel_state

    assert not parallel_state.model_parallel_is_initialized()


def wrong_use_is_refused(folder: Path) -> None:
    engine = build("data2", training=None)
    batch = random_rows(2, seed=0)
    with pytest.raises(ValueError, match=r"gives .*'log_probs'.*, not 'values'"):
        engine.forward(batch, "values")
    with pytest.raises(ValueError, match="training is None"):
        engine.train_step(batch, PolicyLoss())
    for settings, message in (
        ({"layout": "tensor2_data2"}, "layout is for 4 ranks, not for 2"),
        ({"micro_batch_tokens": 0}, "micro_batch_tokens must be at least 1"),
        ({"forward_tokens": 0}, "forward_tokens must be at least 1"),
        ({"virtual_pipeline_parallel_size": 2}, "needs a pipeline"),
        ({"layout": "pipeline2", "layers": 1}, "exceeds num_layers 1"),
        ({"layout": "pipeline2", "virtual_pipeline_parallel_size": 2}, "exceeds num_layers 2"),
    ):
        with pytest.raises(ValueError, match=message):
            build(**({"layout": "data2"} | settings))
    nothing = batch.with_columns(weight=torch.zeros(2))
    with pytest.raises(ValueError, match="weight of the mini-batch"):
        build("data2").train_step(nothing, PolicyLoss())


# Weights


def folders_go_both_ways(layout: str, family: str, vocab_size: int, folder: Path) -> None:
    """Our folder in transformers, transformers' folder in the engine."""
    engine = build(layout, family, training=None, vocab_size=vocab_size)
    ours = folder / f"ours_{layout}_{family}_{vocab_size}"
    theirs = folder / f"theirs_{layout}_{family}_{vocab_size}"
    engine.save(ours)
    engine.save(ours)
    model = AutoModelForCausalLM.from_pretrained(ours, dtype=torch.float32)
    expected = whole(engine)
    theirs_now = as_in_folders(dict(model.named_parameters()))
    for name, parameter in theirs_now.items():
        assert parameter.equal(expected[name]), name
    assert set(expected) == set(theirs_now)
    if dist.get_rank() == 0:
        torch.manual_seed(1)
        other = AutoModelForCausalLM.from_config(config_of(family, vocab_size))
        other.save_pretrained(theirs, max_shard_size="100KB")
        assert len(list(theirs.glob("*.safetensors"))) > 1
    dist.barrier()
    trained = build(layout, family, vocab_size=vocab_size, precision="bf16")
    for each in (engine, trained):
        each.load(theirs)
    other = AutoModelForCausalLM.from_pretrained(theirs, dtype=torch.float32)
    got, rounded = whole(engine), whole(trained)
    for name, parameter in as_in_folders(dict(other.named_parameters())).items():
        assert got[name].equal(parameter), name
        assert rounded[name].equal(parameter.bfloat16().float()), name
    masters = trained.state()["masters"]
    for name, shards in masters.items():
        for offsets, part in shards.parts:
            place = tuple(slice(at, at + n) for at, n in zip(offsets, part.shape, strict=True))
            assert part.equal(rounded[name][place]), f"master of {name}"


def a_critic_starts_from_a_language_model(folder: Path) -> None:
    actor = build("data2", training=None)
    actor.save(folder / "actor")
    weights, head = whole(actor), "score.weight"
    heads = []
    for layout in ("data2", "tensor2", "pipeline2"):
        critic = build(layout, head="scalar", training=None, seed=3)
        before = whole(critic)[head]
        critic.load(folder / "actor")
        for name, tensor in whole(critic).items():
            assert name == head or tensor.equal(weights[name])
        heads.append(whole(critic)[head])
        assert heads[-1].equal(before)
        assert heads[-1].equal(heads[0])
    assert heads[0].shape == (1, 64)
    critic.save(folder / "critic")
    reward = AutoModelForSequenceClassification.from_pretrained(folder / "critic")
    assert reward.score.weight.float().equal(whole(critic)[head])


def loading_says_what_is_wrong(folder: Path) -> None:
    engine = build("pipeline2", training=None)
    before = whole(engine)
    with pytest.raises(FileNotFoundError, match="holds neither"):
        engine.load(folder / "nowhere")
    build("data2", head="scalar", training=None).save(folder / "headless")
    with pytest.raises(ValueError, match=r"lacks 1 tensors: lm_head.weight"):
        engine.load(folder / "headless")
    build("data2", vocab_size=128, training=None).save(folder / "narrow")
    with pytest.raises(ValueError, match=r"embed_tokens.weight of .* has shape \(128, 64\)"):
        engine.load(folder / "narrow")
    assert all(tensor.equal(before[name]) for name, tensor in whole(engine).items())


# State


def checkpoint(engine: MegatronEngine, folder: Path) -> None:
    dcp.save(engine.state(), checkpoint_id=folder)


def restore(engine: MegatronEngine, folder: Path) -> None:
    state = engine.state()
    dcp.load(state, checkpoint_id=folder)
    engine.load_state(state)


def resumes_bit_for_bit(
    layout: str, distributed_optimizer: bool, precision: str, folder: Path, family: str = "qwen2"
) -> None:
    """From the start and from the middle; writes what other layouts continue from."""
    settings = {"distributed_optimizer": distributed_optimizer, "precision": precision}
    name = f"{layout}_{distributed_optimizer}_{precision}"
    engine = build(layout, family, vocab_size=250, **settings)
    checkpoint(engine, folder / f"{name}_0")
    for step in range(2):
        engine.train_step(rows_under(250, engine, step), PolicyLoss())
    checkpoint(engine, folder / f"{name}_2")
    expected = engine.train_step(rows_under(250, engine, 2), PolicyLoss())
    after = whole(engine)
    for start in (2, 0):
        same = build(layout, family, vocab_size=250, **(settings | {"seed": 99}))
        restore(same, folder / f"{name}_{start}")
        for step in range(start, 3):
            got = same.train_step(rows_under(250, same, step), PolicyLoss())
        assert got == expected
        assert all(tensor.equal(after[each]) for each, tensor in whole(same).items())


def rows_under(vocab_size: int, engine: MegatronEngine, seed: int) -> Batch:
    """The same mini-batch for any layout: data ranks share the same six rows."""
    rows = random_rows(6, seed=seed, vocab_size=vocab_size)
    return rows.take(range(engine.place.data, 6, engine.layout.data_parallel_size))


def continues_from(source: str, layout: str, distributed_optimizer: bool, folder: Path) -> None:
    """On another layout, with the optimizer split or not; 1e-5 relative."""
    any_layout = "data2" if dist.get_world_size() == 2 else "tensor2_data2"
    first = whole(build(any_layout, "qwen2", vocab_size=250))
    plain = PlainTraining(config_of("qwen2", 250), first, OPTIMIZER)
    for step, rate in enumerate(RATES):
        expected = plain.step([random_rows(6, seed=step, vocab_size=250)], learning_rate=rate)
    settings = {"distributed_optimizer": distributed_optimizer, "seed": 99}
    engine = build(layout, "qwen2", vocab_size=250, **settings)
    restore(engine, folder / f"{source}_2")
    got = engine.train_step(rows_under(250, engine, 2), PolicyLoss())
    assert got.pop("learning_rate") == pytest.approx(RATES[2])
    assert got == pytest.approx(expected, rel=1e-5, abs=1e-6)
    after = whole(engine)
    for name, expected_weight in plain.weights().items():
        assert_near(after[name], expected_weight, 1e-5, name)


def a_state_of_another_model_is_refused(folder: Path) -> None:
    engine, twin = build("data2"), build("data2", seed=99)
    engine.train_step(own_rows(engine, seed=0), PolicyLoss())
    twin.load_state(engine.state())
    ours = engine.train_step(own_rows(engine, seed=1), PolicyLoss())
    assert ours == twin.train_step(own_rows(twin, seed=1), PolicyLoss())
    with pytest.raises(ValueError, match=r"of another model or layout: .*q_norm"):
        engine.load_state(build("data2", "qwen3").state())
    with pytest.raises(ValueError, match=r"another layout|another model or layout"):
        engine.load_state(build("data2", distributed_optimizer=True).state())
    with pytest.raises(ValueError, match="state lacks exp_avg, exp_avg_sq, progress"):
        engine.load_state(build("data2", training=None).state())


def saves_asynchronously(folder: Path) -> None:
    """While training goes on; what is saved is the state at the call."""
    engine = build("data2", distributed_optimizer=True)
    engine.train_step(own_rows(engine, seed=0), PolicyLoss())
    at_save = whole(engine)
    # Of its own: the thread that saves would mix its messages with those of training.
    group = dist.new_group(backend="gloo")
    place = folder / "asynchronous"
    saving = dcp.async_save(engine.state(), checkpoint_id=place, process_group=group)
    engine.train_step(own_rows(engine, seed=1), PolicyLoss())
    saving.result()
    again = build("data2", distributed_optimizer=True, seed=99)
    restore(again, place)
    assert all(tensor.equal(at_save[name]) for name, tensor in whole(again).items())


# Host memory


def offload_frees_storages_and_reload_brings_them_back(
    precision: str, distributed_optimizer: bool, folder: Path
) -> None:
    settings = {"precision": precision, "distributed_optimizer": distributed_optimizer}
    engine, twin = build("data2", **settings), build("data2", **settings)
    for each in (engine, twin):
        each.train_step(own_rows(each, seed=0), PolicyLoss())
    weights = [tensor for _, tensor in engine.parameters()]
    states = engine.optimizer_tensors()

    def held(tensors: list[Tensor]) -> int:
        storages = {each.untyped_storage().data_ptr(): each.untyped_storage() for each in tensors}
        return sum(each.nbytes() for each in storages.values())

    everything = held(weights + states)
    engine.offload("optimizer")
    assert held(states) == 0 < held(weights)
    engine.forward(own_rows(engine, seed=1), "log_probs")
    with pytest.raises(RuntimeError, match="optimizer of the model are on the host"):
        engine.train_step(own_rows(engine, seed=1), PolicyLoss())
    engine.offload("weights")
    assert held(states) == held(weights) == 0
    assert engine.offloaded_bytes() == everything
    with pytest.raises(RuntimeError, match="weights of the model are on the host"):
        engine.forward(own_rows(engine, seed=1), "log_probs")
    engine.reload(optimizer=False)
    gradients = [each.main_grad for _, each in engine.named_parameters()]  # type: ignore[attr-defined]
    assert held(states) == held(gradients) == 0 < held(weights)
    engine.forward(own_rows(engine, seed=1), "log_probs")
    with pytest.raises(RuntimeError, match="optimizer of the model are on the host"):
        engine.train_step(own_rows(engine, seed=1), PolicyLoss())
    engine.offload("weights")
    engine.reload()
    assert held(weights + states) == everything
    assert engine.offloaded_bytes() == 0
    ours = engine.train_step(own_rows(engine, seed=1), PolicyLoss())
    assert ours == twin.train_step(own_rows(twin, seed=1), PolicyLoss())
    assert all(tensor.equal(whole(twin)[name]) for name, tensor in whole(engine).items())


def _named(*functions: Case) -> dict[str, Case]:
    return {function.__name__: function for function in functions}


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
SPLIT = {"distributed_optimizer": True}

ON_TWO: dict[str, Case] = {
    **{
        f"scores_{layout}_{family}": partial(scores_like_transformers, layout, family)
        for layout in ("data2", "tensor2", "pipeline2")
        for family in ("llama", "qwen2", "qwen3")
    },
    "scores_llama3_rope": partial(scores_like_transformers, "tensor2", "llama", rope=LLAMA3),
    "scores_yarn_rope": partial(scores_like_transformers, "tensor2", "qwen3", rope=YARN),
    "scores_experts_data2": partial(scores_like_transformers, "data2", "mixtral"),
    "scores_experts_split": partial(scores_like_transformers, "data2_experts2", "mixtral"),
    "scores_experts_tensor2": partial(scores_like_transformers, "tensor2", "qwen3_moe"),
    "scores_padded_vocabulary": partial(
        scores_like_transformers, "tensor2", "qwen2", vocab_size=250
    ),
    "scores_pipeline2_uneven": partial(scores_like_transformers, "pipeline2", "llama", layers=3),
    "scores_pipeline2_interleaved": partial(
        scores_like_transformers,
        "pipeline2",
        "llama",
        layers=5,
        virtual_pipeline_parallel_size=2,
    ),
    **{
        f"values_and_scores_{layout}": partial(values_and_scores_like_transformers, layout)
        for layout in ("data2", "tensor2", "pipeline2")
    },
    **_named(a_rank_without_rows_takes_part, random_weights_depend_on_the_seed_alone),
    "trains_data2": partial(trains_like_one_process, "data2", "llama"),
    "trains_data2_split": partial(trains_like_one_process, "data2", "qwen2", **SPLIT),
    "trains_tensor2_sequence_parallel": partial(trains_like_one_process, "tensor2", "qwen3"),
    "trains_tensor2_by_rows": partial(
        trains_like_one_process, "tensor2", "qwen3", training=WHOLE_NORMS, **SPLIT
    ),
    "trains_tensor2_padded_vocabulary_full_recompute": partial(
        trains_like_one_process, "tensor2", "qwen2", vocab_size=259, recompute="full"
    ),
    "trains_tensor2_selective_recompute": partial(
        trains_like_one_process, "tensor2", "llama", recompute="selective"
    ),
    "trains_pipeline2": partial(trains_like_one_process, "pipeline2", "llama"),
    "trains_pipeline2_tied_split": partial(
        trains_like_one_process, "pipeline2", "qwen2", recompute="full", **SPLIT
    ),
    "trains_pipeline2_tied": partial(trains_like_one_process, "pipeline2", "qwen2"),
    "trains_pipeline2_interleaved": partial(
        trains_like_one_process,
        "pipeline2",
        "qwen2",
        layers=5,
        virtual_pipeline_parallel_size=2,
    ),
    "trains_data2_critic": partial(trains_like_one_process, "data2", "llama", head="scalar"),
    "trains_tensor2_critic": partial(trains_like_one_process, "tensor2", "qwen3", head="scalar"),
    "trains_tensor2_critic_by_rows": partial(
        trains_like_one_process, "tensor2", "qwen2", head="scalar", training=WHOLE_NORMS
    ),
    "trains_pipeline2_critic": partial(
        trains_like_one_process, "pipeline2", "qwen2", head="scalar"
    ),
    "trains_experts_pipeline2": partial(trains_like_one_process, "pipeline2", "qwen3_moe"),
    "trains_experts_tensor2": partial(
        trains_like_one_process, "tensor2", "qwen3_moe", recompute="full"
    ),
    "trains_experts_data2_experts2": partial(
        trains_like_one_process, "data2_experts2", "qwen3_moe"
    ),
    "trains_experts_data2_experts2_split": partial(
        trains_like_one_process, "data2_experts2", "qwen3_moe", **SPLIT
    ),
    "trains_experts_tensor2_experts2": partial(
        trains_like_one_process, "tensor2_experts2", "qwen3_moe"
    ),
    "bf16": partial(sixteen_bits_train_with_fp32_masters, "bf16", False),
    "bf16_split": partial(sixteen_bits_train_with_fp32_masters, "bf16", True),
    "fp16_split": partial(sixteen_bits_train_with_fp32_masters, "fp16", True),
    "not_finite_data2": partial(not_finite_ends_alike_and_changes_nothing, "data2", True),
    "not_finite_tensor2": partial(not_finite_ends_alike_and_changes_nothing, "tensor2", False),
    "not_finite_pipeline2": partial(not_finite_ends_alike_and_changes_nothing, "pipeline2", False),
    **_named(engines_of_unlike_layouts_take_turns, plain_torch_is_as_before, wrong_use_is_refused),
    "folders_data2_llama": partial(folders_go_both_ways, "data2", "llama", 256),
    "folders_tensor2_qwen2": partial(folders_go_both_ways, "tensor2", "qwen2", 250),
    "folders_pipeline2_qwen2": partial(folders_go_both_ways, "pipeline2", "qwen2", 256),
    "folders_tensor2_qwen3": partial(folders_go_both_ways, "tensor2", "qwen3", 256),
    "folders_data2_experts2": partial(folders_go_both_ways, "data2_experts2", "qwen3_moe", 256),
    **_named(a_critic_starts_from_a_language_model, loading_says_what_is_wrong),
    "resumes_data2_split": partial(resumes_bit_for_bit, "data2", True, "fp32"),
    "resumes_data2_split_bf16": partial(resumes_bit_for_bit, "data2", True, "bf16"),
    "resumes_tensor2": partial(resumes_bit_for_bit, "tensor2", False, "fp32"),
    "resumes_pipeline2_fp16": partial(resumes_bit_for_bit, "pipeline2", False, "fp16"),
    "resumes_experts_split": partial(
        resumes_bit_for_bit, "data2_experts2", True, "bf16", family="qwen3_moe"
    ),
    "data2_split_continues_on_tensor2": partial(
        continues_from, "data2_True_fp32", "tensor2", False
    ),
    "data2_split_continues_on_pipeline2": partial(
        continues_from, "data2_True_fp32", "pipeline2", True
    ),
    "tensor2_continues_on_data2_split": partial(
        continues_from, "tensor2_False_fp32", "data2", True
    ),
    **_named(a_state_of_another_model_is_refused, saves_asynchronously),
    "offload_fp32": partial(offload_frees_storages_and_reload_brings_them_back, "fp32", False),
    "offload_bf16_split": partial(offload_frees_storages_and_reload_brings_them_back, "bf16", True),
}

ON_FOUR: dict[str, Case] = {
    "scores_tensor4_shared_heads": partial(scores_like_transformers, "tensor4", "qwen3"),
    "trains_tensor4_shared_heads": partial(trains_like_one_process, "tensor4", "qwen2"),
    "folders_tensor4": partial(folders_go_both_ways, "tensor4", "qwen2", 250),
    "trains_tensor2_data2": partial(trains_like_one_process, "tensor2_data2", "llama"),
    "trains_tensor2_data2_split": partial(
        trains_like_one_process, "tensor2_data2", "qwen3", recompute="full", **SPLIT
    ),
    "trains_tensor2_data2_critic": partial(
        trains_like_one_process, "tensor2_data2", "qwen2", head="scalar", **SPLIT
    ),
    "trains_tensor2_pipeline2": partial(trains_like_one_process, "tensor2_pipeline2", "qwen2"),
    "trains_pipeline2_data2_interleaved_split": partial(
        trains_like_one_process,
        "pipeline2_data2",
        "qwen2",
        layers=4,
        virtual_pipeline_parallel_size=2,
        **SPLIT,
    ),
    "folders_tensor2_pipeline2": partial(folders_go_both_ways, "tensor2_pipeline2", "qwen2", 250),
    "resumes_tensor2_data2_split": partial(resumes_bit_for_bit, "tensor2_data2", True, "fp32"),
    "resumes_pipeline2_data2_split": partial(resumes_bit_for_bit, "pipeline2_data2", True, "bf16"),
    "tensor2_data2_continues_on_pipeline2_data2": partial(
        continues_from, "tensor2_data2_True_fp32", "pipeline2_data2", True
    ),
    "tensor2_data2_continues_on_tensor4": partial(
        continues_from, "tensor2_data2_True_fp32", "tensor4", False
    ),
    **{
        f"trains_{layout}{'_split' if split else ''}": partial(
            trains_like_one_process, layout, "qwen3_moe", distributed_optimizer=split
        )
        for layout in (
            "tensor2_data2_experts2",
            "tensor2_data2_experts4",
            "pipeline2_data2_experts2",
        )
        for split in (False, True)
    },
    "folders_tensor2_data2_experts2": partial(
        folders_go_both_ways, "tensor2_data2_experts2", "qwen3_moe", 256
    ),
    "data2_continues_on_tensor2_pipeline2": partial(
        continues_from, "data2_True_fp32", "tensor2_pipeline2", True
    ),
}
"""The last one reads what a case of ON_TWO wrote."""
