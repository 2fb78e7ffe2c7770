"""The job of an AReaL launch: algorithm, models, batches, lengths."""

from typing import Any

from automap.planner.catalogue.hardware import NodeType
from automap.planner.exports.refusals import PRECISIONS
from automap.planner.imports.answers import architecture_of, lengths_of, need_known_models
from automap.planner.imports.areal.backends import Backend
from automap.planner.imports.launch import Answers
from automap.planner.imports.pools import Pools
from automap.planner.imports.settings import Settings
from automap.planner.spec import JobSpec, LengthSpec

MAX_STALENESS = 16


def roles_of(settings: Settings) -> list[str]:
    """The models of a launch that have GPUs."""
    found = ["actor"]
    if _has_reference(settings):
        found.append("reference")
    return [*found, "critic"] if _has(settings, "critic") else found


def spec_of(
    settings: Settings, answers: Answers, pools: Pools, node: NodeType, engine: Backend
) -> JobSpec:
    """The spec of a launch; what is missing is asked for, and stands in for itself.

    Raises:
        ValidationError: the settings contradict one another in a way that only the spec tells.
    """
    algorithm = _algorithm(settings)
    document: dict[str, Any] = {
        "name": "imported",
        "algorithm": algorithm,
        "models": _models(settings, answers),
        "workload": _workload(settings, answers, algorithm, engine),
        "cluster": {"pools": [pools.spec(answers.gpu, node)]},
        "search": _search(settings, apart=pools.apart),
    }
    return JobSpec.model_validate(document)


def _has(settings: Settings, section: str) -> bool:
    """Whether a section of the configuration is there, and not null."""
    return any(key.startswith(f"{section}.") for key in settings.overrides.given)


def _has_reference(settings: Settings) -> bool:
    """Whether the divergence has a coefficient; one that is not known is above 0."""
    known = settings.needless("kl_coefficient")
    none = known and settings.value("kl_coefficient") in (0, None)
    if none and _has(settings, "ref"):
        told = f"a reference has no effect with {settings.key('kl_coefficient')} 0"
        settings.note("without effect", told, settings.given("backend", "reference"))
    return _has(settings, "ref") and not none


def _models(settings: Settings, answers: Answers) -> dict[str, Any]:
    actor = {"architecture": architecture_of(settings, answers, "actor")}
    found: dict[str, Any] = {"actor": actor, "reward": {"function": True}}
    settings.assume("the reward is a function that takes no time (models.reward)")
    for role in roles_of(settings)[1:]:
        settings.needless("model", role)
        stated = settings.given("model", role) is not None or role in answers.models
        found[role] = actor
        if stated and not (role == "reference" and role not in answers.models):
            found[role] = {"architecture": architecture_of(settings, answers, role)}
    need_known_models(settings, answers, found)
    if _has(settings, "critic") and not settings.flag("value_head", "critic"):
        told = f"{settings.where('value_head', 'critic')} is not true: it has no values"
        settings.note("does not fit", told, settings.given("backend", "critic"))
    return found


def _algorithm(settings: Settings) -> str:
    """By the calls that there are, and what rewards are compared with."""
    over = settings.text("reward_mean") if _has(settings, "actor.reward_norm") else ""
    alone = over == "group" and settings.flag("reward_without_own")
    advantages = settings.text("advantage_mean") if _has(settings, "actor.adv_norm") else ""
    decisions = ["reward_deviation", "reward_group", "advantage_deviation", "advantage_group"]
    for decision in (*decisions, "reward_without_own"):
        settings.needless(decision)
    if _has(settings, "critic"):
        return "ppo"
    if "group" not in (over, advantages):
        return "reinforce_plus_plus"
    if alone and settings.whole("staleness", least=0):
        told = "rloo with older weights has the ratio of AReaL's loss: priced as grpo, whose calls"
        settings.note("assumed", f"{told} it makes", settings.given("reward_without_own"))
        return "grpo"
    return "rloo" if alone else "grpo"


