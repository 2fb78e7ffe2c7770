"""Where the weights of a rank are while it trains and generates in turn, on real engines."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, PreTrainedConfig

from automap.executor.batch import Batch, concatenate
from automap.executor.settings import RolloutSettings, RunSettings
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from tests.executor.engines.plain_training import PolicyLoss, tiny_config
from tests.executor.ranks import Case
from tests.executor.rollout.rollout_cases import (
    TOLERANCE,
    engine_of,
    generate,
    prompts_of,
    rows_of,
    tiny_model,
)
from tests.executor.small_plans import Place, small_plan

if TYPE_CHECKING:
    from automap.executor.rollout.vllm_rollout import VllmRollout

SETTINGS = RolloutSettings(temperature=0.7, max_running_sequences=16)


def generates_the_same_in_place(folder: Path, *, family: str) -> None:
    """Weights copied to where vLLM reads them give, bit by bit, what its own way of loading does.

    Its own is asked of the same kernels; those that pack differ by rounding.
    """
    from automap.executor.rollout.plain_weights import without_packing
    from automap.executor.rollout.weight_loading import load_weights

    config = tiny_config(family)
    config.initializer_range = 0.2  # far from uniform
    if family == "qwen2":
        config.hidden_size = 128  # from which Qwen2's head_dim follows; vLLM wants 32 at least
    with engine_of(config, [dist.get_rank()], SETTINGS) as engine:
        assert engine.plain is not None
        for seed in (1, 2):
            weights = tiny_model(config, seed=seed).state_dict()
            engine.load_weights(weights.items())
            ours = generate(engine, prompts_of())
            for each in engine.weights():
                each.data.fill_(torch.nan)
            with without_packing():
                load_weights(engine._runner, weights.items())
            theirs = generate(engine, prompts_of())
            assert rows_of(ours) == rows_of(theirs)
            log_probs = [each.ragged("response_log_probs").values for each in (ours, theirs)]
            assert torch.equal(*log_probs)
        sizes = engine.weight_bytes()
        assert sizes.prepacked == 0
        assert sizes.tensors == sum(each.nbytes for each in weights.values())


def plan_of(place: Place, **options: Any) -> Plan:
    """GRPO of a tiny Llama on two ranks."""
    return small_plan("grpo", {"actor": place, "reward": None}, kl="none", **options)


def holds_weights_once(
    folder: Path,
    *,
    place: Place,
    engine: str,
    precision: str = "fp32",
    lora_rank: int | None = None,
) -> None:
    """To generate, a rank holds its generation shard and nothing of the training shard besides.

    What it trains is bit by bit what it was when it trains again, and the engines agree. An
    adapter's base, and masters in another precision, stay.
    """
    trainer, rollout, config = built(
        plan_of(place, precision=precision, lora_rank=lora_rank), engine
    )
    generation = shard_bytes(config, place.generation_tensor, precision)
    stays = lora_rank is not None or (engine == "fsdp" and precision != "fp32")
    seen = []
    for step in range(3):
        before = {name: each.clone() for name, each in trainer.parameters()}
        storages = [each.untyped_storage() for each in trainer.weight_tensors()]
        training = sum({each._cdata: each.nbytes() for each in storages}.values())
        assert rollout.ledger.alive("training", "generation") == training
        rollout.start(changed=True)
        held = rollout.weight_bytes()
        assert held["packed_weights"] == 0
        assert held["generation_weights"] == generation + (training if stays else 0)
        largest = max(each.nbytes for each in rollout.vllm.weights())
        transit = rollout.ledger.peaks["bucket"] + rollout.ledger.peaks["assembly"] + largest
        # One storage with all that the distributed optimizer splits is emptied at the end.
        transit += training if place.sharding == "optimizer" else 0
        assert held["peak_weights"] <= held["generation_weights"] + transit
        own = prompts_of().take([dist.get_rank()] if place.generation_tensor == 1 else [0, 1])
        batch = rollout.generate(own, responses_per_prompt=2, greedy=False, iteration=step)
        rollout.stop()
        assert rollout.ledger.alive("training", "generation") == training
        for name, each in trainer.parameters():
            assert torch.equal(each, before[name]), name
        seen.append(rows_of(batch))
        rows = _rows_to_train_on(batch, place)
        if precision == "fp32":
            _agree(trainer, rows)
        _train_on(trainer, rows)
    assert seen[0] != seen[1] != seen[2]
    rollout.vllm.shutdown()


def trains_padding_too(folder: Path) -> None:
    """A vocabulary that both pad, at unlike places: what a rank cannot lend it keeps, unchanged."""
    plan = plan_of(T2_TO_T2)
    trainer, rollout, _ = built(plan, "megatron", vocab_size=200)
    kept = [each for name, each in trainer.parameters() if len(each) in (100, 104, 128)]
    for step in range(2):
        before = {name: each.clone() for name, each in trainer.parameters()}
        rollout.start(changed=True)
        training = rollout.ledger.alive("training")
        assert training <= sum(each.nbytes for each in kept)
        assert (training > 0) == (dist.get_rank() == 1), "rank 0 generates with all that it trains"
        rows = rollout.generate(prompts_of(), responses_per_prompt=2, greedy=False, iteration=step)
        rollout.stop()
        assert all(torch.equal(each, before[name]) for name, each in trainer.parameters())
        _agree(trainer, rows)
        _train_on(trainer, rows)
    rollout.vllm.shutdown()


def _agree(trainer: Any, rows: Batch) -> None:
    """The trainer finds the log-probabilities that vLLM has sampled with."""
    found = trainer.forward(rows, "log_probs", temperature=1.0).ragged("log_probs")
    error = (found.values - rows.ragged("response_log_probs").values).abs().max()
    assert error < TOLERANCE, f"vLLM and the trainer differ by {error:.1e}"


def _train_on(trainer: Any, rows: Batch) -> None:
    rows = rows.with_columns(
        advantages=rows.ragged("response_log_probs"), weight=torch.ones(rows.num_rows)
    )
    trainer.train_step(rows, PolicyLoss(), temperature=1.0)


def built(
    plan: Plan, engine: str, *, vocab_size: int | None = None
) -> "tuple[Any, VllmRollout, PreTrainedConfig]":
    """Both engines of the actor as a run builds them on this rank, and the model's config."""
    from automap.executor.engines.random_model import config_of
    from automap.executor.run.factories import FACTORIES
    from automap.executor.workers.model_setup import model_setups
    from automap.executor.workers.process import ProcessContext

    optimizer = {"learning_rate": 1e-2}
    settings = RunSettings.model_validate(
        {
            "data": {"path": "unused"},
            "training": {"actor": {"engine": engine, "optimizer": optimizer}},
        }
    )
    setup = model_setups(resolve(plan.spec), plan.placement(), settings)["actor"]
    if vocab_size is not None:
        changed = {"vocab_size": vocab_size}
        setup = replace(setup, architecture=setup.architecture.model_copy(update=changed))
    context = ProcessContext(dist.get_rank(), dist.get_world_size(), "test")
    trainer = FACTORIES.build_engine(setup, context)
    rollout = FACTORIES.build_rollout(setup, context, trainer)
    return trainer, cast("VllmRollout", rollout), config_of(setup.architecture)


