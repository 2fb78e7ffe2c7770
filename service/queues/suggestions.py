"""Raises a suggestion on a running job, and says that it is over: an event and a note each."""

from sqlalchemy.orm import Session

from automap.planner.runs import Suggestion, Window
from automap.service.queues import job_queue
from automap.service.queues.job_queue import JobClaim
from automap.service.runs.suggestion_notes import Raised, is_new, raised, with_notes
from automap.service.schemas.documents import JsonObject


def add(session: Session, held: JobClaim, suggestion: Suggestion) -> bool:
    """Raise it on the job; False: the job is over or no longer ours, or it stands already."""
    event: JsonObject = {
        "type": "drift",
        "state": "raised",
        "iteration": suggestion.after_iteration,
        "suggestion": suggestion.model_dump(mode="json", by_alias=True),
    }
    tokens = suggestion.drift.response_tokens

    def annotate(measured: JsonObject, number: int) -> JsonObject | None:
        known = raised(measured)
        if not is_new(suggestion.drift, known):
            return None
        one = Raised(
            event=number,
            seconds=suggestion.drift.iteration_seconds.measured,
            response_tokens=None if tokens is None else tokens.measured,
        )
        return with_notes(measured, [*known, one])

    return job_queue.add_event(session, held, event, annotate=annotate)


def end(session: Session, held: JobClaim, window: Window) -> bool:
    """Say that the one that stands is over; False: none does, or the job is no longer ours."""
    event: JsonObject = {"type": "drift", "state": "over", "iteration": window.last}

    def annotate(measured: JsonObject, _: int) -> JsonObject | None:
        known = raised(measured)
        if not known or known[-1].over_after_iteration is not None:
            return None
        last = known[-1].model_copy(update={"over_after_iteration": window.last})
        return with_notes(measured, [*known[:-1], last])

    return job_queue.add_event(session, held, event, annotate=annotate)
