"""Values of overrides, as Hydra reads them: the inverse of how exports write them."""

import re

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+)")
_DICTIONARY_KEY = re.compile(r"[A-Za-z_][\w\-]*")
_BACKSLASHES = re.compile(r"\\+")
_NULL = frozenset({"null", "none"})
Value = None | bool | int | float | str | list["Value"]


MAX_DIGITS = 30
MAX_DEPTH = 40
"""Lists inside lists."""


def read_argument(text: str) -> Value:
    """The value of a command's argument: None, True and False, numbers, and words."""
    text = text.strip()
    if text in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[text]
    if _INTEGER.fullmatch(text) and len(text) <= MAX_DIGITS:
        return int(text)
    if _FLOAT.fullmatch(text) and len(text) <= MAX_DIGITS:
        return float(text)
    return text


class ValueFormError(ValueError):
    """A value that is not read here."""


def read_value(text: str, *, depth: int = 0) -> Value:
    """A value: null, True, numbers, quoted texts, lists, and words; `depth`: lists around it.

    Raises:
        ValueFormError: it is a sweep over several values, its quotes or brackets do not end, or
            too many lists are inside one another.
    """
    text = text.strip()
    if depth > MAX_DEPTH:
        raise ValueFormError(f"more than {MAX_DEPTH} lists inside one another")
    if text[:1] in ("'", '"'):
        return _unquoted(text)
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueFormError("brackets that do not end")
        inner = text[1:-1].strip()
        return [read_value(each, depth=depth + 1) for each in parts_of(inner)] if inner else []
    if text.startswith("{"):
        return text
    if len(parts_of(text)) > 1:
        raise ValueFormError("several values, which is a sweep of several runs")
    return _word(text)


def read_dictionary(text: str, *, depth: int = 0) -> dict[str, str] | None:
    """Dotted key → value as it is written, of {a: 1, b: {c: 2}}; None: it is none that is read.

    Hydra has no quoted keys in it, and OmegaConf merges it into what is there.
    """
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")) or depth > MAX_DEPTH:
        return None
    found: dict[str, str] = {}
    inner = text[1:-1].strip()
    for part in parts_of(inner) if inner else []:
        key, colon, value = part.strip().partition(":")
        if not colon or not _DICTIONARY_KEY.fullmatch(key.strip()):
            return None
        below = read_dictionary(value, depth=depth + 1) if value.strip()[:1] == "{" else {}
        if below is None:
            return None
        each = {f"{key.strip()}.{name}": inside for name, inside in below.items()}
        found |= each or {key.strip(): value.strip()}
    return found


def _word(text: str) -> Value:
    lower = text.lower()
    if lower in _NULL:
        return None
    if lower in ("true", "false"):
        return lower == "true"
    if _INTEGER.fullmatch(text) and len(text) <= 30:
        return int(text)
    if _FLOAT.fullmatch(text) and len(text) <= 60:
        return float(text)
    return text


def _unquoted(text: str) -> str:
    """A quoted text, in which a backslash counts before the quote and at the end."""
    quote, found, at = text[0], [], 1
    while at < len(text):
        if text[at] == "\\":
            run = _BACKSLASHES.match(text, at).end() - at  # type: ignore[union-attr]
            after = text[at + run : at + run + 1]
            if after == quote:
                found.append("\\" * (run // 2))
                at += run
                if run % 2:
                    found.append(quote)
                    at += 1
                continue
            found.append("\\" * run)
            at += run
            continue
        if text[at] == quote:
            if text[at + 1 :].strip():
                raise ValueFormError("text after a quote that ends")
            return "".join(found).replace("\\${", "${")
        found.append(text[at])
        at += 1
    raise ValueFormError("a quote that does not end")


def parts_of(text: str) -> list[str]:
    """A text at the commas that are in no brackets and no quotes."""
    parts, depth, start, quote = [], 0, 0, ""
    for place, char in enumerate(text):
        if quote:
            quote = "" if char == quote and text[place - 1] != "\\" else quote
        elif char in "'\"":
            quote = char
        elif char in "[{(":
            depth += 1
        elif char in "]})":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]
