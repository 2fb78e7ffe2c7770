"""Values of overrides as SkyRL reads them: OmegaConf's YAML, the inverse of how exports write."""

import re

from automap.planner.imports.values import Value, ValueFormError, parts_of, read_value

_SAID = {"yes": True, "on": True, "no": False, "off": False, "~": None, "": None}


def read_yaml(text: str) -> Value:
    """A value: null, True, numbers, quoted texts, lists, and words.

    Raises:
        ValueFormError: its quotes or brackets do not end.
    """
    text = text.strip()
    if text[:1] in ("'", '"'):
        return _unquoted(text)
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueFormError("brackets that do not end")
        inner = text[1:-1].strip()
        return [read_yaml(each) for each in parts_of(inner)] if inner else []
    if text.lower() in _SAID:
        return _SAID[text.lower()]
    # Of words a comma is a part; null is written so alone.
    return text if "," in text or text.lower() == "none" else read_value(text)


def _unquoted(text: str) -> str:
    quote, body = text[0], text[1:-1]
    inside = body.replace("''", "") if quote == "'" else re.sub(r"\\.", "", body)
    if len(text) < 2 or text[-1] != quote or quote in inside:
        raise ValueFormError("a quote that does not end, or text after it")
    body = body.replace("''", "'") if quote == "'" else re.sub(r"\\(.)", r"\1", body)
    return re.sub(r"(\\*)\\\$\{", lambda m: m[1][: len(m[1]) // 2] + "${", body)
