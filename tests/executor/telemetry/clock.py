"""Call records made by hand."""

from automap.executor.telemetry.call_records import BytesKind, CallRecord, RecordKind


class Clock:
    """Records one after another."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.records: list[CallRecord] = []

    def call(
        self,
        call_id: str,
        seconds: float,
        *,
        iteration: int,
        kind: RecordKind = "generate",
        ranks: tuple[int, ...] = (0, 1, 2, 3),
        num_bytes: dict[BytesKind, int] | None = None,
    ) -> None:
        self.records.append(
            CallRecord(
                iteration=iteration,
                call_id=call_id,
                role=call_id.partition(".")[0],
                kind=kind,
                method=kind,
                start_seconds=self.now,
                end_seconds=self.now + seconds,
                ranks=ranks,
                bytes=num_bytes or {},
            )
        )
        self.now += seconds

    def end(self, iteration: int, since: float) -> None:
        self.records.append(
            CallRecord(
                iteration=iteration,
                call_id="iteration",
                role="",
                kind="iteration",
                method="",
                start_seconds=since,
                end_seconds=self.now,
                ranks=(),
            )
        )


def recorded_run() -> Clock:
    """Four iterations: the first is slow, the last is cut off before its end."""
    clock = Clock()
    for iteration, seconds in enumerate((40.0, 10.0, 14.0, 11.0), start=1):
        since = clock.now
        clock.call(
            "actor.generate",
            1.0,
            iteration=iteration,
            kind="reshard",
            num_bytes={"reshard_received": 1000 + iteration, "peak_memory": 70},
        )
        clock.call(
            "actor.generate",
            seconds,
            iteration=iteration,
            num_bytes={"peak_memory": 90 - iteration},
        )
        clock.call("group_normalise", 0.5, iteration=iteration, kind="operation", ranks=())
        if iteration < 4:
            clock.call("actor.train", 2.0, iteration=iteration, kind="train")
            clock.call("actor.train", 3.0, iteration=iteration, kind="train")
            clock.end(iteration, since)
    return clock
