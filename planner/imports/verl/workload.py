"""The job of a launch: its algorithm, models, batches, lengths and cluster, as a spec."""

import re
from dataclasses import replace
from typing import Any

from automap.planner.catalogue.hardware import NodeType
from automap.planner.exports.refusals import PRECISIONS
from automap.planner.exports.verl.role_settings import OPTIMIZERS
from automap.planner.imports.algorithms import algorithm_named
from automap.planner.imports.answers import architecture_of, lengths_of, need_known_models
from automap.planner.imports.host_optimizer import host_optimizer
from automap.planner.imports.launch import Answers
from automap.planner.imports.pools import Pools
from automap.planner.imports.settings import Settings
from automap.planner.imports.verl.entries import generated
from automap.planner.spec import JobSpec

PRICED_AS = {
    "rloo_vectorized": "rloo",
    "grpo_vectorized": "grpo",
    "grpo_passk": "grpo",
    "gpg": "grpo",
    "opo": "grpo",
    "gdpo": "grpo",
    "optimal_token_baseline": "grpo",
    "tir_optimal_token_baseline": "grpo",
    "reinforce_plus_plus_baseline": "reinforce_plus_plus",
}
"""Other estimates → the algorithm that makes the same calls."""
MAX_STALENESS = 16
BY_ITSELF = "in float16 verl has a precision-aware optimizer by itself"
"""Source: verl 0.9.1, `init_megatron_optim_config` in verl/utils/megatron/optimizer.py."""


def algorithm_of(settings: Settings) -> str:
    """The algorithm of a launch."""
    name, advantage = algorithm_named(settings, PRICED_AS), settings.text("advantage")
    dynamic = settings.flag("dynamic_sampling")
    for clip in ("clip_low", "clip_high"):
        settings.needless(clip)
    if dynamic and name == "grpo":
        if generated(settings.overrides) is None:
            told = "dynamic sampling keeps every prompt (workload.expected_acceptance: 1.0)"
            settings.assume(told)
        name = "dapo"
    with_critic = settings.value("with_critic")
    if with_critic is not None and bool(with_critic) != (name == "ppo"):
        given = settings.given("with_critic")
        told = (
            f"critic.enable is {with_critic}, and {advantage} has {'a' if name == 'ppo' else 'no'}"
        )
        settings.note("contradiction", f"{told} critic: priced as {name}", given)
    return name


def spec_of(settings: Settings, answers: Answers, pools: Pools, node: NodeType) -> JobSpec:
    """The spec of a launch; what is missing is asked for, and stands in for itself.

    Raises:
        ValidationError: the settings contradict one another in a way that only the spec tells.
    """
    algorithm = algorithm_of(settings)
    kl = _kl(settings)
    document: dict[str, Any] = {
        "name": _name(settings),
        "algorithm": algorithm,
        "models": _models(settings, answers, algorithm, kl),
        "workload": _workload(settings, answers, algorithm, kl),
        "cluster": {"pools": [pools.spec(answers.gpu, node)]},
        "search": _search(settings, pools),
    }
    return JobSpec.model_validate(document)


def _name(settings: Settings) -> str:
    given = settings.given("name")
    if given is None or given.unknown is not None:
        return "imported"
    return str(settings.value("name") or "imported").strip()[:200] or "imported"


def _kl(settings: Settings) -> str:
    in_reward, in_loss = settings.flag("kl_in_reward"), settings.flag("kl_in_loss")
    for coefficient in ("kl_coefficient", "kl_loss_coefficient"):
        settings.needless(coefficient)
    if in_reward and in_loss:
        told = "the KL divergence is in the reward and in the loss: priced once, in the reward"
        settings.note("contradiction", told, settings.given("kl_in_loss"))
    return "reward" if in_reward else "loss" if in_loss else "none"


def _models(settings: Settings, answers: Answers, algorithm: str, kl: str) -> dict[str, Any]:
    actor = {"architecture": architecture_of(settings, answers, "actor")}
    rank = settings.whole("lora_rank", "actor", least=0)
    found: dict[str, Any] = {"actor": actor | ({"lora": {"rank": rank}} if rank else {})}
    if kl != "none" and not rank:
        found["reference"] = dict(actor)
    if algorithm == "ppo":
        critic: dict[str, Any] = {"architecture": architecture_of(settings, answers, "critic")}
        rank = settings.whole("lora_rank", "critic", least=0)
        found["critic"] = critic | ({"lora": {"rank": rank}} if rank else {})
    found["reward"] = {"function": True}
    if settings.flag("with_reward_model"):
        found["reward"] = {"architecture": architecture_of(settings, answers, "reward")}
    else:
        settings.needless("reward_function")
        settings.assume("the reward is a function that takes no time (models.reward)")
    need_known_models(settings, answers, found)
    for role in ("actor", "critic"):
        if "lora" in found.get(role, {}):
            _note_lora_modules(settings, role)
    return found


