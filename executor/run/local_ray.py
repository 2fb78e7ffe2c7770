"""A Ray on this machine, also where others keep the machine busy."""

from typing import Any

import psutil
import ray

STARTS = 4
"""Ray's node ends where its agents, three Python processes, are not there in 15 seconds. On a busy
machine they may need longer; the next time what they import is in memory."""
_OUT_OF_TIME = "timed out during startup"


def start_ray(**options: Any) -> None:
    """Start a local Ray, again if its processes were not up in Ray's own time; see `ray.init`.

    Raises:
        Exception: as Ray said it; it has no common class. Nothing of it is left running.
    """
    for left in reversed(range(STARTS)):
        others = psutil.Process().children(recursive=True)
        try:
            ray.init(address="local", include_dashboard=False, **options)
            return
        except Exception as error:
            ray.shutdown()
            for process in psutil.Process().children(recursive=True):
                if process not in others:  # Ray forgets those of a start that failed
                    _end(process)
            if not left or _OUT_OF_TIME not in str(error):
                raise


def _end(process: psutil.Process) -> None:
    try:
        process.kill()
        process.wait(10)
    except psutil.Error:  # it has gone since
        pass
