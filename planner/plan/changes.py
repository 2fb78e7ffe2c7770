"""What differs between two plans: copies and calls, with their seconds and bytes, and the jobs."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from automap.planner.plan.types import CallPlan, CopyPlan, Plan, ResultModel

ABSENT = "none"


class Difference(ResultModel):
    """One copy or call that is otherwise in the second plan."""

    of: str
    """The copy's or the call's id."""
    before: str
    after: str
    more_seconds: float | None = None
    """What the call takes more; None: it is a copy."""
    more_bytes: int
    """What is held, or used at most, more on each of its GPUs."""


class Quantity(ResultModel):
    """A figure of both plans; None: one does not have it."""

    of: str
    before: float | None
    after: float | None


class FieldChange(ResultModel):
    """A field of the spec that is otherwise; null: one spec leaves it to its default."""

    field: str
    """Its path, for example `workload.response_lengths.mean`."""
    before: JsonValue
    after: JsonValue


class PlanDifference(ResultModel):
    """Two plans beside each other, of one job or of two."""

    figures: list[Quantity]
    """What the whole plan has: seconds, price, GPUs, tokens per second, chance to run out."""
    seconds: list[Quantity]
    """What every call and weight sync takes."""
    peak_bytes: list[Quantity]
    """Bytes on each GPU of a call, at most."""
    placement: list[Difference]
    """Copies and calls that are placed or set otherwise."""
    spec: list[FieldChange]


FIGURES = (
    "iteration_seconds",
    "price_per_iteration",
    "gpus_used",
    "tokens_per_second",
    "price_per_million_tokens",
    "out_of_memory_probability",
    "relative_gap",
)


def plan_difference(before: Plan, after: Plan) -> PlanDifference:
    """Both plans figure by figure, and what is placed or asked for otherwise."""
    return PlanDifference(
        figures=[
            Quantity(of=name, before=getattr(before, name), after=getattr(after, name))
            for name in FIGURES
        ],
        seconds=_quantities(_all_seconds(before), _all_seconds(after)),
        peak_bytes=_quantities(
            {call.id: call.peak_bytes for call in before.calls},
            {call.id: call.peak_bytes for call in after.calls},
        ),
        placement=differences(before, after),
        spec=_spec_changes(before, after),
    )


def _all_seconds(plan: Plan) -> dict[str, float]:
    calls = {call.id: _seconds(call) for call in plan.calls}
    return calls | {
        f"{sync.role}.sync": sync.end_seconds - sync.start_seconds for sync in plan.transitions
    }


def _quantities(before: Mapping[str, float], after: Mapping[str, float]) -> list[Quantity]:
    return [
        Quantity(of=name, before=before.get(name), after=after.get(name))
        for name in dict.fromkeys([*before, *after])
    ]


def _spec_changes(before: Plan, after: Plan) -> list[FieldChange]:
    """Fields that either spec gives; defaults are left out."""
    one, other = (
        dict(_leaves(plan.spec.model_dump(mode="json", exclude_unset=True)))
        for plan in (before, after)
    )
    return [
        FieldChange(field=field, before=one.get(field), after=other.get(field))
        for field in dict.fromkeys([*one, *other])
        if one.get(field) != other.get(field)
    ]


def _leaves(value: JsonValue, path: str = "") -> Iterator[tuple[str, JsonValue]]:
    match value:
        case dict() if value:
            parts = value.items()
        case list() if any(isinstance(each, dict) for each in value):
            parts = {str(place): each for place, each in enumerate(value)}.items()
        case _:
            yield path, value
            return
    for name, each in parts:
        yield from _leaves(each, f"{path}.{name}" if path else name)


def differences(before: Plan, after: Plan) -> list[Difference]:
    """Copies, then calls, that are placed or set otherwise; empty: the placements are the same."""
    return [*_copies(before, after), *_calls(before, after)]


def _copies(before: Plan, after: Plan) -> Iterator[Difference]:
    first = {copy.id: copy for copy in before.copies}
    second = {copy.id: copy for copy in after.copies}
    for name in dict.fromkeys([*first, *second]):
        one, other = first.get(name), second.get(name)
        words = _copy(one), _copy(other)
        if words[0] != words[1]:
            held = [0 if copy is None else copy.resident_bytes for copy in (one, other)]
            yield Difference(
                of=f"copy {name}", before=words[0], after=words[1], more_bytes=held[1] - held[0]
            )


def _calls(before: Plan, after: Plan) -> Iterator[Difference]:
    first = {call.id: call for call in before.calls}
    second = {call.id: call for call in after.calls}
    for name in dict.fromkeys([*second, *first]):
        one, other = first.get(name), second.get(name)
        words = _call(one), _call(other)
        if words[0] != words[1]:
            yield Difference(
                of=f"call {name}",
                before=words[0],
                after=words[1],
                more_seconds=_seconds(other) - _seconds(one),
                more_bytes=(other.peak_bytes if other else 0) - (one.peak_bytes if one else 0),
            )


def _copy(copy: CopyPlan | None) -> str:
    if copy is None:
        return ABSENT
    last = copy.first_gpu + copy.num_gpus - 1
    parts = [
        f"GPUs {copy.first_gpu}-{last} of {copy.pool}",
        copy.layout.in_short(),
        *([copy.engine] if copy.engine else []),
        f"sharding {copy.layout.sharding}",
        f"offload {copy.offload}",
    ]
    return ", ".join(parts)


def _call(call: CallPlan | None) -> str:
    if call is None:
        return ABSENT
    parts = [f"on {call.copy_id}"] if call.copy_id else []
    if call.parallelism is not None:
        parts.append(call.parallelism.in_short())
    if call.micro_batch_size:
        parts.append(f"micro-batch {call.micro_batch_size}")
    if call.recompute and call.recompute != "none":
        parts.append(f"recompute {call.recompute}")
    if call.kv_cache_bytes:
        parts.append(f"cache {call.kv_cache_bytes / 2**30:.1f} GiB")
    return ", ".join(parts) or ABSENT


def _seconds(call: CallPlan | None) -> float:
    return 0.0 if call is None else call.end_seconds - call.start_seconds
