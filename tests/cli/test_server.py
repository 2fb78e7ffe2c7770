"""The command line against a real service: its own `serve`, and the demo script."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from automap.planner.explanation.result import Explanation
from automap.planner.plan.types import Plan
from automap.planner.profiles.corrections import read_corrections
from automap.planner.replanning.result import Replan
from automap.planner.runs.priced_by import bases_of
from automap.planner.simulation.result import Simulation
from automap.service.api.examples import PROFILE_EXAMPLES
from automap.service.cli.main import main
from tests.cli.commands import TINY, TOO_LARGE
from tests.helpers.tiny_runs import plain_plan
from tests.service.support.servers import serving_alone

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a service with a database of its own."""
    with serving_alone() as running:
        yield running.address


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    captured = capsys.readouterr()
    return ended.value.code or 0, captured.out, captured.err


@pytest.mark.slow
def test_a_posted_plan_is_stored_and_shown(server, capsys, tmp_path):
    code, out, err = call(capsys, "plan", TINY, "--server", server)
    assert code == 0, err
    assert "critic.train" in out
    stored_at = out.split()[-1]
    record = httpx.get(stored_at, trust_env=False).json()
    assert record["status"] == "succeeded"
    assert Plan.model_validate(record["plan"]).name == "tiny-ppo-cpu"


def test_the_record_is_printed_as_json_and_can_be_estimated(server, capsys, tmp_path):
    file = tmp_path / "record.json"
    code, out, _ = call(capsys, "plan", TINY, "--server", server, "--json", "--output", str(file))
    assert code == 0
    record = json.loads(out)
    assert record == json.loads(file.read_text(encoding="utf-8"))
    code, out, _ = call(capsys, "estimate", TINY, str(file), "--json")
    assert code == 0
    assert json.loads(out)["iteration_seconds"] == pytest.approx(
        record["plan"]["iteration_seconds"]
    )


@pytest.mark.slow
def test_a_service_does_what_else_is_done_here(server, capsys, tmp_path):
    file = tmp_path / "record.json"
    code, out, err = call(capsys, "plan", TINY, "--server", server, "--json", "-o", str(file))
    assert code == 0, err
    plan_id = json.loads(out)["id"]
    at = ("--server", server, "--json")
    trace = tmp_path / "trace.json"
    code, out, err = call(capsys, "simulate", plan_id, "-n", "2", "--trace", str(trace), *at)
    assert (code, Simulation.model_validate_json(out).iterations) == (0, 2), err
    assert json.loads(trace.read_text())["traceEvents"]
    code, out, err = call(capsys, "explain", str(file), "--part", "sensitivity", *at)
    assert (code, Explanation.model_validate_json(out).regret) == (0, None), err
    new = tmp_path / "new.json"
    slow = ("--call", "actor.generate=1000")
    code, out, err = call(capsys, "replan", plan_id, *slow, "-o", str(new), *at)
    assert code == 0, err
    found = Replan.model_validate_json(out)
    assert found.corrections[0].measured_seconds == 1000
    assert new.exists() == (found.placement is not None)
    code, out, err = call(capsys, "compare", TINY, "-s", "colocate_all", *at)
    assert code == 0, err
    assert [each["name"] for each in json.loads(out)["strategies"]] == ["colocate_all"]
    code, out, err = call(capsys, "pareto", TINY, "--server", server)
    assert code == 0, err
    assert "1 plan" in out
    code, out, err = call(capsys, "what-if", TINY, "--nodes", "1", "-q", "--server", server)
    assert (code, out[:11]) == (0, "1 node cpu:"), err
    assert len(out.splitlines()) == 1


def test_a_stored_profile_is_deleted_by_its_version(server, capsys):
    unknown = "0" * 12
    code, _, err = call(capsys, "profiles", unknown, "--delete", "--server", server)
    assert code == 2
    assert unknown in err
    code, _, err = call(capsys, "profiles", "--delete", "--server", server)
    assert "give the VERSION to delete" in err


