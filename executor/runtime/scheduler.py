"""When each call starts: as soon as its inputs are there and its devices are free, in order.

One device does one thing at a time, and so does a process that has none. Of calls that share a
device the earlier one goes first, also when it still waits for its inputs: in the order of the plan
where the plan names them, else in the order in which they were made. Calls on other devices
overlap. This is the schedule that the planner prices. A call whose processes are busy with the one
before it is sent all the same, because they keep the order in which they are called: so the way
there costs no time of the device.

The program runs in the caller's thread and gets futures; a thread of the scheduler starts calls as
others finish. Whoever waits for a result also watches deadlines and cancellation.
"""

import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from typing import Any, Generic, TypeVar

import ray

from automap.executor.errors import RunError
from automap.executor.runtime.blame import Blame, CallName, root_cause
from automap.executor.runtime.finished_calls import FinishedCall, FinishedRank
from automap.executor.runtime.mailbox import Mailbox
from automap.executor.runtime.placement import Device
from automap.executor.workers.process import Reply, unpacked
from automap.executor.workers.row_references import Rows

T = TypeVar("T")
U = TypeVar("U")

_Done = concurrent.futures.Future[Reply | bytes]
_Outcome = Reply | BaseException
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 1.0
"""After a first failure others may follow that explain it: a death after a lost connection."""


class Future(Generic[T]):
    """A result that is being made."""

    def __init__(self, scheduler: "Scheduler") -> None:
        self._scheduler = scheduler
        self._done = False
        self._value: T | None = None

    def done(self) -> bool:
        """Whether the result is there."""
        return self._done

    def result(self) -> T:
        """Wait for it; raises what ended the run, if something did."""
        if not self._done:
            self._scheduler.wait(self)
        return self._value  # type: ignore[return-value]

    def map(self, function: Callable[[T], U]) -> "Future[U]":
        """What the function makes of it, in the controller: for references, not for data."""
        return self._scheduler.derive(function, self)

    def resolve(self, value: T) -> None:
        """Give it its value: in a function that the scheduler calls."""
        self._value, self._done = value, True


@dataclass(slots=True, eq=False)
class Task:
    """A call that waits, runs, or is done."""

    name: CallName
    devices: frozenset[Device]
    inputs: tuple[Future[Any], ...]
    start: Callable[[], Mapping[int, "ray.ObjectRef[Reply | bytes]"]]
    """Calls the processes; the reference to each rank's reply."""
    finish: Callable[[Mapping[int, Reply]], object]
    """The result, from the replies."""
    stacks: Callable[[Sequence[int]], Mapping[int, str | None]] = lambda ranks: {}
    """Where these ranks are right now; None: no answer."""
    processes: object | None = None
    """Who makes the call, if they make the calls that they are sent in that order."""
    timeout_seconds: float = inf
    is_recorded: bool = True
    goes_first: bool = False
    """Before all that waits for its devices, planned or not."""
    in_background: bool = False
    """No iteration waits for it to end."""
    iteration: int = 0
    """Iteration of the program which made it."""
    order: tuple["Place", int] = ((0, 0.0, 0), 0)
    submitted: float = 0.0
    started: float = 0.0
    """Infinite while it waits in its processes behind another."""
    missing: set[int] = field(default_factory=set)
    arrived: "deque[tuple[int, _Outcome]]" = field(default_factory=deque)
    """Ranks whose replies have come and were not looked at yet."""
    arrivals: "count[int]" = field(default_factory=lambda: count(1))
    """Numbers them; safe to ask from any thread."""
    replies: dict[int, Reply] = field(default_factory=dict)
    future: Future[Any] | None = None


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that the plan expects in every iteration."""

    id: str
    devices: frozenset[Device]
    stage: int = 0
    """How many periods after its iteration's first calls it is made."""
    start_seconds: float = 0.0
    """From the start of that period."""


Place = tuple[int, float, int]
"""Period, seconds since its start, and the place among the iteration's calls."""


