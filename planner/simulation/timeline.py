"""Timeline of a simulation: what happens when on which GPUs, as a list of occurrences."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from automap.planner.check.subject import Span, Subject
from automap.planner.check.time import Schedule
from automap.planner.layout import FloatArray
from automap.planner.simulation.durations import Durations
from automap.planner.simulation.replay import Replay


@dataclass(frozen=True, slots=True)
class Piece:
    """A named part of an occurrence."""

    name: str
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One event of one iteration; `spans` is empty for a function on the host."""

    name: str
    iteration: int
    start_seconds: float
    end_seconds: float
    spans: tuple[Span, ...]
    chunks: tuple[Piece, ...] = ()
    """Pieces in which a streamed call takes each chunk; in between its GPUs are idle."""
    tail: Piece | None = None
    """Tail of a generation that goes on with fewer GPUs, or a larger tensor size."""
    tail_span: Span | None = None
    """The GPUs of the tail, where they are not all."""

    def pieces(self, *, with_tail: bool = True) -> list[Piece]:
        """Pieces in which it works; without its tail, those on GPUs that the tail leaves free."""
        if self.chunks:
            return list(self.chunks)
        if self.tail is None:
            return [Piece(self.name, self.start_seconds, self.end_seconds)]
        main_phase = Piece("bulk", self.start_seconds, self.tail.start_seconds)
        return [main_phase, self.tail] if with_tail else [main_phase]

    def places(self, rows: Sequence[Span]) -> list[tuple[int, bool]]:
        """Pairs of (index of a row whose GPUs it takes, whether its tail takes them too)."""
        return [
            (number, self.tail_span is None or row.shares_gpus(self.tail_span))
            for number, row in enumerate(rows)
            if any(row.shares_gpus(span) for span in self.spans)
        ]


def occurrences(
    subject: Subject,
    schedule: Schedule,
    durations: Durations,
    run: Replay,
    *,
    origin_seconds: float,
    warm_up: int,
) -> list[Occurrence]:
    """All events of all iterations, in order of their starts.

    Seconds count from the origin, and iterations from the first after the warm-up.
    """
    found = []
    begun = run.starts - origin_seconds
    for number, event in enumerate(schedule.events):
        chunks = _chunks(schedule, durations, run, number)
        label, span = _tail_label(subject, number), event.tail[0] if event.tail else None
        for iteration, seconds in enumerate(durations.seconds[:, number].tolist()):
            start = float(begun[iteration, number])
            end = start + seconds
            tail: Piece | None = None
            taken: tuple[Piece, ...] = ()
            if number in durations.splits:
                tail = Piece(label, start + float(durations.splits[number][iteration]), end)
            if chunks is not None:
                taken = _taken(chunks[iteration] - origin_seconds, seconds, end=end)
                start = taken[0].start_seconds if taken else start
            found.append(
                Occurrence(
                    event.name, iteration - warm_up, start, end, event.spans, taken, tail, span
                )
            )
    return sorted(found, key=lambda one: (one.start_seconds, one.name))


def _chunks(
    schedule: Schedule, durations: Durations, run: Replay, number: int
) -> FloatArray | None:
    """Seconds [iteration, chunk] when a streamed call begins each chunk; None for other calls."""
    sources = [wait for wait in schedule.waits if wait.target == number and wait.streamed]
    sources = [wait for wait in sources if wait.source in durations.outs]
    if not sources:
        return None
    out: FloatArray = np.full(durations.outs[sources[0].source].shape, -np.inf)
    for wait in sources:
        begins = run.starts[:, wait.source, None] + durations.outs[wait.source]
        late = len(out) - wait.distance
        out[wait.distance :] = np.maximum(out[wait.distance :], begins[:late])
    each = durations.seconds[:, number] / out.shape[1]
    begin = run.free[:, number]
    starts = np.zeros_like(out)
    for chunk in range(out.shape[1]):
        starts[:, chunk] = np.maximum(out[:, chunk], begin)
        begin = starts[:, chunk] + each
    return starts


def _taken(starts: FloatArray, seconds: float, *, end: float) -> tuple[Piece, ...]:
    """The chunks of one occurrence; none where they follow each other without a pause."""
    each = seconds / len(starts)
    if end - seconds - starts[0] < 1e-6 * len(starts):
        return ()
    return tuple(
        Piece(f"chunk {number} of {len(starts)}", float(start), min(float(start + each), end))
        for number, start in enumerate(starts, start=1)
    )


def _tail_label(subject: Subject, number: int) -> str:
    tail = subject.plan.calls[number].tail if number < len(subject.plan.calls) else None
    if tail is None:
        return ""
    if tail.tensor_parallel_size is not None:
        return f"tail with tensor size {tail.tensor_parallel_size}"
    return f"tail on {tail.num_gpus} GPU{'s' if tail.num_gpus > 1 else ''}"


def stretches(spans: Sequence[Span]) -> list[Span]:
    """The GPUs that some span covers, cut where any span starts or ends."""
    found = []
    for pool in sorted({span.pool for span in spans}):
        here = [span for span in spans if span.pool == pool]
        ends = sorted({end for span in here for end in (span.first, span.end)})
        pieces = [Span(pool, first, end) for first, end in itertools.pairwise(ends)]
        found += [piece for piece in pieces if any(piece.shares_gpus(span) for span in here)]
    return found


def rows(timeline: Sequence[Occurrence]) -> list[Span]:
    """The rows of a picture: stretches of GPUs on which the same things happen."""
    tails = [one.tail_span for one in timeline if one.tail_span is not None]
    return stretches([*(span for one in timeline for span in one.spans), *tails])


def host_lanes(timeline: Sequence[Occurrence]) -> dict[tuple[str, int], int]:
    """Row of the host for each occurrence without GPUs, by (name, iteration).

    Functions that run side by side have different rows.
    """
    lanes, ends = {}, list[float]()
    on_host = (one for one in timeline if not one.spans)
    for one in sorted(on_host, key=lambda one: one.start_seconds):
        free = (lane for lane, end in enumerate(ends) if end <= one.start_seconds)
        lane = next(free, len(ends))
        ends[lane : lane + 1] = [one.end_seconds]
        lanes[one.name, one.iteration] = lane
    return lanes
