"""Changes to the text of a script: another value in a word, a word more, a word less."""

import re
import shlex
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SETTING = re.compile(r"(['\"]?)([+~]{0,2}[A-Za-z_][\w@/.\-]*)=(.*)", re.DOTALL)
_ARGUMENT = re.compile(r"(--[\w\-]+)(?:(=|(?:\s|\\\n)+)(.*))?", re.DOTALL)
_INSIDE = {"'": re.compile(r"[^']*"), '"': re.compile(r'[^"$`\\!]*')}
"""Quote → texts that stand for themselves between two of it."""
_REST = re.compile(r"[ \t]*(?:#[^\n]*)?(?=\n|$)")


@dataclass(frozen=True, slots=True)
class Edit:
    """What takes the place of the characters from `start` up to `end`."""

    start: int
    end: int
    text: str


def joined_lines(text: str) -> str:
    """A text with line ends of one character, in which places of words are counted."""
    return text.replace("\r\n", "\n")


def with_value(written: str, value: str) -> str | None:
    """A setting `key=value` as it is written, with another value and the quotes that it has.

    None: its key is not written there, or parts of it are quoted in different ways.
    """
    found = _SETTING.fullmatch(written)
    if found is None:
        return None
    quote, key, before = found.groups()
    if quote:
        if not before.endswith(quote) or quote in before[:-1]:
            return None
        whole = f"{key}={value}"
        return f"{quote}{whole}{quote}" if _INSIDE[quote].fullmatch(whole) else shlex.quote(whole)
    quote = before[:1]
    if quote in _INSIDE and before[1:].endswith(quote) and quote not in before[1:-1]:
        inside = _INSIDE[quote].fullmatch(value)
        return f"{key}={quote}{value}{quote}" if inside else f"{key}={shlex.quote(value)}"
    return f"{key}={shlex.quote(value)}" if value else f"{key}="


def is_argument(key: str) -> bool:
    """Whether a setting is an argument, `--key value` or a flag, and no override `key=value`."""
    return key.startswith("--")


def with_argument(written: str, value: str) -> str | None:
    """An argument as it is written, with another value; None: it is written in another way."""
    found = _ARGUMENT.fullmatch(written)
    if found is None:
        return None
    key, between = found[1], found[2] or " "
    return key if value == "True" else f"{key}{between}{shlex.quote(value)}"


def added(text: str, end: int, words: Iterable[str]) -> Edit:
    """More words behind the last one of a command, each on a line of its own."""
    start = text.rfind("\n", 0, end) + 1
    indent = text[start : len(text) - len(text[start:].lstrip(" \t"))]
    if not text[:start].endswith("\\\n"):
        indent += "    "
    return Edit(end, end, "".join(f" \\\n{indent}{word}" for word in words))


def without(text: str, start: int, end: int) -> Edit:
    """A word less, with the blanks before it; its whole line where it is alone on it."""
    while start:
        if text[start - 1] in " \t":
            start -= 1
        elif text[:start].endswith("\\\n"):
            start -= 2
        else:
            break
    if text[start - 1 : start] == "\n" and (rest := _REST.match(text, end)):
        return Edit(start - 1, rest.end(), "")
    return Edit(start, end, "")


def edited(text: str, edits: Sequence[Edit]) -> str:
    """A text with its edits, which are counted as in `joined_lines`; its line ends stay.

    Raises:
        ValueError: two edits are of the same characters.
    """
    joined = joined_lines(text)
    ends = [match.start() - before for before, match in enumerate(re.finditer("\r\n", text))]
    line_end = "\r\n" if ends else "\n"
    found, at = list[str](), 0
    for each in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if each.start < at:
            raise ValueError(f"two edits from {each.start} to {at}")
        found += [_as_it_was(joined, at, each.start, ends), each.text.replace("\n", line_end)]
        at = each.end
    return "".join([*found, _as_it_was(joined, at, len(joined), ends)])


def _as_it_was(joined: str, start: int, end: int, ends: Sequence[int]) -> str:
    """Characters of the text, with the line ends that it had at these places."""
    pieces = list[str]()
    for place in ends[bisect_left(ends, start) : bisect_left(ends, end)]:
        pieces += [joined[start:place], "\r\n"]
        start = place + 1
    return "".join([*pieces, joined[start:end]])
