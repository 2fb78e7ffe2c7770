"""`automap simulate`: what it prints, writes and refuses."""

import json
from importlib import util

import pytest

from automap.planner.simulation.result import Simulation
from tests.cli.commands import TINY, call
from tests.planner.check.broken_plans import BARRIER_PLAN, CYCLIC_PLAN


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(CYCLIC_PLAN.model_dump_json(by_alias=True), encoding="utf-8")
    return str(path)


def test_a_plan_is_simulated_and_shown(capsys, plan_file, tmp_path):
    trace = tmp_path / "trace.json"
    code, out, err = call(capsys, "simulate", plan_file, "-n", "3", "--trace", str(trace))
    assert (code, err) == (0, "")
    for shown in ("3 iterations", "95th percentile", "call actor.generate", "idle GPU-seconds"):
        assert shown in out
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert {event["args"]["iteration"] for event in events if event["ph"] == "X"} == {0, 1, 2}


def test_json_is_the_simulation_and_nothing_else(capsys, plan_file):
    code, out, _ = call(capsys, "simulate", plan_file, "-n", "2", "--seed", "5", "--json")
    found = Simulation.model_validate_json(out)
    assert (code, found.iterations, found.seed) == (0, 2, 5)
    assert found.iteration_seconds.p50 == pytest.approx(CYCLIC_PLAN.iteration_seconds)


def test_a_spec_is_planned_first(capsys):
    code, out, _ = call(capsys, "simulate", TINY, "-n", "2", "--quiet")
    assert code == 0
    assert len(out.splitlines()) == 1
    assert "2 iterations" in out


def test_picture_draws_or_says_what_it_needs(capsys, plan_file, tmp_path):
    picture = tmp_path / "timeline.png"
    code, _, err = call(capsys, "simulate", plan_file, "-n", "2", "--picture", str(picture))
    if util.find_spec("matplotlib") is None:
        assert code == 2
        assert "pip install matplotlib" in err
        assert not picture.exists()
    else:
        assert code == 0
        assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--trace", "/no/such/folder/trace.json"), "there is no folder /no/such/folder"),
        (("--trace", "same.png", "--picture", "same.png"), "same.png is that of --trace"),
        (("--trace", "/"), "cannot write /: it is a folder"),
        (("--iterations", "0"), "greater than or equal to 1"),
        (("--seed", "-1"), "greater than or equal to 0"),
    ],
)
def test_bad_options_are_refused_before_the_work(capsys, plan_file, arguments, part):
    code, out, err = call(capsys, "simulate", plan_file, *arguments)
    assert (code, out) == (2, "")
    assert part in " ".join(err.replace("│", "").split())


def test_the_plan_itself_is_not_overwritten(capsys, plan_file):
    code, _, err = call(capsys, "simulate", plan_file, "--trace", plan_file)
    assert code == 2
    assert "is the file that is read" in err


def test_a_plan_that_fails_the_check_says_why(capsys, tmp_path):
    path = tmp_path / "plan.json"
    wrong = BARRIER_PLAN.model_copy(update={"iteration_seconds": 1.0})
    path.write_text(wrong.model_dump_json(by_alias=True), encoding="utf-8")
    code, _, err = call(capsys, "simulate", str(path))
    assert code == 2
    assert "cannot be simulated" in err
    assert "iteration_seconds is 1.0" in " ".join(err.split())