def _workload(
    settings: Settings, answers: Answers, algorithm: str, engine: Backend
) -> dict[str, Any]:
    prompts, responses = settings.size("prompts"), settings.size("responses_per_prompt")
    if algorithm in ("grpo", "rloo") and responses == 1:
        told = f"{settings.where('responses_per_prompt')} is 1, and {algorithm} compares responses"
        settings.refuse(told, "give more than 1")
        responses = 2
    _note_batches(settings, prompts)
    prompt, response = _lengths(settings, answers)
    again = settings.flag("log_probs_again") or settings.flag("decoupled_loss")
    return {
        "prompts_per_iteration": prompts,
        "responses_per_prompt": responses,
        "prompt_length": prompt.model_dump(exclude_none=True),
        "response_length": response.model_dump(exclude_none=True),
        "updates_per_epoch": _updates(settings),
        "kl": "reward" if _has_reference(settings) else "none",
        "old_log_probs": "recompute" if again else "rollout",
        "precision": _precision(settings),
        "rollout_engine": engine.engine,
        "optimizer": _optimizer(settings),
        **_run(settings),
    }


def _note_batches(settings: Settings, prompts: int) -> None:
    """Note a batch by which what is generated is bounded, and which is not what is trained on."""
    consumed = settings.size("consumed")
    if consumed != prompts:
        told = (
            f"{settings.where('consumed')} is {consumed}, and {settings.key('prompts')} {prompts}: "
            "what is generated ahead is bounded by the first"
        )
        settings.note("contradiction", told, settings.given("consumed"))


def _updates(settings: Settings) -> int:
    found = settings.size("updates", "actor")
    if _has(settings, "critic") and (own := settings.size("updates", "critic")) != found:
        told = f"{settings.where('updates', 'critic')} is {own}: priced as the actor's {found}"
        settings.note("not priced", told, settings.given("updates", "critic"))
    return found


def _lengths(settings: Settings, answers: Answers) -> tuple[LengthSpec, LengthSpec]:
    """Lengths of prompts and responses; prompts without a limit fill what an engine takes."""
    whole = settings.size("longest_sequence", "rollout")
    together = settings.size("sequence_length")
    longest = settings.size("response_length")
    prompt = settings.whole("prompt_length")
    if prompt is None:
        prompt = max(min(whole, together) - longest, 1)
        key = settings.key("prompt_length")
        settings.assume(f"prompts have at most {prompt} tokens: {key} is not set")
    return (
        lengths_of(settings, answers.prompt_length, "prompt", prompt),
        lengths_of(settings, answers.response_length, "response", longest),
    )


def _precision(settings: Settings) -> str:
    names = {theirs: ours for ours, theirs in PRECISIONS.items()}
    names |= {ours: ours for ours in PRECISIONS} | {"float32": "fp32", "fp32": "fp32"}
    precision = settings.text("precision", "actor")
    if precision not in names:
        told = f"{settings.where('precision', 'actor')} is {precision[:40]!r}"
        settings.refuse(told, f"known: {', '.join(names)}")
    settings.text("precision", "rollout")
    return names.get(precision, "bf16")


def _optimizer(settings: Settings) -> str:
    for role in ("actor", "critic"):
        if _has(settings, role) and (named := settings.text("optimizer", role)) != "adam":
            told = f"the optimizer {named[:40]} is priced as adam"
            settings.note("saves memory", told, settings.given("optimizer", role))
        settings.needless("learning_rate", role)
    return "adam"


def _run(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if settings.needless("iterations") and settings.given("iterations") is not None:
        found["iterations"] = settings.size("iterations")
    else:
        settings.assume(f"one iteration: {settings.key('iterations')} is not set")
    every = settings.whole("checkpoints", least=0) if settings.needless("checkpoints") else None
    if every:
        found["checkpoint_every_iterations"] = every
        settings.assume("a checkpoint takes no time (workload.checkpoint_seconds)")
    decided = ("passes_over_prompts", "train_files", "prompts_kind", "folder", "experiment")
    for decision in (*decided, "trial", "meeting_place", "scheduler", "tokenizer"):
        settings.needless(decision)
    return found


def _search(settings: Settings, *, apart: bool) -> dict[str, Any]:
    older = settings.whole("staleness", least=0) or 0
    if not older:
        return {}
    if not apart:
        told = f"{settings.where('staleness')}: generation takes turns with training all the same"
        settings.note("not priced", told, settings.given("staleness"))
        return {}
    if older > MAX_STALENESS:
        told = f"{settings.where('staleness')}: more than {MAX_STALENESS} iterations"
        settings.refuse(told, f"give at most {MAX_STALENESS}")
    return {"staleness": min(older, MAX_STALENESS)}
