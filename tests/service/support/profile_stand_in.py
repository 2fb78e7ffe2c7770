"""Stands in for `python -m automap.profiler.job` at the process boundary of docs/guides/running.md.

It takes the same settings, prints the same events and ends with the same exit codes, but measures
nothing. `ranks` of its settings says how it behaves:

    1  measures a kind and is done      2  kills itself in the middle, unless it goes on
    3  waits to be ended                4  exit 2 before anything is measured
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
from automap.executor.telemetry.events import Events
from tests.service.support.measured_jobs import finished_measurement, measured_kind, progress


def told(event: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in event.items() if name != "type"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", type=Path, required=True)
    settings = json.loads(parser.parse_args().settings.read_text())
    folder, events = Path(settings["output"]), Events()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    if settings["ranks"] == 4:
        events.send("failed", cause="no node has a cuda device to measure", kind="bad_input")
        sys.exit(2)
    went_on = folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "starts").open("a") as starts:
        starts.write(f"{os.getpid()} {settings['ray_address']} {settings['wait_seconds']}\n")
    events.send("progress", **told(progress(done=5 if went_on else 2)))
    if settings["ranks"] == 2 and not went_on:
        os.kill(os.getpid(), signal.SIGKILL)
    while settings["ranks"] == 3:
        time.sleep(0.05)
    events.send("profile", **told(measured_kind(torch=folder.name)))
    events.send("finished", **told(finished_measurement("cpu")))


if __name__ == "__main__":
    main()
