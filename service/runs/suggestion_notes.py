"""Suggestions to plan a running job anew: when one is raised, when it is over, and how it is noted.

A suggestion is an event of its job; `measured` of the job notes its number and what was measured
then. So it survives whoever computed it, and the same drift raises none again.
"""

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from automap.planner.runs import Deviation, Drift
from automap.service.schemas.documents import JsonObject

KEPT = 10
"""How many suggestions of a job are noted: the latest."""
OVER = 0.5
"""Times the threshold: a run that is so near to its plan again has drifted back to it."""


class Raised(BaseModel):
    """A suggestion as the job notes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event: int
    """Its number among the job's events."""
    seconds: float
    """Seconds of an iteration, as measured then."""
    response_tokens: float | None = None
    over_after_iteration: int | None = None


_RAISED = TypeAdapter(list[Raised])


def raised(measured: JsonObject) -> list[Raised]:
    """The suggestions that a job notes, the latest last."""
    try:
        return _RAISED.validate_python(measured.get("suggestions") or [])
    except ValidationError:  # another version's
        return []


def is_active(measured: JsonObject) -> bool:
    """Whether the latest suggestion is about a drift that is not over."""
    known = raised(measured)
    return bool(known) and known[-1].over_after_iteration is None


def is_new(found: Drift, known: list[Raised]) -> bool:
    """Whether a drift calls for a suggestion that is not active already.

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
    """Whether the active suggestion is about a drift that is gone."""
    if not known or known[-1].over_after_iteration is not None:
        return False
    near = OVER * found.threshold
    tokens = found.response_tokens
    return not found.iteration_seconds.beyond(near) and not (tokens and tokens.beyond(near))


def with_notes(measured: JsonObject, known: list[Raised]) -> JsonObject:
    """What a job has measured, with these suggestions noted, the latest KEPT."""
    return {**measured, "suggestions": _RAISED.dump_python(known[-KEPT:], mode="json")}
