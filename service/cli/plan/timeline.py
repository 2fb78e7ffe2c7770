"""What a plan does on which GPUs and when: the rows of the call table and of the Gantt chart."""

import itertools
import string
from dataclasses import dataclass, replace

from automap.planner import Plan
from automap.planner.plan import CallPlan, CopyPlan, WeightSync

KEYS = string.ascii_lowercase + string.ascii_uppercase + string.digits


@dataclass(frozen=True, slots=True, order=True)
class GpuRange:
    """Consecutive GPUs of a pool, counted from its start."""

    pool: str
    first_gpu: int
    num_gpus: int

    def covers(self, other: "GpuRange") -> bool:
        """True when every GPU of `other` is in this range."""
        return (
            self.pool == other.pool
            and self.first_gpu <= other.first_gpu
            and other.first_gpu + other.num_gpus <= self.first_gpu + self.num_gpus
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an event within a period of the schedule."""

    start_seconds: float
    end_seconds: float
    continues: bool = False
    """True for the part of a wrapped event that began in the period before."""


@dataclass(frozen=True, slots=True)
class Event:
    """A call or a weight sync; `ranges` is empty for a reward function on the host."""

    key: str
    """The letter that names it in the chart."""
    name: str
    role: str
    ranges: tuple[GpuRange, ...]
    stage: int
    start_seconds: float
    duration_seconds: float
    call: CallPlan | None
    sync: WeightSync | None
    tail: tuple[GpuRange, float] | None = None
    """The GPUs that a generation keeps to its end, and the seconds after which others are free."""

    def on(self, gpus: GpuRange) -> "Event":
        """The event as these of its GPUs see it."""
        if self.tail is None or self.tail[0].covers(gpus):
            return self
        return replace(self, duration_seconds=self.tail[1])

    def within(self, period_seconds: float) -> list[Piece]:
        """The event within one period: whole, or cut in two where it runs over the end."""
        late = self.start_seconds >= period_seconds
        start = self.start_seconds % period_seconds if late else self.start_seconds
        end = start + self.duration_seconds
        if end <= period_seconds * (1 + 1e-9):
            return [Piece(start, end)]
        wrapped = Piece(0.0, min(end - period_seconds, start), continues=True)
        return [Piece(start, period_seconds), wrapped]


@dataclass(frozen=True, slots=True)
class Row:
    """GPUs on which the same things happen; `gpus` is None for the host."""

    gpus: GpuRange | None
    events: tuple[Event, ...]

    def busy_seconds(self) -> float:
        """Seconds per iteration in which these GPUs work."""
        return sum(event.duration_seconds for event in self.events)


def events_of(plan: Plan) -> list[Event]:
    """All calls and weight syncs in the order of their stage and start."""
    copies = {copy.id: copy for copy in plan.copies}
    unkeyed = [_call_event(call, copies) for call in plan.calls]
    unkeyed += [_sync_event(sync, copies) for sync in plan.transitions]
    # A wrapped cyclic schedule may give an end below the start: it ends in the next period.
    ordered = sorted(unkeyed, key=lambda event: (event.stage, event.start_seconds, event.ranges))
    return [
        replace(
            event,
            key=KEYS[index % len(KEYS)],
            duration_seconds=event.duration_seconds % plan.iteration_seconds
            if event.duration_seconds < 0
            else event.duration_seconds,
        )
        for index, event in enumerate(ordered)
    ]


def rows_of(events: list[Event]) -> list[Row]:
    """One row per stretch of GPUs between the ends of all ranges, pools apart, then the host."""
    rows = []
    ranges = {gpu_range for event in events for gpu_range in event.ranges}
    ranges |= {event.tail[0] for event in events if event.tail is not None}
    for pool in sorted({gpu_range.pool for gpu_range in ranges}):
        ends = sorted(
            {
                end
                for gpus in ranges
                if gpus.pool == pool
                for end in (gpus.first_gpu, gpus.first_gpu + gpus.num_gpus)
            }
        )
        for first, last in itertools.pairwise(ends):
            gpus = GpuRange(pool, first, last - first)
            here = tuple(
                event.on(gpus)
                for event in events
                if any(taken.covers(gpus) for taken in event.ranges)
            )
            rows.append(Row(gpus, here))
    host = tuple(event for event in events if not event.ranges)
    return rows + ([Row(None, host)] if host else [])


def _call_event(call: CallPlan, copies: dict[str, CopyPlan]) -> Event:
    return Event(
        key="",
        name=call.id,
        role=call.role,
        ranges=() if call.copy_id is None else (_range(copies[call.copy_id]),),
        stage=call.stage,
        start_seconds=call.start_seconds,
        duration_seconds=call.end_seconds - call.start_seconds,
        call=call,
        sync=None,
        tail=_tail(call, copies),
    )


def _tail(call: CallPlan, copies: dict[str, CopyPlan]) -> tuple[GpuRange, float] | None:
    if call.tail is None or call.copy_id is None or call.bulk_end_seconds is None:
        return None
    copy = copies[call.copy_id]
    kept = GpuRange(copy.pool, copy.first_gpu, call.tail.num_gpus)
    return kept, call.bulk_end_seconds - call.start_seconds


def _sync_event(sync: WeightSync, copies: dict[str, CopyPlan]) -> Event:
    return Event(
        key="",
        name=f"{sync.role}.sync",
        role=sync.role,
        ranges=(_range(copies[sync.source_copy]), _range(copies[sync.target_copy])),
        stage=sync.stage,
        start_seconds=sync.start_seconds,
        duration_seconds=sync.end_seconds - sync.start_seconds,
        call=None,
        sync=sync,
    )


def _range(copy: CopyPlan) -> GpuRange:
    return GpuRange(copy.pool, copy.first_gpu, copy.num_gpus)
