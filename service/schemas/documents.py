"""Text to data: JSON and YAML from strangers, with the traps of both refused.

Both media give what JSON can hold: dict with str keys, list, str, int, float, bool, None.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal

import yaml
from pydantic import JsonValue

Media = Literal["json", "yaml"]
JsonObject = dict[str, JsonValue]

MAX_DEPTH = 64
MAX_DOCUMENT_BYTES = 2**20
MAX_VALUES = 4_000_000
"""Each takes dozens of bytes of memory, however short it is in the document."""
_INT64_DIGITS = 19

# Strings are swallowed whole so that a bracket inside one does not count; an unterminated string
# runs to the end, which keeps the scan linear.
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)

# Scalars of YAML 1.2's core schema, without its octal numbers: `no`, `on` and dates stay text.
_YAML_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_YAML_BOOL = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_YAML_INT = re.compile(r"[-+]?[0-9]+")
_YAML_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_YAML_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

# libyaml's parser where PyYAML has it: a megabyte takes a fraction of a second, not ten.
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
PLAN, RECORD, PLACEMENT = "a plan", "the record of a plan", "a placement"
REPORT, SPEC, SETTINGS = "the report of a run", "a job spec", "run settings"
LAUNCH, SCRIPT = "a configuration of another framework", "a shell script"
_MARKS = (
    (PLAN, ("copies", "iteration_seconds")),
    (RECORD, ("plan",)),
    (PLACEMENT, ("copies",)),
    (REPORT, ("outcome", "calls")),
    (SPEC, ("workload",)),
    *(
        (LAUNCH, (section,))
        for section in ("actor_rollout_ref", "policy", "grpo", "gconfig", "defaults")
    ),
    (SPEC, ("cluster",)),
    *(
        (SETTINGS, (field,))
        for field in ("data", "functions", "training", "rollout", "checkpoint", "metrics")
    ),
    (SPEC, ("models",)),
)
"""The fields that only this kind of document has together; the first kind that fits counts. Specs
and run settings both have models: last it tells a spec that lacks the rest."""
LOOKS = {
    PLAN: "a plan has copies, calls and iteration_seconds, as automap plan writes it",
    PLACEMENT: "a placement has copies and calls",
    REPORT: "a report is the report.json that automap run writes",
    SPEC: "a job spec has models, workload and cluster",
    SETTINGS: "run settings have data, and mostly functions and training",
}


class DocumentError(ValueError):
    """The text is not a document we accept; `line` counts from 1 where it is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.message = message
        self.line = line


def load_document(
    text: str | bytes,
    *,
    media: Media,
    max_bytes: int = MAX_DOCUMENT_BYTES,
    max_values: int = MAX_VALUES,
) -> object:
    """Parse a document; raises DocumentError for anything unsafe, ambiguous or not JSON's data."""
    encoded = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(encoded) > max_bytes:
        raise DocumentError(f"{len(encoded)} bytes; at most {max_bytes} are accepted")
    decoded = _decode(encoded)
    if not decoded.strip():
        raise DocumentError("the document is empty")
    if number_of_values(encoded) > max_values:
        raise DocumentError(f"more than {max_values} values or lines")
    data = _load_json(decoded) if media == "json" else _load_yaml(decoded)
    if "\\" in decoded:  # only an escape can bring these characters in
        _refuse_unstorable_text(data)
    return data


def number_of_values(encoded: bytes) -> int:
    """No fewer than a document has, without reading it; one in YAML's block style has its lines."""
    return sum(encoded.count(mark) for mark in (b",", b"[", b"{")) + encoded.count(b"\n") + 1


def _decode(encoded: bytes) -> str:
    try:
        return encoded.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = encoded.count(b"\n", 0, error.start) + 1
        raise DocumentError(f"not UTF-8: {error.reason} at byte {error.start}", line) from None


def _load_json(text: str) -> object:
    _refuse_deep_json(text)
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_int=_integer,
            parse_float=_finite,
        )
    except json.JSONDecodeError as error:
        raise DocumentError(f"not JSON: {error.msg}", error.lineno) from None


def _refuse_deep_json(text: str) -> None:
    depth = 0
    for match in _JSON_TOKEN.finditer(text):
        token = match.group()
        if token in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(text.count("\n", 0, match.start()) + 1)
        elif token in "]}":
            depth -= 1


def _too_deep(line: int) -> DocumentError:
    return DocumentError(f"nested deeper than {MAX_DEPTH} levels", line)


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise DocumentError(f"the key {_short(twice)!r} occurs twice in one object")
    return mapping


