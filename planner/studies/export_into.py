"""A plan written into a launch that exists: what it decides otherwise changes, nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from automap.planner import catalogue
from automap.planner.catalogue import ModelArchitecture
from automap.planner.check.trust import need_sound
from automap.planner.errors import NotImportableError, PlanningError, Reason
from automap.planner.exports.exporting import export
from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.frameworks.description import Framework, framework
from automap.planner.imports.importing import (
    hazards,
    import_launch,
    line_changes,
    obsolete_keys,
    rewrite,
)
from automap.planner.imports.launch import Answers, Imported, LaunchFile, Rewritten
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import (
    CallPlacement,
    CallPlan,
    CopyPlacement,
    CopyPlan,
    Placement,
    Plan,
)
from automap.planner.planning import estimate
from automap.planner.studies.advice_offers import CACHE, decisions_of, settings_for

OF_THE_RUN = frozenset(
    {
        "name",
        "project",
        "logger",
        "train_files",
        "validation_files",
        "validation",
        "validation_first",
        "reward_function",
        "tools",
        "agent_loop",
        "critic_warmup",
        "passes_over_prompts",
        "longer_prompts",
        "start_weights",
        "save",
        "prompt_field",
        "label_field",
        "chat_template",
        "turns_function",
        "experiment",
        "trial",
        "folder",
        "meeting_place",
        "scheduler",
        "workers",
        "tokenizer",
        "engine_model",
        "prompts_kind",
        "learning_rate",
    }
)
"""Decisions that an export needs a value for, and that a launch has its own of."""
CHECKPOINTS = frozenset({"checkpoints", "with_checkpoints"})
"""Likewise, unless the job says how often there is one."""
SHARE_BYTES = 2**27
"""Bytes that a cache may lack: a share of a GPU's memory is written in ten-thousandths."""


def export_into(
    plan: Plan,
    files: Sequence[LaunchFile],
    target: str,
    *,
    values: Mapping[str, str] | None = None,
    job: int | None = None,
) -> Rewritten:
    """The launch with the settings that a plan decides otherwise, and every other byte kept.

    The plan stands in for what the launch cannot say: GPU type, lengths, sizes of models. What the
    launch says in words of its own (a share of memory for the cache, numbers of tokens for
    micro-batches) stays where the plan means the same.

    Args:
        plan: A plan that the framework can run.
        files: The launch; they are read as text, and no other is opened.
        target: Its framework, `name@version`.
        values: Variable of the script, or key of the framework → its value.
        job: Which of several jobs of the launch, from 1.

    Raises:
        NotExportableError: the framework cannot be told the plan; has every reason.
        NotImportableError: something of the launch is not read, or cannot be changed where it is.
        PlanCheckError: the plan fails the check.
        SpecError: no such framework is described.
    """
    described, workload = framework(target), plan.spec.workload
    need_sound(plan)
    pool = resolve(plan.spec).pools[0]
    answers = Answers(
        gpu=pool.gpu.name,
        values=dict(values or {}),
        prompt_length=workload.prompt_length,
        response_length=workload.response_length,
        models=_models(plan),
        spare_models=True,
        job=job,
        gpus_per_node=pool.gpus_per_node if described.packs_nodes else None,
    )
    imported = import_launch(files, target, answers)
    several = [
        (line_changes(imported, wanted), obsolete_keys(imported, wanted))
        for wanted in _wanted(imported, plan, described)
    ]
    if several[0] == ([], []) and _says(imported.placement, plan) and _starts(imported):
        return rewrite(files, target, answers, [])
    launch = export(plan, target, says_model=False)
    _need_same_models(imported, launch, described)
    for number, (changes, without) in enumerate(several):
        found = rewrite(files, target, answers, changes, without)
        again = import_launch(with_text(files, found), target, answers)
        # The last two have caches that the plan leaves room for.
        starts = number + 2 >= len(several) or _starts(again)
        if _says(again.placement, plan) and starts:
            notes = [*found.notes, *_beside(imported, found, plan, launch, described)]
            return found.model_copy(update={"notes": notes})
    told = f"{imported.file} line {imported.line}: what the launch says beside the plan's settings"
    remedy = f"write a launch of its own: automap export PLAN --target {target}"
    reason = Reason(summary=f"{told} makes another placement of it", remedy=remedy)
    raise NotImportableError(target, [reason])


def with_text(files: Sequence[LaunchFile], written: Rewritten) -> list[LaunchFile]:
    """The files of a launch, the one that was written in its new form."""
    return [
        replace(each, text=written.text) if each.name == written.file else each for each in files
    ]


def _models(plan: Plan) -> dict[str, str | ModelArchitecture]:
    """The sizes of every model that the plan places, the reference's being the actor's."""
    return {
        role: model.architecture
        for role, model in plan.spec.models.items()
        if model.architecture is not None and role != "reference"
    }


