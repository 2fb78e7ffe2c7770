"""Runs a plan: `python -m automap.executor.run --plan FILE --settings FILE --output DIR`.

Ends with 0 when all iterations are done, 1 when the run failed, 2 when it was refused before
anything was started, 130 when it was cancelled by SIGTERM or SIGINT, or by the end of whoever
started it `--until-stdin-closes`. Events are printed to stdout (`telemetry.events`); the last one
says `finished` with the report, or `failed` with the cause.
"""

import argparse
import contextlib
import fcntl
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO, TypeVar

from pydantic import BaseModel, ValidationError

from automap.executor.errors import RunCancelledError, RunError
from automap.executor.folders import VARIABLE, NotAllowedError, folders_of, outside
from automap.executor.private_folders import make_private
from automap.executor.run.parent import when_stdin_closes
from automap.executor.run.ray_address import knock
from automap.executor.settings import RunSettings
from automap.executor.telemetry import traces
from automap.executor.telemetry.events import Events
from automap.planner import Plan
from automap.planner.errors import PlanningError

if TYPE_CHECKING:
    from automap.executor.run.attempts import Run
    from automap.executor.telemetry.run_report import RunState

EXIT_FAILED, EXIT_REFUSED, EXIT_CANCELLED = 1, 2, 130
OBJECT_STORE_BYTES = 256 * 2**20
"""Object store of a local Ray; its own choice can be more than the shared memory that there is."""
LOCK_SECONDS = 60.0
"""How long the process of an earlier attempt may take to be gone, once it is killed."""
_Document = TypeVar("_Document", bound=BaseModel)


class RefusedError(RunError):
    """The run cannot be started as it was asked for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a plan; the exit code."""
    given = _parsed(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    cancel = threading.Event()
    _cancel_on_signals(cancel)
    if given.until_stdin_closes:
        when_stdin_closes(cancel.set)
    events = Events()
    traces.start("automap-run")
    try:
        with (
            traces.continued(os.environ.get("TRACEPARENT")),
            traces.span("run"),
            _folder(given.output, events, cancel),
        ):
            return _run(given, events, cancel)
    except (RefusedError, NotAllowedError) as error:
        return _report_failure(events, str(error), kind="bad_input", code=EXIT_REFUSED)
    except RunCancelledError:
        return _report_cancelled(events)
    finally:
        events.close()


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m automap.executor.run", description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="a plan, JSON")
    parser.add_argument("--settings", type=Path, required=True, help="run settings, JSON")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--folders", type=Path, metavar="FILE", help="below which all must lie that settings name"
    )
    parser.add_argument("--ray-address", metavar="ADDR", help="of a cluster; default: a local Ray")
    parser.add_argument(
        "--until-stdin-closes", action="store_true", help="cancel when the standard input ends"
    )
    return parser.parse_args(arguments)


def _run(given: argparse.Namespace, events: Events, cancel: threading.Event) -> int:
    plan = _read(given.plan, Plan, "--plan")
    settings = _read(given.settings, RunSettings, "--settings")
    _keep_to_folders(given.folders, settings)
    events.send("state", state="starting Ray")
    refuse_unfit(plan, settings)
    from automap.executor.run.attempts import Run  # Ray and torch take seconds to import

    with ray_for(given.ray_address, plan):
        _cancel_on_signals(cancel)  # Ray has put its own handlers in their place
        run = Run(
            plan,
            settings,
            given.output.absolute(),
            events,
            cancel=cancel,
            environment=_environment(plan),
        )
        return _outcome(run, events)


def _keep_to_folders(file: Path | None, settings: RunSettings) -> None:
    """Refuse settings that name what lies elsewhere, before any of it is opened."""
    os.environ.pop(VARIABLE, None)
    if file is None:
        return
    try:
        folders = folders_of(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RefusedError(f"--folders: cannot read {file}: {error.strerror or error}") from error
    refused = [f"{each.field}: {each.value} {each.message}" for each in outside(settings, folders)]
    if refused:
        raise RefusedError("; ".join(refused))
    os.environ[VARIABLE] = folders.as_json()


def _cancel_on_signals(cancel: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: cancel.set())


def _outcome(run: "Run", events: Events) -> int:
    try:
        report = run.run()
    except RunCancelledError:
        _report(run, "cancelled")
        return _report_cancelled(events)
    except RunError as error:
        cause = "\n".join([str(error), *getattr(error, "__notes__", [])])
        _report(run, "failed", _brief(cause))
        return _report_failure(events, cause, kind=type(error).__name__, code=EXIT_FAILED)
    except Exception as error:
        traceback.print_exc()
        cause = f"{type(error).__name__}: {error}"
        _report(run, "failed", cause)
        return _report_failure(events, cause, kind="internal", code=EXIT_FAILED)
    events.send("finished", report=report.model_dump(mode="json"))
    return 0


def _report(run: "Run", state: "RunState", cause: str = "") -> None:
    """Report a run that has not succeeded; why it failed matters more than a report that fails."""
    try:
        run.report(state, cause)
    except RunError as error:
        logging.warning("no report: %s", error)


def _report_failure(events: Events, cause: str, *, kind: str, code: int) -> int:
    with contextlib.suppress(OSError):
        sys.stdout.write(cause + "\n")
    events.send("failed", cause=_brief(cause), kind=kind)
    return code


def _report_cancelled(events: Events) -> int:
    events.send("state", state="cancelled")
    return EXIT_CANCELLED


def _brief(cause: str) -> str:
    """Without the traceback, which follows a blank line."""
    return cause.partition("\n\n")[0]


def _read(path: Path, kind: type[_Document], option: str) -> _Document:
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RefusedError(f"{option}: cannot read {path}: {error.strerror or error}") from error
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, each['loc'])) or option}: {each['msg']}" for each in error.errors()
        ]
        raise RefusedError("; ".join(lines)) from error


