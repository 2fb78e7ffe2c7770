"""A file that is another document than is wanted: which it is, and what takes it."""

from collections.abc import Sequence

from automap.planner.errors import SpecError
from automap.planner.plan import Provenance
from automap.planner.spec import JobSpec
from automap.service.cli.terminal.console import stderr_console
from automap.service.cli.terminal.failures import BadInputError
from automap.service.schemas.documents import (
    LAUNCH,
    LOOKS,
    PLACEMENT,
    PLAN,
    RECORD,
    SCRIPT,
    SPEC,
    kind_of,
)

_OF_LAUNCHES = (
    "automap import {0} --gpu NAME reads and prices a launch, "
    "automap advise {0} --gpu NAME says what to change in it"
)
_OF_PLANS = "automap export {0} writes it as a launch"
TAKEN_BY = {
    LAUNCH: _OF_LAUNCHES,
    SCRIPT: _OF_LAUNCHES,
    PLAN: _OF_PLANS,
    RECORD: _OF_PLANS,
    SPEC: "automap plan {0} plans it, automap export {0} writes its plan as a launch",
    PLACEMENT: "automap estimate SPEC {0} prices it",
}
"""Kind of file → the commands that take it, by its name."""


def refuse_as_launch(document: object, name: str) -> None:
    """Refuse as a launch what is plainly another document.

    Raises:
        BadInputError: says what it is, and which command takes it.
    """
    kind = kind_of(document)
    if kind in TAKEN_BY and kind != LAUNCH:
        raise BadInputError(f"{name}: this is {kind}, not a launch", [TAKEN_BY[kind].format(name)])


def refuse_script(content: bytes, name: str) -> None:
    """Refuse a shell script where a document is wanted.

    Raises:
        BadInputError: says which commands take it.
    """
    starts = (b"-m verl.", b"python3 train", b"examples/run_grpo", b"accelerate launch")
    if content.lstrip().startswith(b"#!") or any(each in content for each in starts):
        raise BadInputError(f"{name}: this is {SCRIPT}", [TAKEN_BY[SCRIPT].format(name)])


def need_kind(document: object, name: str, *wanted: str, remedies: Sequence[str] = ()) -> None:
    """Refuse what is plainly another document, or none that we know.

    Raises:
        BadInputError: says what it is and what is wanted.
    """
    kind = kind_of(document)
    if kind in wanted:
        return
    either = " or ".join(kind for kind in wanted if kind in LOOKS)
    looks = [LOOKS[each] for each in wanted if each in LOOKS]
    if kind is None:
        raise BadInputError(f"{name}: this is not {either}, by its fields", looks)
    if kind == LAUNCH:
        remedies = [TAKEN_BY[LAUNCH].format(name)]
    raise BadInputError(f"{name}: this is {kind}, not {either}", remedies or looks)


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
