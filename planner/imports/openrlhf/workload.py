"""The job of an OpenRLHF launch: algorithm, models, batches, lengths."""

from typing import Any

from automap.planner.catalogue.hardware import NodeType
from automap.planner.imports.algorithms import algorithm_named
from automap.planner.imports.answers import architecture_of, lengths_of, need_known_models
from automap.planner.imports.launch import Answers
from automap.planner.imports.pools import Pools
from automap.planner.imports.settings import Settings
from automap.planner.spec import JobSpec, LengthSpec

PRICED_AS = {
    "dr_grpo": "grpo",
    "reinforce_baseline": "reinforce_plus_plus",
    "flash_reinforce": "reinforce_plus_plus",
}
"""Other estimates of advantages → the algorithm that makes the same calls."""
NO_LIMIT = 100_000_000
"""Prompts that are read by default, which says nothing of how many there are."""


def roles_of(settings: Settings) -> list[str]:
    """The models of a launch that have GPUs."""
    found = ["actor"]
    if _has_reference(settings):
        found.append("reference")
    if settings.text("advantage") == "gae":
        found.append("critic")
    return [*found, "reward"] if _has_reward(settings) else found


def spec_of(settings: Settings, answers: Answers, pools: Pools, node: NodeType) -> JobSpec:
    """The spec of a launch; what is missing is asked for, and stands in for itself.

    Raises:
        ValidationError: the settings contradict one another in a way that only the spec tells.
    """
    algorithm = _algorithm(settings)
    document: dict[str, Any] = {
        "name": "imported",
        "algorithm": algorithm,
        "models": _models(settings, answers),
        "workload": _workload(settings, answers, algorithm),
        "cluster": {"pools": [pools.spec(answers.gpu, node)]},
        "search": _search(settings),
    }
    return JobSpec.model_validate(document)


def _has_reference(settings: Settings) -> bool:
    """Whether the divergence has a coefficient; one that is not known is above 0."""
    known = settings.needless("kl_coefficient")
    return not known or settings.value("kl_coefficient") not in (0, None)


def _has_reward(settings: Settings) -> bool:
    for decision in ("reward_function", "turns_function"):
        settings.needless(decision)
        if settings.given(decision) is not None:
            return False
    return True


def _models(settings: Settings, answers: Answers) -> dict[str, Any]:
    actor = {"architecture": architecture_of(settings, answers, "actor")}
    found: dict[str, Any] = {"actor": actor}
    roles = roles_of(settings)
    if "reference" in roles:
        found["reference"] = actor
    if "reward" in roles:
        found["reward"] = _own(settings, answers, "reward") or actor
    else:
        found["reward"] = {"function": True}
        settings.assume("the reward is a function that takes no time (models.reward)")
    if "critic" in roles:
        # Without a path of its own it starts as the reward model, or as the actor.
        other = found["reward"] if "reward" in roles else actor
        found["critic"] = _own(settings, answers, "critic", stated=False) or other
    need_known_models(settings, answers, found)
    return found


def _own(
    settings: Settings, answers: Answers, role: str, *, stated: bool = True
) -> dict[str, Any] | None:
    """The model of a role; None: it has no path of its own, where it need not."""
    settings.needless("model", role)
    if not stated and settings.given("model", role) is None and role not in answers.models:
        return None
    return {"architecture": architecture_of(settings, answers, role)}


def _algorithm(settings: Settings) -> str:
    name = algorithm_named(settings, PRICED_AS)
    settings.needless("clips")
    settings.needless("kl_estimator")
    return "dapo" if settings.flag("dynamic_sampling") and name == "grpo" else name


