"""What stands for a placement: the placement, a plan, or a service's record of a plan.

The same rule for files and for HTTP: of a plan only the fields that a placement lacks are left out;
any other unknown field is an error at its own path, so that a misspelt one is never ignored.
"""

from typing import Annotated

from pydantic import (
    BaseModel,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import InitErrorDetails

from automap.planner import Placement, Plan
from automap.planner.plan import CallPlacement, CallPlan, CopyPlacement, CopyPlan
from automap.service.schemas.plans import PlanRecord


def _only_in(whole: type[BaseModel], part: type[BaseModel]) -> frozenset[str]:
    return frozenset(whole.model_fields.keys() - part.model_fields.keys())


_PLAN_ONLY = _only_in(Plan, Placement)
_COPY_ONLY = _only_in(CopyPlan, CopyPlacement)
_CALL_ONLY = _only_in(CallPlan, CallPlacement)
_MARK_OF_A_PLAN = "iteration_seconds"


def placement_of(data: object, validate: ValidatorFunctionWrapHandler) -> Placement:
    """The placement in `data`; errors keep their paths in `data`. For use as a WrapValidator."""
    inside = None
    if isinstance(data, dict) and isinstance(data.get("plan"), dict):
        _refuse_unknown_in_record(data)
        inside, data = "plan", data["plan"]
    if not isinstance(data, dict) or _MARK_OF_A_PLAN not in data:
        placement: Placement = validate(data, inside)
        return placement
    calls = data.get("calls")
    kept = {name: value for name, value in data.items() if name not in _PLAN_ONLY} | {
        name: [_without(item, surplus) for item in data[name]]
        for name, surplus in (("copies", _COPY_ONLY), ("calls", _CALL_ONLY))
        if isinstance(data.get(name), list)
    }
    placement = validate(kept, inside)
    # Sorted only now, so that an error names the call where it stands.
    starts = [_start(call) for call in calls] if isinstance(calls, list) else []
    order = sorted(range(len(starts)), key=starts.__getitem__)
    return placement.model_copy(update={"calls": [placement.calls[index] for index in order]})


AnyPlacement = Annotated[Placement, WrapValidator(placement_of)]
ANY_PLACEMENT: TypeAdapter[Placement] = TypeAdapter(AnyPlacement)


def _without(item: object, surplus: frozenset[str]) -> object:
    """The mapping without those fields; what is no mapping stays, for the validation to refuse."""
    if not isinstance(item, dict):
        return item
    return {name: value for name, value in item.items() if name not in surplus}


def _start(call: dict[str, object]) -> tuple[float, float]:
    stage, start = call.get("stage", 0), call.get("start_seconds", 0.0)
    numbers = [value if isinstance(value, int | float) else 0.0 for value in (stage, start)]
    return numbers[0], numbers[1]


def _refuse_unknown_in_record(record: dict[str, object]) -> None:
    unknown = [
        InitErrorDetails(type="extra_forbidden", loc=(name,), input=record[name])
        for name in record
        if name not in PlanRecord.model_fields
    ]
    if unknown:
        raise ValidationError.from_exception_data("PlanRecord", unknown)
