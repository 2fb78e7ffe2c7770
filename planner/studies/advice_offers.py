"""What could change in a launch: groups of decisions that belong together, as a plan has them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from automap.planner.exports.exporting import settings_of
from automap.planner.exports.launch import LaunchSetting
from automap.planner.exports.memory_share import FILLED_WITH_A_CHANCE_OF
from automap.planner.frameworks.description import JOB, Framework, framework
from automap.planner.imports.importing import line_changes, token_budgets
from automap.planner.imports.launch import Imported, LineChange
from automap.planner.plan.types import Plan

COUNTS = ("train_micro_batch", "forward_micro_batch", "stated_micro_batch")
"""Decisions that count nothing where micro-batches are numbers of tokens."""
SEPARATE = ("concurrent_sequences", "engine_sleeps")
"""Decisions that mean something without the others of their role."""
CACHE = frozenset({"cache_bytes", "cache_tokens", "memory_share"})
"""Decisions about the cache of an engine."""
ROUNDING = "sums are rounded in another order"
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Group:
    """Decisions that change together."""

    name: str
    decisions: tuple[str, ...]
    numerics: str = NOTHING
    """What a change of them does to results."""
    learning: bool = False


GROUPS = (
    Group(
        "engine sizes",
        (
            "engine_backend",
            "engine_gpus",
            "engines",
            "engine_tensor_parallel_size",
            "engine_data_parallel_size",
            "engine_attention_replicas",
            "engine_expert_parallel_size",
        ),
        ROUNDING,
    ),
    Group(
        "cache and concurrent sequences",
        (
            "cache_bytes",
            "cache_tokens",
            "memory_share",
            "concurrent_sequences",
            "sent_sequences",
            "engine_sleeps",
        ),
    ),
    Group(
        "training layout and micro-batches",
        (
            "backend",
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "virtual_pipeline_parallel_size",
            "virtual_stage_layers",
            "sequence_parallel",
            "first_stage_layers",
            "last_stage_layers",
            "context_parallel_size",
            "expert_parallel_size",
            "expert_tensor_parallel_size",
            "dynamic_batches",
            *COUNTS,
            "train_tokens",
            "forward_tokens",
            # Where an optimizer step is so many micro-batches.
            "accumulation",
            "generation_batch",
            "generation_steps",
        ),
        ROUNDING,
    ),
    Group(
        "sharding and offload",
        (
            "sharded_optimizer",
            "sharding_group",
            "reshard_after_forward",
            "offload_weights",
            "offload_optimizer",
        ),
    ),
    Group(
        "recomputation",
        ("recompute_on", "recompute", "recompute_modules", "recompute_method", "recompute_layers"),
    ),
)
"""What a plan decides on given GPUs."""
LEARNING = (
    Group(
        "one optimizer step per iteration",
        ("mini_batch", "updates", "syncs"),
        "larger and fewer optimizer steps",
        learning=True,
    ),
    Group("one epoch", ("epochs",), "every response is trained on once", learning=True),
    Group(
        "one batch more of staleness",
        ("staleness", "version_span"),
        "responses are of older weights",
        learning=True,
    ),
    Group(
        "8-bit rollouts",
        ("rollout_precision",),
        "responses are of weights with 8 bits",
        learning=True,
    ),
)
"""What changes what is learned, or from what."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A group and the lines that make the launch say it as the plan does."""

    group: Group
    lines: tuple[LineChange, ...]
    parts: tuple[str, ...]
    """The part that each line belongs to: what can be left out is a whole part."""

    def without(self, taken: Sequence[LineChange]) -> "Offer":
        """What is left of it: parts that saved nothing may make room for another offer."""
        names = {line.name for line in taken}
        left = [
            (line, part)
            for line, part in zip(self.lines, self.parts, strict=True)
            if line.name not in names
        ]
        return Offer(self.group, tuple(line for line, _ in left), tuple(part for _, part in left))


def offers_of(imported: Imported, plan: Plan) -> list[Offer]:
    """Every group that the plan decides otherwise than the launch."""
    decided = decisions_of(framework(imported.target))
    settings = settings_for(imported, plan, spare_cache=False)
    found = []
    for group in GROUPS:
        wanted = [each for each in settings if decided[each.key][0] in group.decisions]
        found.append(_offer(imported, group, wanted, decided))
    return [each for each in found if each.lines]


def settings_for(
    imported: Imported,
    plan: Plan,
    *,
    spare_cache: bool = True,
    spare_chance: float = FILLED_WITH_A_CHANCE_OF,
) -> list[LaunchSetting]:
    """The settings of a plan in place of a launch's: numbers of tokens where it has them."""
    decided = decisions_of(framework(imported.target))
    budgets = frozenset(
        role for role in token_budgets(imported) if _sayable_by_budget(role, plan, decided)
    )
    settings = settings_of(
        plan,
        imported.target,
        token_budgets=budgets,
        spare_cache=spare_cache,
        spare_chance=spare_chance,
    )
    settings = list(_in_steps(settings, imported, decided))
    by_name = {each.key: each.value for each in settings}
    return [each for each in settings if not _counts_nothing(each, decided, by_name)]


