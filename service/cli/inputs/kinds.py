"""A file that is another document than is wanted: which it is, and what takes it."""

from collections.abc import Sequence

from automap.planner.errors import SpecError
from automap.planner.plan import Provenance
from automap.planner.spec import JobSpec
from automap.service.cli.terminal.console import stderr_console
from automap.service.cli.terminal.failures import BadInputError
from automap.service.schemas.documents import LOOKS, kind_of


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
