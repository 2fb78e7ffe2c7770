"""What can go wrong with a checkpoint."""

from automap.executor.errors import RunError


class CheckpointError(RunError):
    """A checkpoint cannot be written or read; the message names file and cause."""


def os_error_behind(error: BaseException) -> OSError | None:
    """The failure of the system, if one is the cause; libraries hide it behind their own."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None
