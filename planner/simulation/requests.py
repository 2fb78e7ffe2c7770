"""Engines that generate without batches, request by request.

Independent of the price's flow: every response has a length of its own, every replica a queue, a
batch of running responses and a cache with so many tokens, and admission counts responses. What is
shared with the price is what a decode step and a prefilled token take.
"""

import heapq
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from automap.planner.layout import IntArray

STRIDES = 64
"""Looks at a replica per mean response, so that the seconds of its steps follow its cache."""


@dataclass(slots=True)
class Response:
    """One response: what it reads, how long it gets, how far it is."""

    group: int
    prompt_tokens: int
    tokens: int
    turns_left: int
    begun_at: int = -1
    """Batches trained when an engine began it."""
    done: float = 0.0
    cached: bool = False
    """Whether its cache is there from before, as after a turn with the environment."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What a replica is like."""

    step_seconds: Callable[[int, float], float]
    """Seconds of a decode step of so many responses with so many cached tokens each."""
    prefill_token_seconds: float
    slots: int
    cache_tokens: float


@dataclass(slots=True)
class Replica:
    """One replica's queue, running responses and clock; `steps` counts decode steps."""

    engine: Engine
    stride: float
    queue: deque[Response] = field(default_factory=deque)
    running: dict[int, Response] = field(default_factory=dict)
    """By number, the oldest first; the number tells when a turn's end in the heap is outdated."""
    ends: list[tuple[float, int]] = field(default_factory=list)
    away: dict[int, Response] = field(default_factory=dict)
    """With their environment, the one that left first in front; their cache is there or not."""
    now: float = 0.0
    stall: float = 0.0
    steps: float = 0.0
    held: float = 0.0
    """Cached tokens of what runs."""
    left_tokens: float = 0.0
    """Cached tokens of what is away and still there."""
    version: int = 0
    numbers: int = 0
    preempted: int = 0
    trained: int = 0
    """Batches whose weights it has."""
    begun: dict[int, float] = field(default_factory=dict)
    """Number of what runs → the step at which it joined."""

    @property
    def load(self) -> int:
        """Responses that were given to it and have not ended."""
        return len(self.queue) + len(self.running) + len(self.away)

    def pace(self) -> float:
        """Seconds of a decode step as things are."""
        count = len(self.running)
        return self.engine.step_seconds(count, self.held / count) if count else 0.0

    def advance(self, time: float) -> None:
        """Decode until a time at which nothing else has happened to it."""
        passed = time - self.now
        stalled = min(self.stall, passed)
        self.stall -= stalled
        passed -= stalled
        self.now = time
        if self.running and passed > 0:
            steps = passed / self.pace()
            self.steps += steps
            self.held += steps * len(self.running)

    def next_time(self) -> float | None:
        """When to look at it again; None: it has nothing to do."""
        while self.ends and self.ends[0][1] not in self.running:
            heapq.heappop(self.ends)
        if not self.running:
            return None
        room = max(self.engine.cache_tokens - self.held, 0.0) / len(self.running)
        steps = min(self.ends[0][0] - self.steps, self.stride, max(room, 1.0))
        return self.now + self.stall + max(steps, 0.0) * self.pace()

    def turns_ended(self) -> list[Response]:
        """Take out the responses whose turn has ended by now."""
        ended = []
        while self.ends and self.ends[0][0] <= self.steps + 1e-6:
            end, number = heapq.heappop(self.ends)
            response = self.running.pop(number, None)
            if response is not None:
                response.done += end - self.begun.pop(number)
                self.held -= response.prompt_tokens + response.done + (self.steps - end)
                ended.append(response)
        return ended

    def fill(self, paid: set[int]) -> None:
        """Start what waits while there are slots and cache; `paid` are groups whose prompt is in.

        What no longer fits goes back to the front of the queue, the youngest first.
        """
        if self.held > self.engine.cache_tokens and len(self.running) > 1:
            self._send_back()
            return
        while self.queue and len(self.running) < self.engine.slots:
            size = self.queue[0].prompt_tokens + self.queue[0].done
            if self.running and self.held + size > self.engine.cache_tokens:
                return
            self._start(self.queue.popleft(), paid)

    def _send_back(self) -> None:
        number = next(reversed(self.running))
        response = self.running.pop(number)
        response.done += self.steps - self.begun.pop(number)
        self.held -= response.prompt_tokens + response.done
        response.cached = False
        self.queue.appendleft(response)
        self.preempted += 1

    def _start(self, response: Response, paid: set[int]) -> None:
        prompt = 0 if response.group in paid else response.prompt_tokens
        again = response.prompt_tokens + response.done if response.done else prompt
        if not response.cached:
            self.stall += again * self.engine.prefill_token_seconds
        paid.add(response.group)
        response.begun_at = self.trained if response.begun_at < 0 else response.begun_at
        number = self.numbers = self.numbers + 1
        left = (response.tokens - response.done) / response.turns_left
        self.running[number] = response
        self.begun[number] = self.steps
        heapq.heappush(self.ends, (self.steps + left, number))
        self.held += response.prompt_tokens + response.done
        response.cached = False

    def leave(self, response: Response, number: int) -> None:
        """Let a response go to its environment; its cache stays while nobody needs the room."""
        response.cached = response.turns_left > 0
        self.away[number] = response
        if response.cached:
            self.left_tokens += response.prompt_tokens + response.done
        for other in list(self.away.values()):
            if self.held + self.left_tokens <= self.engine.cache_tokens:
                break
            if other.cached:
                other.cached = False
                self.left_tokens -= other.prompt_tokens + other.done

    def returns(self, number: int) -> Response | None:
        """Take a response back into the queue; one that has had its last turn is returned."""
        response = self.away.pop(number)
        if response.cached:
            self.left_tokens -= response.prompt_tokens + response.done
        if not response.turns_left:
            return response
        self.queue.append(response)
        return None

    def recompute(self) -> None:
        """Drop the cache of all that is in flight and prefill what runs."""
        self.stall += self.held * self.engine.prefill_token_seconds
        self.left_tokens = 0.0
        for response in self.away.values():
            response.cached = False


