"""What a launch says of learning and sampling, in the words of another framework.

No plan has any of it. A conversion carries what both frameworks have a key for that means the same.
"""

from collections.abc import Iterator, Mapping

from automap.planner.exports.collected import MADE_OF
from automap.planner.exports.launch import Launch
from automap.planner.exports.subject import Subject
from automap.planner.frameworks.description import Framework, framework
from automap.planner.imports.launch import Imported
from automap.planner.studies.learning_words import keys_of, number_of, warms_up, worded, written

ALIKE: Mapping[str, Mapping[str, str]] = {
    "learning rate": {
        "verl": "actor_rollout_ref.actor.optim.lr",
        "slime": "--lr",
        "nemo-rl fsdp": "policy.optimizer.kwargs.lr",
        "nemo-rl megatron": "policy.megatron_cfg.optimizer.lr",
        "openrlhf": "--actor.adam.lr",
        "trl": "--learning_rate",
        "skyrl": "trainer.policy.optimizer_config.lr",
        "areal": "actor.optimizer.lr",
    },
    "learning rate of the critic": {
        "verl": "critic.optim.lr",
        "slime": "--critic-lr",
        "openrlhf": "--critic.adam.lr",
        "skyrl": "trainer.critic.optimizer_config.lr",
        "areal": "critic.optimizer.lr",
    },
    "weight decay": {
        "verl": "actor_rollout_ref.actor.optim.weight_decay",
        "slime": "--weight-decay",
        "nemo-rl fsdp": "policy.optimizer.kwargs.weight_decay",
        "nemo-rl megatron": "policy.megatron_cfg.optimizer.weight_decay",
        "openrlhf": "--actor.adam.weight_decay",
        "trl": "--weight_decay",
        "skyrl": "trainer.policy.optimizer_config.weight_decay",
        "areal": "actor.optimizer.weight_decay",
    },
    "largest norm of gradients": {
        "verl": "actor_rollout_ref.actor.optim.clip_grad",
        "slime": "--clip-grad",
        "nemo-rl fsdp": "policy.max_grad_norm",
        "nemo-rl megatron": "policy.megatron_cfg.optimizer.clip_grad",
        "openrlhf": "--actor.max_norm",
        "trl": "--max_grad_norm",
        "skyrl": "trainer.policy.optimizer_config.max_grad_norm",
        "areal": "actor.optimizer.gradient_clipping",
    },
    "temperature": {
        "verl": "actor_rollout_ref.rollout.temperature",
        "slime": "--rollout-temperature",
        "nemo-rl": "policy.generation.temperature",
        "openrlhf": "--rollout.temperature",
        "trl": "--temperature",
        "skyrl": "generator.sampling_params.temperature",
        "areal": "gconfig.temperature",
    },
    "top-p": {
        "verl": "actor_rollout_ref.rollout.top_p",
        "slime": "--rollout-top-p",
        "nemo-rl": "policy.generation.top_p",
        "openrlhf": "--rollout.top_p",
        "trl": "--top_p",
        "skyrl": "generator.sampling_params.top_p",
        "areal": "gconfig.top_p",
    },
    "lower clip": {
        "verl": "actor_rollout_ref.actor.clip_ratio_low",
        "slime": "--eps-clip",
        "nemo-rl": "loss_fn.ratio_clip_min",
        "trl": "--epsilon",
        "skyrl": "trainer.algorithm.eps_clip_low",
        "areal": "actor.eps_clip",
    },
    "upper clip": {
        "verl": "actor_rollout_ref.actor.clip_ratio_high",
        "slime": "--eps-clip-high",
        "nemo-rl": "loss_fn.ratio_clip_max",
        "trl": "--epsilon_high",
        "skyrl": "trainer.algorithm.eps_clip_high",
        "areal": "actor.eps_clip_higher",
    },
    "KL coefficient, in the loss": {
        "verl": "actor_rollout_ref.actor.kl_loss_coef",
        "slime": "--kl-loss-coef",
        "nemo-rl": "loss_fn.reference_policy_kl_penalty",
        "openrlhf": "--algo.kl.init_coef",
        "trl": "--beta",
        "skyrl": "trainer.algorithm.kl_loss_coef",
    },
    "KL coefficient, in the reward": {
        "verl": "algorithm.kl_ctrl.kl_coef",
        "slime": "--kl-coef",
        "nemo-rl": "loss_fn.reference_policy_kl_penalty",
        "openrlhf": "--algo.kl.init_coef",
        "trl": "--beta",
        "skyrl": "trainer.algorithm.kl_loss_coef",
        "areal": "actor.kl_ctl",
    },
    "tokens of a prefill": {
        "verl": "actor_rollout_ref.rollout.max_num_batched_tokens",
        "slime": "--sglang-chunked-prefill-size",
        "nemo-rl": "policy.generation.vllm_kwargs.max_num_batched_tokens",
        "skyrl": "generator.inference_engine.max_num_batched_tokens",
    },
}
"""What is said → framework, or framework and kind of training engine → the key that says it."""
OLDER: Mapping[str, Mapping[str, str]] = {
    "lower clip": {"verl": "actor_rollout_ref.actor.clip_ratio"},
    "upper clip": {"verl": "actor_rollout_ref.actor.clip_ratio"},
    "largest norm of gradients": {"verl": "actor_rollout_ref.actor.grad_clip"},
}
"""Keys that launches still have for the same, and no export writes."""
LEAST = {"learning rate": {"nemo-rl megatron": "policy.megatron_cfg.optimizer.min_lr"}}
"""What a schedule ends with, which must not be above where it begins: constant, if it is that."""
CONSTANT = ("verl", "skyrl", "areal")
"""Frameworks whose learning rate is constant where a launch does not say otherwise."""
SCHEDULES = ("lr_scheduler", "optimizer_config.scheduler", "warmup_style")
"""What is in the names of their keys that may say otherwise."""
DECAYS = {
    "--lr": "--lr-decay-style",
    "--learning_rate": "--lr_scheduler_type",
    "--actor.adam.lr": "--actor.lr_scheduler",
}
"""Learning rate that decays unless told otherwise → the key that tells it."""
NEVER_WARM = ("openrlhf", "trl")
"""Frameworks whose constant learning rate has no warm-up."""
CLIPS = ("lower clip", "upper clip")
BOTH_CLIPS = {"openrlhf": "--actor.eps_clip_low_high"}
"""Frameworks that are told the lower and the upper clip by one key."""
ONE_CLIP = ("slime", "trl", "areal")
"""Frameworks whose upper clip is the lower one where a launch does not give it."""
LEAST_PREFILL = 2048
"""Tokens of a prefill below which a number is not carried: it turns something off, or is less than
engines run sequences at once."""


