"""One profile at a time on a device: a lock that ends with the process, however it ends."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from profiler.errors import ProfileError


@contextmanager
def device_lock(keys: Sequence[str], *, folder: Path | None = None) -> Iterator[None]:
    """Hold every device named, or none.

    Raises:
        ProfileError: another profile is being measured on one of them.
    """
    place = folder or Path(tempfile.gettempdir())
    with ExitStack() as stack:
        for key in keys:
            path = place / f"automap-profile-{key}.lock"
            # Whoever made the file, everybody may lock it: to lock is not to write.
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ProfileError(
                    f"another profile is being measured on {key}, and each would disturb the other",
                    ["wait until it is done, or end it"],
                ) from None
        yield
