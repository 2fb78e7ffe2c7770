"""The suggestions that were raised on a job, read from its events."""

from typing import Any

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from automap.planner.runs import Suggestion
from automap.service.runs.suggestion_notes import raised
from automap.service.schemas.jobs import JobSuggestion
from automap.service.storage.tables import JobEventRow, JobRow


def of_job(session: Session, row: JobRow) -> list[JobSuggestion]:
    """The suggestions that were raised on a job, the latest first."""
    known = {each.event: each for each in raised(row.measured)}
    if not known:
        return []
    rows = session.scalars(
        select(JobEventRow)
        .where(JobEventRow.job_id == row.id, JobEventRow.sequence.in_(known))
        .order_by(JobEventRow.sequence.desc())
    )
    found = ((each, _suggestion(each.document.get("suggestion"))) for each in rows)
    return [
        JobSuggestion(
            event=event.sequence,
            time=event.time,
            over_after_iteration=known[event.sequence].over_after_iteration,
            suggestion=suggestion,
        )
        for event, suggestion in found
        if suggestion is not None
    ]


def _suggestion(document: Any) -> Suggestion | None:
    try:
        return Suggestion.model_validate(document)
    except ValidationError:  # another version's
        return None
