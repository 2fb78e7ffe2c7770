"""Misspelt keys of a launch: which they are, and the file with the keys that are meant."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from automap.planner.errors import NotImportableError, Reason
from automap.planner.imports.launch import Imported, LaunchFile
from automap.planner.imports.shell.edits import Edit, edited, joined_lines


def respelt_files(
    files: Sequence[LaunchFile], imported: Imported, names: Mapping[str, str]
) -> list[LaunchFile]:
    """The files of a launch with the keys that are meant in the place of others.

    Args:
        files: The launch as it is written.
        imported: The launch as it is meant.
        names: Key as it is written → the key that is meant.

    Raises:
        NotImportableError: one is not written in the file that starts the job.
    """
    file = next(each for each in files if each.name == imported.file)
    text, edits, reasons = joined_lines(file.text), list[Edit](), list[Reason]()
    for wrong, right in names.items():
        at = next((each for each in imported.settings if each.key == right), None)
        name, start, end = imported.whereabouts.words.get(right, ("", 0, 0))
        found = _written(text[start:end], wrong) if name == file.name else None
        if found is not None:
            edits.append(Edit(start + found[0], start + found[1], right))
        elif at is not None and at.line:
            told = f"{at.file} line {at.line}: {wrong} is to be {right}"
            reasons.append(Reason(summary=told, remedy="write it there"))
    if reasons:
        raise NotImportableError(imported.target, reasons)
    return [replace(e, text=edited(file.text, edits)) if e is file else e for e in files]


def _written(word: str, key: str) -> tuple[int, int] | None:
    """From where to where a key stands in the word that has it; arguments may have dashes."""
    found = re.search(re.escape(key).replace("_", "[-_]").replace(r"\-", "[-_]"), word)
    return None if found is None else found.span()
