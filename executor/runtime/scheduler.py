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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from math import inf
from typing import Any, TypeVar

import ray

from automap.executor.errors import RunError
from automap.executor.runtime.blame import Blame, CallName
from automap.executor.runtime.failures import Failures, raise_overdue
from automap.executor.runtime.finished_calls import FinishedCall, FinishedRank
from automap.executor.runtime.mailbox import Mailbox
from automap.executor.runtime.placement import Device
from automap.executor.runtime.plan_order import PlannedCall, PlanOrder
from automap.executor.runtime.tasks import Future, Outcome, Task
from automap.executor.workers.process import Reply, unpacked
from automap.executor.workers.row_references import Rows

U = TypeVar("U")

_Done = concurrent.futures.Future[Reply | bytes]
_POLL_SECONDS = 0.1


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
        self._order = PlanOrder()
        self._count = 0
        self._awaited: Callable[[], bool] | None = None
        """Whether what the program waits for has come; None: it does not wait."""
        self._failures = Failures()
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
            task.iteration = self._order.iteration
            place = self._order.take(task.name.id, goes_first=task.goes_first)
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
            self._order.expect(calls, iteration)
            self._pump()

    def enter(self, iteration: int) -> None:
        """The program of this iteration makes the calls that follow."""
        with self._lock:
            self._order.enter(iteration)

    def leave(self, iteration: int) -> None:
        """Wait until every call of this iteration and of earlier ones has ended.

        Not for those in the background.
        """
        self._wait(lambda: not self._failures and not self._has_calls_of(iteration))
        with self._lock:
            self._order.leave(iteration)

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
        while not self._failures and not self._error and self._start_some(in_plan_order=True):
            pass
        if self._running or self._failures or self._error:
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
            held_up = in_plan_order and self._order.holds_up(task.order[0], task.devices)
            ready = not held_up and passed_over.isdisjoint(task.devices) and task.is_ready
            # What the controller makes comes first: an earlier call may be waiting for it.
            too_early = resolved and task.processes is not None
            if not ready or too_early or not self._may_send(task):
                passed_over |= task.devices
                continue
            self._pending.remove(task)
            self._start(task)
            resolved = resolved or not task.missing
            if not in_plan_order or self._failures:
                return True
        return resolved

    def _may_send(self, task: Task) -> bool:
        """Whether its devices are free, or its own processes finish but one call before it."""
        before = self._occupants(task)
        return not before or (
            len(before) == 1
            and task.processes is not None
            and before[0].processes is task.processes
            and before[0].again is None  # it would come between two of its rounds
            and task.again is None  # what its first round does may depend on what ends before
        )

    def _occupants(self, task: Task) -> list[Task]:
        """The running tasks that hold the task's devices, or its process on a host."""
        return [each for each in self._running if each.excludes(task)]

    def _start(self, task: Task) -> None:
        begun = self.seconds()
        task.started = inf if self._occupants(task) else begun
        try:
            references = task.start()
        except Exception as error:
            self._failures.add(task, Blame.of_controller(task.name, error))
            return
        for rank, reply in references.items():
            if isinstance(reply, Reply):
                self._take_outcome(task, rank, reply)
        awaited = {rank: each for rank, each in references.items() if not isinstance(each, Reply)}
        if awaited:
            self._running.append(task)
            self._await(task, awaited)
            return
        task.started = begun
        if not self._failures:
            self._finish(task)

    def _await(self, task: Task, references: Mapping[int, "ray.ObjectRef[Reply | bytes]"]) -> None:
        task.missing = set(references)
        arrivals = count(1)  # asked from any thread
        for rank, reference in references.items():
            reference.future().add_done_callback(
                partial(self._arrived, task, rank, arrivals, len(references))
            )

    def _arrived(
        self, task: Task, rank: int, arrivals: "count[int]", num_ranks: int, done: _Done
    ) -> None:
        """In a thread of Ray, which must not wait."""
        outcome: Outcome = done.exception() or unpacked(done.result())
        task.arrived.append((rank, outcome))
        is_last = next(arrivals) == num_ranks
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
            if not task.missing and not self._goes_on(task):
                self._running.remove(task)
                task.started = min(task.started, self.seconds())
                if not self._failures:
                    self._finish(task)
                for each in self._occupants(task):
                    each.started = min(each.started, self.seconds())
            if not task.missing or task.again is not None:  # a round may have resolved futures
                self._pump()

    def _goes_on(self, task: Task) -> bool:
        """Begin the next round of a call, if it has one."""
        if task.again is None or self._failures:
            return False
        try:
            references = task.again(task.replies)
        except Exception as error:
            self._failures.add(task, Blame.of_controller(task.name, error))
            return False
        if references:
            task.replies = {}
            self._await(task, references)
        return bool(references)

    def _take_outcome(self, task: Task, rank: int, outcome: Outcome) -> None:
        task.missing.discard(rank)
        if isinstance(outcome, BaseException):
            self._failures.add(task, Blame.of_process(task.name, rank, outcome))
            return
        task.replies[rank] = outcome
        task.totals[rank] = outcome.after(task.totals.get(rank))
        if outcome.failure is not None:
            self._failures.add(task, Blame.of_rank(task.name, rank, outcome))

    def _finish(self, task: Task) -> None:
        assert task.future is not None
        try:
            value = task.finish(task.replies)
        except Exception as error:
            self._failures.add(task, Blame.of_controller(task.name, error))
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
                FinishedRank.of(rank, reply) for rank, reply in sorted(task.totals.items())
            ),
            num_rows=value.num_rows if isinstance(value, Rows) else None,
            value=None if isinstance(value, Rows) else value,
            iteration=task.iteration,
        )

    # What ends a run

    def _finished(self, futures: Sequence[Future[Any]]) -> bool:
        if futures:
            return all(future.done() for future in futures)
        return not self._pending and not self._running and not self._failures

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _watch(self) -> None:
        """Raise what ends the run, once it is clear what that is."""
        try:
            self._check()
            self._failures.raise_cause(self._running)
            raise_overdue(list(self._running), self.seconds())
        except BaseException as error:
            self._error = self._error or error
            raise
