"""Ingests the events of a job of kind `profile`: into its row, and into the stored profiles."""

from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from automap.profiler.results.profile_report import ClusterReport, Progress
from automap.service.schemas.documents import JsonObject
from automap.service.schemas.profiles import NewProfile
from automap.service.storage import profiles
from automap.service.storage.tables import JobRow


def nothing_measured(budget_seconds: float) -> JsonObject:
    """`measured` of a job that has not begun."""
    return {"seconds": 0.0, "budget_seconds": budget_seconds, "tables": {}, "profiles": {}}


def ingest(session: Session, row: JobRow, event: JsonObject) -> JsonObject:
    """Store what the event brings; the event without what is now stored elsewhere.

    Raises:
        ConflictError: other requests change the default profile at the same time.
    """
    match event["type"]:
        case "progress":
            _note_progress(row, event)
        case "profile":
            return _store(session, row, event)
        case "finished":
            return _with_report(row, event)
    return event


def _note_progress(row: JobRow, event: JsonObject) -> None:
    try:
        progress = Progress.model_validate(
            {name: event.get(name) for name in Progress.model_fields}
        )
    except ValidationError:  # another version's
        return
    known: Any = row.measured
    row.measured = {
        **known,
        "seconds": max(known["seconds"], progress.seconds),
        "tables": {
            **known["tables"],
            progress.table: {"done": progress.done, "wanted": progress.wanted},
        },
    }


def _store(session: Session, row: JobRow, event: JsonObject) -> JsonObject:
    """A kind of node is measured: its profile becomes a version, the job's latest of this pool."""
    pool, nodes = str(event.get("pool")), event.get("nodes")
    event_kept: JsonObject = {
        "type": "profile",
        "pool": pool,
        **({"time": event["time"]} if "time" in event else {}),
    }
    try:
        new = NewProfile.model_validate(
            {name: event.get(name) for name in ("fingerprint", "measurements")}
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        cause = f"the profile of {pool} cannot be stored: {where}: {first['msg']}"
        return {**event_kept, "type": "failed", "cause": cause, "kind": "profile"}
    names: list[Any] = [str(name) for name in nodes] if isinstance(nodes, list) else []
    summary, _ = profiles.add(session, new.storable(), job_id=row.id)
    known: Any = row.measured
    if row.settings.get("make_default") and _is_largest(known["profiles"], pool, summary, names):
        profiles.set_default(session, summary.version, to=True)
    stored: JsonObject = {
        "version": summary.version,
        "device_type": summary.device_type,
        "nodes": names,
    }
    row.measured = {**known, "profiles": {**known["profiles"], pool: stored}}
    return {**event_kept, **stored}


def _is_largest(known: dict[str, Any], pool: str, new: Any, nodes: list[Any]) -> bool:
    """Whether no other kind of this device type has as many nodes: its profile is the default."""
    return all(
        len(each["nodes"]) < len(nodes)
        for name, each in known.items()
        if name != pool and each["device_type"] == new.device_type
    )


def _with_report(row: JobRow, event: JsonObject) -> JsonObject:
    """The report is kept if every kind that it names has its profile stored."""
    report = event.get("report")
    rest = {name: value for name, value in event.items() if name != "report"}
    try:
        kinds = ClusterReport.model_validate(report).kinds
    except ValidationError:  # another version's
        return rest
    known: Any = row.measured["profiles"]
    if isinstance(report, dict) and all(kind.name in known for kind in kinds):
        row.report = report
    return rest
