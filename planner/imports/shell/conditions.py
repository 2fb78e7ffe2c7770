"""Whether a test of a script holds, as far as that is known."""

import fnmatch
from collections.abc import Sequence

from automap.planner.imports.shell.arithmetic import ExpressionError, number
from automap.planner.imports.shell.expansion import Expander
from automap.planner.imports.shell.syntax import Command, Group, Simple, Test, Text, Word
from automap.planner.imports.shell.values import Field

MAX_WORDS = 100
"""Words of a test that is followed."""
_NUMBERS = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}


def holds(command: Command, expander: Expander) -> bool | None:
    """Whether a command of a condition succeeds; None: that is not known."""
    if isinstance(command, Group) and len(command.body) == 1:
        return None
    if isinstance(command, Test) and not command.arithmetic:
        return _test(list(command.words), expander, patterns=True)
    if isinstance(command, Test):
        return _arithmetic(command, expander)
    if isinstance(command, Simple) and command.words:
        first = command.words[0]
        words = [each for each in command.words[1:] if isinstance(each, Word)]
        name = first.plain if isinstance(first, Word) else None
        if name in ("true", ":", "false"):
            return name != "false"
        if name == "test":
            return _test(words, expander, patterns=False)
        if name == "[" and words and words[-1].plain == "]":
            return _test(words[:-1], expander, patterns=False)
    return None


def _arithmetic(command: Test, expander: Expander) -> bool | None:
    texts = [expander.one(word).text for word in command.words]
    try:
        return bool(expander.number(" ".join(text or "?" for text in texts)))
    except ExpressionError:
        return None


def _test(words: Sequence[Word], expander: Expander, *, patterns: bool) -> bool | None:
    """`-o`, `||`, `-a`, `&&` and `!` between single tests, without parentheses."""
    if len(words) > MAX_WORDS:
        return None
    plain = [word.plain for word in words]
    for joins, decided in ((("||", "-o"), True), (("&&", "-a"), False)):
        for place, each in enumerate(plain):
            if each in joins and 0 < place < len(words) - 1:
                found = [
                    _test(words[:place], expander, patterns=patterns),
                    _test(words[place + 1 :], expander, patterns=patterns),
                ]
                if decided in found:
                    return decided
                return None if None in found else not decided
    if plain and plain[0] == "!":
        inner = _test(words[1:], expander, patterns=patterns)
        return None if inner is None else not inner
    return _single(words, plain, expander, patterns=patterns)


def _single(
    words: Sequence[Word], plain: Sequence[str | None], expander: Expander, *, patterns: bool
) -> bool | None:
    if len(words) == 1:
        text = _text(words[0], expander)
        return None if text is None else bool(text)
    if len(words) == 2 and plain[0] in ("-z", "-n", "-v"):
        if plain[0] == "-v":
            return expander.value(plain[1] or "") is not None
        text = _text(words[1], expander)
        return None if text is None else bool(text) == (plain[0] == "-n")
    if len(words) != 3:
        return None
    left, right = _text(words[0], expander), _text(words[2], expander)
    if left is None or right is None:
        return None
    operator = plain[1] or ""
    if operator in ("=", "==", "!="):
        same = fnmatch.fnmatchcase(left, pattern(words[2], right)) if patterns else left == right
        return same == (operator != "!=")
    if operator in _NUMBERS:
        try:
            return bool(_NUMBERS[operator](number(left), number(right)))
        except ExpressionError:
            return None
    return None


def pattern(word: Word, text: str) -> str:
    """A pattern as fnmatch takes it: what is quoted stands for itself."""
    if all(isinstance(part, Text) and not part.quoted for part in word.parts):
        return text
    return _literal(text)


def _literal(text: str) -> str:
    return "".join(f"[{each}]" if each in "*?[" else each for each in text)


def _text(word: Word, expander: Expander) -> str | None:
    """The text of a word; a variable that nothing sets is empty, as where a launch starts."""
    return without_unset(expander.one(word)).text


def without_unset(found: Field) -> Field:
    """A field in which variables that nothing sets are empty."""
    parts = tuple(part for part in found.parts if isinstance(part, str) or not part.unset)
    return Field(parts, found.line, found.source)