def _note_lora_modules(settings: Settings, role: str) -> None:
    """Adapters are priced on every layer."""
    if not settings.knows("lora_modules", role):  # FSDP has them on every layer
        return
    given = settings.given("lora_modules", role)
    if given is None:
        return
    named = re.findall(r"\w+", str(settings.value("lora_modules", role)))
    # Into the mixer go one layer, or several of a latent attention.
    if not {"linear_proj", "linear_fc1", "linear_fc2"} < set(named):
        told = f"{settings.key('lora_modules', role)} is {', '.join(named)}: priced as on every"
        settings.note("not priced", f"{told} layer", given)


def _workload(settings: Settings, answers: Answers, algorithm: str, kl: str) -> dict[str, Any]:
    prompts, updates = _updates(settings)
    found: dict[str, Any] = {
        "prompts_per_iteration": prompts,
        "responses_per_prompt": settings.size("responses_per_prompt"),
        "prompt_length": lengths_of(settings, answers.prompt_length, "prompt").model_dump(
            exclude_none=True
        ),
        "response_length": lengths_of(settings, answers.response_length, "response").model_dump(
            exclude_none=True
        ),
        "updates_per_epoch": updates,
        "epochs": _epochs(settings),
        "kl": kl,
        "packed_sequences": settings.flag("packed", "actor"),
        **_precisions(settings),
        **_run(settings),
    }
    trained = ("actor", "critic") if algorithm == "ppo" else ("actor",)
    found |= host_optimizer(
        settings,
        found["optimizer"],
        trained,
        precision_aware={role: BY_ITSELF for role in trained if _trains_in_fp16(settings, role)},
    )
    at_once = generated(settings.overrides)
    if algorithm == "dapo" and at_once is not None and at_once > prompts:
        found["expected_acceptance"] = prompts / at_once
        told = f"one generation of {at_once:g} prompts fills a batch (workload.expected_acceptance)"
        settings.assume(told)
    if algorithm == "ppo":
        _note_critic(settings)
    settings.needless("longer_prompts")
    bypass = settings.flag("old_log_probs_of_rollout")
    read = algorithm not in ("remax", "rloo") or kl == "reward"
    if bypass and read:
        found["old_log_probs"] = "rollout"
    if not bypass and not read:
        settings.assume(f"{algorithm} needs no log-probabilities before the update: not priced")
    settings.needless("tools")
    settings.needless("agent_loop")
    if settings.flag("with_turns"):
        found["turns"] = settings.whole("turns") or 1
        settings.assume(
            f"every response has {found['turns']} turns, and the environment takes no time "
            "(workload.turns, environment_seconds_per_turn)"
        )
    return found


