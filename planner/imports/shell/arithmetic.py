"""Integer arithmetic of `$((…))`, by a parser of its own."""

import re
from collections.abc import Callable, Mapping

_TOKENS = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+|[0-9]+|[A-Za-z_]\w*|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>&|^~!?:])"
)
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
"""Operators of two sides, the loosest first."""
MAX_TOKENS = 200
MAX_NESTING = 40
"""Parentheses, signs, choices and powers inside one another."""
MAX_EXPONENT = 64
_LIMIT = 2**63


class ExpressionError(Exception):
    """An expression that is not read."""


def evaluate(text: str, variable: Callable[[str], int]) -> int:
    """The value of an expression; names in it are looked up.

    Raises:
        ExpressionError: it is no expression that is read here; or a variable has no such value.
    """
    if changes(text):
        raise ExpressionError("it sets a variable")
    parser = _Parser(_tokens(text), variable)
    value = parser.choice()
    parser.end()
    return value


def changes(text: str) -> bool:
    """Whether an expression sets variables, or looks like it."""
    return re.search(r"\+\+|--|<<=|>>=|(?<![=!<>])=(?!=)", text) is not None


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        token = _TOKENS.match(text, at)
        if token is None or len(found) >= MAX_TOKENS:
            raise ExpressionError("no expression that is read")
        found.append(token[1])
        at = token.end()
    return found


class _Parser:
    def __init__(self, tokens: list[str], variable: Callable[[str], int]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._variable = variable

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise ExpressionError(f"{self._tokens[self._at]!r} where the expression should end")

    def choice(self) -> int:
        """A condition with two outcomes, or an expression without one."""
        condition = self._level(0)
        if not self._take("?"):
            return condition
        yes = self._deeper(self.choice)
        if not self._take(":"):
            raise ExpressionError("'?' without ':'")
        no = self._deeper(self.choice)
        return yes if condition else no

    def _take(self, *wanted: str) -> str | None:
        if self._at < len(self._tokens) and self._tokens[self._at] in wanted:
            self._at += 1
            return self._tokens[self._at - 1]
        return None

    def _level(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        left = self._level(level + 1)
        while operator := self._take(*_LEVELS[level]):
            left = _wrapped(_BINARY[operator](left, self._level(level + 1)))
        return left

    def _power(self) -> int:
        base = self._unary()
        if not self._take("**"):
            return base
        exponent = self._deeper(self._power)
        if not 0 <= exponent <= MAX_EXPONENT:
            raise ExpressionError("an exponent that is not read")
        return _wrapped(base**exponent)

    def _unary(self) -> int:
        return self._deeper(self._operand)

    def _deeper(self, read: Callable[[], int]) -> int:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise ExpressionError(f"more than {MAX_NESTING} expressions inside one another")
        value = read()
        self._depth -= 1
        return value

    def _operand(self) -> int:
        operator = self._take("-", "+", "!", "~")
        if operator is not None:
            value = self._unary()
            return {"-": -value, "+": value, "!": int(not value), "~": ~value}[operator]
        if self._take("("):
            value = self.choice()
            if not self._take(")"):
                raise ExpressionError("'(' without ')'")
            return value
        if self._at >= len(self._tokens):
            raise ExpressionError("an expression that ends too early")
        token = self._tokens[self._at]
        self._at += 1
        if token[0].isalpha() or token[0] == "_":
            return self._variable(token)
        if not token[0].isdigit():
            raise ExpressionError(f"{token!r} where a number should be")
        return number(token)


def number(text: str) -> int:
    """A number as the shell reads it: with a leading 0 in base eight, with 0x in base sixteen.

    Raises:
        ExpressionError: it is none.
    """
    digits = text.strip().removeprefix("-")
    base = 16 if digits[:2].lower() == "0x" else 8 if digits.startswith("0") else 10
    if len(digits) > 24 or not digits.isascii() or "_" in digits:
        raise ExpressionError(f"{text[:24]!r} is no number")
    try:
        value = int(digits, base) if digits != "0" else 0
    except ValueError:
        raise ExpressionError(f"{text[:24]!r} is no number") from None
    return _wrapped(-value if text.strip().startswith("-") else value)


def _wrapped(value: int) -> int:
    """64 bits with a sign."""
    return (value + _LIMIT) % (2 * _LIMIT) - _LIMIT


def _divided(left: int, right: int) -> int:
    """Rounded towards zero."""
    if right == 0:
        raise ExpressionError("division by 0")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_BINARY: Mapping[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a) or bool(b)),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << (b % 64),
    ">>": lambda a, b: a >> (b % 64),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divided,
    "%": lambda a, b: a - b * _divided(a, b),
}
