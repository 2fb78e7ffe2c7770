"""What went wrong in calls, and from when on it is clear what ends the run."""

import time
from collections.abc import Sequence

from automap.executor.runtime.blame import Blame, root_cause
from automap.executor.runtime.tasks import Task

_GRACE_SECONDS = 1.0
"""After a first failure others may follow that explain it: a death after a lost connection."""


class Failures:
    """Calls that failed, in the order in which that became known; false while there are none."""

    def __init__(self) -> None:
        self._blames: list[tuple[Task, Blame]] = []
        self._first = 0.0

    def __bool__(self) -> bool:
        return bool(self._blames)

    def add(self, task: Task, blame: Blame) -> None:
        """A call has failed."""
        if not self._blames:
            self._first = time.perf_counter()
        self._blames.append((task, blame))

    def raise_cause(self, running: Sequence[Task]) -> None:
        """Raise what ends the run, if something does and no running call may yet explain it."""
        if not self._blames:
            return
        waited = time.perf_counter() - self._first
        if waited > _GRACE_SECONDS or not self._awaits_explanation(running):
            in_order = sorted(self._blames, key=lambda each: each[0].order)
            raise root_cause([blame for _, blame in in_order])

    def _awaits_explanation(self, running: Sequence[Task]) -> bool:
        """From further ranks of a call that failed, or from one that it waits behind."""
        return any(
            task is blamed or (task.order < blamed.order and task.excludes(blamed))
            for task in running
            for blamed, _ in self._blames
        )


def raise_overdue(running: Sequence[Task], now: float) -> None:
    """Raise what ends the run where a call takes longer than it may."""
    for task in running:
        if now - task.started > task.timeout_seconds:
            # Ray's threads append to them meanwhile.
            arrived = {rank for rank, _ in list(task.arrived)}
            missing = sorted(task.missing - arrived)
            raise task.name.timed_out(missing, task.timeout_seconds, task.stacks(missing))
