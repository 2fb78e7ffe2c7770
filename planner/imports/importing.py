"""Read the launch of another framework as a job and a placement."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import ne

from pydantic import ValidationError

from automap.planner.errors import NotImportableError, Reason, SpecError
from automap.planner.exports.launch import LaunchSetting
from automap.planner.frameworks.description import Framework, framework, framework_names
from automap.planner.imports.areal.overrides import DIALECT as AREAL
from automap.planner.imports.areal.reading import read as read_areal
from automap.planner.imports.commands import PROGRAM, Dialect, started, starts_in
from automap.planner.imports.hazards import hazards_of
from automap.planner.imports.hazards import token_budgets as budgets_of
from automap.planner.imports.launch import (
    Answers,
    Imported,
    LaunchFile,
    LineChange,
    Rewritten,
)
from automap.planner.imports.nemo_rl.overrides import DIALECT as NEMO_RL
from automap.planner.imports.nemo_rl.reading import read as read_nemo_rl
from automap.planner.imports.openrlhf.reading import DIALECT as OPENRLHF
from automap.planner.imports.openrlhf.reading import read as read_openrlhf
from automap.planner.imports.respelling import respelt_files
from automap.planner.imports.rewriting import lines_to, obsolete
from automap.planner.imports.skyrl.reading import DIALECT as SKYRL
from automap.planner.imports.skyrl.reading import read as read_skyrl
from automap.planner.imports.slime.reading import DIALECT as SLIME
from automap.planner.imports.slime.reading import read as read_slime
from automap.planner.imports.trl.commands import DIALECT as TRL
from automap.planner.imports.trl.reading import read as read_trl
from automap.planner.imports.verl.reading import DIALECT as VERL
from automap.planner.imports.verl.reading import read as read_verl
from automap.planner.imports.writing import rewritten
from automap.planner.plan.types import Plan

IMPORTERS: Mapping[str, Callable[[Sequence[LaunchFile], Answers, Framework], Imported]] = {
    "verl": read_verl,
    "slime": read_slime,
    "nemo-rl": read_nemo_rl,
    "openrlhf": read_openrlhf,
    "trl": read_trl,
    "skyrl": read_skyrl,
    "areal": read_areal,
}
"""Name of a framework → what reads its launches."""
DIALECTS: Mapping[str, Dialect] = {
    "verl": VERL,
    "slime": SLIME,
    "nemo-rl": NEMO_RL,
    "openrlhf": OPENRLHF,
    "trl": TRL,
    "skyrl": SKYRL,
    "areal": AREAL,
}
"""Name of a framework → how scripts start it."""


WITHOUT_ROLLOUTS = re.compile(
    r"openrlhf\.cli\.train_(?:dpo|sft|rm|kto|kd|prm)\b"
    r"|verl\.trainer\.(?:fsdp_)?sft_trainer\w*"
    r"|trl\.scripts\.(?:dpo|sft|kto|reward)\b|(?<![\w/.-])trl (?:dpo|sft|kto|reward)\b"
    r"|examples/run_(?:dpo|sft|rm)\.py|\b(?:DPO|SFT|KTO|Reward)Trainer\b"
)
"""What starts training that generates nothing, in the names of the frameworks that are read."""


def import_launch(files: Sequence[LaunchFile], target: str, answers: Answers) -> Imported:
    """A launch as a job and a placement; the files are read as text, and no other is opened.

    Raises:
        NotImportableError: something is missing, wrong or not read; has every reason.
        SpecError: no such framework is described, or the catalogue has no such GPU.
    """
    described = framework(target)
    if answers.gpus_per_node is not None and not described.packs_nodes:
        summary = f"--gpus-per-node: a launch of {described.name} says it itself"
        raise NotImportableError(target, [Reason(summary=summary, remedy="leave it out")])
    try:
        return IMPORTERS[described.name](_read(files, described), answers, described)
    except NotImportableError as error:
        _need_own(files, answers, described)
        starts = described.target in _frameworks_of(files, answers)
        reason = None if starts else _without_rollouts(files)
        reasons = error.reasons if reason is None else [reason]
        raise NotImportableError(described.target, reasons, error.misspelt) from None
    except ValidationError as error:
        found = [f"{'.'.join(map(str, e['loc'])) or 'the job'}: {e['msg']}" for e in error.errors()]
        remedy = "change the launch, or give another value with --set KEY=…"
        reasons = [Reason(summary=each, remedy=remedy) for each in found]
        raise NotImportableError(target, reasons) from None
    except SpecError as error:
        if error.field == "gpu":
            raise
        summary = f"{error.field}: {error.message}"
        raise NotImportableError(target, [Reason(summary=summary, remedy=error.remedy)]) from None


def _read(files: Sequence[LaunchFile], described: Framework) -> list[LaunchFile]:
    """The files that are read: programs in Python are not, but those that a framework's may be.

    Raises:
        NotImportableError: there are none but such programs.
    """
    programs = DIALECTS[described.name].programs
    found = [each for each in files if not each.name.endswith(PROGRAM) or programs(each)]
    if files and not found:
        summary = f"{files[0].name} is Python, and is not run"
        remedy = "name the script that starts it"
        raise NotImportableError(described.target, [Reason(summary=summary, remedy=remedy)])
    return found


def _need_own(files: Sequence[LaunchFile], answers: Answers, described: Framework) -> None:
    """Refuse a launch that starts another framework, and not this one.

    Raises:
        NotImportableError: names the framework, and the command that takes it.
    """
    said = _frameworks_of(files, answers)
    if described.target in said:
        return
    for target, found in said.items():
        other = framework(target)
        summary = f"{found}, which is {other.name}, not {described.name}"
        reason = Reason(summary=summary, remedy=f"import it as {other.target}")
        raise NotImportableError(described.target, [reason])


def recognised(files: Sequence[LaunchFile], answers: Answers) -> str:
    """The framework, `name@version`, that a launch starts or that its configuration is of.

    Raises:
        NotImportableError: it says of none that it is its, or of several.
    """
    said = _frameworks_of(files, answers)
    if len(said) == 1:
        return next(iter(said))
    reason = None if said else _without_rollouts(files)
    if reason is not None:
        raise NotImportableError("an unknown framework", [reason])
    told = "; ".join(f"{found} ({target})" for target, found in said.items())
    summary = f"it is of several frameworks: {told}" if said else "it is of no framework known here"
    remedy = f"say of which with --from: {', '.join(said or framework_names())}"
    raise NotImportableError("an unknown framework", [Reason(summary=summary, remedy=remedy)])


def _without_rollouts(files: Sequence[LaunchFile]) -> Reason | None:
    """Training on given responses that a launch starts, which nothing here plans; None: none."""
    for file in files:
        for number, line in enumerate(file.text.splitlines(), 1):
            found = WITHOUT_ROLLOUTS.search(line)
            if found is not None and not line.lstrip().startswith("#"):
                summary = (
                    f"{file.name} line {number} starts {found[0]}, which generates nothing: plans "
                    "are of RL with rollouts"
                )
                remedy = "name a launch of PPO, GRPO or the like"
                return Reason(summary=summary, remedy=remedy)
    return None


def _frameworks_of(files: Sequence[LaunchFile], answers: Answers) -> dict[str, str]:
    """Framework, `name@version` → where the launch says that it is its."""
    said = {
        name: starts_in(files, answers, DIALECTS[framework(name).name])
        for name in framework_names()
    }
    return {name: found for name, found in said.items() if found}


def hazards(imported: Imported, plan: Plan) -> list[Reason]:
    """What is wrong with a launch although its framework may accept it; `plan` is its price."""
    return hazards_of(imported, plan, framework(imported.target))


def line_changes(imported: Imported, wanted: Sequence[LaunchSetting]) -> list[LineChange]:
    """The lines of a launch to change, so that its framework reads these settings."""
    return lines_to(imported, wanted, framework(imported.target))


def obsolete_keys(imported: Imported, wanted: Sequence[LaunchSetting]) -> list[str]:
    """Keys of a launch that its framework lacks once it reads these settings."""
    return obsolete(imported, wanted, framework(imported.target))


def rewrite(
    files: Sequence[LaunchFile],
    target: str,
    answers: Answers,
    changes: Sequence[LineChange],
    without: Sequence[str] = (),
) -> Rewritten:
    """The file that starts the job with these lines changed, and every other byte as it was.

    The file is read again: it says what an import says of the launch with these values, and the
    other commands of the script are started as before.

    Args:
        files: The launch; they are read as text, and no other is opened.
        target: Its framework, `name@version`.
        answers: What no launch says; keys that are respelt are written so.
        changes: Settings, and what they are to be.
        without: Keys of settings to leave out.

    Raises:
        NotImportableError: something of the launch is missing, wrong or not read, or cannot be
            changed where it stands; has every reason, with its line.
        SpecError: no such framework is described, or the catalogue has no such GPU.
    """
    described = framework(target)
    imported = import_launch(files, target, answers)
    if answers.respelt:
        files = _respelt(files, imported, answers)
        meant = rewrite(files, target, replace(answers, respelt={}), changes, without)
        return meant.model_copy(update={"changed": [*answers.respelt, *meant.changed]})
    found = rewritten(files, imported, changes, without, described)
    if isinstance(found, list):
        raise NotImportableError(target, found)
    new = {each.name: each.after for each in changes}
    wanted = import_launch(files, target, replace(answers, values={**answers.values, **new}))
    own = {key: value for key, value in answers.values.items() if key not in new}
    answers, told = replace(answers, values=own), f"{found.file} line {imported.line}"
    others = [replace(e, text=found.text) if e.name == found.file else e for e in files]
    again = import_launch(others, target, answers)
    if (again.values, again.placement) != (wanted.values, wanted.placement):
        remedy = f"change by hand: {' '.join(f'{key}={value}' for key, value in new.items())}"
        told += ": what comes after the command's words sets some of them anew"
        raise NotImportableError(target, [Reason(summary=told, remedy=remedy)])
    dialect = DIALECTS[described.name]
    before, after = (started(each, answers, dialect) for each in (files, others))
    if len(before) != len(after) or sum(map(ne, before, after)) > 1:
        told += ": these words are of other commands as well, which would change with it"
        settings = " ".join(f"{key}={value}" for key, value in new.items())
        remedy = f"give each job words of its own, or change all by hand: {settings}"
        raise NotImportableError(target, [Reason(summary=told, remedy=remedy)])
    return found


def _respelt(files: Sequence[LaunchFile], imported: Imported, answers: Answers) -> list[LaunchFile]:
    """The files with misspelt keys put right, so that they are read as they are meant.

    Raises:
        NotImportableError: one stands elsewhere, or more than once.
    """
    found = respelt_files(files, imported, answers.respelt)
    again = import_launch(found, imported.target, replace(answers, respelt={}))
    reasons = [
        Reason(summary=f"{each.file} line {each.line}: {each.key} stands more than once")
        for each in again.settings
        if each.key in answers.respelt
    ]
    if reasons or again.values != imported.values:
        told = f"{imported.file}: with its keys put right it is not read as it is meant"
        raise NotImportableError(imported.target, reasons or [Reason(summary=told)])
    return found


def token_budgets(imported: Imported) -> frozenset[str]:
    """Roles of a launch whose micro-batches are filled up to a number of tokens."""
    return budgets_of(imported, framework(imported.target))
