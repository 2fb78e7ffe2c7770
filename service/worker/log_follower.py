"""Reads what a Ray job prints in a thread of its own, so that silence holds up nothing."""

import asyncio
import queue
import threading
from contextlib import suppress

from automap.service.worker.ray_jobs import RayJob, RayJobs, RayUnavailableError


class LogFollower:
    """The output of one job from a byte on, piece by piece."""

    def __init__(self, ray: RayJobs, submission_id: str, job: RayJob, *, skip: int) -> None:
        self._ray = ray
        self._submission_id = submission_id
        self._job = job
        self._skip = skip
        self._pieces: queue.SimpleQueue[bytes | RayUnavailableError] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._reading = self._loop.create_task(self._read())
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def take(self, *, seconds: float) -> bytes:
        """All that has come by now, after waiting for something for so long at most.

        Raises:
            RayUnavailableError: the log cannot be followed any more; follow it anew.
        """
        taken = bytearray()
        while True:
            try:
                piece = self._pieces.get(timeout=0 if taken else seconds)
            except queue.Empty:
                return bytes(taken)
            if isinstance(piece, RayUnavailableError):
                if taken:  # told the next time
                    self._pieces.put(piece)
                    return bytes(taken)
                raise piece
            taken += piece

    def close(self) -> None:
        """Stop reading, if that has not ended by itself."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._reading.cancel)
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._reading)
        except asyncio.CancelledError:
            pass
        except RayUnavailableError as error:
            self._pieces.put(error)
        finally:
            self._loop.close()

    async def _read(self) -> None:
        async for piece in self._ray.follow(self._submission_id, self._job, skip=self._skip):
            self._pieces.put(piece)
        raise RayUnavailableError("the log ended")
