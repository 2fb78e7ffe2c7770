"""Suggestions to plan a running job anew: when one is raised, when it is over, and how it is kept.

A suggestion is an event of its job; `measured` of the job notes its number and what was measured
then. So it survives whoever computed it, and the same drift raises none again.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from automap.planner.runs.drift import Deviation, Drift
from automap.planner.runs.iterations import Window
from automap.planner.runs.suggestion import Suggestion
from automap.service.queues import job_queue
from automap.service.queues.job_queue import JobClaim
from automap.service.schemas.documents import JsonObject
from automap.service.schemas.plans import JobSuggestion
from automap.service.storage.tables import JobEventRow, JobRow

KEPT = 10
"""Suggestions of a job that are shown, the latest."""
OVER = 0.5
"""Times the threshold: a run that is so near to its plan again has drifted back to it."""


class Raised(BaseModel):
    """A suggestion as the job notes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event: int
    """Its number among the job's events."""
    seconds: float
    """Of an iteration, as measured then."""
    response_tokens: float | None = None
    over_after_iteration: int | None = None


_RAISED = TypeAdapter(list[Raised])


def raised(measured: JsonObject) -> list[Raised]:
    """What a job notes, the latest last."""
    try:
        return _RAISED.validate_python(measured.get("suggestions") or [])
    except ValidationError:  # another version's
        return []


def stands(measured: JsonObject) -> bool:
    """Whether the latest one is about a drift that is not over."""
    known = raised(measured)
    return bool(known) and known[-1].over_after_iteration is None


def is_new(found: Drift, known: list[Raised]) -> bool:
    """Whether a drift calls for a suggestion that does not stand already.

    It does if it is as far beyond what was measured for the last suggestion as beyond the plan.
    """
    if not found.replan:
        return False
    last = known[-1] if known else None
    if last is None or last.over_after_iteration is not None:
        return True
    seconds = Deviation(planned=last.seconds, measured=found.iteration_seconds.measured)
    if seconds.beyond(found.threshold):
        return True
    tokens = found.response_tokens
    if tokens is None or last.response_tokens is None:
        return False
    return Deviation(planned=last.response_tokens, measured=tokens.measured).beyond(found.threshold)


def is_over(found: Drift, known: list[Raised]) -> bool:
    """Whether the suggestion that stands is about a drift that is gone."""
    if not known or known[-1].over_after_iteration is not None:
        return False
    near = OVER * found.threshold
    tokens = found.response_tokens
    return not found.iteration_seconds.beyond(near) and not (tokens and tokens.beyond(near))


def add(session: Session, held: JobClaim, suggestion: Suggestion) -> bool:
    """Raise it on the job; False: the job is over or no longer ours, or it stands already."""
    event: JsonObject = {
        "type": "drift",
        "state": "raised",
        "iteration": suggestion.after_iteration,
        "suggestion": suggestion.model_dump(mode="json", by_alias=True),
    }
    tokens = suggestion.drift.response_tokens

    def noted(measured: JsonObject, number: int) -> JsonObject | None:
        known = raised(measured)
        if not is_new(suggestion.drift, known):
            return None
        one = Raised(
            event=number,
            seconds=suggestion.drift.iteration_seconds.measured,
            response_tokens=None if tokens is None else tokens.measured,
        )
        return _with(measured, [*known, one])

    return job_queue.add_event(session, held, event, noted=noted)


def end(session: Session, held: JobClaim, window: Window) -> bool:
    """Say that the one that stands is over; False: none does, or the job is no longer ours."""
    event: JsonObject = {"type": "drift", "state": "over", "iteration": window.last}

    def noted(measured: JsonObject, _: int) -> JsonObject | None:
        known = raised(measured)
        if not known or known[-1].over_after_iteration is not None:
            return None
        last = known[-1].model_copy(update={"over_after_iteration": window.last})
        return _with(measured, [*known[:-1], last])

    return job_queue.add_event(session, held, event, noted=noted)


def _with(measured: JsonObject, known: list[Raised]) -> JsonObject:
    return {**measured, "suggestions": _RAISED.dump_python(known[-KEPT:], mode="json")}


def of_job(session: Session, row: JobRow) -> list[JobSuggestion]:
    """Those of a job, the latest first."""
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