def _refuse_constant(text: str) -> object:
    raise DocumentError(f"{text} is not a number that JSON has")


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def _integer(text: str) -> int:
    if len(text.lstrip("+-").lstrip("0")) > _INT64_DIGITS or abs(number := int(text)) >= 2**63:
        raise DocumentError(f"the integer {_short(text)} does not fit 64 bits")
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise DocumentError(f"the number {_short(text)} is too large")
    return number


def _load_yaml(text: str) -> object:
    try:
        return _build(_events(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        raise DocumentError(f"not YAML: {error.problem or error.context}", line) from None
    except yaml.YAMLError as error:
        raise DocumentError(f"not YAML: {str(error).splitlines()[0]}") from None


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None  # the parser marks every event
    return event.start_mark.line + 1


def _events(text: str) -> Iterator[yaml.Event]:
    """The parse events of one document, each checked: no anchor, alias, tag, second document."""
    documents = 0
    for event in yaml.parse(text, Loader=YAML_LOADER):
        line = _line(event)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise DocumentError("more than one YAML document", line)
        elif isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise DocumentError("anchors and aliases are refused; write the value out", line)
        elif (tag := getattr(event, "tag", None)) is not None:
            raise DocumentError(f"the tag {_short(tag)!r} is refused", line)
        yield event


class _Open:
    """A collection under construction, and for a mapping the key that waits for its value."""

    def __init__(self, value: dict[str, object] | list[object]) -> None:
        self.value = value
        self.key: str | None = None

    def add(self, child: object, line: int) -> None:
        if isinstance(self.value, list):
            self.value.append(child)
        elif self.key is None:
            raise DocumentError("a mapping's key must be a scalar", line)
        else:
            self.value[self.key] = child
            self.key = None

    def expects_key(self) -> bool:
        return isinstance(self.value, dict) and self.key is None

    def take_key(self, key: str, line: int) -> None:
        if key in self.value:
            raise DocumentError(f"the key {_short(key)!r} occurs twice in one mapping", line)
        if key == "<<":
            raise DocumentError("merge keys are refused; write the values out", line)
        self.key = key


def _build(events: Iterator[yaml.Event]) -> object:
    """Data from events with a stack of our own: depth costs no recursion."""
    root = _Open([])
    stack = [root]
    for event in events:
        line = _line(event)
        if isinstance(event, yaml.ScalarEvent):
            if stack[-1].expects_key():
                stack[-1].take_key(event.value, line)
            else:
                stack[-1].add(_scalar(event, line), line)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if len(stack) > MAX_DEPTH:
                raise _too_deep(line)
            child = _Open({} if isinstance(event, yaml.MappingStartEvent) else [])
            stack[-1].add(child.value, line)
            stack.append(child)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            stack.pop()
    values = list(root.value)
    if not values:
        raise DocumentError("the document is empty")
    return values[0]


def _scalar(event: yaml.ScalarEvent, line: int) -> object:
    text: str = event.value
    if event.style:  # quoted or a block: always text
        return text
    if text in _YAML_NULL:
        return None
    if text in _YAML_BOOL:
        return _YAML_BOOL[text]
    try:
        if _YAML_INT.fullmatch(text):
            return _integer(text)
        if _YAML_FLOAT.fullmatch(text):
            return _finite(text)
    except DocumentError as error:
        raise DocumentError(error.message, line) from None
    if _YAML_NOT_FINITE.fullmatch(text):
        raise DocumentError(f"{text} is not a number we accept", line)
    return text


def _refuse_unstorable_text(data: object) -> None:
    """NUL and lone surrogates are no text that a database or UTF-8 can hold."""
    pending = [data]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if "\0" in item or any("\ud800" <= character <= "\udfff" for character in item):
                raise DocumentError("text holds a NUL character or half a surrogate pair")
        elif isinstance(item, dict):
            pending.extend(item)
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def kind_of(document: object) -> str | None:
    """What a document was meant to be; None where no field says."""
    if isinstance(document, dict):
        for kind, marks in _MARKS:
            if all(mark in document for mark in marks):
                return kind
    return None


def mark_of(document: object, kind: str) -> str:
    """The fields by which a document is of that kind; empty where it has none of them."""
    marks = next(
        (
            marks
            for name, marks in _MARKS
            if name == kind and isinstance(document, dict) and all(it in document for it in marks)
        ),
        (),
    )
    return " and ".join(f"`{mark}`" for mark in marks)
