"""Reward functions in files that can be seen: refused by their field, without running the file."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automap.executor.settings import RunSettings
from automap.service.errors.fields import FieldError
from automap.service.runs import function_files
from automap.service.runs.function_files import function_errors

CODE = """
raise SystemExit("it was run")
def lengths(prompt_tokens, response_tokens, *, scale=1): ...
def wants_text(responses, style="plain"): ...
def wants_more(prompt_tokens, *, judge): ...
def everything(**given): ...
@decorated
def changed(anything): ...
Score = make()
from elsewhere import borrowed
try:
    import fast as either
except ImportError:
    def either(anything): ...
if True:
    async def _hidden(prompt_tokens): ...
"""


def settings(place: object, **changes: Any) -> RunSettings:
    given = {"data": {"path": "/rows.jsonl"}, "functions": {"reward": {"path": str(place)}}}
    return RunSettings.model_validate({**given, **changes})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    return path


@pytest.mark.parametrize(
    ("name", "message", "remedy"),
    [
        ("length", "there is no function length in it", "use lengths, wants_text, wants_more"),
        ("wants_text", "wants_text wants responses; there are prompt_tokens,", "data.tokenizer"),
        ("wants_more", "wants judge; there are prompt_tokens,", "have a default"),
    ],
)
def test_what_cannot_score_is_refused(file: Path, name: str, message: str, remedy: str) -> None:
    (error,) = function_errors(settings(f"{file}:{name}"))
    assert (error.field, error.value) == ("functions.reward.path", f"{file}:{name}")
    assert message in error.message
    assert remedy in (error.remedy or "")
    assert list(function_errors(settings(f"{file}:{name}"), files=False)) == []


@pytest.mark.parametrize(
    "name", ["lengths", "everything", "changed", "Score", "borrowed", "either", "_hidden"]
)
def test_what_may_score_is_not(file: Path, name: str) -> None:
    assert list(function_errors(settings(f"{file}:{name}"))) == []


def test_what_rows_give_is_what_the_settings_say(file: Path) -> None:
    text = {"path": "/rows.jsonl", "tokenizer": "/tokenizer"}
    assert list(function_errors(settings(f"{file}:wants_text", data=text))) == []
    assert list(function_errors(settings(f"{file}:wants_more", program="mine:PROGRAM"))) == []


@pytest.mark.parametrize(
    "code",
    [
        "from elsewhere import *",
        "def __getattr__(name): ...",
        "globals().update(score=print)",
        "def make():\n    global score\n    def score(): ...",
        "type of = another(python",
        "\0",
        "(" * 100_000,
    ],
)
def test_what_cannot_be_seen_is_left_to_the_run(tmp_path: Path, code: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(code)
    assert list(function_errors(settings(f"{file}:score"))) == []


def test_files_that_are_not_here_and_no_files_are_left_to_the_run(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe.py")  # opening it would wait for who writes
    for place in ("nowhere.py", "pipe.py", "."):
        assert list(function_errors(settings(f"{tmp_path}/{place}:score"))) == []
    monkeypatch.setattr(function_files, "MOST_BYTES", 10)
    assert list(function_errors(settings(f"{file}:length"))) == []
    assert list(function_errors(settings("os:no_such_function"))) == []


def test_modules_of_automap_are_looked_into_wherever() -> None:
    def errors() -> Iterator[FieldError]:
        return function_errors(settings("automap.executor.tiny.tasks:count_tokens"), files=False)

    (error,) = errors()
    assert "count_token, " in (error.remedy or "")
    known = settings("automap.executor.tiny.tasks:count_token")
    assert list(function_errors(known, files=False)) == []
