"""Whether a test of a script holds, as far as that is known."""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

from automap.planner.imports.shell.arithmetic import ExpressionError
from automap.planner.imports.shell.expansion import Expander
from automap.planner.imports.shell.syntax import Test, Word
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
_BETWEEN = ("=", "==", "!=", *_NUMBERS)


def holds(command: Test, expander: Expander) -> bool | None:
    """Whether `[[ … ]]` or `((…))` succeeds; None: that is not known."""
    if command.arithmetic:
        return _arithmetic(command, expander)
    return _test([_Operand(word, expander) for word in command.words])


def test_holds(words: Sequence[Word], expander: Expander) -> bool | None:
    """Whether `[ … ]` succeeds, by the words between the brackets."""
    operands: list[_Operand | Field] = []
    for word in words:
        fields = expander.fields(word)
        quoted = any(part.quoted for part in word.parts)
        kept = [without_unset(each) for each in fields]
        operands += [each for each in kept if each.parts or quoted]
    return _test(operands)


@dataclass(frozen=True, slots=True)
class _Operand:
    """A word of `[[ … ]]`, which is not split, and may be a pattern or an expression."""

    word: Word
    expander: Expander

    @property
    def text(self) -> str | None:
        """Its text; a variable that nothing sets is empty, as where a launch starts."""
        return without_unset(self.expander.one(self.word)).text

    @property
    def plain(self) -> str | None:
        """The word where nothing in it is quoted or expanded."""
        return self.word.plain


def _arithmetic(command: Test, expander: Expander) -> bool | None:
    texts = [expander.one(word).text for word in command.words]
    try:
        return bool(expander.number(" ".join(text or "?" for text in texts)))
    except ExpressionError:
        return None


def _test(words: Sequence[_Operand | Field]) -> bool | None:
    """`-o`, `||`, `-a`, `&&` and `!` between single tests, without parentheses."""
    if len(words) > MAX_WORDS:
        return None
    plain = [_operator(word) for word in words]
    if len(words) == 3 and plain[1] in _BETWEEN:
        return _compared(words[0], plain[1] or "", words[2])
    for joins, decided in ((("||", "-o"), True), (("&&", "-a"), False)):
        for place, each in enumerate(plain):
            if each in joins and 0 < place < len(words) - 1:
                found = [_test(words[:place]), _test(words[place + 1 :])]
                if decided in found:
                    return decided
                return None if None in found else not decided
    if plain and plain[0] == "!":
        inner = _test(words[1:])
        return None if inner is None else not inner
    return _single(words, plain)


def _operator(word: _Operand | Field) -> str | None:
    return word.plain if isinstance(word, _Operand) else word.text


def _single(words: Sequence[_Operand | Field], plain: Sequence[str | None]) -> bool | None:
    if not words:
        return False
    if len(words) == 1:
        text = words[0].text
        return None if text is None else bool(text)
    if len(words) == 2 and plain[0] in ("-z", "-n"):
        text = words[1].text
        return None if text is None else bool(text) == (plain[0] == "-n")
    return None


def _compared(left: _Operand | Field, operator: str, right: _Operand | Field) -> bool | None:
    text, other = left.text, right.text
    if text is None:
        return None
    if operator in ("=", "==", "!="):
        same: bool | None
        if isinstance(right, _Operand):
            wanted = right.expander.pattern(right.word)
            same = None if wanted is None else fnmatch.fnmatchcase(text, wanted)
        else:
            same = None if other is None else text == other
        return None if same is None else same == (operator != "!=")
    if other is None:
        return None
    try:
        return bool(_NUMBERS[operator](_number(left, text), _number(right, other)))
    except ExpressionError:
        return None


def _number(of: _Operand | Field, text: str) -> int:
    """An expression in `[[ … ]]`; decimal digits in `[ … ]`."""
    if isinstance(of, _Operand):
        return of.expander.number(text)
    if not re.fullmatch(r"\s*[-+]?[0-9]{1,18}\s*", text, re.ASCII):
        raise ExpressionError(f"{text[:24]!r} is no number")
    return int(text)


def without_unset(found: Field) -> Field:
    """A field in which variables that nothing sets are empty."""
    parts = tuple(part for part in found.parts if isinstance(part, str) or not part.unset)
    return Field(parts, found.line, found.source)
