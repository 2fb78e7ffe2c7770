"""Where what a run's settings name may lie: below folders that the operator of a service allows.

The service looks when a job is sent, and the run once more, on the node and where each file is
opened: links and `..` are resolved before they are compared, and a link there may lead elsewhere.
Only what Automap ships may be named by its module.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from automap.executor.errors import RunError

if TYPE_CHECKING:
    from automap.executor.settings import RunSettings

VARIABLE = "AUTOMAP_RUN_FOLDERS"
"""Has the folders in the processes of a run; without it a run is its user's own."""
_SETTING = "AUTOMAP_ALLOWED_FOLDERS"
_SHIPPED_CODE = re.compile(
    r"(automap\.)?executor\.(tiny\.)?tasks:(count_token|copy|unknown_symbols)"
    r"|automap\.planner\.dataflow\.algorithms\.[a-z_]+:[a-z_]+"
)


class NotAllowedError(RunError):
    """A file lies outside of the folders that the operator allows."""


@dataclass(frozen=True, slots=True)
class RunFolders:
    """Folders, absolute."""

    code: Sequence[str]
    """Below which reward functions and programs lie."""
    data: Sequence[str]
    """Below which prompts, tokenizers and weights lie."""

    def as_json(self) -> str:
        """For a file beside the settings, and for the environment of the run's processes."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Outside:
    """A setting that names what may not be used."""

    field: str
    value: str
    message: str
    remedy: str


def folders_of(text: str) -> RunFolders:
    """The folders of a document that `as_json` wrote.

    Raises:
        NotAllowedError: it is none.
    """
    try:
        return RunFolders(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise NotAllowedError(f"the allowed folders cannot be read: {error}") from error


def outside(settings: "RunSettings", folders: RunFolders) -> Iterator[Outside]:
    """Every setting that names a file, code or an address that is not allowed."""
    for field, path in _files(settings).items():
        if why := _why_not(path.resolve(), folders.data, folders, named=path):
            yield Outside(field, str(path), why, _remedy(folders.data))
    code = {f"functions.{role}.path": each.path for role, each in settings.functions.items()}
    if settings.program is not None:
        code["program"] = settings.program
    for field, place in code.items():
        if why := _why_not_code(place, folders):
            yield Outside(field, place, why, _remedy(folders.code))
    tracker = settings.metrics.mlflow_tracking_uri
    if tracker is not None and not _is_allowed_tracker(tracker, folders.data):
        yield Outside(
            "metrics.mlflow_tracking_uri",
            tracker,
            "is no folder that the operator allows, and an address is the operator's to choose",
            "leave it out: jobs use MLFLOW_TRACKING_URI of the worker, where "
            "AUTOMAP_JOB_ENVIRONMENT names it",
        )


def opened(path: Path, *, field: str) -> Path:
    """The file or folder to open in this process, links resolved where only some are allowed.

    Raises:
        NotAllowedError: it is not among these.
    """
    return _opened(path, "data", field)


def opened_code(place: str, *, field: str) -> str:
    """The `module:name` or `file.py:name` to import in this process, likewise.

    Raises:
        NotAllowedError: it is not among these.
    """
    file, _, name = place.rpartition(":")
    if VARIABLE not in os.environ:
        return place
    if not file.endswith(".py"):
        if why := _why_not_code(place, RunFolders((), ())):
            raise NotAllowedError(f"{field}: {place} {why}")
        return place
    return f"{_opened(Path(file), 'code', field)}:{name}"


def _opened(path: Path, kind: str, field: str) -> Path:
    text = os.environ.get(VARIABLE)
    if text is None:
        return path
    # What is opened is what was looked at, also if a link is changed meanwhile.
    allowed, found = folders_of(text), path.resolve()
    if why := _why_not(found, getattr(allowed, kind), allowed, named=path):
        raise NotAllowedError(f"{field}: {path} {why}")
    return found


def _files(settings: "RunSettings") -> Mapping[str, Path]:
    files = {f"models.{role}": path for role, path in settings.models.items()}
    for name, data in (("data", settings.data), ("data.pretrain", settings.data.pretrain)):
        if data is not None:
            files[f"{name}.path"] = data.path
            if data.tokenizer is not None:
                files[f"{name}.tokenizer"] = data.tokenizer
    return files


def _why_not(found: Path, below: Sequence[str], folders: RunFolders, *, named: Path) -> str | None:
    """Why it may not be used, where it has to lie below some of the folders; None: it may."""
    if _is_below(found, below):
        return None
    where = "" if found == named else f", which is {found},"
    listed = ", ".join(below) or "none"
    if folders.code:  # the operator names some
        return f"lies{where} in none of the folders that the operator allows ({_SETTING}): {listed}"
    return (
        f"lies{where} in none of the folders that jobs may use: {listed}. {_SETTING} names no "
        "others, which it has to where it is set, or where the service has keys in its database"
    )


def _why_not_code(place: str, folders: RunFolders) -> str | None:
    file = place.rpartition(":")[0]
    if file.endswith(".py"):
        return _why_not(Path(file).resolve(), folders.code, folders, named=Path(file))
    if _SHIPPED_CODE.fullmatch(place):
        return None
    return "is in a module that Automap does not ship, and the operator allows folders alone"


def _remedy(folders: Sequence[str]) -> str:
    if not folders:
        return f"ask whoever runs the service for a folder in {_SETTING}"
    return f"put it below one of these, or ask whoever runs the service for another in {_SETTING}"


def _is_allowed_tracker(tracker: str, folders: Sequence[str]) -> bool:
    return tracker.startswith("/") and _is_below(Path(tracker).resolve(), folders)


def _is_below(found: Path, folders: Sequence[str]) -> bool:
    return any(found.is_relative_to(Path(folder).resolve()) for folder in folders)