def refuse_unfit(plan: Plan, settings: RunSettings) -> None:
    """Everything that can be said without starting anything."""
    from automap.executor.data import RunData
    from automap.executor.run.factories import check_functions, check_setup
    from automap.executor.runtime.runnable import check_run
    from automap.executor.workers.model_setup import smallest_vocabulary

    try:
        setups = check_run(plan, settings)
        for setup in setups.values():
            check_setup(setup)
        RunData(settings, plan.spec.workload, vocab_size=smallest_vocabulary(setups)).check_rows()
        check_functions(settings)
    except (RunError, PlanningError) as error:
        raise RefusedError(str(error)) from error


def _environment(plan: Plan) -> dict[str, str]:
    """Variables of the worker processes that torch and vLLM read when they are imported."""
    from automap.executor.rollout.environment import CPU_SETTINGS, SETTINGS

    on_cpu = _num_cores(plan) > 0
    threads = {"OMP_NUM_THREADS": "1"} if on_cpu else {}
    folders = {name: value for name, value in os.environ.items() if name == VARIABLE}
    return {**SETTINGS, **(CPU_SETTINGS if on_cpu else {}), **threads, **folders}


def _num_cores(plan: Plan) -> int:
    """Devices of pools whose devices are cores."""
    from automap.executor.runtime.placement import device_pools
    from automap.executor.runtime.planned import device_numbers
    from automap.planner.spec import ClusterSpec

    assert isinstance(plan.spec.cluster, ClusterSpec), "the plan's spec was resolved"
    pools = device_pools(plan.spec.cluster)
    return sum(pools[device.pool].resource == "CPU" for device in device_numbers(plan))


@contextmanager
def ray_for(address: str | None, plan: Plan) -> Iterator[None]:
    """Join a cluster, or start a Ray on this machine that ends with the run."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    from automap.executor.run.local_ray import start_ray

    try:
        if address is not None:
            knock(address)
            ray.init(address=address, namespace="automap", configure_logging=False)
        else:
            start_ray(
                num_cpus=_num_cores(plan) or None,
                object_store_memory=OBJECT_STORE_BYTES,
                configure_logging=False,
            )
    except Exception as error:  # Ray has no common class of these
        ray.shutdown()
        cause = f"{type(error).__name__}: {error}"
        if address is None:
            raise RefusedError(f"Ray does not start on this machine: {cause}") from error
        raise RefusedError(
            f"--ray-address: cannot join a Ray cluster at {address!r} ({cause}); give HOST:PORT of "
            "a head node that runs, or auto on one of its nodes"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _folder(path: Path, events: Events, cancel: threading.Event) -> Iterator[None]:
    """The run's folder, for this run alone: a second would spoil what the first writes."""
    with contextlib.ExitStack() as stack:
        try:
            make_private(path)
            lock = stack.enter_context((path / "run.lock").open("a+"))
            _lock(lock, path, events, cancel)
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {socket.gethostname()}")
            lock.flush()
            events.keep(path / "events.jsonl")
        except OSError as error:
            cause = error.strerror or error
            raise RefusedError(f"--output: cannot write to {path}: {cause}") from error
        yield


def _lock(file: TextIO, folder: Path, events: Events, cancel: threading.Event) -> None:
    """Take the lock, which the process of an earlier attempt may hold until it is quite dead."""
    began, reported = time.monotonic(), False
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        waited = time.monotonic() - began
        file.seek(0)
        holder = file.read() or "a process that does not say which"
        if waited > LOCK_SECONDS:
            raise RefusedError(
                f"--output: another run writes to {folder} and has not ended within "
                f"{LOCK_SECONDS:g} s ({holder}); end it, or give another folder"
            )
        if waited > 1 and not reported:
            reported = True
            events.send(
                "log",
                message=f"another run writes to {folder} ({holder}); waiting up to "
                f"{LOCK_SECONDS:g} s for its end",
            )
        if cancel.wait(0.1):
            raise RunCancelledError("the run was cancelled")


def _exit() -> NoReturn:
    code = main()
    try:
        sys.stdout.flush()
    except OSError:
        os._exit(code)  # Python's own end would flush again, and make another exit code of it
    sys.exit(code)


if __name__ == "__main__":
    _exit()
