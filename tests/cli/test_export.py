"""`automap export` and `automap targets`: what they print, write and refuse."""

import json
from pathlib import Path

import pytest

from automap.planner import Launch, export, make_plan
from automap.service.cli.options.shared import Show
from automap.service.cli.study.export import show_launch
from tests.cli.commands import call
from tests.helpers.framework_plans import Wanted, plan_of
from tests.helpers.small_jobs import small_job

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "hybridflow-ppo-7b-16xa100.yaml"
LAUNCH = EXAMPLES / "hybridflow-ppo-7b-16xa100.verl.sh"


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(plan_of(Wanted()).model_dump_json(by_alias=True), encoding="utf-8")
    return str(path)


def test_the_launch_in_the_examples_is_what_is_exported_now(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = call(capsys, "export", str(EXAMPLE), "--quiet")
    assert (code, err) == (0, "")
    assert out == LAUNCH.read_text(encoding="utf-8"), (
        f"automap export {EXAMPLE.name} > {LAUNCH.name}"
    )


def test_a_script_goes_into_a_folder(
    capsys: pytest.CaptureFixture[str], plan_file: str, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "folder"
    code, out, err = call(capsys, "export", plan_file, "--out", str(folder))
    assert (code, err) == (0, "")
    assert "to be filled in: REWARD_FUNCTION, ACTOR_MODEL" in out
    script = (folder / "launch.sh").read_text(encoding="utf-8")
    code, out, _ = call(capsys, "export", plan_file)
    assert (code, out) == (0, script)


@pytest.mark.parametrize(
    ("files", "out", "err"),
    [
        ({"a.yaml": "one: 1\n", "b.yaml": "two: 2\n"}, "one: 1\n---\ntwo: 2\n", ""),
        ({"main.py": "print()\n"}, "script\n", "main.py belongs beside it"),
        ({"a.yaml": "one: 1\n", "main.py": "print()\n"}, "one: 1\n", "main.py belongs beside it"),
    ],
)
def test_what_a_pipe_gets_of_several_files(
    capsys: pytest.CaptureFixture[str], files: dict[str, str], out: str, err: str
) -> None:
    launch = export(plan_of(Wanted()), "verl@0.9.1")
    show_launch(
        Show(json=False, quiet=False),
        launch.model_copy(update={"script": "script\n", "files": files}),
        None,
    )
    written = capsys.readouterr()
    assert written.out == out
    assert err in written.err


def test_json_is_the_launch_and_nothing_else(
    capsys: pytest.CaptureFixture[str], plan_file: str
) -> None:
    code, out, _ = call(capsys, "export", plan_file, "--json")
    launch = Launch.model_validate_json(out)
    assert (code, launch.target) == (0, "verl@0.9.1")
    assert all(each.because for each in launch.settings)


def test_a_plan_that_verl_cannot_be_told_is_refused_with_every_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wanted = Wanted(algorithm="ppo", apart=True, workload=(("epochs", 2), ("precision", "fp16")))
    wanted = wanted.but(
        engine="fsdp", sharding="full", workload=(("epochs", 2),), reward_model=True
    )
    path = tmp_path / "plan.json"
    path.write_text(plan_of(wanted).model_dump_json(by_alias=True), encoding="utf-8")
    folder = tmp_path / "new"
    code, out, err = call(capsys, "export", str(path), "--out", str(folder))
    assert (code, out) == (2, "")
    assert "the plan cannot be exported" in err
    assert "several epochs with generation on GPUs of its own" in err
    assert "instead: epochs: 1" in err
    assert "a reward model on a part of the actor's GPUs" in err
    assert "--nearest exports the best plan" in err
    assert not folder.exists()


def test_the_nearest_plan_is_exported_with_what_it_changes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    plan = make_plan(small_job("ppo", num_nodes=2, search__target="any"))
    path.write_text(plan.model_dump_json(by_alias=True), encoding="utf-8")
    code, out, err = call(capsys, "export", str(path))
    assert (code, out) == (2, "")
    code, out, err = call(capsys, "export", str(path), "--nearest")
    assert code == 0
    assert out.startswith("#!/usr/bin/env bash")
    assert "the best that verl@0.9.1 runs" in err
    assert "copy reward: " in err


def test_a_job_is_planned_for_the_target_that_it_is_exported_to(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(small_job("ppo", num_nodes=2).model_dump_json(by_alias=True), encoding="utf-8")
    code, out, _ = call(capsys, "export", str(path), "--quiet")
    assert (code, out.startswith("#!/usr/bin/env bash")) == (0, True)


@pytest.mark.slow
def test_targets_say_what_they_cost_a_job(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(small_job("grpo").model_dump_json(by_alias=True), encoding="utf-8")
    code, out, _ = call(capsys, "targets", str(path), "--quiet")
    assert code == 0
    assert "automap: " in out
    assert "verl@0.9.1: " in out
    assert "other limit" in out
    code, out, _ = call(capsys, "targets", str(path), "--json", "--target", "verl@0.9.1", "--brief")
    (cost,) = json.loads(out)
    assert (code, cost["target"], cost["limits"]) == (0, "verl@0.9.1", [])
    assert cost["share"] >= 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--target", "verl@0.9"), ("--target", "verl@0.9.1")),
        (("--out", __file__), ("it is a file",)),
        (("--out", f"{__file__}/folder"), ("cannot make",)),
    ],
)
def test_wrong_options_are_refused(
    capsys: pytest.CaptureFixture[str], plan_file: str, options: tuple[str], words: tuple[str]
) -> None:
    code, out, err = call(capsys, "export", plan_file, *options)
    assert (code, out) == (2, "")
    assert all(word in err for word in words)


def test_targets_are_listed_with_what_they_cannot_be_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = call(capsys, "targets")
    assert code == 0
    assert "verl@0.9.1" in out
    assert "Safe-RLHF" in out
    code, out, _ = call(capsys, "targets", "--json")
    rows = json.loads(out)
    assert [row["name"] for row in rows] == [
        "automap",
        "verl@0.9.1",
        "slime@0.3.1",
        "nemo-rl@0.7.0",
        "openrlhf@0.11.2",
        "trl@1.16.0",
        "skyrl@0.3.0",
        "areal@1.0.4",
    ]
    assert {"name", "what", "instead"} == set(rows[1]["limits"][0])


def test_a_launch_of_one_iteration_says_so_at_its_top(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = plan_of(Wanted(workload=(("iterations", 1),)))
    path = tmp_path / "plan.json"
    path.write_text(plan.model_dump_json(by_alias=True), encoding="utf-8")
    code, out, err = call(capsys, "export", str(path))
    assert code == 0
    assert "note: it trains 1 iteration" in err
    assert "# It trains 1 iteration" in out.partition("set -euo pipefail")[0]