def shard_bytes(config: PreTrainedConfig, tensor_ranks: int, precision: str) -> int:
    """Of the model's matrices a rank generates with its share, of vectors with all."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    size = {"fp32": 4, "bf16": 2}[precision]
    return sum(
        size * each.numel() // (tensor_ranks if each.ndim == 2 else 1)
        for each in model.parameters()
    )


def _rows_to_train_on(batch: Batch, place: Place) -> Batch:
    """Tensor ranks train on the rows of both replicas, data ranks on their own."""
    both: list[Batch] = [batch, batch]
    dist.all_gather_object(both, batch)
    if place.generation_tensor == 2:
        assert rows_of(both[0]) == rows_of(both[1])
        return batch if place.tensor == 2 else batch.take(range(dist.get_rank(), 4, 2))
    return concatenate(both) if place.tensor == 2 else batch


T2 = Place(0, 2, tensor=2)
T2_TO_T2 = Place(0, 2, tensor=2, generation_tensor=2)
D2 = Place(0, 2)
F2 = Place(0, 2, sharding="full")
ONCE: dict[str, Case] = {
    "once_megatron_t2_to_t1": partial(holds_weights_once, place=T2, engine="megatron"),
    "once_megatron_d2_optimizer_bf16": partial(
        holds_weights_once,
        place=Place(0, 2, sharding="optimizer"),
        engine="megatron",
        precision="bf16",
    ),
    "once_megatron_t2_padded": trains_padding_too,
    "once_fsdp_d2": partial(holds_weights_once, place=F2, engine="fsdp"),
    "once_fsdp_d2_lora": partial(holds_weights_once, place=F2, engine="fsdp", lora_rank=4),
}
MORE_ONCE: dict[str, Case] = {
    "once_megatron_t2_to_t2_bf16": partial(
        holds_weights_once, place=T2_TO_T2, engine="megatron", precision="bf16"
    ),
    "once_megatron_d2": partial(holds_weights_once, place=D2, engine="megatron"),
    "once_fsdp_d2_bf16": partial(holds_weights_once, place=F2, engine="fsdp", precision="bf16"),
}


def _in_place(*families: str) -> dict[str, Case]:
    return {
        f"in_place_{family}": partial(generates_the_same_in_place, family=family)
        for family in families
    }


ON_TWO: dict[str, Case] = _in_place("llama", "qwen2") | ONCE
MORE_ON_TWO: dict[str, Case] = _in_place("qwen3") | MORE_ONCE
