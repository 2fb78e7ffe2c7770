"""Read the launch of another framework as a job and a placement."""

from collections.abc import Callable, Mapping, Sequence

from pydantic import ValidationError

from automap.planner.errors import NotImportableError, Reason, SpecError
from automap.planner.exports.launch import LaunchSetting
from automap.planner.frameworks.description import Framework, framework
from automap.planner.imports.launch import Answers, Imported, LaunchFile, LineChange
from automap.planner.imports.verl.hazards import hazards_of
from automap.planner.imports.verl.hazards import token_budgets as budgets_of
from automap.planner.imports.verl.reading import read as read_verl
from automap.planner.imports.verl.rewriting import lines_to
from automap.planner.plan.types import Plan

IMPORTERS: Mapping[str, Callable[[Sequence[LaunchFile], Answers, Framework], Imported]] = {
    "verl": read_verl
}
"""Name of a framework → what reads its launches."""


def import_launch(files: Sequence[LaunchFile], target: str, answers: Answers) -> Imported:
    """A launch as a job and a placement; the files are read as text, and no other is opened.

    Raises:
        NotImportableError: something is missing, wrong or not read; has every reason.
        SpecError: no such framework is described, or the catalogue has no such GPU.
    """
    described = framework(target)
    try:
        return IMPORTERS[described.name](files, answers, described)
    except ValidationError as error:
        found = [f"{'.'.join(map(str, e['loc'])) or 'the job'}: {e['msg']}" for e in error.errors()]
        raise NotImportableError(target, [Reason(summary=each) for each in found]) from None
    except SpecError as error:
        if error.field == "gpu":
            raise
        summary = f"{error.field}: {error.message}"
        raise NotImportableError(target, [Reason(summary=summary, remedy=error.remedy)]) from None


def hazards(imported: Imported, plan: Plan) -> list[Reason]:
    """What is wrong with a launch although its framework may accept it; `plan` is its price."""
    return hazards_of(imported, plan, framework(imported.target))


def line_changes(imported: Imported, wanted: Sequence[LaunchSetting]) -> list[LineChange]:
    """The lines of a launch to change, so that its framework reads these settings."""
    return lines_to(imported, wanted, framework(imported.target))


def token_budgets(imported: Imported) -> frozenset[str]:
    """Roles of a launch whose micro-batches are filled up to a number of tokens."""
    return budgets_of(imported, framework(imported.target))
