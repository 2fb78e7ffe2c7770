"""A plan's iterations as discrete events: what waits for what, and when it then runs.

An event is a call or a weight sync of one iteration. It starts when all it waits for have ended:
the dataflow's edges, the weight syncs, and on every GPU the event that the plan has before it.
Under the barrier an iteration starts when the last event of the one before has ended. A cyclic
schedule runs on, and what its first iterations wait for ended when the plan says.
"""

import heapq
from collections import defaultdict

import numpy as np

from planner.check.time import Schedule, Wait, waits_for_gpus
from planner.layout import FloatArray


def replay(schedule: Schedule, seconds: FloatArray) -> FloatArray:
    """Starts [iteration, event] of events that last so many seconds [iteration, event].

    Raises:
        ValueError: the plan's order on shared GPUs contradicts the dataflow.
    """
    waits = [*schedule.waits, *waits_for_gpus(schedule)]
    if schedule.cyclic:
        own = [Wait(e, e, 1) for e, event in enumerate(schedule.events) if event.spans]
        return _run(schedule, seconds, [*waits, *own])
    inside = [wait for wait in waits if wait.distance == 0]
    starts = np.zeros_like(seconds)
    now = 0.0
    for number in range(len(seconds)):
        one = slice(number, number + 1)
        starts[one] = now + _run(schedule, seconds[one], inside)
        now = float((starts[one] + seconds[one]).max())
    return starts


def _run(schedule: Schedule, seconds: FloatArray, waits: list[Wait]) -> FloatArray:
    """The events of these iterations, one after the other by the time of their ends."""
    starts, missing, followers = _before_the_first(schedule, waits, len(seconds))
    ended = 0
    queue = [
        (starts[place] + seconds[place], place)
        for place in np.ndindex(seconds.shape)
        if not missing[place]
    ]
    heapq.heapify(queue)
    while queue:
        now, (iteration, event) = heapq.heappop(queue)
        ended += 1
        for target, distance in followers[event]:
            place = (iteration + distance, target)
            if not 0 <= place[0] < len(seconds):
                continue
            starts[place] = max(starts[place], now)
            missing[place] -= 1
            if not missing[place]:
                heapq.heappush(queue, (starts[place] + seconds[place], place))
    if ended < seconds.size:
        raise ValueError("the order of the calls on shared GPUs contradicts the dataflow")
    return starts


def _before_the_first(
    schedule: Schedule, waits: list[Wait], iterations: int
) -> tuple[FloatArray, np.ndarray, dict[int, list[tuple[int, int]]]]:
    """(earliest starts, number of events to wait for, who follows whom at which distance)."""
    size = (iterations, len(schedule.events))
    starts, missing = np.zeros(size), np.zeros(size, dtype=np.int64)
    followers: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for wait in waits:
        followers[wait.source].append((wait.target, wait.distance))
        source = schedule.events[wait.source]
        for iteration in range(iterations):
            before = iteration - wait.distance
            if 0 <= before < iterations:
                missing[iteration, wait.target] += 1
            elif before < 0:
                end = source.end + (source.stage + before) * schedule.period
                starts[iteration, wait.target] = max(starts[iteration, wait.target], end)
    return starts, missing, followers