def _workload(settings: Settings, answers: Answers, algorithm: str) -> dict[str, Any]:
    prompts, responses = settings.size("prompts"), settings.size("responses_per_prompt")
    if algorithm in ("grpo", "dapo", "rloo") and responses == 1:
        told = f"{settings.where('responses_per_prompt')} is 1, and {algorithm} compares responses"
        settings.refuse(told, "give more than 1")
        responses = 2
    prompt, response = _lengths(settings, answers)
    in_loss = settings.flag("kl_in_loss")
    found: dict[str, Any] = {
        "prompts_per_iteration": prompts,
        "responses_per_prompt": responses,
        "prompt_length": prompt.model_dump(exclude_none=True),
        "response_length": response.model_dump(exclude_none=True),
        "updates_per_epoch": _updates(settings, prompts * responses),
        "epochs": settings.size("epochs"),
        "kl": ("loss" if in_loss else "reward") if _has_reference(settings) else "none",
        "precision": "bf16",
        "rollout_engine": "vllm",
        "packed_sequences": _packed(settings),
        "optimizer": _optimizer(settings),
    }
    if algorithm == "dapo":
        settings.assume("dynamic sampling keeps every prompt (workload.expected_acceptance: 1.0)")
    at_once = settings.whole("generated_prompts")
    if at_once is not None and at_once > prompts:
        _note_at_once(settings, at_once, prompts)
    if settings.given("turns_function") is not None:
        told = "a function of one's own generates: priced as one turn (workload.turns)"
        settings.note("not priced", told, settings.given("turns_function"))
    return found | _run(settings, prompts)


def _note_at_once(settings: Settings, at_once: int, prompts: int) -> None:
    given = settings.given("generated_prompts")
    if settings.flag("asynchronous"):
        told = f"{at_once} prompts are generated at once: priced as the {prompts} of an iteration"
        settings.note("not priced", told, given)
        return
    told = f"{settings.where('generated_prompts')} is above {prompts}"
    settings.note("does not fit", f"{told}, and does not start so without rollouts ahead", given)


def _packed(settings: Settings) -> bool:
    ring = settings.size("context_parallel_size") > 1
    return settings.flag("packed") or ring or settings.flag("dynamic_batches")


def _optimizer(settings: Settings) -> str:
    for role in ("actor", "critic"):
        named = settings.text("optimizer", role)
        if named != "adam":
            told = f"the optimizer {named[:40]} is priced as adam"
            settings.note("saves memory", told, settings.given("optimizer", role))
    return "adam"


def _lengths(settings: Settings, answers: Answers) -> tuple[LengthSpec, LengthSpec]:
    """Lengths of prompts and responses: one limit for both together, and one of responses."""
    whole = settings.size("longest_sequence")
    longest = settings.whole("response_length")
    if longest is not None and longest >= whole:
        told = f"{settings.where('response_length')} is {longest}, of {whole} tokens in all"
        settings.note("contradiction", told, settings.given("response_length"))
        longest = None
    if longest is None:
        longest = max(whole // 2, 1)
        told = f"responses end at {longest} tokens, half of {settings.key('longest_sequence')}"
        settings.assume(told)
    prompt = lengths_of(settings, answers.prompt_length, "prompt", max(whole - longest, 1))
    return prompt, lengths_of(settings, answers.response_length, "response", longest)


def _updates(settings: Settings, sequences: int) -> int:
    """Optimizer steps of an iteration."""
    batch = settings.size("mini_batch")
    if sequences % batch:
        told = f"{settings.where('mini_batch')} is {batch}"
        told = f"{told}, which does not divide {sequences} sequences"
        remedy = f"give what divides the {sequences} sequences of an iteration"
        settings.refuse(told, remedy)
        return 1
    return sequences // batch


def _run(settings: Settings, prompts: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    samples = settings.whole("samples") if settings.needless("samples") else None
    episodes = settings.whole("episodes") if settings.needless("episodes") else None
    if samples is None or samples >= NO_LIMIT:
        settings.assume("one iteration: how many prompts there are is not known")
    else:
        found["iterations"] = max(samples * (episodes or 1) // prompts, 1)
        told = f"{found['iterations']} iterations: there are {samples} prompts or more"
        settings.assume(told)
    every = settings.whole("checkpoints", least=-1) if settings.needless("checkpoints") else None
    if every is not None and every > 0:
        found["checkpoint_every_iterations"] = every
        settings.assume("a checkpoint takes no time (workload.checkpoint_seconds)")
    for decision in ("save", "train_files", "prompt_field", "label_field", "chat_template"):
        settings.decides.setdefault(settings.key(decision), "the run")
    return found


def _search(settings: Settings) -> dict[str, Any]:
    if not settings.flag("asynchronous"):
        return {}
    queued = settings.size("staleness")
    settings.assume(f"rollouts are {queued} iterations ahead (search.staleness)")
    return {"staleness": queued}
