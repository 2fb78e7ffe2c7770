"""What differs between two plans of one job: copies and calls, with their seconds and bytes."""

from collections.abc import Iterator

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
    for other in after.calls:
        one = first[other.id]
        words = _call(one), _call(other)
        if words[0] != words[1]:
            yield Difference(
                of=f"call {other.id}",
                before=words[0],
                after=words[1],
                more_seconds=_seconds(other) - _seconds(one),
                more_bytes=other.peak_bytes - one.peak_bytes,
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


def _call(call: CallPlan) -> str:
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


def _seconds(call: CallPlan) -> float:
    return call.end_seconds - call.start_seconds
