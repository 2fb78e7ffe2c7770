"""No path, address or URL of a request is opened, fetched or run, unless the operator allows it."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from automap.executor.settings import RunSettings
from automap.service.app import create_app
from automap.service.storage.database import Database
from automap.service.use_cases.folders import allowed_folders
from automap.service.worker.submissions import submission_of
from tests.service.api.test_keys import bearer, made
from tests.service.support.databases import settings_for, url_of
from tests.service.support.job_claims import taken
from tests.service.support.requests import problem, stored_rows
from tests.service.support.samples import Json, changed, small_spec
from tests.service.support.workers import TINY, add_job, add_plan, run_settings

# About files and addresses, not rows; the other database is for make test-all.
pytestmark = pytest.mark.slow_on("postgresql")


@contextmanager
def service(database: Database, **changes: Any) -> Iterator[TestClient]:
    app = create_app(settings_for(url_of(database), **changes))
    yield TestClient(app, raise_server_exceptions=False)
    app.state.service.database.dispose()


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """A pipe that is named like a file, and who opened it: a reader ends the writer's waiting."""
    path = tmp_path / "config.json"
    os.mkfifo(path)
    opened: list[str] = []

    def wait() -> None:
        with path.open("w"):
            opened.append("opened")

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield path, opened
    if thread.is_alive():  # nobody has opened it, so we do
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        thread.join(timeout=10)
        os.close(reader)


def test_the_trap_closes(trap: tuple[Path, list[str]]) -> None:
    path, opened = trap
    with path.open():
        deadline = time.monotonic() + 30  # the other side notes it when it is run next
        while not opened and time.monotonic() < deadline:
            time.sleep(0.01)
        assert opened == ["opened"]


SPEC_FIELDS = [
    ("models.actor.architecture", "{path}"),
    ("models.actor.architecture", "{folder}"),
    ("cluster.pools.0.profile", "{folder}"),
    ("cluster.pools.0.profile", "../../../../../../../..{folder}"),
    ("cluster", "{path}"),
    ("algorithm", "{path}.py:PROGRAM"),
    ("models.reward", {"function": "{path}.py:score"}),
    ("models.reward", {"remote": "http://127.0.0.1:{port}/"}),
    ("models.reward", {"remote": {"url": "http://127.0.0.1:{port}/"}}),
    ("search", {"target": "{path}"}),
]


@pytest.mark.parametrize(("field", "value"), SPEC_FIELDS)
@pytest.mark.parametrize("route", ["plans", "jobs", "estimates", "plans/pareto", "plans/what-if"])
def test_a_spec_names_no_file_and_no_address(
    client: TestClient,
    database: Database,
    trap: tuple[Path, list[str]],
    route: str,
    field: str,
    value: object,
) -> None:
    path, opened = trap
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0)
        port = listener.getsockname()[1]
        given = _filled(value, path=str(path), folder=str(path.parent), port=str(port))
        spec = changed(small_spec(), field, given)
        body: Json = spec if route == "plans" else {"spec": spec}
        if route == "jobs":
            body["settings"] = run_settings()
        if route == "estimates":
            body["placement"] = {"copies": [], "calls": []}
        before = stored_rows(database)
        problem(client.post(f"/v1/{route}", json=body), 422, "invalid-spec")
        assert stored_rows(database) == before
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert opened == []


def _filled(value: Any, **names: str) -> Any:
    if isinstance(value, dict):
        return {name: _filled(each, **names) for name, each in value.items()}
    for name, text in names.items():
        value = value.replace(f"{{{name}}}", text)
    return value


@pytest.mark.slow
def test_measurements_clusters_and_exports_name_no_file(
    client: TestClient, database: Database, trap: tuple[Path, list[str]]
) -> None:
    path, opened = trap
    measure = {"measure": {"models": [str(path)]}}
    problem(client.post("/v1/profiles", json=measure), 422, "invalid-spec")
    pool = {"name": "a", "gpu": "h100", "num_nodes": 1, "profile": str(path.parent)}
    body = {"name": "team", "pools": [pool]}
    problem(client.post("/v1/clusters", json=body), 422, "invalid-spec")
    for target in (str(path), "../../verl@0.9.1", "file:///etc/passwd"):
        answer = client.get(f"/v1/plans/{add_plan(database)}/export", params={"target": target})
        assert answer.status_code in (422, 503), answer.text
    for name in (str(path), "..%2F..%2Fetc%2Fpasswd", "%2e%2e/%2e%2e/etc/passwd"):
        assert client.get(f"/v1/models/{name}").status_code in (404, 422)
        assert client.get(f"/v1/profiles/{name}").status_code in (404, 422)
    assert opened == []


def test_settings_of_a_job_are_read_on_no_account_here(
    client: TestClient, trap: tuple[Path, list[str]]
) -> None:
    """Without a rule they are the cluster's, and no business of this machine."""
    path, opened = trap
    settings = run_settings(models={"actor": str(path)}, program=None)
    settings["functions"] = {"reward": {"path": f"{path}.py:score"}}
    settings["data"] = {"path": str(path.with_suffix(".jsonl")), "tokenizer": str(path)}
    assert client.post("/v1/jobs", json={"spec": TINY, "settings": settings}).status_code == 202
    assert opened == []


