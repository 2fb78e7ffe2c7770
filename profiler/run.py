"""The profiler as a program: `python -m automap.profiler.run --settings FILE --until-stdin-closes`.

Prints JSON lines: `{"progress": …}` as it goes on and one `{"report": …}` or `{"error": …}`.
"""

import argparse
import json
import os
import sys
import threading
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

from automap.executor.run.parent import when_stdin_closes
from automap.profiler.errors import ProfileError
from automap.profiler.measure.reserved_stdout import reserved_stdout
from automap.profiler.results.profile_report import ClusterReport, ProfileReport, Progress
from automap.profiler.session import Listener, profile
from automap.profiler.settings import ProfileSettings

EXIT_REFUSED = 2
EXIT_CANCELLED = 130


def main() -> int:
    """Measure what the settings ask for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m automap.profiler.run")
    parser.add_argument("--settings", type=Path, required=True)
    parser.add_argument("--until-stdin-closes", action="store_true")
    arguments = parser.parse_args()
    if arguments.until_stdin_closes:
        when_stdin_closes(lambda: os._exit(EXIT_CANCELLED))
    out = reserved_stdout()

    sending = threading.Lock()

    def send(kind: str, document: object) -> None:
        with sending:  # nodes of a cluster are measured side by side
            out.write(json.dumps({kind: document}) + "\n")
            out.flush()

    def send_progress(progress: Progress) -> None:
        send("progress", progress.model_dump(mode="json"))

    text = arguments.settings.read_text(encoding="utf-8")
    settings = ProfileSettings.model_validate_json(text)
    try:
        report = _profile(settings, send_progress)
    except ProfileError as error:
        send("error", {"headline": error.headline, "lines": error.lines})
        return EXIT_REFUSED
    send("report", report.model_dump(mode="json"))
    return 0


def _profile(settings: ProfileSettings, listener: Listener) -> ProfileReport | ClusterReport:
    if settings.ray_address is None:
        return profile(settings, listener)
    from automap.profiler.cluster.ray_cluster import profile_cluster  # Ray takes a second to import

    return profile_cluster(settings, listener)


if __name__ == "__main__":
    sys.exit(main())