def _updates(settings: Settings) -> tuple[int, int]:
    """Prompts of an iteration, and optimizer steps over them."""
    prompts, mini = settings.size("prompts"), settings.size("mini_batch", "actor")
    if mini > prompts:
        told = f"a mini-batch of {mini} prompts is more than the batch of {prompts}"
        remedy = f"give at most {prompts}, or a larger {settings.key('prompts')}"
        settings.refuse(f"{settings.where('mini_batch', 'actor')}: {told}", remedy)
        return prompts, 1
    if prompts % mini:
        told = f"{mini} prompts do not divide the batch of {prompts}: the rest is not trained on"
        settings.note("contradiction", told, settings.given("mini_batch", "actor"))
    return prompts, max(prompts // mini, 1)


def _epochs(settings: Settings) -> int:
    return settings.size("epochs", "actor")


def _note_critic(settings: Settings) -> None:
    """A critic that is updated otherwise than the actor, which no price has."""
    for decision in ("epochs", "mini_batch"):
        of_critic, of_actor = settings.size(decision, "critic"), settings.size(decision, "actor")
        if of_critic != of_actor:
            told = (
                f"{settings.key(decision, 'critic')} is {of_critic}, and the actor's is "
                f"{of_actor}: the critic's updates are priced as the actor's"
            )
            settings.note("not priced", told, settings.given(decision, "critic"))


def _trains_in_fp16(settings: Settings, role: str) -> bool:
    """Whether a model computes in fp16; the critic's precision decides nothing of the price."""
    looked_up = replace(settings, reasons=[], remarks=[], decides={})
    return looked_up.text("precision", role) in ("fp16", PRECISIONS["fp16"])


def _precisions(settings: Settings) -> dict[str, Any]:
    names = {theirs: ours for ours, theirs in PRECISIONS.items()} | {
        ours: ours for ours in PRECISIONS
    }
    found: dict[str, Any] = {}
    precision = settings.text("precision", "actor")
    if precision not in names:
        told = f"{settings.where('precision', 'actor')} is {precision[:40]!r}"
        settings.refuse(told, f"known: {', '.join(names)}")
    found["precision"] = names.get(precision, "bf16")
    settings.value("precision", "rollout")
    engine = settings.text("generation_engine", "rollout")
    if engine not in ("vllm", "sglang", "trtllm"):
        key = settings.key("generation_engine", "rollout")
        known = "vllm, sglang, trtllm"
        if settings.given("generation_engine", "rollout") is None:
            settings.ask(f"{key} is not set", f"--set {key}=vllm (or sglang, trtllm)")
        else:
            where = settings.where("generation_engine", "rollout")
            settings.refuse(f"{where} is {engine[:40]!r}", f"known: {known}")
        engine = "vllm"
    found["rollout_engine"] = engine
    quantised = settings.value("rollout_precision", "rollout")
    if quantised is not None and str(quantised) in ("fp8", "torchao_fp8"):
        found["rollout_precision"] = "fp8"
    elif quantised is not None:
        told = f"{quantised} weights while it generates are priced as those of training"
        settings.note("saves memory", told, settings.given("rollout_precision", "rollout"))
    if "fp8" in settings.text("cache_precision", "rollout"):
        found["rollout_cache_precision"] = "fp8"
    chosen = settings.text("optimizer", "actor")
    known_optimizers = {
        theirs: ours for (engine, ours), theirs in OPTIMIZERS.items() if engine == settings.engine
    }
    if chosen not in known_optimizers:
        told = f"the optimizer {chosen[:40]} is priced as {known_optimizers and 'adam'}"
        settings.note("saves memory", told, settings.given("optimizer", "actor"))
    found["optimizer"] = known_optimizers.get(chosen, "adam")
    return found


def _run(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    steps = settings.whole("iterations") if settings.needless("iterations") else None
    settings.needless("passes_over_prompts")
    if steps is None:
        settings.assume(
            "one iteration: how many prompts there are is not known (trainer.total_epochs)"
        )
    else:
        found["iterations"] = steps
    every = settings.whole("checkpoints", least=-1) if settings.needless("checkpoints") else None
    if every is not None and every > 0:
        found["checkpoint_every_iterations"] = every
        settings.assume("a checkpoint takes no time (workload.checkpoint_seconds)")
    known = settings.needless("validation")
    validates = (settings.whole("validation", least=-1) or 0) if known else 1
    first = settings.needless("validation_first") and settings.flag("validation_first")
    if validates > 0 or first:
        settings.note("not priced", "validation runs, which no price has")
    for decision in ("critic_warmup", "logger", "project", "train_files", "validation_files"):
        settings.decides.setdefault(settings.key(decision), "the run")
    return found


def _search(settings: Settings, pools: Pools) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if pools.apart:
        staleness = settings.whole("staleness", least=0) or 0
        if staleness > MAX_STALENESS:
            told = f"{settings.where('staleness')}: more than {MAX_STALENESS} batches"
            settings.refuse(told, f"give at most {MAX_STALENESS}")
        found["staleness"] = min(staleness, MAX_STALENESS)
        for decision in ("version_span", "stale_responses", "syncs", "weight_transfer"):
            settings.needless(decision)
        _note_waits(settings, found["staleness"])
    return found


def _note_waits(settings: Settings, staleness: int) -> None:
    """Note stale responses that nothing waits for: the price has batches wait."""
    strategy = settings.value("stale_responses")
    span = settings.whole("version_span")
    if staleness < 2 or (strategy == "wait" and span is not None and span <= staleness + 1):
        return
    told = (
        f"{settings.where('stale_responses')}: batches do not wait for responses older than "
        f"{staleness} iterations, as the price has it: it may be too slow where few responses are "
        "very long"
    )
    settings.note("not priced", told, settings.given("stale_responses"))
