"""The folder that everything under test writes to, and how it is made full."""

import errno
import os
import resource
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_CHUNK = 2**20


class Disk(Protocol):
    how: str

    def be_full(self, processes: Iterable[int], seconds: float) -> None:
        """Let nothing more be written for so long."""
        ...

    def close(self) -> None:
        """Give it back; fails where something still uses it."""
        ...


class Mounted:
    """A small file system of our own, filled to its last byte."""

    def __init__(self, folder: Path, *, mebibytes: int) -> None:
        self._folder = folder
        self.how = f"tmpfs of {mebibytes} MiB"
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=755", "none", folder],
            check=True,
            capture_output=True,
        )

    def be_full(self, processes: Iterable[int], seconds: float) -> None:
        filler = self._folder / "filler"
        handle = os.open(filler, os.O_CREAT | os.O_WRONLY)
        try:
            deadline = time.monotonic() + seconds
            size = _CHUNK
            while time.monotonic() < deadline:
                try:
                    os.write(handle, bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    # What others give back in the meantime is taken, too.
                    size = max(size // 2, 1)
                    time.sleep(0.01)
        finally:
            os.close(handle)
            filler.unlink()

    def close(self) -> None:
        # Lazily: where the run is interrupted, processes that were ended may still hold files.
        subprocess.run(["umount", "--lazy", self._folder], check=True)


class Limited:
    """Where nobody may mount: the processes may make no file larger (RLIMIT_FSIZE)."""

    how = "RLIMIT_FSIZE"

    def be_full(self, processes: Iterable[int], seconds: float) -> None:
        limited = list(processes)
        for process in limited:
            self._limit(process, 1)
        time.sleep(seconds)
        for process in limited:
            self._limit(process, resource.RLIM_INFINITY)

    @staticmethod
    def _limit(process: int, most: int) -> None:
        with suppress(ProcessLookupError):
            _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
            resource.prlimit(process, resource.RLIMIT_FSIZE, (most, hard))

    def close(self) -> None:
        """Nothing was taken."""


def disk_at(folder: Path, *, mebibytes: int) -> Disk:
    try:
        return Mounted(folder, mebibytes=mebibytes)
    except (OSError, subprocess.CalledProcessError):
        return Limited()
