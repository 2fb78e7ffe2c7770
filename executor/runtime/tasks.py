"""A call on its way, and the future of its result."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import ray

from automap.executor.runtime.blame import CallName
from automap.executor.runtime.placement import Device
from automap.executor.runtime.plan_order import Place
from automap.executor.workers.process import Reply

if TYPE_CHECKING:
    from automap.executor.runtime.scheduler import Scheduler

T = TypeVar("T")
U = TypeVar("U")
Outcome = Reply | BaseException
"""What came back from a rank."""


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
    start: Callable[[], Mapping[int, "ray.ObjectRef[Reply | bytes] | Reply"]]
    """Calls the processes; the reference to each rank's reply, or the reply itself."""
    finish: Callable[[Mapping[int, Reply]], object]
    """The result, from the replies; of a call in rounds, from those of the last."""
    again: Callable[[Mapping[int, Reply]], Mapping[int, "ray.ObjectRef[Reply | bytes]"]] | None = (
        None
    )
    """For a call in rounds, which keeps its devices between them: what the replies of a round lead
    to; nothing after the last."""
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
    order: tuple[Place, int] = ((0, 0.0, 0), 0)
    submitted: float = 0.0
    started: float = 0.0
    """Infinite while it waits in its processes behind another."""
    missing: set[int] = field(default_factory=set)
    arrived: "deque[tuple[int, Outcome]]" = field(default_factory=deque)
    """Ranks whose replies have come and were not looked at yet."""
    replies: dict[int, Reply] = field(default_factory=dict)
    """This round's, by rank."""
    totals: dict[int, Reply] = field(default_factory=dict)
    """Replies by rank, with what earlier rounds took."""
    future: Future[Any] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether its inputs are there."""
        return all(each.done() for each in self.inputs)

    def excludes(self, other: "Task") -> bool:
        """Whether one of the two must have ended before the other can run."""
        same_processes = self.processes is not None and self.processes is other.processes
        return same_processes or not self.devices.isdisjoint(other.devices)


def value_of(value: object) -> object:
    """A future's result, anything else as it is."""
    return value.result() if isinstance(value, Future) else value
