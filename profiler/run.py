"""The profiler as a program: `python -m profiler.run --settings FILE --until-stdin-closes`.

Prints JSON lines: `{"progress": …}` as it goes on and one `{"report": …}` or `{"error": …}`.
"""

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

from executor.parent import when_stdin_closes
from profiler.errors import ProfileError
from profiler.output import reserved_stdout
from profiler.report import Progress
from profiler.session import profile
from profiler.settings import ProfileSettings

EXIT_REFUSED = 2
EXIT_CANCELLED = 130


def main() -> int:
    """Measure what the settings ask for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profiler.run")
    parser.add_argument("--settings", type=Path, required=True)
    parser.add_argument("--until-stdin-closes", action="store_true")
    arguments = parser.parse_args()
    if arguments.until_stdin_closes:
        when_stdin_closes(lambda: os._exit(EXIT_CANCELLED))
    out = reserved_stdout()

    def tell(kind: str, document: object) -> None:
        out.write(json.dumps({kind: document}) + "\n")
        out.flush()

    def tell_progress(progress: Progress) -> None:
        tell("progress", progress.model_dump(mode="json"))

    text = arguments.settings.read_text(encoding="utf-8")
    try:
        report = profile(ProfileSettings.model_validate_json(text), tell_progress)
    except ProfileError as error:
        tell("error", {"headline": error.headline, "lines": error.lines})
        return EXIT_REFUSED
    tell("report", report.model_dump(mode="json"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
