"""The profiler as a job on a Ray cluster: `python -m automap.profiler.job --settings FILE`.

Tells what it does as the executor does (docs/guides/running.md): marked events on stdout,
`progress`, a `profile` for each kind of node that is measured, and in the end `finished` with the
report, `failed` with the cause, or both where a part of the cluster could not be measured. Ends
with 0, 1 (failed), 2 (refused before anything was measured), or 130 (cancelled).
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from automap.executor.telemetry.events import Events
from automap.profiler.cluster.ray_cluster import profile_cluster
from automap.profiler.errors import NodeLostError, ProfileError
from automap.profiler.machine import fingerprint
from automap.profiler.results.journal import FILE as MEASUREMENTS
from automap.profiler.results.profile_report import KindReport, Progress
from automap.profiler.settings import ProfileSettings

EXIT_FAILED, EXIT_REFUSED, EXIT_CANCELLED = 1, 2, 130
REPORT_SECONDS = 1.0
"""Between two events of progress in one table."""


class Reporter:
    """Reports how far each table is, at most once a second, and each kind of node when done."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._reported: dict[str, float] = {}
        self._lock = threading.Lock()  # kinds are measured side by side

    def progress(self, reached: Progress) -> None:
        """The first and the last of each table, and one a second between."""
        now = time.monotonic()
        with self._lock:
            recent = now - self._reported.get(reached.table, -REPORT_SECONDS) < REPORT_SECONDS
            if recent and reached.done < reached.wanted:
                return
            self._reported[reached.table] = now
        self._events.send("progress", **reached.model_dump(mode="json"))

    def profile(self, kind: KindReport) -> None:
        """All that was measured on a kind of node, for whoever keeps profiles."""
        folder = Path(kind.profile.folder)
        lines = (folder / MEASUREMENTS).read_text(encoding="utf-8").splitlines()
        measured = [each for line in lines if "failed" not in (each := json.loads(line))]
        identity = json.loads((folder / fingerprint.FILE).read_text(encoding="utf-8"))
        self._events.send(
            "profile",
            pool=kind.name,
            nodes=kind.nodes,
            fingerprint=identity,
            measurements=measured,
        )


def main() -> int:
    """Measure what the settings ask for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m automap.profiler.job")
    parser.add_argument("--settings", type=Path, required=True)
    given = parser.parse_args()
    events = Events()
    _cancel_on_signals()
    text = given.settings.read_text(encoding="utf-8")
    settings = ProfileSettings.model_validate_json(text)
    reporter = Reporter(events)
    try:
        events.send("state", state="looking at the nodes")
        report = profile_cluster(settings, reporter.progress, measured=reporter.profile)
    except ProfileError as error:
        refused = not isinstance(error, NodeLostError)
        _report_failure(events, [error.headline, *error.lines], "bad_input" if refused else "lost")
        return EXIT_REFUSED if refused else EXIT_FAILED
    events.send("finished", report=report.model_dump(mode="json"))
    if report.failures:
        _report_failure(events, report.failures, "lost")
        return EXIT_FAILED
    return 0


def _report_failure(events: Events, lines: list[str], kind: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    events.send("failed", cause="; ".join(lines), kind=kind)


def _cancel_on_signals() -> None:
    def cancel(*_: object) -> None:
        # What runs on the nodes ends with us; what it has measured is in its folder.
        os.write(1, b"cancelled\n")
        os._exit(EXIT_CANCELLED)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, cancel)


if __name__ == "__main__":
    sys.exit(main())
