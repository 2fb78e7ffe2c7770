"""`automap run` with a program that stands in for the executor at its process boundary."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from automap.planner.plan.types import Plan
from automap.service.cli.inputs.files import read_runnable
from automap.service.cli.run.command import run_command
from benchmarks.chaos.run_stand_in import MARK
from tests.cli.commands import ROOT, call, run
from tests.service.support.processes import running
from tests.service.support.workers import STAND_IN, TINY, eventually, run_settings

COMMAND = f"{sys.executable} {STAND_IN}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A spec with its settings beside it."""
    monkeypatch.setenv("AUTOMAP_RUN_COMMAND", COMMAND)
    monkeypatch.setenv("AUTOMAP_RUNS_FOLDER", str(tmp_path / "runs"))
    (tmp_path / "tiny.yaml").write_text(yaml.dump(TINY), encoding="utf-8")
    settle(tmp_path, "ok")
    return tmp_path


def settle(folder: Path, mode: str, **changes: object) -> None:
    text = yaml.dump(run_settings(mode, **changes))
    (folder / "tiny.run.yaml").write_text(text, encoding="utf-8")


def test_a_spec_is_planned_and_run_with_the_settings_beside_it(folder, capsys):
    code, out, err = call(capsys, "run", str(folder / "tiny.yaml"))
    assert code == 0, err
    assert "actor.generate" in out
    assert "4 of 4 iterations" in out
    (output,) = (folder / "runs").iterdir()
    assert str(output) in out.replace("\n", "")
    assert output.name.startswith("tiny-")
    # What it writes is its user's alone; a folder that is named is as the user's others.
    assert [each.stat().st_mode & 0o777 for each in (output.parent, output)] == [0o700, 0o700]
    assert Plan.model_validate_json((output / "plan.json").read_text()).name == "tiny"
    settings = json.loads((output / "settings.json").read_text())
    assert settings["data"]["path"] == "/stand-in/ok.jsonl"
    assert "the stand-in runs tiny" in (output / "run.log").read_text()
    # Without a terminal, a line for every iteration.
    assert err.count("iteration") >= 4
    assert "iteration 4 of 4 iterations, reward 0." in err


def test_run_settings_in_place_of_a_plan_are_told_apart(folder, capsys):
    code, _, err = call(capsys, "run", str(folder / "tiny.run.yaml"))
    assert code == 2
    assert "tiny.run.yaml: this is run settings, not a plan or a job spec" in err


def test_fewer_iterations_can_be_asked_for(folder, capsys):
    arguments = ("--iterations", "2", "--output", str(folder / "few"))
    assert call(capsys, "run", str(folder / "tiny.yaml"), *arguments)[0] == 0
    assert json.loads((folder / "few" / "settings.json").read_text())["iterations"] == 2
    code, _, err = call(capsys, "run", str(folder / "tiny.yaml"), "--iterations", "0")
    assert code == 2
    assert "--iterations" in err


def test_the_report_is_printed_as_json_and_nothing_else(folder, capsys):
    code, out, err = call(capsys, "run", str(folder / "tiny.yaml"), "--json", "--quiet")
    assert code == 0, err
    assert json.loads(out) == {"iterations": 4, "name": "tiny"}
    assert err == ""


def test_quiet_leaves_one_line_and_the_folder(folder, capsys):
    output = folder / "here"
    arguments = ("run", str(folder / "tiny.yaml"), "--quiet", "--output", str(output))
    code, out, err = call(capsys, *arguments)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("4 of 4 iterations")
    assert (output / "events.jsonl").exists()


def test_a_plan_is_run_as_it_is(folder, capsys):
    plan = folder / "plan.json"
    assert call(capsys, "plan", str(folder / "tiny.yaml"), "-q", "-o", str(plan))[0] == 0
    record = folder / "record.json"
    document = json.loads(plan.read_text())
    record.write_text(json.dumps({"id": "x", "spec": TINY, "plan": document}))
    settings = str(folder / "tiny.run.yaml")
    for source in (plan, record):
        output = folder / source.stem
        arguments = ("--settings", settings, "--output", str(output), "-q")
        code, _, err = call(capsys, "run", str(source), *arguments)
        assert code == 0, err
        assert json.loads((output / "plan.json").read_text()) == document
    assert isinstance(read_runnable(str(record)), Plan)


