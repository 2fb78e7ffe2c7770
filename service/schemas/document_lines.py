"""Where in a YAML document each key stands."""

from dataclasses import dataclass

import yaml

from automap.service.schemas.documents import YAML_LOADER

Path = tuple[str, ...]


@dataclass(slots=True)
class _Open:
    """A collection that has not ended."""

    path: Path | None
    """Keys that lead to it; None: it is inside a list."""
    is_mapping: bool
    key: str | None = None
    """The key whose value comes next."""


def key_lines(text: str) -> dict[Path, int]:
    """Path of every key outside lists → its line, of a text that `load_document` accepts."""
    found: dict[Path, int] = {}
    inside: list[_Open] = []
    for event in yaml.parse(text, Loader=YAML_LOADER):
        if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            inside.pop()
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            inside.append(_Open(_next_path(inside), is_mapping))
        elif isinstance(event, yaml.ScalarEvent) and inside:
            top = inside[-1]
            if top.is_mapping and top.key is None:
                top.key = event.value
                if top.path is not None and event.start_mark is not None:
                    found[(*top.path, event.value)] = event.start_mark.line + 1
            else:
                top.key = None
    return found


def _next_path(inside: list[_Open]) -> Path | None:
    """The path of a collection that begins here."""
    if not inside:
        return ()
    top = inside[-1]
    key, top.key = top.key, None
    return None if key is None or top.path is None else (*top.path, key)
