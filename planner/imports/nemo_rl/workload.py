"""The job of a NeMo-RL launch: algorithm, models, batches, lengths."""

from typing import Any

from automap.planner.catalogue.hardware import NodeType
from automap.planner.exports.nemo_rl.settings import OPTIMIZERS
from automap.planner.exports.refusals import PRECISIONS
from automap.planner.imports.algorithms import algorithm_named
from automap.planner.imports.answers import architecture_of, lengths_of, need_known_models
from automap.planner.imports.host_optimizer import host_optimizer
from automap.planner.imports.launch import Answers
from automap.planner.imports.pools import Pools
from automap.planner.imports.settings import Settings
from automap.planner.spec import JobSpec

PRICED_AS = {"gdpo": "grpo"}
"""Other estimates of advantages → the algorithm that makes the same calls."""
LONGER_THAN_MEAN = 8
"""Mean lengths that a prompt is taken to have at most where the launch has no limit."""
MAX_STALENESS = 16


def spec_of(settings: Settings, answers: Answers, pools: Pools, node: NodeType) -> JobSpec:
    """The spec of a launch; what is missing is asked for, and stands in for itself.

    Raises:
        ValidationError: the settings contradict one another in a way that only the spec tells.
    """
    algorithm, kl = _algorithm(settings), _kl(settings)
    document: dict[str, Any] = {
        "name": "imported",
        "algorithm": algorithm,
        "models": _models(settings, answers, kl),
        "workload": _workload(settings, answers, algorithm, kl),
        "cluster": {"pools": [pools.spec(answers.gpu, node)]},
        "search": _search(settings),
    }
    return JobSpec.model_validate(document)


def _models(settings: Settings, answers: Answers, kl: str) -> dict[str, Any]:
    actor = {"architecture": architecture_of(settings, answers, "actor")}
    found: dict[str, Any] = {"actor": actor, "reward": {"function": True}}
    if kl != "none":
        found["reference"] = actor
    settings.assume("the environment scores in no time (models.reward)")
    need_known_models(settings, answers, found)
    return found


def _algorithm(settings: Settings) -> str:
    name = algorithm_named(settings, PRICED_AS)
    for clip in ("clip_low", "clip_high"):
        settings.needless(clip)
    return "dapo" if settings.flag("dynamic_sampling") and name == "grpo" else name


def _kl(settings: Settings) -> str:
    """Where the divergence is; a coefficient that is not known is above 0."""
    known = settings.needless("kl_loss_coefficient")
    in_reward = settings.flag("kl_in_reward")
    if known and settings.value("kl_loss_coefficient") in (0, None):
        return "none"
    return "reward" if in_reward else "loss"


def _workload(settings: Settings, answers: Answers, algorithm: str, kl: str) -> dict[str, Any]:
    prompts, responses = settings.size("prompts"), settings.size("responses_per_prompt")
    longest_prompt, longest_response = _longest(settings, answers)
    response = lengths_of(settings, answers.response_length, "response", longest_response)
    prompt = lengths_of(settings, answers.prompt_length, "prompt", longest_prompt)
    found: dict[str, Any] = {
        "prompts_per_iteration": prompts,
        "responses_per_prompt": responses,
        "prompt_length": prompt.model_dump(exclude_none=True),
        "response_length": response.model_dump(exclude_none=True),
        "updates_per_epoch": _updates(settings, prompts * responses),
        "kl": kl,
        "packed_sequences": settings.flag("dynamic_batches"),
        "turns": settings.size("turns"),
        **_engines(settings),
        **_run(settings),
    }
    multiplier = settings.value("batch_multiplier")
    if algorithm == "dapo" and isinstance(multiplier, (int, float)) and multiplier > 1:
        found["expected_acceptance"] = 1 / multiplier
        told = f"one generation of {multiplier:g} times the prompts fills a batch"
        settings.assume(f"{told} (workload.expected_acceptance)")
    elif algorithm == "dapo":
        settings.assume("dynamic sampling keeps every prompt (workload.expected_acceptance: 1.0)")
    return found


