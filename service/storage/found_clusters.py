"""The clusters that jobs of kind `profile` have found."""

from typing import Any

from automap.planner.spec import ClusterSpec
from automap.service.storage.tables import JobRow


def found_cluster(row: JobRow) -> ClusterSpec | None:
    """The cluster in the report of a job, each pool with the version that is stored of it."""
    pools: Any = ((row.report or {}).get("cluster") or {}).get("pools")  # type: ignore[union-attr]
    if not pools:
        return None
    stored: Any = row.measured["profiles"]
    versions = {name: each["version"] for name, each in stored.items()}
    return ClusterSpec.model_validate(
        {"pools": [{**pool, "profile": versions.get(pool["name"])} for pool in pools]}
    )
