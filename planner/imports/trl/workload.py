"""The job of a TRL launch: algorithm, models, batches, lengths."""

from typing import Any

from automap.planner.catalogue.hardware import NodeType
from automap.planner.imports.answers import architecture_of, lengths_of, need_known_models
from automap.planner.imports.given import Given
from automap.planner.imports.launch import Answers
from automap.planner.imports.pools import Pools
from automap.planner.imports.settings import Settings
from automap.planner.imports.trl.layouts import serves
from automap.planner.spec import JobSpec, LengthSpec
from automap.planner.targets.trl import TRL

LONGER_THAN_MEAN = 8
"""Mean lengths that a prompt is taken to have at most where the launch has no limit."""
USUAL_PROMPT = 1024
"""Tokens of the longest prompt where nothing says more."""
OF_RUN = ("train_files", "save", "loss", "server", "server_timeout", "attention", "weights")
"""Decisions that change nothing of a plan."""


def spec_of(
    settings: Settings, answers: Answers, algorithm: str, pools: Pools, node: NodeType
) -> JobSpec:
    """The spec of a launch; what is missing is asked for, and stands in for itself.

    Raises:
        ValidationError: the settings contradict one another in a way that only the spec tells.
    """
    document: dict[str, Any] = {
        "name": "imported",
        "algorithm": algorithm,
        "models": _models(settings, answers, algorithm),
        "workload": _workload(settings, answers, algorithm, pools),
        "cluster": {"pools": [pools.spec(answers.gpu, node)]},
    }
    return JobSpec.model_validate(document)


def _models(settings: Settings, answers: Answers, algorithm: str) -> dict[str, Any]:
    actor: dict[str, Any] = {"architecture": architecture_of(settings, answers, "actor")}
    reference = dict(actor)
    rank = _adapter_rank(settings)
    if rank:
        actor["lora"] = {"rank": rank}
    found: dict[str, Any] = {"actor": actor, "reward": {"function": True}}
    if _kl(settings, algorithm) != "none" and not rank:
        found["reference"] = reference
    settings.needless("reward_function")
    if settings.text("reward_model"):
        told = f"{settings.key('reward_model')}: the model scores in no time"
        settings.note("not priced", told, settings.given("reward_model"))
    settings.assume("rewards take no time (models.reward)")
    need_known_models(settings, answers, found)
    return found


def _adapter_rank(settings: Settings) -> int:
    """The rank of the policy's adapter; 0: it has none."""
    given = settings.overrides.given
    with_adapter = given.get("--use_peft")
    if with_adapter is None or with_adapter.value.lower() in ("false", "no", "0"):
        return 0
    for key in given.keys() & {"--use_peft", "--lora_r"}:
        settings.decides[key] = "rank of the policy's adapter"
    rank = given.get("--lora_r")
    return int(rank.value) if rank is not None and rank.value.isdecimal() else 16


def _kl(settings: Settings, algorithm: str) -> str:
    """Where the divergence is; a coefficient that is not known is above 0."""
    known, given = settings.needless("kl_coefficient"), settings.given("kl_coefficient")
    if given is None:
        # RLOO's own default is above 0.
        return "reward" if algorithm == "rloo" else "none"
    place = dict(TRL.kl_places)[algorithm]
    return "none" if known and settings.value("kl_coefficient") in (0, None) else place