@dataclass(frozen=True, slots=True)
class Setting:
    """How the responses flow: sizes, admission, and what training does."""

    batch: int
    """Responses of an iteration, in whole groups."""
    group: int
    staleness: int
    slack: int
    replicas: int
    turns: int
    environment_seconds: float
    keeps_cache: bool
    train_seconds: float | None = None
    """Seconds from a finished batch to new weights, one batch after the other; None: they come
    when `slack` more batches are finished."""
    pause_seconds: float = 0.0
    """Seconds for which new weights stop all replicas."""
    waits: bool = True
    """Batches wait for what would be too old for the next."""


@dataclass(slots=True)
class Batches:
    """What came out of a run, batch by batch."""

    finished_at: list[float] = field(default_factory=list)
    prompts: list[list[int]] = field(default_factory=list)
    responses: list[list[int]] = field(default_factory=list)
    most_admitted: int = 0
    """Most responses in flight, or finished and not yet trained on."""
    oldest: int = 0
    """The largest staleness: batches trained when a response was, less those when it began."""
    preempted: int = 0

    def seconds_per_batch(self, *, skip: int) -> float:
        """Mean seconds from one finished batch to the next, without the first `skip`."""
        ends = self.finished_at[skip:]
        return (ends[-1] - ends[0]) / (len(ends) - 1)


Draw = Callable[[int], IntArray]
"""Draws so many lengths, in tokens."""


