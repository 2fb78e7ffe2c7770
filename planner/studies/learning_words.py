"""How a launch averages its loss and warms its learning rates up, in another framework's words.

Frameworks have words of their own for averages, and count warm-ups in optimizer steps, in
iterations, or as a share of the run.
"""

from collections.abc import Iterator, Mapping

from automap.planner.exports.subject import Subject
from automap.planner.frameworks.description import Framework, framework
from automap.planner.imports.launch import Imported
from automap.planner.imports.rewriting import value_of
from automap.planner.spec import JobSpec

TOKENS, SEQUENCES = "the mean over all tokens", "the mean over sequences of means over tokens"
AVERAGES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "verl": (
        "actor_rollout_ref.actor.loss_agg_mode",
        {TOKENS: "token-mean", SEQUENCES: "seq-mean-token-mean"},
    ),
    "slime": ("--calculate-per-token-loss", {TOKENS: "True", SEQUENCES: "False"}),
    "nemo-rl": ("loss_fn.token_level_loss", {TOKENS: "true", SEQUENCES: "false"}),
    "openrlhf": (
        "--actor.loss_agg_mode",
        {TOKENS: "token-mean", SEQUENCES: "seq-mean-token-mean"},
    ),
    "trl": ("--loss_type", {TOKENS: "dapo", SEQUENCES: "grpo"}),
    "skyrl": (
        "trainer.algorithm.loss_reduction",
        {TOKENS: "token_mean", SEQUENCES: "sequence_mean"},
    ),
}
"""Framework → the key that says how the loss is averaged, and its words for what it may be.

Other words mean what no two of them have alike: sums over a length that each takes otherwise."""
WITHOUT_AVERAGE = {"trl": ("rloo",)}
"""Framework → algorithms whose trainer has no such key."""

UPDATES, ITERATIONS, SHARE = "optimizer steps", "iterations", "share of the run"
WARM_UPS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "warm-up": {
        "verl": {
            ITERATIONS: "actor_rollout_ref.actor.optim.lr_warmup_steps",
            SHARE: "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio",
        },
        "slime": {UPDATES: "--lr-warmup-iters", SHARE: "--lr-warmup-fraction"},
        "openrlhf": {SHARE: "--actor.lr_warmup_ratio"},
        "trl": {UPDATES: "--warmup_steps", SHARE: "--warmup_steps"},
        "skyrl": {UPDATES: "trainer.policy.optimizer_config.num_warmup_steps"},
        "areal": {SHARE: "actor.optimizer.warmup_steps_proportion"},
    },
    "warm-up of the critic": {
        "verl": {
            ITERATIONS: "critic.optim.lr_warmup_steps",
            SHARE: "critic.optim.lr_warmup_steps_ratio",
        },
        "slime": {UPDATES: "--critic-lr-warmup-iters"},
        "openrlhf": {SHARE: "--critic.lr_warmup_ratio"},
        "skyrl": {UPDATES: "trainer.critic.optimizer_config.num_warmup_steps"},
        "areal": {SHARE: "critic.optimizer.warmup_steps_proportion"},
    },
}
"""What is warmed up → framework → what it counts in → the key that says so many.

NeMo-RL's are of one engine, and what they count in is not known here."""


def worded(imported: Imported, subject: Subject) -> dict[str, str]:
    """Key of a subject's framework → its value, of what the launch gives itself."""
    found = dict(_average(imported, subject))
    for what in WARM_UPS:
        if "critic" not in what or "critic" in subject.homes:
            found |= _warm_up(imported, subject, what)
    return found


def warms_up(found: Mapping[str, str]) -> bool:
    """Whether some of these settings are a warm-up that takes time."""
    keys = {key for units in WARM_UPS["warm-up"].values() for key in units.values()}
    return any(float(value) > 0 for key, value in found.items() if key in keys)


def keys_of(of: Framework) -> Iterator[set[str]]:
    """The keys of a framework that say one thing together, in the order of all things."""
    yield {AVERAGES[of.name][0]} if of.name in AVERAGES else set()
    for keys in WARM_UPS.values():
        yield set(keys.get(of.name, {}).values())


def number_of(imported: Imported, key: str) -> float | int | None:
    """The number that a launch gives a key itself; None: it gives none."""
    given = [each.value for each in imported.settings if each.key == key]
    value = imported.values.get(key) if given else None
    if given and value is None:
        value = value_of(key, given[-1].strip("\"'"))
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def written(value: float) -> str:
    """A number that YAML 1.1 reads as one too: with a point before an exponent."""
    if isinstance(value, int):
        return str(value)
    mantissa, mark, exponent = f"{value:.12g}".partition("e")
    return (mantissa if "." in mantissa else f"{mantissa}.0") + mark + exponent


def _average(imported: Imported, subject: Subject) -> Iterator[tuple[str, str]]:
    source, target = framework(imported.target).name, subject.framework.name
    if source not in AVERAGES or target not in AVERAGES:
        return
    if subject.job.spec.algorithm in WITHOUT_AVERAGE.get(target, ()):
        return
    (ours, said), (theirs, words) = AVERAGES[source], AVERAGES[target]
    given = {each.key: each.value.strip("\"'").lower() for each in imported.settings}
    for meaning, word in said.items():
        if given.get(ours) == word.lower():
            yield theirs, words[meaning]


def _warm_up(imported: Imported, subject: Subject, what: str) -> dict[str, str]:
    """A warm-up that ends when the launch's does, where the framework counts it in what is known.

    What becomes of a share in steps depends on how long the run is, which no launch says for sure.
    """
    keys = WARM_UPS[what].get(subject.framework.name, {})
    found = _counted(imported, what)
    before, after = (_updates(each) for each in (imported.spec, subject.job.spec))
    if UPDATES in found:
        found[ITERATIONS] = found[UPDATES] / before
    if ITERATIONS in found:
        found[UPDATES] = found[ITERATIONS] * after
    for unit, key in keys.items():
        number = found.get(unit)
        if number is not None and unit == SHARE and number < 1:
            return {key: written(float(number))}
        if number is not None and unit != SHARE and float(number).is_integer():
            return {key: str(int(number))}
    return {}


def _updates(spec: JobSpec) -> int:
    """Optimizer steps of an iteration."""
    return spec.workload.updates_per_epoch * spec.workload.epochs


def _counted(imported: Imported, what: str) -> dict[str, float]:
    """What a launch's warm-up is counted in → how many; nothing where it gives none."""
    found = dict[str, float]()
    for unit, key in WARM_UPS[what].get(framework(imported.target).name, {}).items():
        number = number_of(imported, key)
        # One key for both is a share below 1; steps that are none leave the word to a share.
        if number is None or (unit == UPDATES and 0 < number < 1):
            continue
        if number <= 0:
            found = found or {UPDATES: 0.0, ITERATIONS: 0.0, SHARE: 0.0}
        elif unit != SHARE or (number < 1 and not found.get(ITERATIONS)):
            found = {unit: number}
    return found