def _workload(settings: Settings, answers: Answers, algorithm: str, pools: Pools) -> dict[str, Any]:
    responses = _responses(settings, algorithm)
    sequences, updates = _batches(settings, pools.trainer.num_gpus)
    if sequences % responses:
        told = f"{sequences} sequences of an iteration are no whole prompts of {responses} each"
        key = settings.key("responses_per_prompt")
        settings.refuse(told, f"give {key}, or batches, that divide them")
        sequences = responses * max(sequences // responses, 1)
    prompt, response = _lengths(settings, answers)
    if algorithm == "grpo" and not settings.flag("importance_correction"):
        told = "log-probabilities are computed again all the same (workload.old_log_probs)"
        settings.note("not priced", told, settings.given("importance_correction"))
    _note_generation(settings)
    return {
        "prompts_per_iteration": sequences // responses,
        "responses_per_prompt": responses,
        "prompt_length": prompt.model_dump(exclude_none=True),
        "response_length": response.model_dump(exclude_none=True),
        "updates_per_epoch": updates,
        "epochs": settings.size("epochs"),
        "kl": _kl(settings, algorithm),
        "precision": _precision(settings),
        "rollout_engine": "vllm",
        "packed_sequences": False,
        "optimizer": _optimizer(settings),
        **_run(settings, updates * settings.size("epochs")),
    }


def _responses(settings: Settings, algorithm: str) -> int:
    given = settings.given("responses_per_prompt") is not None
    found = settings.size("responses_per_prompt") if given or algorithm == "grpo" else 2
    if found == 1:
        told = f"{settings.where('responses_per_prompt')} is 1, and TRL asks for two"
        settings.refuse(told, "give more than 1")
    return max(found, 2)


def _batches(settings: Settings, processes: int) -> tuple[int, int]:
    """(sequences of an iteration, optimizer steps that they are trained on in)."""
    each = settings.size("train_micro_batch") * processes
    mini = each * settings.size("accumulation")
    whole, steps = settings.whole("generation_batch"), settings.whole("generation_steps")
    if whole is not None and steps is not None:
        keys = f"{settings.key('generation_batch')} and {settings.key('generation_steps')}"
        given = settings.given("generation_steps")
        settings.note("does not fit", f"{keys} are both set, and it does not start so", given)
    sequences = whole or (each * steps if steps is not None else mini)
    if whole is None and steps is None:
        _imply(settings, "generation_batch", str(mini))
    if sequences % each:
        told = f"{settings.where('generation_batch')} is {sequences}, no multiple of {each}: "
        told += f"{settings.key('train_micro_batch')} × {processes} processes"
        settings.refuse(told, f"give a multiple of {each}")
        return mini, 1
    if mini > sequences and not mini % sequences:
        told = f"the {mini} sequences of an optimizer step are generated in {mini // sequences} "
        settings.assume(f"{told}parts: priced as one")
        return mini, 1
    if sequences % mini:
        told = f"{sequences} sequences of an iteration in optimizer steps of {mini}"
        settings.refuse(told, f"give {settings.key('accumulation')} that divides them")
        return mini, 1
    return sequences, sequences // mini


def _imply(settings: Settings, decision: str, value: str) -> None:
    """Set what TRL works out by itself, where the launch does not say it."""
    key, overrides = settings.key(decision), settings.overrides
    overrides.set(Given(key, value, overrides.file, 0), over=True)
    overrides.implied.add(key)


def _lengths(settings: Settings, answers: Answers) -> tuple[LengthSpec, LengthSpec]:
    """Lengths: of responses the launch's limit, of prompts what a sequence leaves."""
    longest, role = settings.size("response_length"), "rollout"
    whole = settings.whole("longest_sequence", role)
    given = answers.prompt_length
    if whole is not None and whole > longest:
        limit = whole - longest
    else:
        mean = given.mean if given is not None and given.mean is not None else None
        limit = USUAL_PROMPT if mean is None else int(LONGER_THAN_MEAN * mean)
        told = f"prompts end at {limit} tokens: {settings.key('longest_sequence', role)} says less"
        settings.assume(told)
    prompt = lengths_of(settings, given, "prompt", max(limit, 1))
    return prompt, lengths_of(settings, answers.response_length, "response", longest)


def _precision(settings: Settings) -> str:
    """The precision of products: accelerate's, or the trainer's where that has none."""
    told = settings.text("precision")
    if told == "fp16":
        return "fp16"
    if told in ("no", "") and not settings.flag("bf16"):
        told = f"{settings.key('bf16')} is off: priced as bf16"
        settings.note("not priced", told, settings.given("bf16"))
    elif told not in ("no", "bf16", ""):
        told = f"{settings.where('precision')} is {told[:20]}: priced as bf16"
        settings.note("not priced", told, settings.given("precision"))
    return "bf16"


def _optimizer(settings: Settings) -> str:
    named = settings.text("optimizer")
    if not named.startswith("adam") or "bit" in named:
        told = f"the optimizer {named[:40]} is priced as adam"
        settings.note("saves memory", told, settings.given("optimizer"))
    return "adam"


def _note_generation(settings: Settings) -> None:
    if not settings.flag("with_vllm"):
        told = "Transformers generates, without vLLM: priced as vLLM in the trainer's processes"
        settings.note("not priced", told, settings.given("with_vllm"))
    elif not serves(settings) and not settings.flag("engine_sleeps", "rollout"):
        key = settings.key("engine_sleeps", "rollout")
        told = f"engines keep their memory while the policy trains, without {key}"
        settings.note("not priced", told, settings.given("engine_sleeps", "rollout"))


def _run(settings: Settings, steps: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    known = settings.needless("iterations")
    most = settings.whole("iterations", least=-1) if known else None
    if most is None or most < 1:
        settings.assume("one iteration: how many prompts there are is not known")
    else:
        found["iterations"] = max(most // steps, 1)
    saves = settings.text("with_checkpoints") if settings.needless("with_checkpoints") else "no"
    every = settings.value("checkpoints") if settings.needless("checkpoints") else None
    if saves == "steps" and isinstance(every, int | float) and every >= 1:
        found["checkpoint_every_iterations"] = max(int(every) // steps, 1)
        settings.assume("a checkpoint takes no time (workload.checkpoint_seconds)")
    for decision in OF_RUN:
        settings.needless(decision)
    for decision in ("clip_low", "clip_high"):
        settings.needless(decision)
    return found
