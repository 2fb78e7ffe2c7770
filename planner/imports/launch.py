"""What an import takes and answers with: files of a launch, and the job and placement they say."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from automap.planner.catalogue import ModelArchitecture
from automap.planner.plan.types import Bytes, Placement, ResultModel
from automap.planner.spec import JobSpec, LengthSpec

RemarkKind = Literal[
    "does not fit",
    "priced otherwise",
    "saves memory",
    "assumed",
    "without effect",
    "contradiction",
    "replaced",
    "unknown key",
    "not priced",
    "not read",
]


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """A file that the user named: a shell script, or a configuration."""

    name: str
    text: str = ""
    """The script; empty: it is a configuration."""
    document: object = None
    """What the configuration holds, as JSON has data."""
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """Path of a key in the configuration → its line."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What no launch says, or this one leaves open."""

    gpu: str
    values: Mapping[str, str] = field(default_factory=dict)
    """Variable of the script, or key of the framework → its value."""
    prompt_length: LengthSpec | None = None
    response_length: LengthSpec | None = None
    """Their `max` is the launch's where they have none."""
    models: Mapping[str, str | ModelArchitecture] = field(default_factory=dict)
    """Role → the model that its path stands for."""
    spare_models: bool = False
    """True: they may be of roles that the launch lacks."""
    job: int | None = None
    """Which of several jobs, from 1, in the order in which they are started."""
    gpus_per_node: int | None = None
    """GPUs of a node, of a framework whose launches do not say it; None: the usual number."""
    respelt: Mapping[str, str] = field(default_factory=dict)
    """Key that the framework lacks → the one that is read in its place."""


class Remark(ResultModel):
    """Something of a launch to know beside its numbers."""

    kind: RemarkKind
    text: str
    file: str = ""
    line: int = 0
    """Line of the file; 0: it is of none."""


def unpriced_savings(remarks: Iterable[Remark]) -> list[Remark]:
    """On settings that save memory, which no price has: with them it may fit nevertheless."""
    return [each for each in remarks if each.kind in ("priced otherwise", "saves memory")]


class ImportedSetting(ResultModel):
    """One setting of a launch, and where it is written."""

    key: str
    value: str
    """How it is written; of what is unknown the variable."""
    file: str
    line: int
    decides: str = ""
    """What of a plan it decides; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a launch says what it says, for whoever writes it again."""

    end: int | None = None
    """Where in its file the command's words end; None: the file has them in no such way."""
    words: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    """Key → the file, and from where to where the override stands in it."""


class Imported(ResultModel):
    """A launch as a job and a placement of it."""

    target: str
    entry: str = ""
    """The program of the framework that it starts; empty: the one that exports start."""
    file: str
    line: int
    """Where the job is started."""
    spec: JobSpec
    placement: Placement
    cache_bytes: Bytes
    """Key-value cache on each GPU of an engine; the placement's is what its sequences can use."""
    settings: list[ImportedSetting]
    remarks: list[Remark]
    misspelt: dict[str, str] = Field(default_factory=dict, exclude=True)
    """Key that the framework lacks → the one of its that is near. Not part of the JSON."""
    engine: str = Field(default="", exclude=True)
    """Kind of training engine. Not part of the JSON."""
    most_sequences: int | None = Field(default=None, exclude=True)
    """Sequences that all engines run at once at most; None: no limit. Not part of the JSON."""
    values: dict[str, Any] = Field(default_factory=dict, exclude=True)
    """Key → what the framework reads for it, given or left out, without the sign of an added key.
    Not part of the JSON."""
    whereabouts: Whereabouts = Field(default_factory=Whereabouts, exclude=True)
    """Not part of the JSON."""


class Rewritten(ResultModel):
    """A launch's file with some of its settings changed, and all else as it was."""

    file: str
    text: str
    changed: list[str] = Field(default_factory=list)
    """Keys whose value is another one, in the place where they stand."""
    added: list[str] = Field(default_factory=list)
    """Keys that the command is given at its end."""
    removed: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    """What to know of a change: of a value that came through a variable, or from another file."""


class LineChange(ResultModel):
    """A setting of a launch, and what it is to be instead."""

    key: str
    """With a + before it where the framework's own files have no such key, and it is added."""
    before: str | None
    """How it is written; None: it is not there, and is to be added."""
    after: str
    file: str = ""
    line: int = 0
    """Where it is written; 0: it is not there, or was given beside the files."""

    @property
    def name(self) -> str:
        """The key without the sign of one that is added."""
        return self.key.lstrip("+")