def _need_same_models(imported: Imported, launch: Launch, described: Framework) -> None:
    """Refuse a launch without the paths that the plan needs: no plan knows any.

    Raises:
        NotImportableError: the launch is of another kind of job.
    """
    decided, given = decisions_of(described), {each.key for each in imported.settings}
    reasons = []
    for each in launch.settings:
        decision, role = decided[each.key]
        key = each.key.lstrip("+")
        # What a framework runs by default is no model of the plan.
        is_there = key in given or (decision != "model" and imported.values.get(key))
        if each.placeholder and decision not in OF_THE_RUN and not is_there:
            what = f"the plan has a model of the {role}" if decision == "model" else each.because
            told = f"{imported.file} line {imported.line}: {what}, and the launch no {key}"
            reasons.append(Reason(summary=told, remedy=f"write {key}=PATH into it first"))
    if reasons:
        raise NotImportableError(imported.target, reasons)


def _wanted(
    imported: Imported, plan: Plan, described: Framework
) -> Iterator[Sequence[LaunchSetting]]:
    """What the plan decides otherwise than the launch, first without caches; then all of it.

    A cache of the launch's own that is enough for the plan stays.
    """
    decided = decisions_of(described)
    says_when = plan.spec.workload.checkpoint_every_iterations is not None
    of_the_run = OF_THE_RUN if says_when else OF_THE_RUN | CHECKPOINTS
    found = [
        each
        for each in settings_for(imported, plan)
        if not each.placeholder and decided[each.key][0] not in of_the_run
    ]
    with suppress(PlanningError):
        priced = estimate(imported.spec, imported.placement)
        now, then = (
            {each.key: each.value for each in settings_for(imported, of, spare_cache=False)}
            for of in (priced, plan)
        )
        changed = [each for each in found if now.get(each.key) != then[each.key]]
        yield [each for each in changed if decided[each.key][0] not in CACHE]
        yield changed
    yield found


def _starts(imported: Imported) -> bool:
    """Whether nothing is wrong with a launch, as a cache that is not free when engines start."""
    with suppress(PlanningError):
        return not hazards(imported, estimate(imported.spec, imported.placement))
    return False


def _says(placement: Placement, plan: Plan) -> bool:
    """Whether a placement is the plan's, but for the names of pools."""
    copies = {each.id: each for each in placement.copies}
    calls = {each.id: each for each in placement.calls}
    if {each.id for each in plan.copies} != copies.keys():
        return False
    return all(_same_copy(copies[each.id], each) for each in plan.copies) and all(
        _same_call(calls[each.id], each) for each in plan.calls
    )


def _same_copy(copy: CopyPlacement, planned: CopyPlan) -> bool:
    kept = {"first_gpu", "num_gpus", "offload"}
    ours, theirs = copy.layout, planned.layout
    if copy.role == "reference":  # it is priced without virtual stages, which it has the actor's of
        ours, theirs = (
            each.model_copy(update={"virtual_pipeline_parallel_size": 1}) for each in (ours, theirs)
        )
    return ours == theirs and copy.model_dump(include=kept) == planned.model_dump(include=kept)


def _same_call(call: CallPlacement, planned: CallPlan) -> bool:
    if (call.micro_batch_size, call.recompute) != (planned.micro_batch_size, planned.recompute):
        return False
    if call.kind == "generate" and call.parallelism != planned.parallelism:
        return False
    return (call.kv_cache_bytes or 0) + SHARE_BYTES >= (planned.kv_cache_bytes or 0)


def _beside(
    imported: Imported, found: Rewritten, plan: Plan, launch: Launch, described: Framework
) -> Iterator[str]:
    """What the plan needs of the launch beside its settings, which is left as it is."""
    for name, value in launch.environment.items():
        if name not in found.text and name != "HYDRA_FULL_ERROR":
            yield f"the script sets no {name}, which is to be {value}"
    decided = decisions_of(described)
    changed = {decided[key][0] for key in decided if key.lstrip("+") in found.changed + found.added}
    if changed & {"nodes", "gpus_per_node"}:
        size = f"{launch.num_nodes} nodes of {launch.gpus_per_node} GPUs"
        yield f"what starts Ray is as it was, and has to give {size}"
    models = {each.key.lstrip("+"): decided[each.key][1] for each in launch.settings}
    for each in imported.settings:
        role = models.get(each.key, "")
        if decided.get(each.key, ("", ""))[0] != "model" or role not in plan.spec.models:
            continue
        known, named = _known(each.value), plan.spec.models[role].architecture
        if known is not None and isinstance(named, str) and known != named:
            yield f"line {each.line}: the {role} is {known}, and the plan is made for {named}"


def _known(path: str) -> str | None:
    """What the catalogue calls the model in a folder."""
    found = catalogue.find_model(path.strip("'\"").rstrip("/").rpartition("/")[2])
    return None if found is None else found.name
