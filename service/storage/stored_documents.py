"""Documents as they were stored, by this version or an earlier one.

What an earlier version stored is upgraded where it can be; what cannot is shown as it is.
"""

import copy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from automap.planner import Plan
from automap.planner.runs import planned_seconds, seconds_in_order
from automap.service.errors.domain import OlderVersionError
from automap.service.schemas.documents import JsonObject
from automap.service.schemas.problems import Problem

Document = TypeVar("Document", bound=BaseModel)
_SHOWN_OF_A_PROBLEM = ("type", "title", "status", "detail")


def readable(kind: type[Document], document: JsonObject) -> Document | None:
    """The document as this version knows it; None: an earlier version's, which it is no more."""
    for candidate in (lambda: document, lambda: _upgraded(document)):
        try:
            return kind.model_validate(candidate())
        except (ValidationError, AttributeError, KeyError, TypeError):
            continue
    return None


def as_stored(kind: type[Document], document: JsonObject) -> Document | JsonObject:
    """The document as this version knows it, else as it was stored."""
    return readable(kind, document) or document


def required(kind: type[Document], document: JsonObject, *, plan_id: object) -> Document:
    """The plan, or its spec, for a question that only this version's can answer.

    Raises:
        OlderVersionError: an earlier version stored it.
    """
    found = readable(kind, document)
    if found is None:
        raise OlderVersionError(plan_id)
    return found


def stored_plan(document: JsonObject | None) -> Plan | None:
    """The plan of a row; None: it has none, or one of an earlier version."""
    return None if document is None else readable(Plan, document)


class _Parts(BaseModel):
    between: float = 0.0


class _Call(BaseModel):
    id: str
    stage: int = 0
    start_seconds: float
    end_seconds: float
    seconds_by_part: _Parts = _Parts()


class _Sync(BaseModel):
    role: str
    stage: int = 0
    start_seconds: float
    end_seconds: float


class PlanTimes(BaseModel):
    """When calls and weight syncs of a stored plan are made: the rest of it is passed over."""

    iteration_seconds: float
    calls: list[_Call]
    transitions: list[_Sync]

    def planned_seconds(self) -> dict[str, float]:
        """Seconds of calls and weight syncs by name, in time order, as the whole plan has them."""
        timed = [
            (
                each.stage,
                each.start_seconds,
                each.end_seconds - each.seconds_by_part.between,
                each.id,
            )
            for each in self.calls
        ]
        timed += [
            (each.stage, each.start_seconds, each.end_seconds, f"{each.role}.sync")
            for each in self.transitions
        ]
        return seconds_in_order(timed, iteration_seconds=self.iteration_seconds)


def predicted_seconds(document: JsonObject | None) -> dict[str, float]:
    """Seconds of the calls of a row's plan; empty: it has none, or one of an earlier version."""
    plan = stored_plan(document)
    return {} if plan is None else planned_seconds(plan)


def stored_problem(document: JsonObject | None) -> Problem | None:
    """The problem of a row, without the plans in it where those are an earlier version's."""
    if document is None:
        return None
    brief = {name: document[name] for name in _SHOWN_OF_A_PROBLEM if name in document}
    return readable(Problem, document) or Problem.model_validate(brief)


def _upgraded(document: Any) -> Any:
    """What earlier versions wrote otherwise, as it is written today."""
    document = copy.deepcopy(document)
    models = document.get("spec", document)["models"]
    for model in models.values():
        # Every model had the concurrency that only a function has.
        if model.get("architecture") is not None:
            model.pop("concurrency", None)
    return document
