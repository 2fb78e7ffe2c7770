"""A launch written again: only the words of settings that change are other ones."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from automap.planner.errors import Reason
from automap.planner.frameworks.description import Framework
from automap.planner.imports.launch import Imported, LaunchFile, LineChange, Rewritten
from automap.planner.imports.rewriting import is_left_out
from automap.planner.imports.shell.edits import (
    Edit,
    added,
    edited,
    is_argument,
    joined_lines,
    with_argument,
    with_value,
    without,
)

COMPUTED = ("$", "`")
"""What begins a value that the script works out."""


@dataclass(slots=True)
class _Draft:
    """The changes to one file so far."""

    text: str
    edits: list[Edit] = field(default_factory=list)
    more: dict[str, str] = field(default_factory=dict)
    """Key → the word that the command is given at its end."""
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)


def rewritten(
    files: Sequence[LaunchFile],
    imported: Imported,
    changes: Sequence[LineChange],
    obsolete: Sequence[str],
    framework: Framework,
) -> Rewritten | list[Reason]:
    """The file that starts the job with its settings changed, or why it cannot be written.

    A setting is changed where it stands as a word of that file; one that comes from elsewhere is
    given once more at the end of the command, where it counts.
    """
    file = next(each for each in files if each.name == imported.file)
    if not file.text:
        told = f"{file.name} is a configuration, and only scripts are written again"
        words = " ".join(_word(each.key, each.after) for each in changes)
        remedy = f"give these on the command line of the job: {words}"
        return [Reason(summary=told, remedy=remedy)] if changes or obsolete else _same(file)
    draft = _Draft(joined_lines(file.text))
    for change in changes:
        places = framework.elsewhere.items()
        where = next((at for begins, at in places if change.key.startswith(begins)), "")
        if where:
            remedy = f"change by hand, in {where}: {change.name} is to be {change.after}"
            told = f"{change.name} is no word of the trainer's command"
            draft.reasons.append(Reason(summary=told, remedy=remedy))
        elif is_left_out(change.key, change.after, framework):
            _remove(draft, imported, change.name)
        else:
            _change(draft, imported, change, framework)
    for key in obsolete:
        _remove(draft, imported, key)
    if draft.more and imported.whereabouts.end is None:
        words = " ".join(draft.more.values())
        told = f"{file.name} line {imported.line}: the job's command is in a text within the script"
        draft.reasons.append(Reason(summary=told, remedy=f"add by hand: {words}"))
    if draft.reasons:
        return draft.reasons
    if draft.more:
        draft.edits.append(added(draft.text, imported.whereabouts.end or 0, draft.more.values()))
    return Rewritten(
        file=file.name,
        text=edited(file.text, draft.edits),
        changed=draft.changed,
        added=list(draft.more),
        removed=draft.removed,
        notes=draft.notes,
    )


def _same(file: LaunchFile) -> Rewritten:
    return Rewritten(file=file.name, text=file.text)


def _change(draft: _Draft, imported: Imported, change: LineChange, framework: Framework) -> None:
    """Change a setting in its place, or give it once more."""
    place = imported.whereabouts.words.get(change.name)
    if place is not None and place[0] == imported.file:
        before = draft.text[place[1] : place[2]]
        change_word = with_argument if is_argument(change.key) else with_value
        after = change_word(before, change.after)
        if after is not None:
            draft.edits.append(Edit(place[1], place[2], after))
            draft.changed.append(change.name)
            if any(each in before for each in COMPUTED):
                value = re.split(r"[=\s]", before, maxsplit=1)[1].strip("\"'")
                told = f"{value} was worked out, and is {change.after} now"
                draft.notes.append(f"line {change.line}, {change.name}: {told}")
            return
    at = next((each for each in imported.settings if each.key == change.name), None)
    is_written = at is not None and at.line > 0
    key = change.name if is_written else _signed(change.name, framework)
    draft.more[change.name] = _word(key, change.after)
    if at is not None and is_written:
        where = f"line {at.line}" if at.file == imported.file else f"{at.file} line {at.line}"
        draft.notes.append(f"{where} sets {change.name} as well: what the command ends with counts")


def _remove(draft: _Draft, imported: Imported, key: str) -> None:
    place = imported.whereabouts.words.get(key)
    at = next((each for each in imported.settings if each.key == key), None)
    if at is None:
        return
    if place is None or place[0] != imported.file:
        told = f"{at.file} line {at.line}: {key} is not to be there any more"
        draft.reasons.append(Reason(summary=told, remedy="take it out by hand"))
        return
    draft.edits.append(without(draft.text, place[1], place[2]))
    draft.removed.append(key)


def _signed(name: str, framework: Framework) -> str:
    """A key with + before it where the framework's own files have no such key."""
    for setting in framework.settings:
        for key in setting.keys.values():
            if key.lstrip("+") == name:
                return key
    return name


def _word(key: str, value: str) -> str:
    if is_argument(key):
        return key if value == "True" else f"{key} {shlex.quote(value)}"
    return shlex.quote(f"{key}={value}")