class Scheduler:
    """Starts calls and keeps their records; one for a run."""

    def __init__(
        self,
        check: Callable[[], None] = lambda: None,
        on_record: Callable[[FinishedCall], None] = lambda record: None,
    ) -> None:
        """`check` is called while something is awaited; what it raises ends the run.

        `on_record` gets every call as it ends, in the scheduler's thread: it must be quick.
        """
        self._check = check
        self._on_record = on_record
        self._lock = threading.RLock()
        self._mailbox: Mailbox[Task] = Mailbox()
        self._pending: list[Task] = []
        self._is_pumping = False
        self._running: list[Task] = []
        self._planned: dict[tuple[int, str], tuple[Place, frozenset[Device]]] = {}
        """What no program has made yet, by iteration and call."""
        self._place: dict[tuple[int, str], Place] = {}
        self._latest_place: Place = (0, 0.0, 0)
        self._iteration = 0
        self._count = 0
        self._awaited: Callable[[], bool] | None = None
        """Whether what the program waits for has come; None: it does not wait."""
        self._blames: list[tuple[Task, Blame]] = []
        self._first_blame = 0.0
        self._error: BaseException | None = None
        self._records: list[FinishedCall] = []
        self._zero = time.perf_counter()
        self._thread = threading.Thread(target=self._serve, name="scheduler", daemon=True)
        """Started by the first call: whoever makes none need not close anything."""

    # What the program and the groups use

    def seconds(self) -> float:
        """Since the scheduler was made: the clock of the records."""
        return time.perf_counter() - self._zero

    def submit(self, task: Task) -> Future[Any]:
        """Have a call made when its turn comes."""
        future: Future[Any] = Future(self)
        task.future = future
        with self._lock:
            self._raise_error()
            if not self._count:
                self._thread.start()
            self._count += 1
            task.iteration = self._iteration
            key = (task.iteration, task.name.id)
            place = self._place.get(key, self._latest_place)
            if task.goes_first:
                place = (-1, 0.0, 0)
            self._latest_place = max(self._latest_place, place)
            self._planned.pop(key, None)
            task.order, task.submitted = (place, self._count), self.seconds()
            self._pending.append(task)
            self._pending.sort(key=lambda each: each.order)
            self._pump()
        return future

    def derive(
        self, function: Callable[..., U], *inputs: Future[Any], in_background: bool = False
    ) -> Future[U]:
        """What a function of the controller makes of results; it may submit calls, not wait."""
        return self.submit(
            Task(
                name=CallName("", "controller", getattr(function, "__name__", "function")),
                devices=frozenset(),
                inputs=inputs,
                start=dict,
                finish=lambda _: function(*(each.result() for each in inputs)),
                is_recorded=False,
                in_background=in_background,
            )
        )

    def expect(self, calls: Sequence[PlannedCall], iteration: int = 0) -> None:
        """The order of an iteration's calls on shared devices, among those of other iterations.

        Calls of other names keep the order in which they are made. A planned call that the program
        has not made yet holds up later ones on its devices until `expect` is called anew for its
        iteration, or the program waits for a result that would otherwise never come.
        """
        with self._lock:
            for key in [key for key in self._planned if key[0] == iteration]:
                del self._planned[key]
            for number, call in enumerate(calls):
                place = (iteration + call.stage, call.start_seconds, number)
                self._place[iteration, call.id] = place
                self._planned[iteration, call.id] = (place, call.devices)
            self._pump()

    def enter(self, iteration: int) -> None:
        """The program of this iteration makes the calls that follow."""
        with self._lock:
            self._iteration = iteration
            self._latest_place = max(self._latest_place, (iteration, 0.0, 0))

    def leave(self, iteration: int) -> None:
        """Wait until every call of this iteration and of earlier ones has ended.

        Not for those in the background.
        """
        self._wait(lambda: not self._blames and not self._has_calls_of(iteration))
        with self._lock:
            self._place = {key: at for key, at in self._place.items() if key[0] > iteration}

    def _has_calls_of(self, iteration: int) -> bool:
        calls = (each for each in (*self._pending, *self._running) if not each.in_background)
        return any(each.iteration <= iteration for each in calls)

    def wait(self, *futures: Future[Any]) -> None:
        """Until all of them are done, or all calls if none is named."""
        self._wait(lambda: self._finished(futures))

    def _wait(self, finished: Callable[[], bool]) -> None:
        with self._lock:
            self._awaited = finished
            self._pump()
        try:
            while True:
                with self._lock:
                    self._raise_error()
                    if finished():
                        return
                    self._watch()
                task = self._mailbox.take(_POLL_SECONDS)
                if task is not None:
                    self._look_at(task)
        finally:
            self._awaited = None
            self._mailbox.leave()

    def take_records(self, iteration: int | None = None) -> list[FinishedCall]:
        """The calls that ended since the last time, in the order in which they did.

        With an iteration: its calls and those of earlier ones; later ones are kept.
        """
        with self._lock:
            records, self._records = self._records, []
            if iteration is not None:
                self._records = [each for each in records if each.iteration > iteration]
                records = [each for each in records if each.iteration <= iteration]
            return records

    def close(self, reason: BaseException | None = None) -> None:
        """Start no more calls, and forget those that wait or run."""
        with self._lock:
            self._error = self._error or reason or RunError("the run has ended")
            self._pending.clear()
            self._running.clear()
        self._mailbox.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    # The schedule

    def _pump(self) -> None:
        """Start everything whose turn has come."""
        if self._is_pumping:  # a function of the controller submits a call: the next pass sees it
            return
        self._is_pumping = True
        try:
            self._start_all()
        finally:
            self._is_pumping = False

    def _start_all(self) -> None:
        while not self._blames and not self._error and self._start_some(in_plan_order=True):
            pass
        if self._running or self._blames or self._error:
            return
        # Out of order only for a program that would wait forever, not for one that is about to
        # make the calls that the others are held up by.
        if self._awaited is not None and not self._awaited():
            self._start_some(in_plan_order=False)

    def _start_some(self, *, in_plan_order: bool) -> bool:
        """One pass over the waiting calls; True if another pass may find more."""
        passed_over: set[Device] = set()
        resolved = False
        for task in list(self._pending):
            held_up = in_plan_order and self._is_held_up(task)
            ready = not held_up and passed_over.isdisjoint(task.devices) and _inputs_done(task)
            if not ready or not self._may_send(task):
                passed_over |= task.devices
                continue
            self._pending.remove(task)
            self._start(task)
            resolved = resolved or not task.missing
            if not in_plan_order or self._blames:
                return True
        return resolved

    def _may_send(self, task: Task) -> bool:
        """Whether its devices are free, or its own processes finish but one call before it."""
        before = self._occupants(task)
        return not before or (
            len(before) == 1
            and task.processes is not None
            and before[0].processes is task.processes
        )

    def _occupants(self, task: Task) -> list[Task]:
        """The running tasks that hold the task's devices, or its process on a host."""
        return [each for each in self._running if _exclude_each_other(each, task)]

    def _is_held_up(self, task: Task) -> bool:
        return any(
            place < task.order[0] and not devices.isdisjoint(task.devices)
            for place, devices in self._planned.values()
        )

    def _start(self, task: Task) -> None:
        task.started = inf if self._occupants(task) else self.seconds()
        try:
            references = task.start()
        except Exception as error:
            self._blame(task, Blame.of_controller(task.name, error))
            return
        task.missing = set(references)
        if not references:
            self._finish(task)
            return
        self._running.append(task)
        for rank, reference in references.items():
            reference.future().add_done_callback(
                partial(self._arrived, task, rank, len(references))
            )

    def _arrived(self, task: Task, rank: int, num_ranks: int, done: _Done) -> None:
        """In a thread of Ray, which must not wait."""
        outcome: _Outcome = done.exception() or unpacked(done.result())
        task.arrived.append((rank, outcome))
        is_last = next(task.arrivals) == num_ranks
        if is_last or isinstance(outcome, BaseException) or outcome.failure is not None:
            self._mailbox.put(task)

    def _serve(self) -> None:
        while (task := self._mailbox.take_as_helper()) is not None:
            self._look_at(task)
            self._mailbox.wake()

    def _look_at(self, task: Task) -> None:
        """At the replies that have come."""
        with self._lock:
            if task not in self._running:
                return
            while task.arrived:
                self._take_outcome(task, *task.arrived.popleft())
            if not task.missing:
                self._running.remove(task)
                task.started = min(task.started, self.seconds())
                if not self._blames:
                    self._finish(task)
                for each in self._occupants(task):
                    each.started = min(each.started, self.seconds())
                self._pump()

    def _take_outcome(self, task: Task, rank: int, outcome: _Outcome) -> None:
        task.missing.discard(rank)
        if isinstance(outcome, BaseException):
            self._blame(task, Blame.of_process(task.name, rank, outcome))
            return
        task.replies[rank] = outcome
        if outcome.failure is not None:
            self._blame(task, Blame.of_rank(task.name, rank, outcome))

    def _finish(self, task: Task) -> None:
        assert task.future is not None
        try:
            value = task.finish(task.replies)
        except Exception as error:
            self._blame(task, Blame.of_controller(task.name, error))
            return
        if task.is_recorded:
            self._records.append(self._record(task, value))
            self._on_record(self._records[-1])
        task.future.resolve(value)

    def _record(self, task: Task, value: object) -> FinishedCall:
        return FinishedCall(
            name=task.name,
            devices=task.devices,
            submitted=task.submitted,
            started=task.started,
            ended=self.seconds(),
            ranks=tuple(
                FinishedRank.of(rank, reply) for rank, reply in sorted(task.replies.items())
            ),
            num_rows=value.num_rows if isinstance(value, Rows) else None,
            value=None if isinstance(value, Rows) else value,
            iteration=task.iteration,
        )

    # What ends a run

    def _finished(self, futures: Sequence[Future[Any]]) -> bool:
        if futures:
            return all(future.done() for future in futures)
        return not self._pending and not self._running and not self._blames

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _blame(self, task: Task, blame: Blame) -> None:
        if not self._blames:
            self._first_blame = time.perf_counter()
        self._blames.append((task, blame))

    def _watch(self) -> None:
        """Raise what ends the run, once it is clear what that is."""
        try:
            self._check()
            if self._blames:
                waited = time.perf_counter() - self._first_blame
                if waited > _GRACE_SECONDS or not self._awaits_explanation():
                    in_order = sorted(self._blames, key=lambda each: each[0].order)
                    raise root_cause([blame for _, blame in in_order])
            self._check_deadlines()
        except BaseException as error:
            self._error = self._error or error
            raise

    def _awaits_explanation(self) -> bool:
        """From further ranks of a call that failed, or from one that it waits behind."""
        return any(
            task is blamed or (task.order < blamed.order and _exclude_each_other(task, blamed))
            for task in self._running
            for blamed, _ in self._blames
        )

    def _check_deadlines(self) -> None:
        now = self.seconds()
        for task in list(self._running):
            if now - task.started > task.timeout_seconds:
                # Ray's threads append to them meanwhile.
                arrived = {rank for rank, _ in list(task.arrived)}
                missing = sorted(task.missing - arrived)
                raise task.name.timed_out(missing, task.timeout_seconds, task.stacks(missing))


def _exclude_each_other(one: Task, other: Task) -> bool:
    same_processes = one.processes is not None and one.processes is other.processes
    return same_processes or not one.devices.isdisjoint(other.devices)


def _inputs_done(task: Task) -> bool:
    return all(each.done() for each in task.inputs)


def value_of(value: object) -> object:
    """A future's result, anything else as it is."""
    return value.result() if isinstance(value, Future) else value