def _in_steps(
    settings: Sequence[LaunchSetting],
    imported: Imported,
    decided: Mapping[str, tuple[str, str]],
) -> Iterator[LaunchSetting]:
    """An iteration's sequences as so many micro-batches, where the launch has that number."""
    given = {decided[each.key][0] for each in imported.settings if each.key in decided}
    described, values = framework(imported.target), {each.key: each.value for each in settings}
    for each in settings:
        decision = decided[each.key][0]
        if decision == "generation_steps" and decision in given:
            named = ("generation_batch", "train_micro_batch", "gpus")
            whole, size, gpus = (int(values[described.setting(name).key()]) for name in named)
            steps = whole // (size * gpus)
            yield each.model_copy(update={"value": str(steps)})
        elif decision != "generation_batch" or "generation_steps" not in given:
            yield each


def learning_offers(imported: Imported) -> list[Offer]:
    """What would change what is learned; each of these is cheaper, as far as it runs."""
    described = framework(imported.target)
    decided = decisions_of(described)
    # Another program than the framework's own trainer says synchrony in words of its own.
    trainers = ("staleness", "syncs", "version_span") if imported.entry else ()
    found = []
    for group, wanted in zip(LEARNING, _learning(imported, described), strict=True):
        sayable = [each for each in wanted if decided[each.key][0] not in trainers]
        found.append(_offer(imported, group, sayable, decided))
    return [each for each in found if each.lines]


def _learning(imported: Imported, described: Framework) -> Iterator[Sequence[LaunchSetting]]:
    """The settings of each group of LEARNING."""
    staleness = imported.spec.search.staleness
    apart = any(copy.kind == "shadow" for copy in imported.placement.copies)
    roles = [role for role in ("actor", "critic") if role in imported.spec.models]
    decision, whole = _one_update(imported, described)
    mini = [each for role in roles for each in _setting(described, decision, role, str(whole))]
    yield [*mini, *(_setting(described, "syncs", JOB, "1") if apart else [])]
    yield [each for role in roles for each in _setting(described, "epochs", role, "1")]
    older = {"staleness": staleness + 1, "version_span": staleness + 2}
    later = [each for name, n in older.items() for each in _setting(described, name, JOB, str(n))]
    yield later if apart else []
    yield _setting(described, "rollout_precision", "rollout", "fp8")


def _one_update(imported: Imported, described: Framework) -> tuple[str, int]:
    """(decision, its value) with which an iteration is one optimizer step."""
    workload = imported.spec.workload
    if described.knows("updates", role="actor"):
        return "updates", 1
    counted = described.knows("mini_batch", role="actor")
    sequences = counted and described.setting("mini_batch", role="actor").unit == "sequences"
    return "mini_batch", workload.num_sequences if sequences else workload.prompts_per_iteration


def _setting(described: Framework, decision: str, role: str, value: str) -> list[LaunchSetting]:
    """The setting of a decision; none where the framework cannot be told it."""
    if not described.knows(decision, role=role):
        return []
    key = described.setting(decision, role=role).key(role)
    return [LaunchSetting(key=key, value=value, because="")]


def _offer(
    imported: Imported,
    group: Group,
    wanted: Sequence[LaunchSetting],
    decided: Mapping[str, tuple[str, str]],
) -> Offer:
    lines = tuple(line_changes(imported, wanted))
    parts = {
        key.lstrip("+"): f"{role} {decision}" if decision in SEPARATE else role
        for key, (decision, role) in decided.items()
    }
    return Offer(group, lines, tuple(parts[each.name] for each in lines))


def decisions_of(described: Framework) -> dict[str, tuple[str, str]]:
    """Key → (decision, role)."""
    return {
        key: (setting.decision, role)
        for setting in described.settings
        for role, key in setting.keys.items()
    }


def _sayable_by_budget(role: str, plan: Plan, decided: Mapping[str, tuple[str, str]]) -> bool:
    """Whether budgets can say the micro-batches of a role: a critic has one for all calls."""
    if not {("train_tokens", role), ("train_tokens", JOB)}.isdisjoint(decided.values()):
        return True
    sizes = {call.micro_batch_size for call in plan.calls if call.role == role}
    return len(sizes - {None}) <= 1


def _counts_nothing(
    setting: LaunchSetting, decided: Mapping[str, tuple[str, str]], values: Mapping[str, str]
) -> bool:
    """Whether it is a number of sequences where numbers of tokens count."""
    decision, role = decided[setting.key]
    if decision not in COUNTS:
        return False
    return any(
        values[key] == "True"
        for key in values
        if key in decided and decided[key] == ("dynamic_batches", role)
    )