def test_relative_paths_start_at_the_settings(folder, capsys, monkeypatch):
    settle(folder, "ok", data={"path": "data/ok.jsonl"}, models={"actor": "../models/actor"})
    (folder / "tiny.run.yaml").rename(folder / "other.yaml")
    monkeypatch.chdir(ROOT)
    arguments = ("--settings", str(folder / "other.yaml"), "-q", "-o", str(folder / "o"))
    assert call(capsys, "run", str(folder / "tiny.yaml"), *arguments)[0] == 0
    settings = json.loads((folder / "o" / "settings.json").read_text())
    assert settings["data"]["path"] == f"{folder}/data/ok.jsonl"
    assert Path(settings["models"]["actor"]).resolve() == folder.parent / "models" / "actor"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("generation_tail", True),
        ("generation_tensor_schedule", True),
        ("target", "any"),
    ],
)
def test_what_can_only_be_priced_is_refused(folder, capsys, name, value):
    (folder / "tiny.yaml").write_text(yaml.dump(TINY | {"search": {name: value}}), encoding="utf-8")
    code, _, err = call(capsys, "run", str(folder / "tiny.yaml"))
    assert code == 2
    assert f"search.{name}" in err
    assert "can be priced, but not run" in " ".join(err.split())


def test_a_plan_for_any_runs_where_automap_runs_it(folder, capsys):
    (folder / "tiny.yaml").write_text(
        yaml.dump(TINY | {"search": {"target": "any"}}), encoding="utf-8"
    )
    plan = folder / "plan.json"
    assert call(capsys, "plan", str(folder / "tiny.yaml"), "-q", "-o", str(plan))[0] == 0
    assert json.loads(plan.read_text())["runs_with"] == ["automap"]
    arguments = ("--settings", str(folder / "tiny.run.yaml"), "--output", str(folder / "o"), "-q")
    code, _, err = call(capsys, "run", str(plan), *arguments)
    assert code == 0, err


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"data": {"path": "/a.csv"}}, "data.path: rows are read from .parquet and .jsonl"),
        ({"functions": {}}, "functions.reward: the spec says that this role is a function"),
        (
            {"functions": {"reward": {"path": "mine.py:lenths"}}},
            "functions.reward.path: there is no function lenths in it (got",
        ),
        ({"models": {"critic": "/c"}}, "models.critic: the spec has no model"),
        ({"iteration": 3}, "did you mean 'iterations'"),
        ({"iterations": -3}, "iterations: Input should be greater than or equal to 1"),
    ],
)
def test_bad_settings_are_told_before_anything_is_planned(folder, capsys, change, shown):
    settle(folder, "ok", **change)
    (folder / "mine.py").write_text("def lengths(prompt_tokens): ...\n", encoding="utf-8")
    code, out, err = call(capsys, "run", str(folder / "tiny.yaml"))
    assert (code, out) == (2, "")
    assert shown in err
    assert "tiny.run.yaml: 1 mistake" in err
    assert not (folder / "runs").exists()


def test_missing_settings_and_unfit_files_are_bad_input(folder, capsys):
    (folder / "tiny.run.yaml").unlink()
    code, _, err = call(capsys, "run", str(folder / "tiny.yaml"))
    assert code == 2
    assert "tiny.run.yaml" in err
    assert "--settings" in err
    code, _, err = call(capsys, "run", str(folder / "tiny.yaml"), "--settings", "nowhere.yaml")
    assert code == 2
    assert "cannot read nowhere.yaml" in err
    placement = folder / "placement.json"
    placement.write_text('{"copies": [], "calls": []}')
    code, _, err = call(capsys, "run", str(placement))
    assert code == 2
    assert "automap estimate" in err
    record = folder / "queued.json"
    record.write_text(json.dumps({"id": "x", "spec": TINY, "plan": None}))
    assert call(capsys, "run", str(record))[0] == 2
    code, _, err = call(capsys, "run", str(folder / "tiny.yaml"), "-o", "/dev/null/here")
    assert code == 2


