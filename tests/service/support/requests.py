"""Headers of requests, and what a response must be."""

import time
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import func, select

from automap.service.schemas.plans import PlanRecord
from automap.service.storage.database import Database
from automap.service.storage.tables import Base
from tests.service.support.samples import Json

POST_HEADERS = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}


def stored_rows(database: Database) -> int:
    with database.reading() as session:
        return sum(
            session.scalar(select(func.count()).select_from(table)) or 0
            for table in Base.metadata.tables.values()
            if table.name != "audit_log"
        )


def problem(response: Any, status: int, kind: str) -> Json:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: Json = response.json()
    assert body["type"] == f"/problems/{kind}"
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    return body


def created(response: Any, status: int = 201) -> PlanRecord:
    assert response.status_code == status, response.text
    record = PlanRecord.model_validate_json(response.content)
    assert response.headers["location"] == f"/v1/plans/{record.id}"
    return record


def finished(client: TestClient, url: str, *, seconds: float = 60) -> PlanRecord:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        record = PlanRecord.model_validate_json(client.get(url).content)
        if record.status not in ("queued", "running"):
            return record
        time.sleep(0.05)
    raise AssertionError(f"{url} is still {record.status} after {seconds} s")


def stored_plans(client: TestClient) -> list[Json]:
    items: list[Json] = client.get("/v1/plans").json()["items"]
    return items
