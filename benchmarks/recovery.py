"""What a kill -9 costs a run: seconds, iterations done again, and whether anything came out else.

    python -m benchmarks.recovery [--jobs synchronous overlapping continuous] [--victims NAME …]

The tiny GRPO job (`benchmarks.asynchronous` has the three ways it runs), with a checkpoint after
every third of eight iterations. In a run for each victim one process is killed while the sixth is
under way: a worker, from the one with most memory to the one with least (functions, numeric steps),
or the controller. Columns:

back after      From the kill until an iteration is done again: noticing it, ending the other
                processes, new ones with their imports, the checkpoint, and the iteration.
done again      Iterations that were done before the restart and are not in the checkpoint.
steps once      Whether the metrics have each iteration once, in order.
same weights    Whether the final weights are, byte for byte, those of an undisturbed run. Two
                continuous runs never have the same: weights do not come at the same token.
finished again  Responses that were on the disk at the kill and were generated once more, of how
                many there were: of continuous runs, the only ones that keep them.
"""

import argparse
import json
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from automap.executor.settings import RunSettings
from automap.planner.plan.types import Plan
from benchmarks.asynchronous import CORRECTIONS, SYNCHRONOUS, job
from tests.executor.run.run_process import RunProcess

JOBS = {
    "synchronous": SYNCHRONOUS,
    "overlapping": CORRECTIONS[0],
    "continuous": "continuous, staleness 1",
}
CONTROLLER = "the controller"
VICTIMS = {"the largest worker": 0, "the second": 1, "the smallest": -1, CONTROLLER: None}
ITERATIONS, SAVED_EVERY, KILLED_IN = 8, 3, 6
MOST_SECONDS = 900.0
"""Of a run until the kill, and from there to its end."""


def planned(name: str) -> tuple[Plan, RunSettings]:
    """One of the jobs; all of its checkpoints are kept, and with them what was finished."""
    plan, settings = job(JOBS[name], seed=0, iterations=ITERATIONS)
    checkpoint = {"every_iterations": SAVED_EVERY, "keep_last": ITERATIONS}
    kept = settings.checkpoint.model_copy(update=checkpoint)
    return plan, settings.model_copy(update={"checkpoint": kept})


def disturbed(name: str, victim: str, folder: Path) -> dict[str, Any]:
    """A run of which one process is killed; what the columns say of it."""
    run = started(name, folder, by_command=victim == CONTROLLER)
    place = VICTIMS[victim]
    try:
        run.wait_until(
            lambda: any(call["iteration"] >= KILLED_IN for call in run.events("call")),
            seconds=MOST_SECONDS,
        )
        pid = run.controllers()[0] if place is None else run.workers()[place]
        os.kill(pid, signal.SIGKILL)
        killed, on_disk = time.time(), finished(folder)
        ended(run)
    finally:
        run.kill_all()
    # What was under way and did not need the process may still have ended before the restart.
    restarts = [unix_time(each) for each in run.events("log") if "restart" in each]
    iterations = run.events("iteration")
    again = [each for each in iterations if unix_time(each) > min(restarts, default=killed)]
    steps = [int(each["training/global_step"]) for each in run.metrics()]
    by_attempt = finished(folder)
    later = [request for file in by_attempt.keys() - on_disk for request in by_attempt[file]]
    before = {request for requests in on_disk.values() for request in requests}
    return {
        "back_seconds": unix_time(again[0]) - killed,
        "again": len(iterations) - len(again) + 1 - int(again[0]["iteration"]),
        "once": steps == list(range(1, ITERATIONS + 1)),
        "weights": weights(folder),
        "finished": len(before),
        "finished_again": len(before.intersection(later)),
    }


def started(name: str, folder: Path, *, by_command: bool = False) -> RunProcess:
    plan, settings = planned(name)
    return RunProcess(plan, settings.model_dump(mode="json"), folder, by_command=by_command)


def ended(run: RunProcess) -> None:
    """Wait for a run; RuntimeError with the end of its log if it fails."""
    if run.end(seconds=MOST_SECONDS) != 0:
        raise RuntimeError(run.log())


def unix_time(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()


def weights(folder: Path) -> bytes:
    return (folder / "actor" / "model.safetensors").read_bytes()


def finished(folder: Path) -> dict[str, list[int]]:
    """File of an attempt's process → requests whose responses it has put on the disk."""
    found: dict[str, list[int]] = {}
    for file in (folder / "checkpoints" / "responses").rglob("*.jsonl"):
        whole = file.read_text().split("\n")[:-1]  # a kill may have cut the last line
        requests = [json.loads(line)["request"] for line in whole]
        found.setdefault(file.name, []).extend(requests)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    parser.add_argument("--jobs", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--victims", nargs="+", choices=list(VICTIMS), default=list(VICTIMS))
    given = parser.parse_args(arguments)
    headers = ("back after", "done again", "steps once", "same weights", "finished again")
    table = Table("job", "killed", *headers)
    with tempfile.TemporaryDirectory() as root:
        for name in given.jobs:
            undisturbed = None
            if name != "continuous":
                ended(started(name, Path(root, name)))
                undisturbed = weights(Path(root, name))
            for number, victim in enumerate(given.victims):
                found = disturbed(name, victim, Path(root, f"{name}-{number}"))
                kept = found["finished"]
                row = (
                    f"{found['back_seconds']:.0f} s",
                    str(found["again"]),
                    _yes(found["once"]),
                    "" if undisturbed is None else _yes(found["weights"] == undisturbed),
                    f"{found['finished_again']} of {kept}" if kept else "",
                )
                print(f"{name}, {victim}: {', '.join(filter(None, row))}", flush=True)
                table.add_row(name, victim, *row)
    Console(width=120).print(table)


def _yes(is_true: bool) -> str:
    return "yes" if is_true else "NO"


if __name__ == "__main__":
    main()