def _longest(settings: Settings, answers: Answers) -> tuple[int, int]:
    """Tokens of the longest prompt and response, which together fit into a sequence."""
    whole = settings.size("longest_sequence")
    prompt = min(settings.whole("prompt_length") or whole, whole)
    response = min(settings.whole("response_length") or whole, whole)
    if prompt + response <= whole:
        return prompt, response
    if response < whole:
        prompt = whole - response
    elif prompt < whole:
        response = whole - prompt
    else:
        given = answers.prompt_length
        mean = given.mean if given is not None and given.mean is not None else whole / 2
        prompt = max(min(int(LONGER_THAN_MEAN * mean), whole // 2), 1)
        response = whole - prompt
    key = settings.key("longest_sequence")
    told = f"prompts of at most {prompt} tokens and responses of {response} fill {key}"
    settings.assume(f"{told}, {whole}: no other limit is there for each")
    return prompt, max(response, 1)


def _updates(settings: Settings, sequences: int) -> int:
    """Optimizer steps of an iteration."""
    batch = settings.size("mini_batch")
    if sequences % batch:
        told = f"{settings.where('mini_batch')} is {batch}, which does not divide {sequences}"
        remedy = f"give what divides the {sequences} sequences of an iteration"
        settings.refuse(f"{told} sequences", remedy)
        return 1
    return sequences // batch


def _engines(settings: Settings) -> dict[str, Any]:
    """Precisions, the optimizer and what generates."""
    names = {theirs: ours for ours, theirs in PRECISIONS.items()} | {"float32": "fp32"}
    precision = settings.text("precision")
    if precision not in names:
        told = f"{settings.where('precision')} is {precision[:40]!r}"
        settings.refuse(told, f"known: {', '.join(names)}")
    engine = settings.text("generation_engine", "rollout")
    if engine not in settings.framework.rollout_engines:
        where = settings.where("generation_engine", "rollout")
        told = f"{where} is {engine[:40]!r}, whose settings are not described"
        settings.refuse(told, f"known: {', '.join(settings.framework.rollout_engines)}")
    found: dict[str, Any] = {"precision": names.get(precision, "bf16"), "rollout_engine": "vllm"}
    if settings.text("rollout_precision", "rollout") == "fp8":
        found["rollout_precision"] = "fp8"
    chosen = settings.text("optimizer")
    known = {theirs: ours for (of, ours), theirs in OPTIMIZERS.items() if of == settings.engine}
    if chosen not in known:
        told = f"the optimizer {chosen[:40]} is priced as adam"
        settings.note("saves memory", told, settings.given("optimizer"))
    found["optimizer"] = known.get(chosen, "adam")
    return found | host_optimizer(settings, found["optimizer"])


def _run(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    steps = settings.given("iterations")
    if settings.needless("iterations") and steps is not None:
        found["iterations"] = settings.size("iterations")
    else:
        settings.assume(f"one iteration: {settings.key('iterations')} is not set")
    for decision in ("passes_over_prompts", "save", "validation_first"):
        settings.needless(decision)
    saves = settings.needless("with_checkpoints") and settings.flag("with_checkpoints")
    known = settings.needless("checkpoints")
    if saves and known and (every := settings.whole("checkpoints", least=0)):
        found["checkpoint_every_iterations"] = every
        settings.assume("a checkpoint takes no time (workload.checkpoint_seconds)")
    if not settings.needless("validation") or settings.whole("validation", least=-1):
        settings.note("not priced", "validation runs, which no price has")
    return found


def _search(settings: Settings) -> dict[str, Any]:
    asynchronous = settings.flag("synchrony")
    age = settings.whole("staleness") or 1
    corrects = settings.flag("importance_correction")
    one_by_one = settings.flag("engine_async", "rollout")
    for decision in ("weights_in_flight", "caches_again"):
        settings.needless(decision)
    if not asynchronous:
        return {}
    given = settings.given("synchrony")
    needs = {
        "colocated": settings.flag("colocated"),
        "importance_correction": not corrects,
        "dynamic_sampling": settings.flag("dynamic_sampling"),
    }
    missing = [settings.key(name) for name, is_missing in needs.items() if is_missing]
    if not one_by_one:
        missing.append(settings.key("engine_async", "rollout"))
    if missing:
        told = f"{settings.key('synchrony')} does not start with {', '.join(missing)} as here"
        settings.note("does not fit", told, given)
    if settings.flag("colocated"):
        return {}
    if age > MAX_STALENESS:
        told = f"{settings.where('staleness')}: more than {MAX_STALENESS} iterations"
        settings.refuse(told, f"give at most {MAX_STALENESS}")
    found: dict[str, Any] = {"staleness": min(age, MAX_STALENESS)}
    if settings.flag("weights_in_flight"):
        again = settings.flag("caches_again")
        found |= {"continuous_rollouts": True, "keep_cache_at_sync": not again}
    return found
