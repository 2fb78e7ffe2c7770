"""The command that renames plans and jobs, labels them and notes something of them."""

from typing import Any

from rich.text import Text

from automap.service.cli.backends.client import Service
from automap.service.cli.options.runs import LabelArguments
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError


def run_label(given: LabelArguments) -> None:
    """Change what is said of the plan, or else the job, with this id."""
    service = Service(given.account.server, given.account.api_key)
    patch: dict[str, Any] = {"labels": dict(map(_change, given.labels or ()))}
    if given.name is not None:
        patch["name"] = given.name or None
    if given.notes is not None:
        patch["notes"] = given.notes or None
    if given.owner is not None:
        patch["owner"] = given.owner
    kind = _kind(service, given.id)
    if given.priority is not None:
        if kind == "plans":
            raise BadInputError("--priority: the id is of a plan, and only jobs have a turn")
        patch["priority"] = given.priority
    found = service.ask("PATCH", f"{kind}/{given.id}", data=patch).json()
    labels = ", ".join(f"{key}={value}" for key, value in found["labels"].items()) or "no labels"
    whose = "" if given.owner is None else f", now of {found['owner']}"
    turn = "" if given.priority is None else f", priority {found['priority']}"
    console.stdout_console().print(
        Text(formats.printable(f"{found['name']}: {labels}{whose}{turn}")), soft_wrap=True
    )


def _kind(service: Service, wanted: str) -> str:
    """Whether the id is of a plan or of a job."""
    try:
        service.ask("GET", f"plans/{wanted}")
    except BadInputError as error:
        if "There is no plan" not in str(error):
            raise
        return "jobs"
    return "plans"


def _change(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if equals and key:
        return key, value
    if text.endswith("-") and len(text) > 1:
        return text[:-1], None
    raise BadInputError(f"{text!r} changes no label", ["write KEY=VALUE, or KEY- to take it off"])
