"""automap explain and automap replan, as a user types them."""

import json
from pathlib import Path
from typing import Any

import pytest

from automap.planner.explanation.result import Explanation
from automap.planner.plan.types import Plan
from automap.planner.replanning.result import Replan
from tests.cli.commands import TINY, call


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    from automap.planner.planning import make_plan
    from automap.service.cli.inputs.files import read_spec

    file = tmp_path_factory.mktemp("plans") / "plan.json"
    file.write_text(make_plan(read_spec(TINY)).model_dump_json(by_alias=True), encoding="utf-8")
    return str(file)


def test_explain_shows_what_was_asked_for(capsys, plan_file):
    code, out, _ = call(capsys, "explain", plan_file, "--part", "alternatives", "--part", "regret")
    assert code == 0
    assert "Why not" in out
    assert "every model on GPUs of its own" in out
    assert "worst corner" in out
    assert "Error at which" not in out


def test_explain_json_is_the_explanation_and_nothing_else(capsys, plan_file):
    code, out, _ = call(
        capsys, "explain", plan_file, "--json", "--part", "regret", "--scenarios", "3"
    )
    assert code == 0
    found = Explanation.model_validate_json(out)
    assert found.regret is not None
    assert found.regret.scenarios == 3
    assert found.alternatives == []


def test_explain_says_a_line_per_result_where_it_is_to_be_quiet(capsys, plan_file):
    given = ["--part", "sensitivity", "--part", "regret", "--scenarios", "1"]
    code, out, _ = call(capsys, "explain", plan_file, *given, "-q", "--search-seconds", "0.2")
    assert code == 0
    lines = out.splitlines()
    assert any(line.startswith("actor.generate: longer ") for line in lines)
    assert lines[-1].startswith("regret: p95 ")


def test_explain_refuses_a_part_that_is_none(capsys, plan_file):
    code, _, err = call(capsys, "explain", plan_file, "--part", "everything")
    assert code == 2
    assert "everything" in err
    assert "alternatives, sensitivity, regret" in err


def test_replan_answers_and_writes_the_new_plan(capsys, plan_file, tmp_path):
    new = tmp_path / "new.json"
    pool = Plan.model_validate_json(Path(plan_file).read_text(encoding="utf-8")).copies[0].pool
    arguments = ["replan", plan_file, "--add-nodes", f"{pool}:1", "--output", str(new)]
    code, out, _ = call(capsys, *arguments, "--json")
    assert code == 0
    found = Replan.model_validate_json(out)
    if found.placement is not None:
        written = Plan.model_validate_json(new.read_text(encoding="utf-8"))
        assert written.placement() == found.placement
    code, out, _ = call(capsys, "replan", plan_file, "--call", "actor.generate=1000")
    assert code == 0
    assert out.startswith(("keep", "move"))
    assert "times as long as estimated" in out


def report_of(plan: Plan, **seconds: float) -> dict[str, Any]:
    """Of a run of the plan, whose calls took what was planned, or these seconds."""
    calls = []
    for each in plan.calls:
        planned = each.measurable_seconds
        took = seconds.get(each.id.replace(".", "_"), planned)
        measured = {"median": took, "min": took, "max": took, "count": 5}
        compared = {"predicted": planned, "measured": measured}
        calls.append({"id": each.id, "role": each.role, "kind": each.kind, "seconds": compared})
    beside = {"measured": {"median": 1.0, "min": 1.0, "max": 1.0, "count": 5}}
    return {
        "name": plan.name,
        "algorithm": plan.algorithm,
        "outcome": {"state": "succeeded"},
        "iterations": 6,
        "provenance": {
            "code_version": "1",
            "versions": {},
            "device": {"name": "cpu", "kind": "cpu", "num_devices": 1, "memory_bytes": 1},
        },
        "calls": [*calls, {"id": "kl", "role": "ops", "kind": "operation", "seconds": beside}],
        "iteration_seconds": {},
        "tokens_per_second": {},
    }


def test_replan_reads_the_report_of_a_run(capsys, plan_file, tmp_path):
    plan = Plan.model_validate_json(Path(plan_file).read_text(encoding="utf-8"))
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report_of(plan, actor_train=3.0)), encoding="utf-8")
    code, out, err = call(capsys, "replan", plan_file, "--measured", str(file), "--json")
    assert code == 0, err
    corrections = {(it.role, it.kind): it for it in Replan.model_validate_json(out).corrections}
    assert len(corrections) == len(plan.calls)
    (train,) = (each for each in plan.calls if each.id == "actor.train")
    assert corrections["actor", "train"].measured_seconds == 3.0 + train.seconds_by_part.between
    assert corrections["actor", "generate"].ratio == pytest.approx(1.0)


def test_replan_refuses_the_report_of_another_plan(capsys, plan_file, tmp_path):
    plan = Plan.model_validate_json(Path(plan_file).read_text(encoding="utf-8"))
    report = report_of(plan)
    report["calls"][0]["seconds"]["predicted"] *= 2
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report), encoding="utf-8")
    code, _, err = call(capsys, "replan", plan_file, "--measured", str(file))
    assert code == 2
    assert "report of another plan" in err


@pytest.mark.parametrize("command", ["replan", "explain"])
def test_a_plan_that_contradicts_itself_is_refused(capsys, plan_file, tmp_path, command):
    document = json.loads(Path(plan_file).read_text(encoding="utf-8"))
    document["calls"][0]["end_seconds"] += 0.5
    file = tmp_path / "edited.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    code, out, err = call(capsys, command, str(file))
    assert (code, out) == (2, "")
    assert "it was edited" in err
    assert f"call {document['calls'][0]['id']} lasts" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--call", "actor.generate"], "NAME=SECONDS"),
        (["--call", "actor.generate=-1"], "above 0"),
        (["--search-seconds", "0"], "--search-seconds: '0': give a finite number above 0"),
        (["--lose-node", "cpu:x"], "POOL or POOL:N"),
        (["--add-nodes", "cpu"], "POOL:N"),
        (["--move-by", "teleport"], "restart"),
        (["--measured", TINY], "not the report of a run"),
    ],
)
def test_replan_says_what_is_wrong_with_its_options(capsys, plan_file, arguments, told):
    code, _, err = call(capsys, "replan", plan_file, *arguments)
    assert code == 2
    assert told in err


def test_replan_needs_a_plan(capsys):
    code, _, err = call(capsys, "replan", TINY)
    assert code == 2
    assert "automap plan SPEC --output" in err
