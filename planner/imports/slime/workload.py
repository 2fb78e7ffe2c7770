"""The job of a slime launch: algorithm, models, batches, lengths."""

from typing import Any

from automap.planner.catalogue.hardware import NodeType
from automap.planner.imports.algorithms import algorithm_named
from automap.planner.imports.answers import lengths_of, need_known_models
from automap.planner.imports.host_optimizer import host_optimizer
from automap.planner.imports.launch import Answers
from automap.planner.imports.pools import Pools
from automap.planner.imports.settings import Settings
from automap.planner.imports.slime.commands import PROGRAMS
from automap.planner.imports.slime.models import actor_of
from automap.planner.spec import JobSpec, LengthSpec

PRICED_AS = {
    "gspo": "grpo",
    "cispo": "grpo",
    "reinforce_plus_plus_baseline": "reinforce_plus_plus",
}
"""Other estimates of advantages → the algorithm that makes the same calls."""
LONGER_THAN_MEAN = 8
"""Mean lengths that a prompt is taken to have at most where the launch has no limit."""


def spec_of(settings: Settings, answers: Answers, pools: Pools, node: NodeType) -> JobSpec:
    """The spec of a launch; what is missing is asked for, and stands in for itself.

    Raises:
        ValidationError: the settings contradict one another in a way that only the spec tells.
    """
    algorithm, kl = _algorithm(settings), _kl(settings)
    document: dict[str, Any] = {
        "name": "imported",
        "algorithm": algorithm,
        "models": _models(settings, answers, algorithm, kl),
        "workload": _workload(settings, answers, algorithm, kl),
        "cluster": {"pools": [pools.spec(answers.gpu, node)]},
        "search": _search(settings, pools),
    }
    return JobSpec.model_validate(document)


def _models(settings: Settings, answers: Answers, algorithm: str, kl: str) -> dict[str, Any]:
    actor = {"architecture": actor_of(settings, answers)}
    found: dict[str, Any] = {"actor": actor}
    if kl != "none":
        found["reference"] = actor
    if algorithm == "ppo":
        named = answers.models.get("critic")
        own = named if named is None or isinstance(named, str) else named.model_dump(mode="json")
        found["critic"] = actor if own is None else {"architecture": own}
    settings.needless("start_weights")
    for role in ("reference", "critic"):
        settings.needless("weights", role)
    found["reward"] = {"function": True}
    settings.needless("reward_function")
    settings.needless("reward_type")
    settings.assume("the reward is a function that takes no time (models.reward)")
    need_known_models(settings, answers, found)
    return found


def _algorithm(settings: Settings) -> str:
    name = algorithm_named(settings, PRICED_AS)
    for clip in ("clip_low", "clip_high"):
        settings.needless(clip)
    settings.needless("dynamic_sampling")
    filters = settings.given("dynamic_sampling") is not None
    return "dapo" if filters and name == "grpo" else name


def _kl(settings: Settings) -> str:
    """Where the divergence is; a coefficient that is not known is above 0."""
    in_loss = settings.flag("kl_in_loss")
    settings.needless("kl_loss_coefficient")
    known = settings.needless("kl_coefficient")
    value = settings.value("kl_coefficient") if known else 1.0
    in_reward = value not in (0, None)
    if in_reward and in_loss:
        told = "the KL divergence is in the reward and in the loss: priced once, in the reward"
        settings.note("contradiction", told, settings.given("kl_in_loss"))
    return "reward" if in_reward else "loss" if in_loss else "none"


