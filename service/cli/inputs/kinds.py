"""What a document is, by its fields: a user who named another file learns which it is."""

from automap.planner.errors import SpecError
from automap.planner.plan import Provenance
from automap.planner.spec import JobSpec
from automap.service.cli.terminal.console import stderr_console
from automap.service.cli.terminal.failures import BadInputError

PLAN, RECORD, PLACEMENT = "a plan", "the record of a plan", "a placement"
REPORT, SPEC, SETTINGS = "the report of a run", "a job spec", "run settings"
_MARKS = (
    (PLAN, ("copies", "iteration_seconds")),
    (RECORD, ("plan",)),
    (PLACEMENT, ("copies",)),
    (REPORT, ("outcome", "calls")),
    (SETTINGS, ("data",)),
    (SPEC, ("models",)),
    (SPEC, ("workload",)),
    (SPEC, ("cluster",)),
)
"""The fields that only this kind of document has together; the first kind that fits counts."""
_LOOKS = {
    PLAN: "a plan has copies, calls and iteration_seconds, as automap plan writes it",
    PLACEMENT: "a placement has copies and calls",
    REPORT: "a report is the report.json that automap run writes",
    SPEC: "a job spec has models, workload and cluster",
    SETTINGS: "run settings have data",
}


def kind_of(document: object) -> str | None:
    """What a document was meant to be; None where no field says."""
    if isinstance(document, dict):
        for kind, marks in _MARKS:
            if all(mark in document for mark in marks):
                return kind
    return None


def mark_of(document: object, kind: str) -> str:
    """The fields by which a document is of that kind; empty where it has none of them."""
    marks = next(
        (
            marks
            for name, marks in _MARKS
            if name == kind and isinstance(document, dict) and all(it in document for it in marks)
        ),
        (),
    )
    return " and ".join(f"`{mark}`" for mark in marks)


def need_kind(document: object, name: str, *wanted: str, remedy: str = "") -> None:
    """Refuse what is plainly another document, or none that we know.

    Raises:
        BadInputError: says what it is and what is wanted.
    """
    kind = kind_of(document)
    if kind in wanted:
        return
    either = " or ".join(kind for kind in wanted if kind in _LOOKS)
    if kind is None:
        looks = [_LOOKS[each] for each in wanted if each in _LOOKS]
        raise BadInputError(f"{name}: this is not {either}, by its fields", looks)
    raise BadInputError(f"{name}: this is {kind}, not {either}", [remedy] if remedy else [])


def warn_of_other_version(made: Provenance, spec: JobSpec, name: str) -> None:
    """Say on stderr that a plan was made with other code or other tables than are here."""
    from automap.planner.job import resolve
    from automap.planner.plan import other_versions

    try:
        others = other_versions(made, resolve(spec))
    except SpecError:  # the command itself will report it
        return
    if others:
        stderr_console().print(
            f"warning: {name} was made by another version: {', '.join(others)}; "
            "prices here may differ from the plan's",
            soft_wrap=True,
            markup=False,
        )
