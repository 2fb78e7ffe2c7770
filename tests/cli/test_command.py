"""The command as a user types it: exit codes, what goes to stdout and what to stderr."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from automap.planner.plan.types import Plan
from automap.planner.spec import StrategyName
from tests.cli.commands import ROOT, TINY, TOO_LARGE, call, run


def test_plan_prints_a_table_and_a_chart():
    done = run("plan", TINY, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    for shown in ("actor.generate", "critic.train", "cpu[0", "tokens/s", "proven", "MFU", "│"):
        assert shown in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_plan_json_is_the_plan_and_nothing_else():
    done = run("plan", TINY, "--json")
    assert done.returncode == 0, done.stderr
    plan = Plan.model_validate_json(done.stdout)
    raw = json.loads(done.stdout)
    assert raw["calls"][0]["copy"] in {copy["id"] for copy in raw["copies"]}
    assert plan.relative_gap >= 0
    assert plan.lower_bound_seconds <= plan.iteration_seconds


def test_spec_from_standard_input_and_the_order_of_options(capsys):
    done = run("plan", "-", "--json", stdin=Path(TINY).read_text(encoding="utf-8"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["name"] == "tiny-ppo-cpu"


def test_a_plan_is_estimated_at_its_own_seconds(capsys, tmp_path):
    file = tmp_path / "plan.json"
    code, out, _ = call(capsys, "plan", TINY, "--quiet", "--output", str(file))
    assert code == 0
    assert len(out.splitlines()) == 1
    planned = Plan.model_validate_json(file.read_text(encoding="utf-8"))
    code, out, _ = call(capsys, "estimate", TINY, str(file), "--json")
    assert code == 0
    estimated = Plan.model_validate_json(out)
    assert estimated.search.status == "given"
    assert estimated.iteration_seconds == pytest.approx(planned.iteration_seconds)


def test_compare_puts_the_named_strategies_beside_the_plan(capsys):
    code, out, _ = call(capsys, "compare", TINY, "--strategy", "colocate_all", "--json")
    assert code == 0
    document = json.loads(out)
    assert [item["name"] for item in document["strategies"]] == ["colocate_all"]
    code, out, _ = call(capsys, "compare", TINY)
    assert code == 0
    assert "automap" in out
    assert "colocate_all" in out


@pytest.mark.parametrize("command", ["compare", "plan"])
def test_an_unknown_strategy_is_bad_input(capsys, command):
    code, out, err = call(capsys, command, TINY, "--strategy", "best")
    assert (code, out) == (2, "")
    assert "colocate_all" in err
    assert "real_mcmc" in err


def test_a_named_strategy_makes_the_plan(capsys):
    code, out, _ = call(capsys, "plan", TINY, "--strategy", "verl", "--json")
    assert code == 0
    made = Plan.model_validate_json(out)
    assert (made.search.strategy, made.search.status) == ("verl", "given")
    assert made.spec.search.strategy == "verl"
    code, out, _ = call(capsys, "plan", TINY, "--strategy", "verl", "--details")
    assert code == 0
    assert "placed as verl does" in " ".join(out.split())


def test_a_strategy_that_does_not_fit_ends_with_3_and_its_sentence(capsys):
    code, out, err = call(capsys, "plan", TINY, "--strategy", "one_step_off")
    assert (code, out) == (3, "")
    assert "the job allows 0 (search.staleness)" in " ".join(err.split())


@pytest.mark.slow
def test_a_job_that_cannot_fit_ends_with_3_and_the_reasons(tmp_path):
    file = tmp_path / "large.yaml"
    file.write_text(TOO_LARGE, encoding="utf-8")
    done = run("plan", str(file))
    assert done.returncode == 3
    assert done.stdout == ""
    assert "no placement is feasible" in done.stderr
    assert "GiB" in done.stderr
    as_json = run("plan", str(file), "--json")
    assert as_json.returncode == 3
    assert json.loads(as_json.stdout)["reasons"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: [x\n", "not YAML"),
        ("nmae: x\n", "nmae"),
        ("a: &a [*a]\n", "anchors"),
        ("", "empty"),
    ],
)
def test_bad_specs_end_with_2(capsys, tmp_path, text, told):
    file = tmp_path / "spec.yaml"
    file.write_text(text, encoding="utf-8")
    code, out, err = call(capsys, "plan", str(file))
    assert (code, out) == (2, "")
    assert told in err


def test_a_name_that_the_catalogue_lacks_ends_with_2_and_a_suggestion(capsys, tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text(Path(TINY).read_text(encoding="utf-8").replace("tiny-llama", "tinny-llama"))
    code, _, err = call(capsys, "plan", str(file))
    assert code == 2
    assert "models.actor.architecture" in err
    assert "did you mean tiny-llama" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan",),
        ("plan", "none.yaml"),
        ("plan", TINY, "--colour"),
        ("plna", TINY),
        ("schema", "plan"),
        ("estimate", TINY, "none.json"),
        ("plan", TINY, "--output", "/nowhere/at/all.json"),
        ("plan", TINY, "--server", "ftp://localhost"),
        ("serve", "--port", "99999"),
        ("serve", "--database-url", "mysql://x"),
    ],
)
def test_wrong_usage_ends_with_2(capsys, arguments):
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert err


def test_a_stored_cluster_needs_a_server(capsys, tmp_path):
    file = tmp_path / "spec.yaml"
    text = Path(TINY).read_text(encoding="utf-8")
    file.write_text(text[: text.index("cluster:")] + "cluster: lab\n", encoding="utf-8")
    code, _, err = call(capsys, "plan", str(file))
    assert code == 2
    assert "--server" in err


def test_a_service_that_is_not_there_ends_with_2(capsys):
    code, out, err = call(capsys, "plan", TINY, "--server", "http://127.0.0.1:9")
    assert (code, out) == (2, "")
    assert "--server: cannot reach http://127.0.0.1:9" in err
    assert "Traceback" not in err


def test_debug_anywhere_shows_the_traceback(capsys):
    code, _, err = call(capsys, "plan", "none.yaml", "--debug")
    assert code == 2
    assert "Traceback" in err


@pytest.mark.parametrize("command", ["models", "gpus"])
def test_listings(capsys, command):
    code, out, _ = call(capsys, command, "--json")
    assert code == 0
    names = {entry["name"] for entry in json.loads(out)}
    code, out, _ = call(capsys, command)
    assert code == 0
    assert {"models": "llama-2-70b", "gpus": "a100-80gb-sxm"}[command] in names
    assert all(name in out for name in names)


@pytest.mark.parametrize("width", ["80", "120"])
def test_gpus_are_listed_with_the_speed_of_their_links_and_its_unit(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    code, out, _ = call(capsys, "gpus")
    assert code == 0
    lines = out.splitlines()
    header = " ".join(lines[:2])
    for named in ("link", "network", "GB/s", "USD per", "GPU-hour"):
        assert named in header
    row = next(line for line in lines if line.startswith("h100-80gb-sxm")).split()
    assert row[4:9] == ["8", "8", "450", "50", "2.99"]
    assert "125*" in next(line for line in lines if line.startswith("v100-32gb")).split()
    assert "* fp16" in out
    assert "intra_node_bytes_per_second" in out


@pytest.mark.parametrize(
    ("name", "field"),
    [("job-spec", "workload"), ("placement", "copies"), ("run-settings", "training")],
)
def test_schemas(capsys, name, field):
    code, out, _ = call(capsys, "schema", name)
    assert code == 0
    assert field in json.loads(out)["properties"]


@pytest.mark.parametrize("command", ["plan", "compare"])
def test_help_names_every_strategy(capsys, command):
    code, out, _ = call(capsys, command, "--help")
    assert code == 0
    assert set(get_args(StrategyName)) <= set(re.findall(r"\w+", out))


def test_help_needs_neither_solver_nor_web_framework():
    code = (
        "import sys; from automap.service.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print({'ortools', 'fastapi', 'numpy', 'pydantic'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.splitlines()[-1] == "set()"
    assert "Exit codes" in done.stdout


def test_no_colour_even_where_it_is_forced_off_and_names_survive_ascii():
    done = run("plan", TINY, NO_COLOR="1", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "a actor.generate" in done.stdout
