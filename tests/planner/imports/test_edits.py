"""Words of a script that change, come and go, in a text whose other bytes stay."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automap.planner.imports.shell.edits import (
    Edit,
    added,
    edited,
    joined_lines,
    with_value,
    without,
)

VALUES = st.text("ab1.,[]'\"$`\\! {}", max_size=8)
WRITTEN = (
    "a.b=old",
    "+a.b=old",
    "a.b='old'",
    'a.b="old"',
    "'a.b=old'",
    '"a.b=old"',
    'a.b="${OLD}"',
    "a.b=$OLD",
    "a.b=$((2 * 3))",
    "a.b=",
    'a.b="x"$Y',
    "a.b=\"$(basename '$X')\"",
)


@given(written=st.sampled_from(WRITTEN), value=VALUES)
def test_a_word_says_the_value_whatever_characters_it_has(written: str, value: str) -> None:
    found = with_value(written, value)
    assert found is not None
    sign = "+" if written.startswith("+") else ""
    assert shlex.split(found) == [f"{sign}a.b={value}"]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("a.b=old", "a.b=8"),
        ("a.b='old'", "a.b='8'"),
        ('"a.b=$OLD"', '"a.b=8"'),
        ("'+a.b=old'", "'+a.b=8'"),
    ],
)
def test_quotes_stay_where_they_can(written: str, found: str) -> None:
    assert with_value(written, "8") == found


@pytest.mark.parametrize("written", ["$WORD", '"${A[@]}"', "'a.b=o'l'd'", '"a.b=\\"x\\""', "x"])
def test_a_word_that_does_not_write_its_key_stays(written: str) -> None:
    assert with_value(written, "8") is None


LINES = st.lists(st.sampled_from(["", "a=1 \\", "  b=2", "# it's", "x"]), max_size=12)


@given(lines=LINES, ends=st.lists(st.sampled_from(["\n", "\r\n"]), min_size=12, max_size=12))
def test_without_an_edit_every_byte_stays(lines: list[str], ends: list[str]) -> None:
    text = "".join(line + end for line, end in zip(lines, ends, strict=False))
    assert edited(text, []) == text
    whole = joined_lines(text)
    for start in range(len(whole)):
        found = edited(text, [Edit(start, start, "@")])
        assert joined_lines(found) == f"{whole[:start]}@{whole[start:]}"
        assert found.replace("@", "") == text


def test_line_ends_of_two_characters_are_written_as_they_are_there() -> None:
    text = "run a=1 \\\r\n  b=2\r\nend\r\n"
    end = joined_lines(text).index("b=2") + 3
    found = edited(text, [added(joined_lines(text), end, ["c=3"])])
    assert found == "run a=1 \\\r\n  b=2 \\\r\n  c=3\r\nend\r\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("run a=1 \\\n  b=2 \\\n  c=3\n", "run a=1 \\\n  c=3\n"),
        ("run a=1 b=2 c=3\n", "run a=1 c=3\n"),
        ("run a=1 \\\n  b=2\n", "run a=1\n"),
        ("A=(\n  a=1\n  b=2  # why\n  c=3\n)\n", "A=(\n  a=1\n  c=3\n)\n"),
        ("A=(b=2 c=3)\n", "A=( c=3)\n"),
        ("A=(\n  # why\n  b=2\n)", "A=(\n  # why\n)"),
    ],
)
def test_a_word_goes_with_its_blanks_or_its_line(text: str, found: str) -> None:
    start = text.index("b=2")
    assert edited(text, [without(text, start, start + 3)]) == found


def test_two_edits_of_the_same_characters_are_refused() -> None:
    with pytest.raises(ValueError, match="two edits"):
        edited("abc", [Edit(0, 2, ""), Edit(1, 3, "")])
