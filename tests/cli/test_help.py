"""Help shows what was written: Rich would take [word] for a style, and :word: for a picture."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from rich.text import Text

from automap.service.cli.main import app
from tests.cli.commands import call

FRAMES = set("╭─╮│╰╯…")


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield names, group
    for name, each in getattr(group, "commands", {}).items():
        yield from commands(each, *names, name)


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("names", ALL, ids=" ".join)
def test_no_text_is_taken_for_markup(names: tuple[str, ...]) -> None:
    texts = [ALL[names].help, *(getattr(each, "help", None) for each in ALL[names].params)]
    for text in filter(None, texts):
        assert Text.from_markup(inspect.cleandoc(text)).plain == inspect.cleandoc(text)


def test_all_help_is_letters(capsys: pytest.CaptureFixture[str]) -> None:
    for names in ALL:
        code, out, _ = call(capsys, *names, "--help")
        assert code == 0
        assert {each for each in out if not each.isascii()} <= FRAMES, names


def test_a_label_is_named_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert "label:KEY:VALUE" in call(capsys, "budgets", "--help")[1]
