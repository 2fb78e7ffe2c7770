"""Replay a plan's iterations as discrete events: what waits for what, and when each event runs.

An event is a call or a weight sync of one iteration. It starts when all it waits for is far enough:
the dataflow's edges, the weight syncs, and on every GPU the event that the plan has before it. Most
must have ended; a streamed call needs a generation's chunks alone, and what shares no GPU with a
generation's tail only the end of its main phase. Under the barrier an iteration starts when the
last event of the one before has ended. A cyclic schedule runs on, and what its first iterations
wait for went as the plan says.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from automap.planner.check.time import Schedule, Wait, waits_for_gpus
from automap.planner.layout import FloatArray
from automap.planner.simulation.durations import Durations

Place = tuple[int, int]
"""One event of one iteration: (iteration, number of the event)."""


@dataclass(frozen=True, slots=True)
class Replay:
    """When the events of several iterations run [iteration, event]."""

    starts: FloatArray
    """Seconds at which each event starts; a streamed call as if it took its chunks without a pause.
    It ends at the same time if it takes each as soon as it is ready."""
    free: FloatArray
    """Seconds at which everything that an event waits for is there but chunks, GPUs included."""


def replay(schedule: Schedule, durations: Durations) -> Replay:
    """Run the events of a schedule with the given durations.

    Raises:
        ValueError: the plan's order on shared GPUs contradicts the dataflow.
    """
    waits = [*schedule.waits, *waits_for_gpus(schedule)]
    if schedule.cyclic:
        own = [Wait(e, e, 1) for e, event in enumerate(schedule.events) if event.spans]
        return _Run(schedule, durations, [*waits, *own]).all_events()
    inside = [wait for wait in waits if wait.distance == 0]
    run = _Run(schedule, durations, inside)
    now, iterations = 0.0, len(durations.seconds)
    for iteration in range(iterations):
        now = run.one_iteration(iteration, begin=now)
    return run.result


class _Run:
    def __init__(self, schedule: Schedule, durations: Durations, waits: list[Wait]) -> None:
        self.seconds = durations.seconds
        size = self.seconds.shape
        self.result = Replay(np.zeros(size), np.zeros(size))
        self.missing = np.zeros(size, dtype=np.int64)
        self.followers: list[list[tuple[Wait, FloatArray]]] = [[] for _ in schedule.events]
        for wait in waits:
            lags = durations.lag_seconds(schedule, wait)
            self.followers[wait.source].append((wait, lags))
            self.missing[max(wait.distance, 0) :, wait.target] += 1
            if wait.distance < 0:
                self.missing[wait.distance :, wait.target] -= 1
            self._before_the_first(schedule, wait)

    def _before_the_first(self, schedule: Schedule, wait: Wait) -> None:
        source, lag = schedule.events[wait.source], wait.seconds(schedule.events)
        for iteration in range(min(wait.distance, len(self.seconds))):
            stage = source.stage + iteration - wait.distance
            begin = source.start + stage * schedule.period
            self._need((iteration, wait.target), wait, begin + lag)

    def _need(self, place: Place, wait: Wait, seconds: float) -> None:
        self.result.starts[place] = max(self.result.starts[place], seconds)
        if not wait.streamed:
            self.result.free[place] = max(self.result.free[place], seconds)

    def all_events(self) -> Replay:
        self._proceed(list(np.ndindex(self.seconds.shape)))
        return self.result

    def one_iteration(self, iteration: int, *, begin: float) -> float:
        """End of an iteration that starts at `begin`, with no other iteration beside it."""
        self.result.starts[iteration] = self.result.free[iteration] = begin
        self._proceed([(iteration, event) for event in range(self.seconds.shape[1])])
        return float((self.result.starts[iteration] + self.seconds[iteration]).max())

    def _proceed(self, places: list[Place]) -> None:
        """Run these events, one after the other by the time of their starts."""
        starts, left = self.result.starts, len(places)
        queue = [(starts[place], place) for place in places if not self.missing[place]]
        heapq.heapify(queue)
        while queue:
            now, (iteration, event) = heapq.heappop(queue)
            left -= 1
            for wait, lags in self.followers[event]:
                place = (iteration + wait.distance, wait.target)
                if not 0 <= place[0] < len(starts):
                    continue
                self._need(place, wait, now + lags[iteration])
                self.missing[place] -= 1
                if not self.missing[place]:
                    heapq.heappush(queue, (starts[place], place))
        if left:
            raise ValueError("the order of the calls on shared GPUs contradicts the dataflow")
