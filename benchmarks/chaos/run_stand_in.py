"""Stands in for `python -m automap.executor.run` at the process boundary of docs/guides/running.md.

It takes the same arguments, prints the same marked events and ends with the same exit codes, but
trains nothing. How it behaves is the stem of the prompts' file name in its settings:

    ok        the iterations, as fast as it can, then a report
    paced     ok, with a tenth of a second for every iteration
    held      waits after three iterations for a file `go` in its folder
    stubborn  held, and deaf to SIGTERM
    refuse    exit 2            fail      exit 1 after one iteration
    die       kills itself in the second iteration, unless it resumes; leaves half a line
    noisy     ok, with everything around it that output can hold
    mute      exit 0 without a report

Where the environment names an AUTOMAP_CHAOS_JOURNAL it tells there that it runs, and numbers its
events, so that others can say whether a job ever ran twice at the same time, and whether all that
it printed was kept, once.
"""

import argparse
import fcntl
import json
import os
import shutil
import signal
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

MARK = "AUTOMAP-EVENT "
JOURNAL = os.environ.get("AUTOMAP_CHAOS_JOURNAL")
PACE_SECONDS = 0.1
_numbers = count(1)


def say(folder: Path, **event: Any) -> None:
    if JOURNAL:
        note(folder, "lives")
        event |= {"printed_by": os.getpid(), "number": next(_numbers)}
    line = json.dumps(event)
    with (folder / "events.jsonl").open("a") as file:
        file.write(line + "\n")
    sys.stdout.write(f"{MARK}{line}\n")
    sys.stdout.flush()


def note(folder: Path, what: str) -> None:
    """A line of the journal: written at once and whole, also beside other runs."""
    entry = {"job": folder.name, "process": os.getpid(), "what": what, "at": time.monotonic()}
    journal = os.open(str(JOURNAL), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(journal, json.dumps(entry).encode() + b"\n")
    os.close(journal)


def end_with_parent() -> None:
    """End at once when standard input ends, as it does when whoever holds it dies."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def locked(folder: Path) -> Any:
    """Never two runs in one folder: the second would spoil what the first writes."""
    file = (folder / "run.lock").open("w")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def iterate(folder: Path, mode: str, calls: list[str], iterations: int) -> None:
    state = folder / "checkpoint"
    first = int(state.read_text()) if state.exists() else 0
    for iteration in range(first + 1, iterations + 1):
        while mode in ("held", "stubborn") and iteration > 3 and not (folder / "go").exists():
            time.sleep(0.05)
        if mode == "paced":
            time.sleep(PACE_SECONDS)
        for index, call in enumerate(calls):
            seconds = 0.01 * (index + 1)
            say(folder, type="call", call=call, iteration=iteration, seconds=seconds, bytes=1024)
        if mode == "die" and iteration == 2 and first == 0:
            os.write(1, b'AUTOMAP-EVENT {"type": "iter')
            os.kill(os.getpid(), signal.SIGKILL)
        # Whole or not at all, as checkpoints are: it may be killed at any time.
        (folder / "checkpoint.new").write_text(str(iteration))
        (folder / "checkpoint.new").replace(state)
        checkpoint = folder / "checkpoints" / f"iteration-{iteration:06}"
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / "manifest.json").write_text("{}")
        say(
            folder,
            type="metrics",
            iteration=iteration,
            metrics={"critic/score/mean": 0.1 * iteration},
        )
        say(folder, type="iteration", iteration=iteration, iterations=iterations, seconds=0.5)
        if mode == "fail":
            say(folder, type="failed", cause="actor.train: the loss is not finite", kind="nan")
            sys.exit(1)


def make_noise(folder: Path) -> None:
    os.write(1, b"\xff\xfe no text \x00\n")
    os.write(1, "10%|█\r90%|█████\r\n".encode())
    os.write(1, b'half a line AUTOMAP-EVENT {"type": "log", "message": "after half a line"}\n')
    os.write(1, b"AUTOMAP-EVENT {broken\nAUTOMAP-EVENT [1]\n")
    say(folder, type="metrics", metrics={"loss": float("nan"), "text": "\0\ud800"})
    os.write(1, b"no end" * 20_000)
    os.write(1, b"\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("plan", "settings", "output", "ray-address"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--until-stdin-closes", action="store_true")
    given = parser.parse_args()
    plan = json.loads(Path(given.plan).read_text())
    settings = json.loads(Path(given.settings).read_text())
    mode = Path(settings["data"]["path"]).stem
    folder = Path(given.output)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "starts").open("a") as file:
        file.write(f"{os.getpid()} {given.ray_address}\n")
    if mode == "refuse":
        say(folder, type="failed", cause="data.path: there is no such file", kind="bad_input")
        sys.exit(2)
    if given.until_stdin_closes:
        end_with_parent()
    # With a journal nothing keeps a second run away: it is there to be seen.
    lock = None if JOURNAL else locked(folder)
    if not settings["checkpoint"]["resume"]:
        (folder / "checkpoint").unlink(missing_ok=True)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN if mode == "stubborn" else lambda *_: sys.exit(130)
    )
    (folder / "traceparent").write_text(os.environ.get("TRACEPARENT", ""))
    sys.stdout.write(f"the stand-in runs {plan['name']}\n")
    say(folder, type="state", state="running")
    if mode == "noisy":
        make_noise(folder)
    calls = [call["id"] for call in plan["calls"]]
    iterations = settings["iterations"] or plan["spec"]["workload"]["iterations"]
    iterate(folder, mode, calls, iterations)
    if mode != "mute":
        say(folder, type="finished", report={"iterations": iterations, "name": plan["name"]})
    if lock is not None:
        lock.close()


if __name__ == "__main__":
    main()
