import json
import subprocess
import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from automap import migrations
from automap.planner import catalogue
from automap.planner.plan.types import Placement
from automap.planner.spec import JobSpec
from automap.service.storage.database import Database
from tests.service.support.requests import problem
from tests.service.support.samples import small_spec


@pytest.mark.slow_on("sqlite")
def test_every_model_is_listed_and_found(client: TestClient) -> None:
    listed = client.get("/v1/models").json()
    assert [model["name"] for model in listed] == list(catalogue.architectures())
    for model in listed:
        for name in (model["name"], *model["aliases"]):
            found = client.get(f"/v1/models/{name}")
            assert (found.status_code, found.json()) == (200, model)


def test_every_gpu_is_listed_with_its_node(client: TestClient) -> None:
    listed = client.get("/v1/gpus").json()
    assert [item["gpu"]["name"] for item in listed] == list(catalogue.gpu_types())
    for item in listed:
        assert item["default_node"]["name"] == item["gpu"]["node"]
        assert item["gpu"]["memory_bytes"] > 2**30


def test_schemas_are_published(client: TestClient) -> None:
    spec = client.get("/v1/schemas/job-spec").json()
    assert {"algorithm", "models", "workload", "cluster"} <= set(spec["properties"])
    assert spec["additionalProperties"] is False
    placement = client.get("/v1/schemas/placement").json()
    assert {"copies", "calls"} <= set(placement["properties"])
    # The published schema speaks the JSON's names, not Python's.
    assert "copy" in placement["$defs"]["CallPlacement"]["properties"]


@pytest.mark.parametrize("name", ["job-spec", "placement"])
def test_schemas_are_made_once_and_sent_once(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Making one takes as long as forty reads of a plan, and editors ask at each start."""
    first = client.get(f"/v1/schemas/{name}")
    for of in (JobSpec, Placement):
        monkeypatch.setattr(of, "model_json_schema", None)
    again = client.get(f"/v1/schemas/{name}")
    assert (again.status_code, again.content) == (200, first.content)
    known = client.get(f"/v1/schemas/{name}", headers={"If-None-Match": first.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")


def test_health_and_readiness(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok"}


def test_not_ready_without_tables(client: TestClient, database: Database) -> None:
    with database.transaction() as session:
        session.connection().exec_driver_sql("UPDATE alembic_version SET version_num = 'older'")
    try:
        body = problem(client.get("/readyz"), 503, "not-ready")
        assert "older" in body["detail"]
        assert client.get("/healthz").status_code == 200
    finally:
        with database.transaction() as session:
            connection = session.connection()
            head = migrations.head_revision()
            connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{head}'")


@pytest.mark.slow
def test_the_api_process_loads_no_solver_and_no_torch(tmp_path: Path) -> None:
    code = """
import json, sys
from automap import migrations
from automap.service.app import create_app
from automap.service.settings import Settings
from automap.service.use_cases.planner_tasks import resolve_spec
from automap.planner.spec import JobSpec
app = create_app(Settings(database_url="sqlite:///" + sys.argv[1] + "/x.db"))
migrations.upgrade(app.state.service.database.engine)
app.openapi()
resolve_spec(app.state.service, JobSpec.model_validate(json.loads(sys.argv[2])))
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
    spec = json.dumps(small_spec())
    printed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), spec],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    loaded = set(json.loads(printed))
    assert {"fastapi", "sqlalchemy"} <= loaded
    # rich comes with structlog, which prints tracebacks by it at a terminal.
    assert not {"torch", "ray", "vllm", "ortools", "pyarrow", "typer"} & loaded