def test_only_the_executor_itself_ends_with_its_input(monkeypatch):
    monkeypatch.setenv("AUTOMAP_RUN_COMMAND", "docker run --rm automap")
    assert run_command() == ["docker", "run", "--rm", "automap"]
    pytest.importorskip("torch")
    monkeypatch.delenv("AUTOMAP_RUN_COMMAND")
    assert run_command()[1:] == ["-m", "automap.executor.run", "--until-stdin-closes"]


def test_without_torch_the_missing_extra_is_named(folder, capsys, monkeypatch):
    import importlib.util

    monkeypatch.delenv("AUTOMAP_RUN_COMMAND")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, _, err = call(capsys, "run", str(folder / "tiny.yaml"))
    assert code == 2
    assert "needs torch and ray" in err
    assert "executor-cpu" in err


@pytest.mark.parametrize(
    ("mode", "code", "shown"),
    [
        ("fail", 1, "actor.train: the loss is not finite"),
        ("refuse", 2, "data.path: there is no such file"),
        ("mute", 1, "ended without a report"),
        ("die", 1, "ended by signal 9"),
    ],
)
def test_a_run_that_ends_badly_says_why(folder, capsys, mode, code, shown):
    settle(folder, mode, max_restarts=0)
    ended, out, err = call(capsys, "run", str(folder / "tiny.yaml"))
    assert (ended, out) == (code, "")
    assert shown in err
    assert "Traceback" not in err


def test_the_same_folder_resumes_a_run(folder, capsys):
    settle(folder, "die", max_restarts=0)
    arguments = ("run", str(folder / "tiny.yaml"), "-o", str(folder / "o"))
    code, _, err = call(capsys, *arguments)
    assert code == 1
    assert f"--output {folder}/o" in err
    code, _, err = call(capsys, *arguments)
    assert code == 0, err
    assert "iteration 1" not in err  # done by the first
    printed = (folder / "o" / "run.log").read_text()
    assert printed.count(MARK + '{"type": "iteration"') == 4


def test_a_killed_run_is_started_again(folder, capsys):
    # Also one that was told to ignore what an earlier run had left in its folder.
    settle(folder, "die", max_restarts=1, checkpoint={"resume": False})
    output = folder / "o"
    output.mkdir()
    (output / "checkpoint").write_text("3")
    code, out, err = call(capsys, "run", str(folder / "tiny.yaml"), "-o", str(output))
    assert code == 0, err
    assert "ended by signal 9; starting it again" in err
    assert "(restart 1 of 1)" in err
    assert "4 of 4 iterations" in out
    assert len((output / "starts").read_text().splitlines()) == 2
    # The line that the first was writing has taken none of the second's with it.
    assert "iteration 2 of 4" in err
    assert err.count("iteration 2 of 4") == 1