class Flow:
    """A run of requests through replicas, under the admission of a setting."""

    def __init__(self, engine: Engine, setting: Setting, prompts: Draw, responses: Draw) -> None:
        self.setting, self.out = setting, Batches()
        self.draw_prompts, self.draw_responses = prompts, responses
        mean = float(np.mean(responses(1024)))
        self.replicas = [Replica(engine, mean / STRIDES) for _ in range(setting.replicas)]
        self.events: list[tuple[float, int, int, int]] = []
        """(time, replica or -1, its version or the returning response, which batch is trained)."""
        self.missing: dict[int, int] = {}
        """Group → its responses that have not ended."""
        self.members: dict[int, list[Response]] = {}
        self.paid: set[int] = set()
        self.finished: list[Response] = []
        self.trained = self.groups = self.in_flight = self.waiting = self.returning = 0
        self.trainer_free = 0.0
        self.held_by = sys.maxsize
        """Batches wait for something that began with so many trained, or fewer."""

    def run(self, batches: int) -> Batches:
        """Let so many batches finish."""
        self._admit(0.0)
        for number in range(len(self.replicas)):
            self._look_again(number)
        while len(self.out.finished_at) < batches:
            time, number, mark, batch = heapq.heappop(self.events)
            if number < 0:
                self._new_weights(time, batch)
                continue
            replica = self.replicas[number]
            if batch >= 0:  # a response returns
                replica.advance(time)
                done = replica.returns(batch)
                if done is not None:
                    self._response_ended(done, time)
            elif mark != replica.version:
                continue
            else:
                replica.advance(time)
            for response in replica.turns_ended():
                self._turn_ended(replica, number, response, time)
            replica.fill(self.paid)
            self._look_again(number)
        self.out.preempted = sum(replica.preempted for replica in self.replicas)
        return self.out

    def _look_again(self, number: int) -> None:
        replica = self.replicas[number]
        replica.version += 1
        time = replica.next_time()
        if time is not None:
            heapq.heappush(self.events, (time, number, replica.version, -1))

    def _turn_ended(self, replica: Replica, number: int, response: Response, time: float) -> None:
        response.turns_left -= 1
        if self.setting.environment_seconds:
            self.returning += 1
            replica.leave(response, self.returning)
            back = time + self.setting.environment_seconds
            heapq.heappush(self.events, (back, number, 0, self.returning))
        elif response.turns_left:
            replica.queue.appendleft(response)
        else:
            self._response_ended(response, time)

    def _response_ended(self, response: Response, time: float) -> None:
        self.missing[response.group] -= 1
        if self.missing[response.group]:
            return
        del self.missing[response.group]
        members = self.members.pop(response.group)
        self.in_flight -= len(members)
        self.waiting += len(members)
        begun = min(each.begun_at for each in members)
        for each in members:  # a group is as old as its first response
            each.begun_at = begun
        self.finished += members
        if members[0].begun_at <= self.held_by:
            while len(self.finished) >= self.setting.batch and self._is_in_time():
                self._batch_finished(time)
        self._admit(time)

    def _is_in_time(self) -> bool:
        """Whether all that is left can be in batches before it is too old, if one is closed now.

        Batches take what began first. What began with b batches trained is due in batch b + η.
        """
        setting, number = self.setting, len(self.out.finished_at)
        self.finished.sort(key=lambda each: each.begun_at)
        if not setting.waits:
            return True
        left = Counter(each.begun_at for each in self.finished[setting.batch :])
        for group in self.members.values():
            begun_at = [each.begun_at for each in group if each.begun_at >= 0]
            left[min(begun_at, default=-1)] += len(group)
        before = 0
        for begun in sorted(version for version in left if version >= 0):
            before += left[begun]
            last = number + 1 + (before - 1) // setting.batch
            if last > begun + setting.staleness:
                self.held_by = begun
                return False
        self.held_by = sys.maxsize
        return True

    def _batch_finished(self, time: float) -> None:
        setting, number = self.setting, len(self.out.finished_at)
        batch, self.finished = self.finished[: setting.batch], self.finished[setting.batch :]
        self.out.finished_at.append(time)
        self.out.prompts.append([each.prompt_tokens for each in batch[:: setting.group]])
        self.out.responses.append([each.tokens for each in batch])
        oldest = max(number - each.begun_at for each in batch)
        self.out.oldest = max(self.out.oldest, oldest)
        if setting.train_seconds is not None:
            self.trainer_free = max(time, self.trainer_free) + setting.train_seconds
            heapq.heappush(self.events, (self.trainer_free, -1, 0, number))
        elif number >= setting.slack:
            heapq.heappush(self.events, (time, -1, 0, number - setting.slack))

    def _new_weights(self, time: float, batch: int) -> None:
        """Training of a batch has ended: its responses leave, new weights come, others start."""
        self.trained = batch + 1
        self.waiting -= self.setting.batch
        for replica in self.replicas:
            replica.advance(time)
            replica.trained = self.trained
            replica.stall += self.setting.pause_seconds
            if not self.setting.keeps_cache:
                replica.recompute()
        self._admit(time)
        for number in range(len(self.replicas)):
            self._look_again(number)

    def _admit(self, time: float) -> None:
        """Admit whole groups, each to the replica with the least to do."""
        setting, touched = self.setting, set[int]()
        most = (setting.staleness + 1) * setting.batch
        while self.in_flight + self.waiting + setting.group <= most:
            number = min(range(len(self.replicas)), key=lambda k: self.replicas[k].load)
            if self.replicas[number].load > 4 * self.replicas[number].engine.slots:
                break  # enough waits in front of every engine
            if number not in touched:
                self.replicas[number].advance(time)
                touched.add(number)
            self._admit_group(self.replicas[number])
        self.out.most_admitted = max(self.out.most_admitted, self.in_flight + self.waiting)
        for number in touched:
            self.replicas[number].fill(self.paid)
            self._look_again(number)

    def _admit_group(self, replica: Replica) -> None:
        setting = self.setting
        prompt = int(self.draw_prompts(1)[0])
        group = self.groups = self.groups + 1
        members = [
            Response(group, prompt, int(tokens), setting.turns)
            for tokens in self.draw_responses(setting.group)
        ]
        self.missing[group], self.members[group] = len(members), members
        self.in_flight += len(members)
        replica.queue.extend(members)