def learning_settings(imported: Imported, subject: Subject) -> dict[str, str]:
    """What a launch says of learning and sampling, as the framework of a subject is told it.

    Key of that framework → its value. Only numbers that the launch gives itself are carried.
    """
    found = dict[str, str]()
    for what in _with_effect(imported, subject):
        ours = _ours(imported, what)
        theirs = _key(ALIKE[what], subject.framework, subject.engine)
        value = None if ours is None or theirs is None else number_of(imported, ours)
        if theirs is None or value is None or not _is_carried(what, value):
            continue
        least = _key(LEAST.get(what, {}), subject.framework, subject.engine)
        found |= {key: written(value) for key in (theirs, least) if key is not None}
    found |= worded(imported, subject)
    if _is_constant(imported):
        warm = subject.framework.name in NEVER_WARM and warms_up(found)
        constant = "constant_with_warmup" if warm else "constant"
        found |= {there: constant for key, there in DECAYS.items() if key in found}
    return found | _both_clips(imported, subject)


def moved(imported: Imported, launch: Launch) -> dict[str, str]:
    """Key of a launch → what its conversion says instead, in the other framework's words."""
    source, target = (framework(each.target).name for each in (imported, launch))
    there = {
        each.key.lstrip("+"): f"{each.key}={each.value}"
        for each in launch.settings
        if each.because == MADE_OF
    }
    found = dict[str, str]()
    for what, keys in ALIKE.items():
        ours = {_ours(imported, what)}
        theirs = {key for name, key in keys.items() if name.split()[0] == target}
        if what in CLIPS:
            ours.add(BOTH_CLIPS.get(source))
            theirs.add(BOTH_CLIPS.get(target, ""))
        said = sorted(theirs & there.keys())
        if said and _has_effect(what, imported):
            found |= {key: there[said[0]] for key in ours if key is not None and key not in found}
    both = (keys_of(framework(each.target)) for each in (imported, launch))
    for own, others in zip(*both, strict=True):
        said = sorted(others & there.keys())
        found |= {key: there[said[0]] for key in own if said}
    return {each.key: found[each.key] for each in imported.settings if each.key in found}


