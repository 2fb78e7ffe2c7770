"""The launch of one framework as that of another: what of it the other one does not have."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from automap.planner.exports.exporting import export
from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.frameworks.description import JOB, Framework, framework
from automap.planner.imports.launch import Imported, ImportedSetting
from automap.planner.imports.rewriting import value_of
from automap.planner.plan.types import ResultModel
from automap.planner.spec import JobSpec
from automap.planner.studies.advice_offers import decisions_of
from automap.planner.studies.export_into import OF_THE_RUN
from automap.planner.studies.learning_settings import learning_settings, moved
from automap.planner.targets.tables import TARGETS, inside, left_open, left_to

KL_COEFFICIENTS = {"kl_coefficient", "kl_loss_coefficient"}
"""Weights of the KL divergence: one for loss and reward, or one for each."""
CLIPS = {"clip_low", "clip_high"}
"""Clips of the importance ratio, which are one setting in places: `clips`."""
LIMIT = "concurrent_sequences"
"""The limit of an engine's sequences, which goes with a conversion where the other has one."""
HOST_OPTIMIZER = "optimizer_cpu_offload"
"""An optimizer that updates on the host, which goes along where the other has one."""
NO_PLAN_HAS = (
    OF_THE_RUN
    | KL_COEFFICIENTS
    | CLIPS
    | {
        "advantage_deviation",
        "advantage_mean",
        "clips",
        "correction",
        "environment",
        "importance_correction",
        "kl_estimator",
        "loss",
        "model",
        "outlier_mask",
        "prefill_tokens",
        "reward_deviation",
        "reward_type",
        "weights",
    }
)
"""Decisions whose value no plan has: paths, coefficients, losses, and what is of the run alone."""


class Carried(ResultModel):
    """What becomes of the settings of a launch that no plan has."""

    had: dict[str, str]
    """Variable that the new launch asks for → what the old one has there."""
    said: dict[str, str]
    """Key of the old launch → the setting of the new one that says the same."""
    lost: list[ImportedSetting]
    """What the new launch does not say."""
    instead: dict[str, str]
    """Key of what is lost → what the new launch says in its place, where it says anything."""


def saying(imported: Imported) -> Callable[..., Launch]:
    """What makes the launch of a plan as `exports.exporting.export` does, for a conversion.

    It says what the launch says beside its plan: learning, sampling, the limit of its engines.
    """
    return partial(
        export,
        beside=partial(learning_settings, imported),
        most_sequences=imported.most_sequences,
    )


def carried(imported: Imported, launch: Launch) -> Carried:
    """What of a launch its conversion asks for again, and what it lacks.

    Whatever decides something of a plan is in the plan, so in both launches.
    """
    ours, theirs = framework(imported.target), framework(launch.target)
    decided, names = decisions_of(ours), decisions_of(theirs)
    written = {names[each.key]: each for each in launch.settings if each.key in names}
    of_key = {key.lstrip("+"): decision for key, decision in decided.items()}
    unused = _coefficient_without_effect(imported, ours)
    had, instead, lost = dict[str, str](), dict[str, str](), list[ImportedSetting]()
    said = moved(imported, launch)
    for each in imported.settings:
        if each.key in said:
            continue
        decision, role = of_key.get(each.key, ("", JOB))
        in_plan = each.decides and decision not in NO_PLAN_HAS
        if _goes_along(decision, imported) and all(name != decision for name, _ in written):
            lost.append(each)
            continue
        if in_plan and not _priced_as_another(ours, decision, imported.values.get(each.key)):
            continue
        there = next(_same(decision, role, written), None) if decision != unused else None
        if there is not None and there.placeholder:
            had[there.value] = each.value
        elif there is None or _value(there) != imported.values.get(each.key):
            lost.append(each)
            if there is not None:
                instead[each.key] = f"{there.key}={there.value}"
    return Carried(had=had, said=said, lost=lost, instead=instead)


def _goes_along(decision: str, imported: Imported) -> bool:
    """Whether a decision of a plan is in the new launch only where that knows it."""
    on_host = imported.spec.workload.optimizer_cpu_offload
    return decision == LIMIT or (decision == HOST_OPTIMIZER and on_host)


def _same(
    decision: str, role: str, written: dict[tuple[str, str], LaunchSetting]
) -> Iterator[LaunchSetting]:
    """Settings of the other launch that say the same of a role, or of the whole job.

    Those that are to be filled in come first.
    """
    names = {decision}
    if decision in KL_COEFFICIENTS:
        names |= KL_COEFFICIENTS
    elif decision in CLIPS:
        names.add("clips")
    named = (key for key in written if key[0] in names)
    found = [key for key in named if role == key[1] or JOB in (role, key[1])]
    for key in sorted(found, key=lambda key: (not written[key].placeholder, key[0] != decision)):
        yield written[key]


def _coefficient_without_effect(imported: Imported, source: Framework) -> str | None:
    """The weight of a KL divergence that the launch does not have, in a framework with two."""
    if not all(source.knows(each) for each in KL_COEFFICIENTS):
        return None
    return "kl_coefficient" if imported.spec.workload.kl == "loss" else "kl_loss_coefficient"


def _priced_as_another(source: Framework, decision: str, value: Any) -> bool:
    """Whether an estimate of advantages is not the one that a plan's algorithm stands for."""
    return decision == "advantage" and value not in source.algorithms.values()


def _value(setting: LaunchSetting) -> Any:
    return value_of(setting.key, setting.value)


def inside_another(spec: JobSpec, target: str) -> JobSpec:
    """The job of a launch as it is planned for another framework.

    What generates, whether in batches, whether sequences are packed and where the divergence is are
    as that has them.
    """
    [table] = [each for each in TARGETS.values() if each.name == target]
    workload = spec.workload
    given = {name: getattr(workload, name) for name in workload.model_fields_set}
    for name in left_open(spec, table):
        given.pop(name, None)
    update = {"workload": type(workload)(**given), "search": left_to(spec, table)}
    return inside(spec.model_copy(update=update), table.name)
