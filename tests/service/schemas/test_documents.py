import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automap.service.schemas.documents import MAX_DEPTH, DocumentError, Media, load_document

# No lone surrogates, no NUL; what YAML cannot print is written as an escape by json.dumps.
TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20
).filter(lambda text: text != "<<")
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_json_comes_back_as_it_was(value: object) -> None:
    assert load_document(json.dumps(value), media="json") == value
    assert load_document(json.dumps(value, ensure_ascii=False).encode(), media="json") == value


BMP = st.characters(exclude_categories=["Cs"], exclude_characters="\0", max_codepoint=0xFFFF)


@given(st.dictionaries(st.text(BMP, max_size=8).filter(lambda key: key != "<<"), VALUES))
def test_json_read_as_yaml_gives_the_same(value: object) -> None:
    # JSON writes characters beyond the BMP as two escapes, which YAML does not join.
    text = json.dumps(value)
    if "\\ud8" not in text and "\\ud9" not in text and "\\uda" not in text and "\\udb" not in text:
        assert load_document(text, media="yaml") == load_document(text, media="json")


def test_yaml_scalars_are_those_of_its_core_schema() -> None:
    text = """
    yes: no
    on: 2024-01-01
    count: 12
    signed: -3
    ratio: 0.5
    thousand: 1e3
    half: .5
    truth: true
    nothing: ~
    empty:
    quoted: "12"
    block: |
      12
    underscore: 1_000
    octal: 010
    """
    assert load_document(text, media="yaml") == {
        "yes": "no",
        "on": "2024-01-01",
        "count": 12,
        "signed": -3,
        "ratio": 0.5,
        "thousand": 1000.0,
        "half": 0.5,
        "truth": True,
        "nothing": None,
        "empty": None,
        "quoted": "12",
        "block": "12\n",
        "underscore": "1_000",
        "octal": 10,
    }


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
)
REFUSED: list[tuple[Media, str | bytes, str]] = [
    ("json", "", "empty"),
    ("json", "  \n", "empty"),
    ("json", "{", "not JSON"),
    ("json", "{'a': 1}", "not JSON"),
    ("json", '{"a": 1} {"b": 2}', "not JSON"),
    ("json", b'{"a": "\xff"}', "not UTF-8"),
    ("json", '{"a": 1, "b": 2, "a": 3}', "'a' occurs twice"),
    ("json", "[NaN]", "NaN is not a number"),
    ("json", "[-Infinity]", "-Infinity is not a number"),
    ("json", "[1e999]", "too large"),
    ("json", "[" + "9" * 100_000 + "]", "64 bits"),
    ("json", f"[{2**63}]", "64 bits"),
    ("json", "[" * 200_000, f"deeper than {MAX_DEPTH}"),
    ("json", '{"a":' * 65 + "1" + "}" * 65, f"deeper than {MAX_DEPTH}"),
    ("json", r'{"a": "\u0000"}', "NUL"),
    ("json", r'{"\ud800": 1}', "surrogate"),
    ("json", '"' + '\\"' * 400_000 + "\\", "not JSON"),
    ("json", "[" + "1," * 2**20 + "1]", "at most 1048576"),
    ("yaml", "", "empty"),
    ("yaml", "# nothing\n", "empty"),
    ("yaml", "a: b: c", "not YAML"),
    ("yaml", "a: [1", "not YAML"),
    ("yaml", "a: 1\nb: 2\na: 3", "line 3: the key 'a' occurs twice"),
    ("yaml", BOMB, "anchors and aliases"),
    ("yaml", "a: *unknown", "anchors and aliases"),
    ("yaml", "a: &anchor 1", "anchors and aliases"),
    ("yaml", "a: &anchor [1]", "anchors and aliases"),
    ("yaml", "!!python/object/apply:os.system [id]", "tag"),
    ("yaml", "a: !!binary aGk=", "tag"),
    ("yaml", "a: !env HOME", "tag"),
    ("yaml", "<<: {a: 1}", "merge keys"),
    ("yaml", "? [a, b]\n: 1", "key must be a scalar"),
    ("yaml", "? {a: b}\n: 1", "key must be a scalar"),
    ("yaml", "a: 1\n---\nb: 2", "more than one"),
    ("yaml", "a: .inf", "not a number"),
    ("yaml", "a: -.INF", "not a number"),
    ("yaml", "a: .nan", "not a number"),
    ("yaml", "a: 1e999", "too large"),
    ("yaml", "a: " + "9" * 10_000, "64 bits"),
    ("yaml", "[" * 200_000, f"deeper than {MAX_DEPTH}"),
    ("yaml", "- " * 1000 + "a", f"deeper than {MAX_DEPTH}"),
    ("yaml", 'a: "\\0"', "NUL"),
    ("yaml", "a: \x00", "not YAML"),
    ("yaml", b"a: \xff", "not UTF-8"),
]


@pytest.mark.parametrize(("media", "text", "message"), REFUSED)
def test_traps_are_refused_quickly(media: Media, text: str | bytes, message: str) -> None:
    started = time.perf_counter()
    with pytest.raises(DocumentError, match=message):
        load_document(text, media=media)
    assert time.perf_counter() - started < 2


def test_depth_up_to_the_limit_is_read() -> None:
    for media in ("json", "yaml"):
        value = load_document("[" * MAX_DEPTH + "]" * MAX_DEPTH, media=media)
        for _ in range(MAX_DEPTH - 1):
            assert isinstance(value, list)
            (value,) = value
        assert value == []


def test_brackets_inside_strings_are_no_depth() -> None:
    assert load_document(json.dumps(["[" * 1000, '"' + "{" * 1000]), media="json")


def test_errors_know_their_line() -> None:
    with pytest.raises(DocumentError) as caught:
        load_document('{\n "a": 1,\n "b" 2\n}', media="json")
    assert caught.value.line == 3


def test_a_byte_order_mark_is_ignored() -> None:
    assert load_document(b'\xef\xbb\xbf{"a": 1}', media="json") == {"a": 1}