def _workload(settings: Settings, answers: Answers, algorithm: str, kl: str) -> dict[str, Any]:
    prompts = settings.size("prompts")
    if settings.given("prompts") is None:
        key = settings.key("prompts")
        settings.ask(f"{key} is not set", f"--set {key}=…")
    responses = settings.size("responses_per_prompt")
    response = lengths_of(settings, answers.response_length, "response")
    prompt = _prompts(settings, answers, response)
    found: dict[str, Any] = {
        "prompts_per_iteration": prompts,
        "responses_per_prompt": responses,
        "prompt_length": prompt.model_dump(exclude_none=True),
        "response_length": response.model_dump(exclude_none=True),
        "updates_per_epoch": _updates(settings, prompts * responses),
        "kl": kl,
        "precision": "bf16",
        "rollout_engine": "sglang",
        "optimizer": _optimizer(settings),
    }
    found |= host_optimizer(settings, found["optimizer"])
    if settings.flag("old_log_probs_of_rollout"):
        found["old_log_probs"] = "rollout"
    at_once = settings.whole("generated_prompts")
    if algorithm == "dapo" and at_once is not None and at_once > prompts:
        found["expected_acceptance"] = prompts / at_once
        told = f"one generation of {at_once} prompts fills a batch (workload.expected_acceptance)"
        settings.assume(told)
    elif algorithm == "dapo":
        settings.assume("dynamic sampling keeps every prompt (workload.expected_acceptance: 1.0)")
    settings.needless("turns_function")
    if settings.given("turns_function") is not None:
        told = "a function of one's own generates: priced as one turn (workload.turns)"
        settings.note("not priced", told, settings.given("turns_function"))
    if not settings.flag("balanced"):
        settings.assume("data ranks have equally many tokens, as with --balance-data")
    return found | _run(settings)


def _optimizer(settings: Settings) -> str:
    named = settings.text("optimizer")
    if named in ("adam", "sgd"):
        return named
    told = f"the optimizer {named[:40]} is priced as adam"
    settings.note("saves memory", told, settings.given("optimizer"))
    return "adam"


def _prompts(settings: Settings, answers: Answers, response: LengthSpec) -> LengthSpec:
    """Lengths of prompts: their limit, what the context leaves of it, or some means."""
    given, whole = answers.prompt_length, settings.whole("longest_sequence")
    longest = settings.whole("prompt_length")
    if longest is None and whole is not None and whole > response.max_tokens:
        longest = whole - response.max_tokens
    if longest is None and given is not None and given.mean is not None and given.max is None:
        longest = int(LONGER_THAN_MEAN * given.mean)
        told = f"prompts end at {longest} tokens, {LONGER_THAN_MEAN} times their mean"
        settings.assume(f"{told}: the launch has no limit (--rollout-max-prompt-len)")
    return lengths_of(settings, given, "prompt", longest or 2048)


def _updates(settings: Settings, sequences: int) -> int:
    """Optimizer steps of an iteration."""
    batch, updates = settings.whole("mini_batch"), settings.whole("updates")
    key = settings.key("mini_batch")
    remedy = f"give what divides the {sequences} sequences of an iteration"
    if batch is None and updates is None:
        settings.ask(f"{key} is not set, and neither is --num-steps-per-rollout", f"--set {key}=…")
        return 1
    if batch is not None and updates is not None and batch * updates != sequences:
        told = f"× {settings.key('updates')} is {batch * updates}, of {sequences} sequences"
        settings.refuse(f"{settings.where('mini_batch')} {told}", remedy)
        return 1
    if sequences % (batch or updates or 1):
        decision = "updates" if batch is None else "mini_batch"
        told = f"{settings.where(decision)} is {batch or updates}"
        settings.refuse(f"{told}, which does not divide {sequences} sequences", remedy)
        return 1
    return updates or sequences // (batch or 1)


def _run(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    iterations = settings.whole("iterations") if settings.needless("iterations") else None
    if iterations is None:
        settings.assume("one iteration: how many prompts there are is not known (--num-epoch)")
    else:
        found["iterations"] = iterations
    settings.needless("epochs_of_prompts")
    every = settings.whole("checkpoints") if settings.needless("checkpoints") else None
    if every is not None:
        found["checkpoint_every_iterations"] = every
        settings.assume("a checkpoint takes no time (workload.checkpoint_seconds)")
    for decision in ("save", "train_files", "prompt_field", "label_field", "chat_template"):
        settings.decides.setdefault(settings.key(decision), "the run")
    return found


def _search(settings: Settings, pools: Pools) -> dict[str, Any]:
    interval = settings.whole("syncs") or 1
    if interval > 1:
        told = f"weights are sent every {interval} iterations: priced as after each"
        settings.note("not priced", told, settings.given("syncs"))
    if settings.overrides.entry == PROGRAMS[1] and pools.apart:
        settings.assume(f"{PROGRAMS[1]} generates one iteration ahead (search.staleness: 1)")
        return {"staleness": 1}
    return {}