def _both_clips(imported: Imported, subject: Subject) -> dict[str, str]:
    """The clips where one of the two frameworks has one key for both."""
    source, target = framework(imported.target).name, subject.framework.name
    given = {each.key: each.value for each in imported.settings}
    if BOTH_CLIPS.get(source, "") in given:
        clips = given[BOTH_CLIPS[source]].split()
        keys = [ALIKE[what].get(target) for what in CLIPS]
        return {key: clip for key, clip in zip(keys, clips, strict=False) if key is not None}
    ours = [_ours(imported, what) for what in CLIPS]
    if target not in BOTH_CLIPS or ours == [None, None]:
        return {}
    lower, upper = (
        imported.values.get(ALIKE[what].get(source, ""))
        if key is None
        else number_of(imported, key)
        for what, key in zip(CLIPS, ours, strict=True)
    )
    if not isinstance(lower, int | float) or not isinstance(upper, int | float):
        return {}
    return {BOTH_CLIPS[target]: f"{written(lower)} {written(upper)}"}


def _with_effect(imported: Imported, subject: Subject) -> Iterator[str]:
    """What means the same in both jobs."""
    same_kl = imported.spec.workload.kl == subject.job.spec.workload.kl
    for what in ALIKE:
        if what.startswith("KL") and not same_kl:
            continue
        if "critic" in what and "critic" not in subject.homes:
            continue
        if _has_effect(what, imported):
            yield what


def _has_effect(what: str, imported: Imported) -> bool:
    """False for the coefficient of a divergence that the launch does not have."""
    return not what.startswith("KL") or what.endswith(f"in the {imported.spec.workload.kl}")


def _ours(imported: Imported, what: str) -> str | None:
    """The launch's own key for what is said; None: it does not say it."""
    source, given = framework(imported.target), {each.key for each in imported.settings}
    keys = [_key(ALIKE[what], source, imported.engine), OLDER.get(what, {}).get(source.name)]
    if what == "upper clip" and source.name in ONE_CLIP:
        keys.append(ALIKE["lower clip"][source.name])
    return next((key for key in keys if key in given), None)


def _is_carried(what: str, value: float) -> bool:
    """Whether a number is one to the other framework too: 0 is no reference, and -1 is off."""
    if what.startswith("KL"):
        return value > 0
    return what != "tokens of a prefill" or value >= LEAST_PREFILL


def _is_constant(imported: Imported) -> bool:
    """Whether a launch has one learning rate all along."""
    told = [
        each.value.strip("\"'")
        for each in imported.settings
        if any(word in each.key for word in SCHEDULES)
    ]
    is_other = any(not value.startswith("constant") for value in told)
    return framework(imported.target).name in CONSTANT and not is_other


def _key(keys: Mapping[str, str], of: Framework, engine: str) -> str | None:
    return keys.get(of.name) or keys.get(f"{of.name} {engine}")