def test_a_stored_profile_is_fetched_as_it_was(server, capsys, tmp_path):
    taught = bases_of([plain_plan()])[0].materialised(tmp_path)
    found = {"kind": "train", "role_class": "language", "factor": 2.0, "observations": 1}
    (taught / "corrections.json").write_text(json.dumps({"corrections": [found]}))
    at = ("--server", server)
    code, out, err = call(capsys, "profiles", "--store", str(taught), *at, "--json")
    assert code == 0, err
    shipped = json.loads(out)["version"]
    stored = httpx.post(f"{server}/v1/profiles", json=PROFILE_EXAMPLES["one product"]["value"])
    for version, table in ((shipped, False), (stored.json()["version"], True)):
        folder = tmp_path / version
        code, out, err = call(capsys, "profiles", version, "--fetch", str(folder), *at)
        assert code == 0, err
        assert (folder / "gemm.parquet").exists() == table
        code, out, err = call(capsys, "profiles", "--store", str(folder), *at, "--json")
        assert json.loads(out)["version"] == version
    assert read_corrections(tmp_path / shipped) == read_corrections(taught)
    code, out, _ = call(capsys, "profiles", *at)
    assert "shipped tables" in out
    code, _, err = call(capsys, "profiles", shipped, "--fetch", str(taught), *at)
    assert code == 2
    assert "--fetch" in err
    assert "is there already" in err
    code, _, err = call(capsys, "profiles", "--fetch", "x", *at)
    assert "give the VERSION to write" in err


def test_what_the_service_refuses_has_the_same_exit_codes(server, capsys, tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text(TOO_LARGE, encoding="utf-8")
    code, _, err = call(capsys, "plan", str(file), "--server", server)
    assert code == 3
    assert "no placement is feasible" in err
    file.write_text(Path(TINY).read_text(encoding="utf-8").replace("tiny-llama", "tinny-llama"))
    code, _, err = call(capsys, "plan", str(file), "--server", server)
    assert code == 2
    assert "models.actor.architecture" in err


def test_a_taken_port_ends_with_2_before_anything_is_migrated(capsys, tmp_path):
    database = tmp_path / "automap.db"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        url = f"sqlite:///{database}"
        code, out, err = call(capsys, "serve", "--port", port, "--database-url", url)
    assert (code, out) == (2, "")
    assert f"error: cannot listen on 127.0.0.1:{port}: Address already in use" in err
    assert "Traceback" not in err
    assert not database.exists()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a..b"])
def test_a_host_that_is_not_ours_ends_with_2(capsys, tmp_path, host):
    url = f"sqlite:///{tmp_path}/automap.db"
    code, _, err = call(capsys, "serve", "--host", host, "--port", "0", "--database-url", url)
    assert code == 2
    assert f"cannot listen on {host}:0: " in err


def test_wrong_settings_are_named_as_they_can_be_given(capsys, monkeypatch):
    """A setting that has no option goes by its variable alone; what may be secret is not shown."""
    monkeypatch.setenv("AUTOMAP_RETENTION_DAYS", "soon")
    address = "mysql://ada:password@db/automap"  # pragma: allowlist secret
    monkeypatch.setenv("AUTOMAP_DATABASE_URL", address)
    code, _, err = call(capsys, "serve", "--port", "99999")
    assert code == 2
    said = " ".join(err.split())
    assert "AUTOMAP_RETENTION_DAYS: Input should be a valid number" in said
    assert "(given: 'soon')" in said
    assert "--retention-days" not in said
    assert "--port (AUTOMAP_PORT): Input should be less than or equal to 65535" in said
    assert "--database-url (AUTOMAP_DATABASE_URL): use sqlite:///PATH" in said
    assert "ada:" not in said


def demo(tmp_path, **environment):
    done = subprocess.run(
        [ROOT / "examples" / "demo.sh", Path(sys.executable).parent],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            **os.environ,
            "AUTOMAP_DATABASE_URL": f"sqlite:///{tmp_path}/demo.db",
            "COLUMNS": "100",
            "PORT": "0",
            **environment,
        },
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_demo_shows_a_plan_and_ends(tmp_path):
    done = demo(tmp_path, RUN="0")
    for shown in (
        "The service answers at http://127.0.0.1:",
        "actor.generate",
        "of the proven optimum",
    ):
        assert shown in " ".join(done.stdout.split())  # wherever a line was broken
    assert (tmp_path / "demo.db").exists()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("vllm") is None, reason="needs the executor")
def test_the_demo_ends_with_a_run_that_learns(tmp_path):
    done = demo(tmp_path, AUTOMAP_RUNS_FOLDER=str(tmp_path / "runs"))
    assert "predicted measured" in done.stdout
    rewards = [float(found) for found in re.findall(r", reward (\S+),", done.stderr)]
    assert rewards[0] < 0.1  # of the lines that are due while it runs, few or one an iteration
    assert rewards[-1] > 0.5
    assert re.search(r"mean reward 0\.0\d to (0\.[6-9]|1\.0)", done.stdout)
