"""Jobs that measure, and what one prints: the measurement is made up, the rest is not."""

import copy
from typing import Any
from uuid import UUID

from automap.service.queues import job_queue, measurement_events
from automap.service.schemas.measurements import MeasureJobSettings
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import JobRow
from tests.service.support.profiles import profile
from tests.service.support.samples import Json

CONDITIONS: Json = {"load": 0.1, "cores": 2, "busy": False, "drift": 0.0, "throttled": False}


def add_measurement(database: Database, **settings: Any) -> UUID:
    """A queued job of kind `profile`."""
    measure = MeasureJobSettings.model_validate(settings)
    with database.transaction() as session:
        row = JobRow(
            kind="profile",
            plan=None,
            created_at=utc_now(),
            settings=measure.model_dump(mode="json"),
            iteration=0,
            iterations=0,
            measured=measurement_events.nothing_measured(measure.budget_seconds),
            attempts=0,
            log_offset=0,
        )
        job_queue.enqueue(session, row)
        return row.id


def progress(table: str = "cpu: gemm", done: int = 3, wanted: int = 8) -> Json:
    return {
        "type": "progress",
        "table": table,
        "done": done,
        "wanted": wanted,
        "seconds": 2.5,
        "budget_seconds": 300.0,
    }


def measured_kind(pool: str = "cpu", nodes: int = 1, **changes: Any) -> Json:
    """The event of a kind of node that is done."""
    names = [f"node-{number}" for number in range(nodes)]
    new = profile(**changes)
    return {"type": "profile", "pool": pool, "nodes": names, **copy.deepcopy(new)}


def finished_measurement(*pools: str, failures: tuple[str, ...] = ()) -> Json:
    """The last event, with the report."""
    kinds = [
        {
            "name": pool,
            "nodes": ["node-0"],
            "profile": {
                "folder": f"/runs/1/{pool}",
                "device": "cpu",
                "resumed": 0,
                "seconds": 2.0,
                "budget_seconds": 300.0,
                "tables": [],
                "held_out": [],
                "conditions": CONDITIONS,
            },
            "link": None,
            "remarks": [],
        }
        for pool in pools
    ]
    cluster = {
        "pools": [
            {"name": pool, "gpu": "cpu", "num_nodes": 1, "gpus_per_node": 2, "profile": f"/{pool}"}
            for pool in pools
        ]
    }
    report = {
        "folder": "/runs/1",
        "cluster_file": "/runs/1/cluster.yaml",
        "cluster": cluster,
        "kinds": kinds,
        "failures": list(failures),
    }
    return {"type": "finished", "report": report}