def test_what_a_run_restarts_by_itself_counts(folder, capsys, monkeypatch):
    program = folder / "restarts.py"
    program.write_text(
        "import json, os, sys\n"
        "folder = sys.argv[sys.argv.index('--output') + 1]\n"
        "settings = json.load(open(sys.argv[sys.argv.index('--settings') + 1]))\n"
        "print(settings['max_restarts'], file=open(folder + '/starts', 'a'))\n"
        "for number in range(1, min(settings['max_restarts'], 2) + 1):\n"
        f"    print('{MARK}' + json.dumps({{'type': 'log', 'restart': number}}), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    monkeypatch.setenv("AUTOMAP_RUN_COMMAND", f"{sys.executable} {program}")
    settle(folder, "ok", max_restarts=3)
    output = folder / "o"
    code, _, err = call(capsys, "run", str(folder / "tiny.yaml"), "-o", str(output))
    assert code == 1
    assert "starting it again at iteration 1 (restart 3 of 3)" in err
    assert (output / "starts").read_text().split() == ["3", "0"]


def test_how_to_go_on_is_said_by_what_there_is(folder, capsys, monkeypatch):
    settle(folder, "die", max_restarts=0, checkpoint={"resume": False})
    code, _, err = call(capsys, "run", str(folder / "tiny.yaml"), "-o", str(folder / "o"))
    assert code == 1
    assert "and checkpoint.resume: true in the settings goes on from its last checkpoint" in err
    program = folder / "dies.sh"
    program.write_text("kill -9 $$\n")
    monkeypatch.setenv("AUTOMAP_RUN_COMMAND", f"sh {program}")
    code, _, err = call(capsys, "run", str(folder / "tiny.yaml"), "-o", str(folder / "new"))
    assert code == 1
    assert "begins at iteration 1: there is no checkpoint yet (checkpoint.every_iterations" in err


def test_the_plan_of_a_run_that_goes_on_is_not_overwritten(folder, capsys):
    output = folder / "o"
    output.mkdir()
    (output / "plan.json").write_text("the first's")
    with (output / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("process 7 on there")
        lock.flush()
        code, _, err = call(capsys, "run", str(folder / "tiny.yaml"), "-o", str(output))
    assert code == 2
    assert "another run writes to" in err
    assert "process 7 on there" in err
    assert (output / "plan.json").read_text() == "the first's"
    assert sorted(each.name for each in output.iterdir()) == ["plan.json", "run.lock"]
    assert call(capsys, "run", str(folder / "tiny.yaml"), "-o", str(output))[0] == 0


@pytest.mark.parametrize("is_ignored", [False, True])
def test_the_end_of_the_terminal_ends_the_run_but_under_nohup(folder, is_ignored):
    settle(folder, "held")
    output = folder / "o"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        # Whatever these tests run under.
        signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
        if is_ignored:
            here = os.open(folder / "nohup.out", os.O_WRONLY | os.O_CREAT)
            os.dup2(here, 1)
            os.dup2(here, 2)
        command = [
            sys.executable,
            "-m",
            "automap.service.cli.main",
            "run",
            str(folder / "tiny.yaml"),
        ]
        os.execv(sys.executable, [*command, "-o", str(output)])
    log = output / "run.log"
    eventually(lambda: log.exists() and '"iteration": 3' in log.read_text())
    started = int((output / "starts").read_text().split()[0])
    os.close(terminal)
    if is_ignored:
        time.sleep(1)
        assert running(started)
        (output / "go").touch()
    _, status = os.waitpid(pid, 0)
    eventually(lambda: not running(started))
    assert (os.waitstatus_to_exitcode(status) == 0) is is_ignored


def interrupted(folder: Path, mode: str, *, times: int) -> tuple[int, str, int]:
    """Exit code, stderr, and the run's process, after Ctrl-C."""
    settle(folder, mode)
    output = folder / "o"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "automap.service.cli.main", "run"),
            *(str(folder / "tiny.yaml"), "-o", str(output)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "AUTOMAP_RUN_COMMAND": COMMAND},
    )
    log = output / "run.log"
    eventually(lambda: log.exists() and '"iteration": 3' in log.read_text())
    started = int((output / "starts").read_text().split()[0])
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(1)
    _, err = process.communicate(timeout=30)
    return process.returncode, err, started


def test_ctrl_c_cancels_the_run(folder):
    code, err, started = interrupted(folder, "held", times=1)
    assert code == 130
    assert "cancelled" in err
    assert "goes on from its last checkpoint" in err
    assert not running(started)


@pytest.mark.slow
def test_a_second_ctrl_c_waits_for_nothing(folder):
    code, err, started = interrupted(folder, "stubborn", times=2)
    assert code == 130
    assert "once more ends it" in err
    assert not running(started)


def test_help_names_all_commands():
    done = run("--help")
    for command in ("run", "submit", "jobs", "serve", "worker"):
        assert f" {command} " in done.stdout
