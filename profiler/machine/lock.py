"""One profile at a time on a device and in a folder: locks that end with the process.

Not filelock's: it opens the file for writing, so a second user of the machine could not lock the
file that a first one made. Here a file that may be read may be locked.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from automap.profiler.errors import ProfileError

FOLDER_FILE = ".lock"
FOLDER_VARIABLE = "AUTOMAP_LOCK_FOLDER"
"""For jobs whose folder of temporary files is not that of all who measure on the machine."""
LOOK_SECONDS = 0.2


@contextmanager
def device_lock(
    keys: Sequence[str], *, folder: Path | None = None, wait_seconds: float = 0.0
) -> Iterator[None]:
    """Hold every device named, or none; wait so long at most for those who hold one to end.

    Raises:
        ProfileError: another profile is being measured on one of them, or its lock is not ours to
            open.
    """
    deadline = time.monotonic() + wait_seconds
    place = folder or Path(os.environ.get(FOLDER_VARIABLE) or tempfile.gettempdir())
    with ExitStack() as stack:
        for key in keys:
            path = place / f"automap-profile-{key}.lock"
            try:
                descriptor = _opened(path)
            except OSError as error:
                raise ProfileError(
                    f"cannot open the lock {path}: {error.strerror or error}",
                    [
                        "remove that file while nobody measures, or set "
                        f"{FOLDER_VARIABLE} to another folder"
                    ],
                ) from None
            stack.callback(os.close, descriptor)
            _hold(descriptor, f"on {key}", deadline)
        yield


@contextmanager
def folder_lock(folder: Path, *, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold a folder that a profile is written to; wait likewise.

    Raises:
        ProfileError: another profile is being measured into it.
    """
    with (folder / FOLDER_FILE).open("ab") as file:
        _hold(file.fileno(), f"into {folder}", time.monotonic() + wait_seconds)
        yield


def _opened(path: Path) -> int:
    """A file, made if need be. Whoever made it, everybody may lock it: to lock is not to write."""
    while True:
        try:
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:  # made by another just now
            continue
        os.fchmod(descriptor, 0o644)  # whatever the umask
        return descriptor


def _hold(descriptor: int, where: str, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(LOOK_SECONDS)
                continue
            raise ProfileError(
                f"another profile is being measured {where}, and each would disturb the other",
                ["wait until it is done, or end it"],
            ) from None
        return
