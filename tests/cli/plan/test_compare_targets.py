"""`automap compare --targets`: each target's best plan, what its limits cost, what it lacks."""

import json
from pathlib import Path

import pytest

from automap.planner import TargetCost
from automap.planner.targets import TARGETS
from automap.service.cli.plan.compared_targets import best_of_all, of_drivers
from tests.cli.commands import call
from tests.helpers.framework_plans import Wanted, plan_of
from tests.helpers.slime_plans import SGLANG
from tests.helpers.small_jobs import small_job


@pytest.fixture
def spec_file(tmp_path: Path) -> str:
    path = tmp_path / "spec.json"
    model = {"architecture": "qwen2.5-0.5b"}
    models = {"actor": model, "reference": model, "reward": {"function": True}}
    spec = small_job("grpo", models=models).model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    path.write_text(json.dumps(spec), encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_every_target_has_a_row_the_best_first(
    capsys: pytest.CaptureFixture[str], spec_file: str
) -> None:
    code, out, _ = call(capsys, "compare", spec_file, "--targets", "all")
    assert code == 0
    assert "Best of all that can be priced: " in out
    table = out.partition("its limits cost\n")[2].partition("\n\n")[0].splitlines()
    rows = [line.replace(" *", "").split() for line in table]
    rows = [row for row in rows if row[0] in TARGETS]
    assert {row[0] for row in rows} == set(TARGETS) - {"any"}
    seconds = [float(row[1]) for row in rows if row[1] != "-"]
    assert seconds == sorted(seconds)
    assert len(seconds) == 8
    # Every limit that a plan meets is told; all others only where they are asked for.
    cannot = out.count(" cannot run the best of all plans as it is:\n  ")
    assert cannot >= 4
    assert cannot + out.count(" runs the best plan") == 8
    assert "cannot be told:" not in out


def test_the_best_of_all_is_told_by_engine_where_there_are_several() -> None:
    spec, plan = small_job("grpo"), plan_of(Wanted())
    theirs = plan.model_copy(update={"spec": plan_of(Wanted(workload=SGLANG)).spec})
    costs = [
        TargetCost(target="verl@0.9.1", plan=plan, free_value=4.0),
        TargetCost(target="skyrl@0.3.0", plan=plan, free_value=4.0),
        TargetCost(target="slime@0.3.1", plan=theirs, free_value=3.0),
    ]
    told = best_of_all(spec, costs)
    assert told == "3.00 s per iteration with sglang, 4.00 s per iteration with vllm"
    assert best_of_all(spec, costs[:2]) == "4.00 s per iteration"
    assert best_of_all(spec, []) == ""
    assert of_drivers(costs) == ""
    measured = [costs[0].model_copy(update={"driver_seconds": 42.78}), *costs[1:]]
    assert of_drivers(measured).startswith("Drivers come on top, 42.78 s of verl@0.9.1 as measured")


def test_generation_apart_without_staleness_is_told_to_wait(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for staleness, number in ((0, 1), (1, 0)):
        model = {"architecture": "qwen2.5-0.5b"}
        models = {"actor": model, "reward": {"function": True}}
        given = {"workload__kl": "none", "search__staleness": staleness, "num_nodes": 2}
        spec = small_job("grpo", models=models, **given)
        path = tmp_path / "spec.json"
        path.write_text(spec.model_dump_json(by_alias=True, exclude_unset=True), encoding="utf-8")
        names = "areal@1.0.4,openrlhf@0.11.2"
        code, out, _ = call(capsys, "compare", str(path), "--targets", names, "--quiet")
        assert code == 0
        told = "areal@1.0.4: generation has GPUs of its own, and either they wait or those that"
        assert " ".join(out.split()).count(told) == number
        assert out.count("search.staleness: 1") == number


def test_what_generates_without_batches_by_itself_is_told_beside_what_could(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    models = {"actor": {"architecture": "qwen2.5-0.5b"}, "reward": {"function": True}}
    for asked, number in (({}, 1), ({"search__continuous_rollouts": True}, 0)):
        given = {"workload__kl": "none", "search__staleness": 4, "num_nodes": 2, **asked}
        spec = small_job("grpo", models=models, **given)
        path = tmp_path / "spec.json"
        path.write_text(spec.model_dump_json(by_alias=True, exclude_unset=True), encoding="utf-8")
        # A name without a version is the one that is known.
        names = "areal,nemo-rl@0.7.0"
        code, out, _ = call(capsys, "compare", str(path), "--targets", names, "--quiet")
        assert code == 0
        told = "areal@1.0.4: generate without batches, and never otherwise with this staleness"
        assert " ".join(out.split()).count(told) == number
        assert out.count("asks nemo-rl@0.7.0 for it") == number


def test_details_are_every_limit(capsys: pytest.CaptureFixture[str], spec_file: str) -> None:
    names = "openrlhf@0.11.2,areal@1.0.4"
    _, out, _ = call(capsys, "compare", spec_file, "--targets", names, "--details")
    for name in names.split(","):
        assert f"{name} cannot be told:" in out
    assert "  pipeline, virtual pipeline or expert parallelism" in out


@pytest.mark.slow
def test_what_a_target_has_otherwise_than_asked_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "spec.json"
    spec = small_job("grpo", workload__old_log_probs="rollout", workload__kl="none")
    spec_json = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    path.write_text(json.dumps(spec_json), encoding="utf-8")
    names = ("--targets", "openrlhf@0.11.2,verl@0.9.1")
    _, out, _ = call(capsys, "compare", str(path), *names)
    told = "planned with old_log_probs recompute, not rollout, which it lacks"
    assert f"* openrlhf@0.11.2: {told}" in out
    assert "openrlhf@0.11.2 *" in out
    assert "verl@0.9.1 *" not in out
    _, out, _ = call(capsys, "compare", str(path), *names, "--json")
    found = {each["target"]: each for each in json.loads(out)}
    assert found["openrlhf@0.11.2"]["otherwise"] == {"old_log_probs": "recompute"}
    assert found["verl@0.9.1"]["otherwise"] == {}
    # What it must compute again is of its limits' cost.
    assert found["openrlhf@0.11.2"]["free_value"] == found["verl@0.9.1"]["free_value"]
    assert found["openrlhf@0.11.2"]["share"] > 0


def test_json_has_the_plans(capsys: pytest.CaptureFixture[str], spec_file: str) -> None:
    _, out, _ = call(capsys, "compare", spec_file, "--targets", "automap, slime@0.3.1", "--json")
    found = json.loads(out)
    assert [each["target"] for each in found] == ["automap", "slime@0.3.1"]
    assert found[0]["iteration_seconds"] > 0
    assert found[0]["share"] >= 0
    assert any("epochs" in each for each in found[1]["cannot_be_told"])


def test_what_is_no_target_is_refused(capsys: pytest.CaptureFixture[str], spec_file: str) -> None:
    code, _, err = call(capsys, "compare", spec_file, "--targets", "slimy")
    assert code == 2
    assert "slime@0.3.1" in err
    code, _, err = call(capsys, "compare", spec_file, "--targets", "all", "--strategy", "split")
    assert code == 2
    assert "two comparisons" in err
