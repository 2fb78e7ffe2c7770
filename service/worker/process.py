"""The worker that `automap serve --with-worker` starts beside the API: a process of its own."""

import importlib.util
import logging
import os
import subprocess
import sys
import threading

from automap.service.settings import SECRETS_FOLDER, Settings

log = logging.getLogger(__name__)

RESTART_SECONDS = 2.0
END_SECONDS = 30.0


class WorkerProcess:
    """Starts a worker, and another when it dies; it ends itself when this process is gone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_running, name="worker", daemon=True)

    def start(self) -> None:
        """Begin, unless nothing could be submitted from here."""
        if importlib.util.find_spec("ray") is None:
            log.warning("Ray is not installed: jobs wait until an `automap worker` takes them")
            return
        self._thread.start()

    def stop(self) -> None:
        """Let it go of its jobs and end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * END_SECONDS)

    def _keep_running(self) -> None:
        while not self._stopping.is_set():
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "automap.service.cli.main",
                    "worker",
                    "--until-stdin-closes",
                ],
                stdin=subprocess.PIPE,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C is for us, and we tell it
            )
            while process.poll() is None and not self._stopping.wait(0.2):
                pass
            if self._stopping.is_set():
                self._end(process)
                return
            log.error("the worker ended with status %s; starting another", process.returncode)
            self._stopping.wait(RESTART_SECONDS)

    def _environment(self) -> dict[str, str]:
        """Ours, without the keys of the API: no worker needs them, and jobs run as its user.

        Nor does it get the folder of secrets, which has them too, and whose database would win.
        """
        kept = ("AUTOMAP_API_KEYS", SECRETS_FOLDER)
        given = {name: value for name, value in os.environ.items() if name not in kept}
        return given | {"AUTOMAP_DATABASE_URL": self._settings.database_url}

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
