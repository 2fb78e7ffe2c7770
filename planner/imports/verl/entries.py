"""Programs of verl beside its trainer: what each takes, and what of the trainer's keys it means."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from automap.planner.errors import Reason
from automap.planner.frameworks.description import Framework
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.values import Value, ValueFormError, read_value

MEGATRON = {"model_engine": "megatron"}
HYBRID = "actor_rollout_ref.hybrid_engine"
MINI_BATCH = "actor_rollout_ref.actor.ppo_mini_batch_size"
_APART = {"trainer.use_v1": "True", "trainer.v1.trainer_mode": "separate_async"}
_ROLLOUT = "actor_rollout_ref.rollout"
_ON_ROLLOUTS = {
    "rollout.nnodes": "1",
    "rollout.n_gpus_per_node": "8",
    f"{_ROLLOUT}.checkpoint_engine.backend": "nccl",
    "algorithm.rollout_correction.bypass_mode": "True",
}
_POOL = {
    "rollout.nnodes": f"{_ROLLOUT}.nnodes",
    "rollout.n_gpus_per_node": f"{_ROLLOUT}.n_gpus_per_node",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A program that trains, in the words of verl's own trainer."""

    names: tuple[str, ...]
    """Ends of its module's dotted name."""
    config: str
    """Configuration that it reads where none is named."""
    note: str
    """What is taken for granted of it."""
    engines: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Its configurations beside that → what they set."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Keys that its configuration sets otherwise than the trainer's."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Keys of its own → those of the trainer that they are copied into."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """What it always does, as keys of the trainer."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Keys without whose value it does not start."""
    own: tuple[str, ...] = ()
    """Keys that only it has, and that decide nothing else of a plan; * for any characters."""


ONE_STEP_OFF = Entry(
    names=("one_step_off_policy.main_ppo", "one_step_off_policy.async_main_ppo"),
    config="one_step_off_ppo_trainer",
    note="one step off: a batch is generated while the one before it is trained on (staleness 1)",
    engines={"one_step_off_ppo_megatron_trainer": MEGATRON},
    defaults={**_ON_ROLLOUTS, f"{_ROLLOUT}.free_cache_engine": "False"},
    moved=_POOL,
    fixed={**_APART, "trainer.v1.separate_async.num_warmup_batches": "1"},
    needs={HYBRID: "False"},
    own=("rollout.*",),
)
FULLY_ASYNC = Entry(
    names=("fully_async_policy.fully_async_main",),
    config="fully_async_ppo_trainer",
    note=(
        "fully asynchronous: an iteration is what is trained between two weight updates "
        f"({MINI_BATCH} × async_training.require_batches × trigger_parameter_sync_step prompts), "
        "and staleness_threshold is priced in whole batches"
    ),
    engines={"fully_async_ppo_megatron_trainer": MEGATRON},
    defaults=_ON_ROLLOUTS,
    moved=_POOL,
    fixed=_APART,
    needs={HYBRID: "False"},
    own=("rollout.*", "async_training.*", "data.gen_batch_size", "*.use_rollout_log_probs"),
)
DAPO = Entry(
    names=("dapo.main_dapo",),
    config="dapo_trainer",
    note="DAPO's recipe is of no release of verl: its settings are read as those of this one",
    engines={"dapo_megatron_trainer": MEGATRON},
    fixed={"trainer.use_v1": "False"},
    own=("algorithm.filter_groups.*", "data.gen_batch_size", "reward_model.overlong_buffer.*"),
)
ENTRIES = (ONE_STEP_OFF, FULLY_ASYNC, DAPO)


def entry_named(module: str, framework: Framework) -> Entry | None:
    """The program of a module; None: it is not read."""
    if module.endswith(framework.entry):
        return Entry((framework.entry,), "ppo_trainer", "")
    for entry in ENTRIES:
        if any(module.endswith(name) for name in entry.names):
            return entry
    return None


def read_names(framework: Framework) -> Sequence[str]:
    """Modules that are read, by the ends of their names."""
    return [framework.entry, *(entry.names[0] for entry in ENTRIES)]


def in_trainers_words(entry: Entry, overrides: Overrides) -> None:
    """Give what a program means by keys of its own to the trainer's keys."""
    at = Given("", "", overrides.file, overrides.line)
    for old, new in entry.moved.items():
        given = overrides.given.pop(old, None)
        if given is not None:
            overrides.set(replace(given, key=new), over=True)
    for key, value in entry.needs.items():
        given = overrides.given.get(key)
        if given is None or given.value.lower() != value.lower():
            told = f"{key} is not {value}, and {entry.names[0]} does not start without it"
            overrides.remark("does not fit", told, given or at)
        _imply(overrides, key, value)
    for key, value in entry.fixed.items():
        _imply(overrides, key, value)
    if entry is FULLY_ASYNC:
        _between_updates(overrides)
    if entry.note:
        overrides.remark("assumed", entry.note, at)


def generated(overrides: Overrides) -> float | None:
    """Prompts that DAPO's recipe generates at once; None: as many as it trains on."""
    if overrides.entry != DAPO.names[0]:
        return None
    return _number(overrides, "data.gen_batch_size", None)


def _between_updates(overrides: Overrides) -> None:
    """A batch as what is trained between two updates of the rollout's weights."""
    mini = _number(overrides, MINI_BATCH, 256)
    batches = _number(overrides, "async_training.require_batches", 1)
    steps = _number(overrides, "async_training.trigger_parameter_sync_step", 4)
    behind = _number(overrides, "async_training.staleness_threshold", 0.1)
    if mini is not None and batches is not None and steps is not None:
        _imply(overrides, "data.train_batch_size", f"{mini * batches * steps:g}")
    if behind is not None:
        staleness = str(math.ceil(behind))
        _imply(overrides, "trainer.v1.separate_async.num_warmup_batches", staleness)


def _imply(overrides: Overrides, key: str, value: str) -> None:
    """Set what a program does by itself; what the launch says of it does not count."""
    overrides.set(Given(key, value, overrides.file, overrides.line), over=True)
    overrides.implied.add(key)


def _number(overrides: Overrides, key: str, default: float | None) -> float | None:
    given = overrides.given.get(key)
    if given is None:
        return default
    value: Value = None
    if given.unknown is None:
        try:
            value = read_value(given.value)
        except ValueFormError:
            value = None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**31:
        return value
    told = f"{key} (line {given.line}) is {given.value[:60]!r}, which is no number"
    name = given.unknown.name if given.unknown is not None and given.unknown.name else key
    overrides.reasons.append(Reason(summary=told, remedy=f"give it with --set {name}=…"))
    return default
