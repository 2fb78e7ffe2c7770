"""What can end a run, each with the cause in words: role, call and ranks where there are any."""

from collections.abc import Sequence


class RunError(Exception):
    """A run cannot go on; the message says why."""


class PlacementError(RunError):
    """The Ray cluster cannot hold the plan, or not within the time given."""


class StartError(RunError):
    """A worker process could not be started or joined to the others."""


class CallError(RunError):
    """A call to workers has no result.

    Attributes:
        role: Whose workers; for a second copy of a model `role` still names the role.
        method: What was called.
        ranks: The ranks to blame, counted within the copy's processes.
    """

    def __init__(self, message: str, *, role: str, method: str, ranks: Sequence[int]) -> None:
        super().__init__(message)
        self.role = role
        self.method = method
        self.ranks = tuple(ranks)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), str(self), self.role, self.method, self.ranks)


class CallFailedError(CallError):
    """The method raised on a rank, or its arguments could not be distributed."""


class CallTimeoutError(CallError):
    """The call did not come back in time from `ranks`."""


class WorkerDiedError(CallError):
    """The processes of `ranks` ended during the call, or before it."""


class RunCancelledError(RunError):
    """Someone asked for the run to stop."""


def _rebuilt(
    kind: type[CallError], message: str, role: str, method: str, ranks: tuple[int, ...]
) -> CallError:
    """For pickle, which calls an exception's class with its message alone."""
    return kind(message, role=role, method=method, ranks=ranks)
