"""What is known of calls that have ended, and how reports see them (`telemetry.call_records`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from automap.executor.runtime.blame import CallName
from automap.executor.runtime.placement import Device
from automap.executor.telemetry.call_records import BytesKind, CallRecord, RecordKind
from automap.executor.workers.process import Reply

_KINDS: dict[str, RecordKind] = {
    "generate": "generate",
    "forward": "forward",
    "train": "train",
    "sync": "weight_sync",
    "save_state": "checkpoint",
}
_MEASURED: tuple[BytesKind, ...] = (
    "peak_memory",
    "reshard_received",
    "weight_sync_received",
    "generation_weights",
    "peak_weights",
    "packed_weights",
)
RESHARD_SECONDS = "reshard_seconds"
"""What a generate call notes of the time before it could begin."""


@dataclass(frozen=True, slots=True)
class FinishedRank:
    """A call on one rank."""

    rank: int
    started_at: float
    """Unix time, by the rank's clock."""
    seconds: float
    """By the rank's clock: with fetching arguments and putting results."""
    fetched_bytes: int
    fetched_blocks: int
    put_bytes: int
    measured: dict[str, float]
    """What the method noted besides, by name."""

    @classmethod
    def of(cls, rank: int, reply: Reply) -> "FinishedRank":
        """From a rank's reply."""
        return cls(
            rank=rank,
            started_at=reply.started_at,
            seconds=reply.seconds,
            fetched_bytes=reply.traffic.fetched_bytes,
            fetched_blocks=reply.traffic.fetched_blocks,
            put_bytes=reply.traffic.put_bytes,
            measured=reply.measured,
        )


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A call as the controller saw it; seconds by the scheduler's clock."""

    name: CallName
    devices: frozenset[Device]
    submitted: float
    """When the program made it."""
    started: float
    """When its inputs and devices were free; its processes may have been called before."""
    ended: float
    ranks: tuple[FinishedRank, ...]
    num_rows: int | None
    """Rows of the result; None if it is none."""
    value: object
    """The result, if it is no rows: metrics of a training step, for example."""
    iteration: int = 0
    """Iteration of the program which made it."""

    @property
    def seconds(self) -> float:
        """From start to end."""
        return self.ended - self.started

    def worst(self, name: str) -> float:
        """The largest that a rank measured under a name; 0 if none did."""
        return max((each.measured.get(name, 0.0) for each in self.ranks), default=0.0)


@dataclass(frozen=True, slots=True)
class FinishedIteration:
    """What one iteration did; seconds by the scheduler's clock."""

    number: int
    """From 1."""
    started: float
    """When its program began, or the iteration before ended if that was later."""
    ended: float
    calls: tuple[FinishedCall, ...]
    """In the order in which they ended; weight syncs and numeric steps included."""
    multiplier: float
    """Safe-RLHF's Lagrange multiplier after the iteration."""
    rollout_metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of what the actor trained on; see `numeric_steps.rollout_summary`."""

    @property
    def seconds(self) -> float:
        """From start to end."""
        return self.ended - self.started


def call_records(
    iteration: FinishedIteration, *, device_numbers: Mapping[Device, int], unix_zero: float
) -> list[CallRecord]:
    """For reports, metrics and timeline; the iteration itself comes last.

    Args:
        iteration: What to convert.
        device_numbers: Numbers of the run's devices, counted over all pools.
        unix_zero: Unix time at second 0 of the scheduler's clock.
    """
    records = []
    for call in iteration.calls:
        records += _records_of(call, iteration.number, device_numbers, unix_zero)
    whole = CallRecord(
        iteration=iteration.number,
        call_id="iteration",
        role="",
        kind="iteration",
        method="iterate",
        start_seconds=unix_zero + iteration.started,
        end_seconds=unix_zero + iteration.ended,
        ranks=(),
    )
    return [*records, whole]


def _records_of(
    call: FinishedCall, number: int, device_numbers: Mapping[Device, int], unix_zero: float
) -> list[CallRecord]:
    kind = _kind_of(call)
    start, end = unix_zero + call.started, unix_zero + call.ended
    ranks = tuple(sorted(device_numbers[device] for device in call.devices))
    moved: dict[BytesKind, int] = {
        "fetched": max((each.fetched_bytes for each in call.ranks), default=0),
        "put": max((each.put_bytes for each in call.ranks), default=0),
        **{name: int(call.worst(name)) for name in _MEASURED},
    }
    found: dict[BytesKind, int] = {name: count for name, count in moved.items() if count}
    received: dict[BytesKind, int] = {
        name: count for name, count in found.items() if name == "reshard_received"
    }
    resharding = min(call.worst(RESHARD_SECONDS), call.seconds)

    def record(
        kind: RecordKind, start: float, end: float, moved: Mapping[BytesKind, int]
    ) -> CallRecord:
        return CallRecord(
            iteration=number,
            call_id=call.name.id,
            role="" if kind == "operation" else call.name.role,
            kind=kind,
            method=call.name.method,
            start_seconds=start,
            end_seconds=end,
            ranks=ranks,
            bytes=dict(moved),
        )

    if not resharding:
        return [record(kind, start, end, found)]
    rest = {name: count for name, count in found.items() if name not in received}
    return [
        record("reshard", start, start + resharding, received),
        record(kind, start + resharding, end, rest),
    ]


def _kind_of(call: FinishedCall) -> RecordKind:
    """A plan's calls by the second word of their ids; what is in no plan is an operation."""
    words = call.name.id.split(".")
    return _KINDS.get(words[1] if len(words) > 1 else "", "operation")
