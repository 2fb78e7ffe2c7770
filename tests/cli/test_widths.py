"""How wide lines are: as the terminal or COLUMNS says; where nothing does, no table is cut."""

import os
import pty
import subprocess
import sys

import pytest
from rich.console import Group
from rich.text import Text

from automap.planner import catalogue
from automap.planner.errors import Reason
from automap.service.cli.failure_report import reasons_view
from automap.service.cli.terminal.console import MAX_WIDTH, stderr_console, stdout_console
from automap.service.cli.terminal.tables import plain_table
from tests.cli.commands import ROOT, TINY, run

LONG = "a" * MAX_WIDTH + " " + "b" * MAX_WIDTH
PIPE = {"COLUMNS": "", "FORCE_COLOR": ""}


@pytest.fixture(autouse=True)
def no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.mark.parametrize("force_color", ["", "1"])
def test_a_table_in_a_pipe_is_whole_and_text_is_folded(capsys, monkeypatch, force_color):
    monkeypatch.setenv("FORCE_COLOR", force_color)  # as services that build and test set it
    monkeypatch.setenv("NO_COLOR", "1")
    table = plain_table()
    table.add_column("cut", no_wrap=True)
    table.add_column("folded", overflow="fold")
    table.add_row(LONG, LONG)
    out = stdout_console()
    out.print(Group(table, Text("words " * MAX_WIDTH)))
    header, row, *text = (line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert row.endswith(f"{LONG} {LONG}")
    assert max(map(len, text)) <= MAX_WIDTH == out.width
    assert header


def test_what_is_refused_is_whole_in_a_pipe(capsys):
    stderr_console().print(reasons_view([Reason(summary=LONG)]))
    assert LONG in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["60", "100"])
def test_columns_are_honoured_in_a_pipe(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    table = plain_table()
    table.add_column("all")
    table.add_row(LONG)
    stdout_console().print(table)
    assert max(map(len, capsys.readouterr().out.splitlines())) == int(columns)


def test_listings_in_a_pipe_hold_every_name():
    done = run("models", **PIPE)
    lines = done.stdout.splitlines()
    assert "…" not in done.stdout
    for model in catalogue.architectures().values():
        (line,) = (each for each in lines if each.split()[:1] == [model.name])
        assert (model.aliases or ("",))[0] in line
    done = run("gpus", **PIPE)
    assert "…" not in done.stdout
    names = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert set(names) >= set(catalogue.gpu_types())


def test_a_plan_in_a_file_has_all_columns_whatever_the_terminal_beside_it(tmp_path):
    """Rich asks the terminal of standard input and error for its width, too."""
    ours, theirs = pty.openpty()
    file = tmp_path / "plan.txt"
    command = [sys.executable, "-m", "automap.service.cli.main", "plan", TINY]
    try:
        with file.open("w") as out:
            subprocess.run(
                command,
                stdin=theirs,
                stdout=out,
                stderr=theirs,
                cwd=ROOT,
                check=True,
                timeout=120,
            )
    finally:
        os.close(ours)
        os.close(theirs)
    text = file.read_text(encoding="utf-8")
    assert "…" not in text
    assert "time is" in text