OUTSIDE = [
    ("data.path", "/etc/rows.jsonl"),
    ("data.path", "{team}/../rows.jsonl"),
    ("data.path", "{team}/link/rows.jsonl"),
    ("data.tokenizer", "/etc"),
    ("models", {"actor": "/etc"}),
    ("functions.reward.path", "os:system"),
    ("functions.reward.path", "/etc/reward.py:score"),
    ("functions.reward.path", "{runs}/job/reward.py:score"),
    ("metrics", {"mlflow_tracking_uri": "http://169.254.169.254"}),
]


@pytest.mark.parametrize(("field", "value"), OUTSIDE)
@pytest.mark.parametrize("with_plan", [False, True])
def test_a_job_keeps_to_the_allowed_folders(
    database: Database, tmp_path: Path, field: str, value: object, with_plan: bool
) -> None:
    team, runs = tmp_path / "team", tmp_path / "runs"
    team.mkdir()
    (team / "link").symlink_to("/etc")
    base = run_settings(data={"path": f"{team}/rows.jsonl"})
    given = _filled(value, team=str(team), runs=str(runs))
    what: Json = {"plan_id": str(add_plan(database))} if with_plan else {"spec": TINY}
    with service(database, allowed_folders=str(team), runs_folder=runs) as client:
        body = {**what, "settings": changed(base, field, given)}
        refused = problem(client.post("/v1/jobs", json=body), 422, "invalid-spec")
        (error,) = refused["errors"]
        assert error["field"].startswith(f"settings.{field}")
        assert "operator" in error["message"] or "operator" in error["remedy"]
        good = changed(base, "models", {"actor": f"{runs}/earlier/checkpoint"})
        good["functions"] = {"reward": {"path": f"{team}/reward.py:score"}}
        answer = client.post("/v1/jobs", json={**what, "settings": good})
        assert answer.status_code == 202, answer.text


def test_a_function_of_an_allowed_folder_is_looked_for_in_its_file(
    database: Database, tmp_path: Path
) -> None:
    """Before anything is queued; read, and not run."""
    (tmp_path / "reward.py").write_text("raise SystemExit\ndef score(prompt_tokens): ...\n")
    settings = run_settings(data={"path": f"{tmp_path}/rows.jsonl"})
    with service(database, allowed_folders=str(tmp_path)) as client:
        settings["functions"] = {"reward": {"path": f"{tmp_path}/reward.py:scores"}}
        body = {"spec": TINY, "settings": settings}
        before = stored_rows(database)
        refused = problem(client.post("/v1/jobs", json=body), 422, "invalid-spec")
        (error,) = refused["errors"]
        assert error["field"] == "settings.functions.reward.path"
        assert error["value"] == f"{tmp_path}/reward.py:scores"
        assert error["remedy"] == "use score"
        assert stored_rows(database) == before
        settings["functions"] = {"reward": {"path": f"{tmp_path}/reward.py:score"}}
        assert client.post("/v1/jobs", json=body).status_code == 202


def test_with_stored_keys_nothing_is_allowed_that_is_not_named(
    database: Database, tmp_path: Path
) -> None:
    body = {"spec": TINY, "settings": run_settings()}
    with service(database, runs_folder=tmp_path) as client:
        assert client.post("/v1/jobs", json=body).status_code == 202
        key = bearer(made(database).key)
        client.app.state.keys._looked_at = float("-inf")  # type: ignore[attr-defined]
        refused = problem(client.post("/v1/jobs", json=body, headers=key), 422, "invalid-spec")
        (error,) = refused["errors"]
        assert error["field"] == "settings.data.path"
        assert "AUTOMAP_ALLOWED_FOLDERS names no others, which it has to" in error["message"]
        assert str(tmp_path) in error["message"]
        body["settings"]["data"] = {"path": f"{tmp_path}/rows.jsonl"}
        assert client.post("/v1/jobs", json=body, headers=key).status_code == 202


def test_the_rule_goes_to_the_node_with_the_job(database: Database, tmp_path: Path) -> None:
    """A job that was queued before there was a rule is refused there."""
    settings = settings_for(url_of(database), runs_folder=tmp_path)
    add_job(database)
    held = taken(database)
    assert allowed_folders(database, settings) is None
    assert "--folders" not in submission_of(held, settings, None).entrypoint
    made(database)
    folders = allowed_folders(database, settings)
    assert folders is not None
    submission = submission_of(held, settings, folders)
    assert "--folders folders.json" in submission.entrypoint
    assert submission.files["folders.json"] == folders.as_json().encode()
    assert RunSettings.model_validate_json(submission.files["settings.json"])


@pytest.mark.parametrize("folders", ["team", "/data,team", "./team"])
def test_allowed_folders_are_whole_paths(database: Database, folders: str) -> None:
    with pytest.raises(ValueError, match="relative path"):
        settings_for(url_of(database), allowed_folders=folders)
    assert settings_for(url_of(database), allowed_folders="").allowed_folders == ()
