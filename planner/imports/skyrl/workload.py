"""The job of a SkyRL launch: algorithm, models, batches, lengths."""

from typing import Any

from automap.planner.catalogue.hardware import NodeType
from automap.planner.imports.algorithms import algorithm_named
from automap.planner.imports.answers import architecture_of, lengths_of, need_known_models
from automap.planner.imports.host_optimizer import host_optimizer
from automap.planner.imports.launch import Answers
from automap.planner.imports.pools import Pools
from automap.planner.imports.settings import Settings
from automap.planner.imports.skyrl.commands import ONE_STEP, STALE
from automap.planner.spec import JobSpec, LengthSpec

PRICED_AS = {"maxrl": "grpo"}
"""Other estimates of advantages → the algorithm that makes the same calls."""
OF_ROLLOUT = ("rollout_is", "dppo")
"""Losses that read the rollout's log-probabilities."""
MAX_STALENESS = 16


def is_stale(settings: Settings) -> bool:
    """Whether the program that is started has rollouts ahead."""
    return settings.overrides.entry in (STALE, ONE_STEP)


def roles_of(settings: Settings) -> list[str]:
    """The models of a launch that have GPUs."""
    found = ["actor"]
    if settings.flag("kl_in_reward") or settings.flag("kl_in_loss"):
        found.append("reference")
    return [*found, "critic"] if settings.text("advantage") == "gae" else found


def spec_of(settings: Settings, answers: Answers, pools: Pools, node: NodeType) -> JobSpec:
    """The spec of a launch; what is missing is asked for, and stands in for itself.

    Raises:
        ValidationError: the settings contradict one another in a way that only the spec tells.
    """
    algorithm, kl = _algorithm(settings), _kl(settings)
    document: dict[str, Any] = {
        "name": _name(settings),
        "algorithm": algorithm,
        "models": _models(settings, answers),
        "workload": _workload(settings, answers, algorithm, kl),
        "cluster": {"pools": [pools.spec(answers.gpu, node)]},
        "search": _search(settings),
    }
    return JobSpec.model_validate(document)


def _name(settings: Settings) -> str:
    given = settings.given("name")
    if given is None or given.unknown is not None:
        return "imported"
    return str(settings.value("name") or "imported").strip()[:200] or "imported"


def _algorithm(settings: Settings) -> str:
    name = algorithm_named(settings, PRICED_AS)
    for decision in ("clip_low", "clip_high", "even_rewards"):
        settings.needless(decision)
    drawn = settings.text("dynamic_sampling")
    if drawn == "replace":
        told = f"{settings.where('dynamic_sampling')}: prompts that replace others cost nothing"
        settings.note("assumed", told, settings.given("dynamic_sampling"))
    elif drawn not in ("", "filter"):
        told = f"{settings.where('dynamic_sampling')} is {drawn[:40]!r}"
        settings.refuse(told, "known: filter, replace, null")
    filters = drawn == "filter" or (is_stale(settings) and settings.flag("full_batches"))
    return "dapo" if filters and name == "grpo" else name


def _kl(settings: Settings) -> str:
    in_reward, in_loss = settings.flag("kl_in_reward"), settings.flag("kl_in_loss")
    if in_reward and in_loss:
        told = f"{settings.key('kl_in_reward')} and {settings.key('kl_in_loss')} are both on"
        given = settings.given("kl_in_reward")
        settings.note("does not fit", f"{told}, and it does not start so", given)
    return "reward" if in_reward else "loss" if in_loss else "none"


def _models(settings: Settings, answers: Answers) -> dict[str, Any]:
    roles = roles_of(settings)
    actor: dict[str, Any] = {"architecture": architecture_of(settings, answers, "actor")}
    found: dict[str, Any] = {"actor": actor | _adapter(settings, "actor")}
    if "reference" in roles:
        found["reference"] = dict(actor)
        settings.needless("model", "reference")
    if "critic" in roles:
        critic = {"architecture": architecture_of(settings, answers, "critic")}
        found["critic"] = critic | _adapter(settings, "critic")
    elif settings.given("model", "critic") is not None:
        told = f"{settings.where('model', 'critic')}: a critic that no estimate reads is trained"
        settings.note("not priced", told, settings.given("model", "critic"))
    found["reward"] = {"function": True}
    settings.needless("environment")
    settings.assume("the environment's reward is a function that takes no time (models.reward)")
    need_known_models(settings, answers, found)
    return found


def _adapter(settings: Settings, role: str) -> dict[str, Any]:
    rank = settings.whole("lora_rank", role, least=0)
    return {"lora": {"rank": rank}} if rank else {}


def _workload(settings: Settings, answers: Answers, algorithm: str, kl: str) -> dict[str, Any]:
    prompts, responses = settings.size("prompts"), settings.size("responses_per_prompt")
    if algorithm in ("grpo", "dapo", "rloo") and responses == 1:
        told = f"{settings.where('responses_per_prompt')} is 1, and {algorithm} compares responses"
        settings.refuse(told, "give more than 1")
        responses = 2
    prompt, response = _lengths(settings, answers)
    found: dict[str, Any] = {
        "prompts_per_iteration": prompts,
        "responses_per_prompt": responses,
        "prompt_length": prompt.model_dump(exclude_none=True),
        "response_length": response.model_dump(exclude_none=True),
        "updates_per_epoch": _updates(settings, prompts),
        "epochs": settings.size("epochs"),
        "kl": kl,
        "precision": "bf16",
        "rollout_engine": "vllm",
        "packed_sequences": settings.flag("packed"),
    }
    turns = settings.size("turns")
    if turns > 1:
        found["turns"] = turns
        settings.assume(
            f"every response has {turns} turns, and the environment takes no time "
            "(workload.turns, environment_seconds_per_turn)"
        )
    if algorithm == "dapo":
        settings.assume("dynamic sampling keeps every prompt (workload.expected_acceptance: 1.0)")
    _note_engine(settings)
    if "fp8" in settings.text("cache_precision", "rollout"):
        found["rollout_cache_precision"] = "fp8"
    found |= host_optimizer(settings, "adam", ["actor"])
    return found | _log_probs(settings, algorithm, kl) | _run(settings)


