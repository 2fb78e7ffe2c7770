"""What is wrong with a launch that the framework accepts: the rules that hold for exports."""

from collections.abc import Collection
from dataclasses import replace

from automap.planner.errors import Reason
from automap.planner.exports.engine_memory import start_bytes
from automap.planner.exports.refusals import refusals
from automap.planner.exports.subject import TRAINERS, Subject, overlap, subject_of
from automap.planner.frameworks.description import JOB, Framework
from automap.planner.imports.launch import Imported
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.units import GIB

OF_PLANS = ("critic_tokens", "one_layout")
"""Limits that a placement may break where its launch does not: it says budgets as numbers of
sequences, and sizes of one process are made one when it is read."""

OF_TRAINER = ("epochs_apart",)
"""Limits of the asynchronous mode of verl's own trainer, which its other programs do not have."""

OF_ORDER = ("in_turn",)
"""Limits of the order of calls, which the framework gives them: a job that is priced outside it has
another one."""


def hazards_of(imported: Imported, plan: Plan, framework: Framework) -> list[Reason]:
    """Reasons why the launch would fail, or run otherwise than its settings say."""
    subject = subject_of(resolve(plan.spec), plan, framework)
    subject = replace(subject, token_budgets=token_budgets(imported, framework))
    others = [*OF_PLANS, *(OF_TRAINER if imported.entry else ())]
    if framework.packs_nodes:
        others.append("whole_nodes")  # where no launch can say otherwise
    if imported.spec.search.target != imported.target:
        others += OF_ORDER
    unfit = [Reason(summary=each.text) for each in imported.remarks if each.kind == "does not fit"]
    return [
        *unfit,
        *_accepted(subject, others),
        *_cache(imported, subject),
        *_served(imported, subject),
    ]


def _accepted(subject: Subject, left_out: Collection[str]) -> list[Reason]:
    """Limits that the launch breaks, and that its own checks let through."""
    framework, found = subject.framework, []
    broken = {
        limit.what: limit
        for limit in framework.limits
        if limit.unchecked and limit.name not in left_out
    }
    for each in refusals(subject):
        summary, _, what = each.summary.partition(f"; {framework.target} cannot be told ")
        if what in broken:
            found.append(Reason(summary=f"{summary}: {what}", remedy=each.remedy))
    return found


def token_budgets(imported: Imported, framework: Framework) -> frozenset[str]:
    """Roles of a launch whose micro-batches are filled up to a number of tokens."""
    # Without a switch it is the number itself that says so; where it does not count it is below 1.
    decisions = {setting.decision for setting in framework.settings}
    switch = "dynamic_batches" if "dynamic_batches" in decisions else "forward_tokens"
    found = {
        role
        for setting in framework.settings
        if setting.decision == switch
        for role, key in setting.keys.items()
        if imported.values.get(key.lstrip("+")) not in (None, False, 0, -1)
    }
    return frozenset(found | (set(TRAINERS) if JOB in found else set()))


def _cache(imported: Imported, subject: Subject) -> list[Reason]:
    """The whole cache of an engine, of which the placement has what its sequences can use."""
    found = []
    for call in subject.generations:
        whole = call.model_copy(update={"kv_cache_bytes": imported.cache_bytes})
        needed, before = start_bytes(subject, whole), start_bytes(subject, call)
        if needed > call.capacity_bytes >= before:
            summary = (
                f"{call.id}: {needed / GIB:.1f} GiB of {call.capacity_bytes / GIB:.1f} when the "
                "engine starts, with all of its cache"
            )
            remedy = "a smaller share of the memory, or offload of what stays"
            found.append(Reason(summary=summary, remedy=remedy))
    return found


def _served(imported: Imported, subject: Subject) -> list[Reason]:
    """The share of the memory that the engine of a reward model takes, beside what stays there."""
    reward, call = subject.reward, subject.call("reward", "forward")
    if reward is None or call is None or not subject.framework.knows("memory_share", role="reward"):
        return []
    [key] = [
        setting.keys["reward"].lstrip("+")
        for setting in subject.framework.settings
        if setting.decision == "memory_share" and "reward" in setting.keys
    ]
    share = imported.values.get(key)
    if not isinstance(share, int | float):
        return []
    others = [each for each in subject.plan.copies if each is not reward and overlap(each, reward)]
    own = int(share * subject.pool(reward).gpu.memory_bytes)
    needed = own + sum(each.resident_bytes for each in others)
    if not others or needed <= call.capacity_bytes:
        return []
    summary = (
        f"{call.id}: {needed / GIB:.1f} GiB of {call.capacity_bytes / GIB:.1f} when it is served, "
        f"with the {own / GIB:.1f} GiB that {key} {share:g} takes"
    )
    return [Reason(summary=summary, remedy="a smaller share of the memory")]
