"""The job specs that travel with the package: their names, and the files that each one needs."""

import difflib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path

from automap.service.schemas.documents import load_document

SETTINGS_ENDING = ".run.yaml"
SUGGESTIONS = 3


@cache
def folder() -> Path:
    """Where the examples lie in this installation."""
    return Path(str(resources.files("automap"))) / "examples"


@cache
def names() -> tuple[str, ...]:
    """Every example's name, in alphabetical order."""
    files = (file.name for file in folder().glob("*.yaml"))
    return tuple(sorted(n.removesuffix(".yaml") for n in files if not n.endswith(SETTINGS_ENDING)))


def name_in(text: str) -> str:
    """The name that a text may mean: NAME, NAME.yaml or examples/NAME.yaml."""
    return Path(text).name.removesuffix(".yaml")


def like(name: str) -> list[str]:
    """Names that a mistyped one may mean: those it is a part of, or else the closest ones."""
    parts = [known for known in names() if name and name.lower() in known]
    return parts[:SUGGESTIONS] or difflib.get_close_matches(name, names(), n=SUGGESTIONS)


def hint(source: str) -> list[str]:
    """Remedies for a user who named an example, or nearly one, where a file is read."""
    name = name_in(source)
    if name in names():
        return [f"automap examples {name} copies the example to here"]
    near = like(name)
    return [f"examples of a similar name: {', '.join(near)}; see automap examples"] if near else []


def spec_of(name: str) -> dict[str, object]:
    """The spec of an example, as its file has it."""
    document = _document(folder() / f"{name}.yaml")
    assert isinstance(document, dict)
    return document


def about(name: str) -> str:
    """The comment at the head of an example's file, on one line."""
    text = (folder() / f"{name}.yaml").read_text(encoding="utf-8")
    head = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        head.append(line.removeprefix("#").strip())
    return " ".join(head)


def settings_of(name: str) -> Path | None:
    """The run settings of an example, where it has some."""
    file = folder() / f"{name}{SETTINGS_ENDING}"
    return file if file.is_file() else None


def files_beside(name: str) -> list[Path]:
    """Files that the spec and the settings of an example name, relative to the examples."""
    settings = settings_of(name)
    documents = [spec_of(name), *([] if settings is None else [_document(settings)])]
    # A program or a function is named as FILE:NAME.
    texts = {text.partition(":")[0] for document in documents for text in _texts(document)}
    return [Path(text) for text in sorted(texts) if text and (folder() / text).is_file()]


def _document(file: Path) -> object:
    return load_document(file.read_bytes(), media="yaml")


def _texts(document: object) -> Iterator[str]:
    """Every text among the values of a document."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for value in document.values():
            yield from _texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from _texts(value)