def _log_probs(settings: Settings, algorithm: str, kl: str) -> dict[str, Any]:
    """Old log-probabilities are those of the rollout where nothing reads others."""
    settings.needless("scored_by_update")
    of_rollout = settings.text("loss") in OF_ROLLOUT
    corrected = any(settings.value(each) is not None for each in ("outlier_mask", "correction"))
    if algorithm == "rloo" and kl != "reward":
        if not of_rollout or corrected:
            settings.assume("rloo needs no log-probabilities before the update: not priced")
        return {}
    return {"old_log_probs": "rollout"} if of_rollout and not corrected and kl != "reward" else {}


def _note_engine(settings: Settings) -> None:
    engine, precision = (
        settings.text(each, "rollout") for each in ("generation_engine", "precision")
    )
    if engine != "vllm":
        told = f"{settings.where('generation_engine', 'rollout')} is {engine[:40]!r}"
        settings.refuse(told, "known: vllm")
    if precision not in ("bfloat16", "auto"):
        told = f"{settings.where('precision', 'rollout')} is {precision[:20]}"
        given = settings.given("precision", "rollout")
        settings.note("not priced", f"{told}: engines have bf16", given)
    settings.text("weight_transfer", "rollout")


def _lengths(settings: Settings, answers: Answers) -> tuple[LengthSpec, LengthSpec]:
    """Longest prompt and response; of several turns what an engine takes ends the response."""
    prompt, each = settings.size("prompt_length"), settings.size("response_length")
    inputs, longest = settings.size("input_length"), settings.whole("longest_sequence", "rollout")
    if settings.size("turns") == 1:
        if inputs != prompt:
            told = f"{settings.where('input_length')} is {inputs}, and the longest prompt {prompt}"
            given = settings.given("input_length")
            settings.note("does not fit", f"{told}: with one turn it does not start so", given)
    else:
        whole = max(inputs, prompt) + each
        each = max(min(whole, longest or whole) - prompt, 1)
    return (
        lengths_of(settings, answers.prompt_length, "prompt", prompt),
        lengths_of(settings, answers.response_length, "response", each),
    )


def _updates(settings: Settings, prompts: int) -> int:
    """Optimizer steps of an iteration."""
    batch = settings.size("mini_batch", "actor")
    if prompts % batch:
        told = f"{settings.where('mini_batch', 'actor')} is {batch}"
        told = f"{told}, which does not divide {prompts} prompts"
        settings.refuse(told, f"give what divides the {prompts} prompts of an iteration")
        return 1
    of_critic = settings.size("mini_batch", "critic")
    if settings.text("advantage") == "gae" and of_critic != batch:
        told = (
            f"{settings.key('mini_batch', 'critic')} is {of_critic}, and the actor's is {batch}: "
            "the critic's updates are priced as the actor's"
        )
        settings.note("not priced", told, settings.given("mini_batch", "critic"))
    return prompts // batch


def _run(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    steps = settings.whole("iterations") if settings.needless("iterations") else None
    settings.needless("passes_over_prompts")
    if steps is None:
        key = settings.key("passes_over_prompts")
        settings.assume(f"one iteration: how many prompts there are is not known ({key})")
    else:
        found["iterations"] = steps
    every = settings.whole("checkpoints", least=-1) if settings.needless("checkpoints") else None
    if every is not None and every > 0:
        found["checkpoint_every_iterations"] = every
        settings.assume("a checkpoint takes no time (workload.checkpoint_seconds)")
    known = settings.needless("validation")
    if ((settings.whole("validation", least=-1) or 0) if known else 1) > 0:
        settings.note("not priced", "validation runs, which no price has")
    others = ("validation_first", "save", "resume", "train_files", "logger", "project")
    for decision in others:
        settings.decides.setdefault(settings.key(decision), "the run")
    return found


def _search(settings: Settings) -> dict[str, Any]:
    entry, asked = settings.overrides.entry, settings.flag("asynchronous")
    given = settings.given("asynchronous")
    if entry == ONE_STEP:
        told = "one step off: a batch is generated while the one before it is trained on"
        settings.note("assumed", f"{told} (staleness 1)", given)
        return {"staleness": 1}
    if entry != STALE:
        if asked:
            told = f"{settings.key('asynchronous')} has no effect on the program that is started"
            settings.note("without effect", told, given)
        return {}
    if not asked:
        told = f"{settings.key('asynchronous')} is not true, and {STALE} does not start so"
        settings.note("does not fit", told, given)
    staleness = settings.whole("staleness", least=0) or 0
    if staleness > MAX_STALENESS:
        told = f"{settings.where('staleness')}: more than {MAX_STALENESS} batches"
        settings.refuse(told, f"give at most {MAX_STALENESS}")
    settings.assume(f"rollouts are {staleness} iterations ahead (search.staleness)")
    found: dict[str, Any] = {"staleness": min(staleness, MAX_STALENESS)}
    again = settings.needless("caches_again") and settings.flag("caches_again")
    if staleness > 1:
        found |= {"continuous_rollouts": True, "keep_cache_at_sync": not again}
    return found
