"""`automap run`: plan if need be, then the executor as a child process, its progress shown here."""

import contextlib
import fcntl
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import BinaryIO, NoReturn

from rich.text import Text

from automap.executor.private_folders import make_private
from automap.planner import Plan
from automap.service.cli.backends.local import Local
from automap.service.cli.backends.protocol import KnownPlan
from automap.service.cli.inputs.files import read_run_settings
from automap.service.cli.options.runs import RunArguments
from automap.service.cli.options.shared import Show
from automap.service.cli.plan.inputs import make_plan
from automap.service.cli.run.view import RunProgress
from automap.service.cli.terminal import console
from automap.service.cli.terminal.failures import BadInputError, RunFailedError
from automap.service.runs.checked_settings import RunSettings, resuming
from automap.service.runs.output import OutputReader
from automap.service.settings import Settings

EXIT_REFUSED = 2
EXIT_CANCELLED = 130
LOOK_SECONDS = 0.1
WRITTEN = (
    "  report.json: all of this; metrics.jsonl: every iteration; actor/: the trained weights\n"
    "  timeline.json: what each device did when, for https://ui.perfetto.dev"
)


def run_here(given: RunArguments) -> None:
    """Run a plan, or plan and run a spec, until it is done, fails, or Ctrl-C."""
    backend = Local()
    runnable = backend.read_plan(given.plan_or_spec)
    planned = isinstance(runnable, KnownPlan)
    spec = runnable.plan.spec if isinstance(runnable, KnownPlan) else runnable
    settings = read_run_settings(
        given.settings, beside=given.plan_or_spec, spec=spec, planned=planned
    )
    if given.iterations is not None:
        settings = settings.model_copy(update={"iterations": given.iterations})
    command = run_command()
    if not isinstance(runnable, KnownPlan):
        runnable = make_plan(backend, runnable, given.show)
    plan = runnable.plan
    folder = _folder(given.output, plan.name)
    _refuse_if_in_use(folder)
    command += [*_written(folder, plan=plan, settings=settings), "--output", str(folder)]
    if given.ray_address is not None:
        command += ["--ray-address", given.ray_address]
    progress = RunProgress(
        plan, iterations=settings.iterations or spec.workload.iterations, quiet=given.show.quiet
    )
    progress.folder = str(folder)
    with progress:
        code = _run(command, folder, settings, progress)
    _tell(code, progress, folder, given.show, settings)


def run_command() -> list[str]:
    configured = Settings().run_command
    if configured is not None:
        return shlex.split(configured)
    missing = [name for name in ("torch", "ray") if importlib.util.find_spec(name) is None]
    if missing:
        raise BadInputError(
            f"running a plan needs {' and '.join(missing)}, which this installation lacks",
            ["pip install '.[executor-cpu]', or '.[executor-gpu]' on a machine with GPUs"],
        )
    # Not of a command of the user's: `docker run` without -i, for one, closes the input at once.
    return [sys.executable, "-m", "automap.executor.run", "--until-stdin-closes"]


def _folder(output: str | None, name: str) -> Path:
    if output is None:
        started = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        safe = "".join(character if character.isalnum() else "-" for character in name)[:64]
        folder = Settings().runs_folder / f"{safe}-{started}"
    else:
        folder = Path(output)
    try:
        if output is None:
            make_private(folder)
        folder.mkdir(parents=True, exist_ok=True)  # one that is named: as the umask has it
    except OSError as error:
        raise BadInputError(f"cannot write to {folder}: {error.strerror or error}") from None
    return folder.absolute()


def _refuse_if_in_use(folder: Path) -> None:
    """Before plan and settings of the run that is there are overwritten: it may start again."""
    try:
        with (folder / "run.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = (folder / "run.lock").read_text(encoding="utf-8") or "it does not say which"
        raise BadInputError(
            f"--output: another run writes to {folder}",
            [f"wait for it ({holder}), end it, or give another folder"],
        ) from None
    except OSError as error:
        raise BadInputError(f"cannot write to {folder}: {error.strerror or error}") from None


def _written(folder: Path, **documents: Plan | RunSettings) -> list[str]:
    """Put documents into the folder; the arguments that name them."""
    arguments = []
    for name, document in documents.items():
        file = folder / f"{name}.json"
        text = document.model_dump_json(indent=2, by_alias=True)
        file.write_text(text + "\n", encoding="utf-8")
        arguments += [f"--{name}", str(file)]
    return arguments


def _run(command: list[str], folder: Path, settings: RunSettings, progress: RunProgress) -> int:
    """Have the executor run, again if it is killed; its last exit code.

    What it restarted by itself counts: all of them together are at most max_restarts.
    """
    restarts = 0
    with _interrupts() as interrupts:
        while True:
            code, by_itself = _run_once(command, folder / "run.log", progress, interrupts)
            restarts += by_itself
            if interrupts:
                return EXIT_CANCELLED if code != 0 else 0
            if code >= 0 or restarts >= settings.max_restarts:
                return code
            restarts += 1
            where = "from its last checkpoint" if _has_checkpoint(folder) else "at iteration 1"
            progress.note(
                f"the run was ended by signal {-code}; starting it again {where} "
                f"(restart {restarts} of {settings.max_restarts})"
            )
            left = settings.max_restarts - restarts
            _written(folder, settings=resuming(settings).model_copy(update={"max_restarts": left}))


def _run_once(
    command: list[str], log: Path, progress: RunProgress, interrupts: Sequence[int]
) -> tuple[int, int]:
    """The executor's exit code, and how often it restarted by itself."""
    with log.open("ab") as output, log.open("rb") as printed:
        printed.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # it ends when we do, also if we are killed
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for us, and we tell it
        )
        try:
            return _watch(process, printed, progress, interrupts)
        except BaseException:  # such as a terminal that is gone: nobody would end the run later
            process.terminate()
            raise
        finally:
            assert process.stdin is not None
            process.stdin.close()
            if process.returncode is not None and process.returncode < 0:
                _clear_up(process.pid, output)


def _watch(
    process: "subprocess.Popen[bytes]",
    printed: BinaryIO,
    progress: RunProgress,
    interrupts: Sequence[int],
) -> tuple[int, int]:
    """Show what a process prints, until it has ended."""
    reader = OutputReader()
    passed_on = restarts = 0
    while True:
        code = process.poll()  # before the last look at what it printed
        events = reader.feed(printed.read()).events
        if code is not None:
            events = [*events, *reader.finish().events]
        for event in events:
            restarts += event["type"] == "log" and "restart" in event
            progress.take(event)
        if code is not None:
            return code, restarts
        if len(interrupts) > passed_on:
            passed_on = len(interrupts)
            _end(process, politely=passed_on == 1)
        time.sleep(LOOK_SECONDS)


def _clear_up(group: int, log: BinaryIO) -> None:
    """After a kill: end what the run has started, and the line that it was writing."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    log.write(b"\n")


def _end(process: subprocess.Popen[bytes], *, politely: bool) -> None:
    if politely:
        process.terminate()
        text = "Cancelling the run; once more ends it without waiting for it to clean up."
        with contextlib.suppress(OSError):  # the terminal's end may be why
            console.stderr_console().print(Text(text))
    else:
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """The SIGINTs, SIGTERMs and SIGHUPs that came, instead of what they do by themselves.

    SIGHUP counts once: kernel and shell both send it when a terminal ends. Under nohup it stays
    ignored.
    """
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGHUP or not came:
            came.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(
    code: int, progress: RunProgress, folder: Path, show: Show, settings: RunSettings
) -> None:
    if code == 0 and progress.report is not None:
        if show.json:
            console.write_json(json.dumps(progress.report, indent=2))
            return
        out = console.stdout_console()
        if show.quiet:
            out.print(progress.summary, soft_wrap=True)
        else:
            out.print(progress.result(width=out.width))
            out.print()
        out.print(Text(f"Written to {folder}"), soft_wrap=True)
        if not show.quiet:
            out.print(Text(WRITTEN), soft_wrap=True)
        return
    _fail(code, progress.cause, folder, _way_on(folder, settings))


def _has_checkpoint(folder: Path) -> bool:
    return any((folder / "checkpoints").glob("iteration-*/manifest.json"))


def _way_on(folder: Path, settings: RunSettings) -> str:
    """What running it again does, by what the folder holds."""
    again = f"the same command with --output {folder}"
    if not _has_checkpoint(folder):
        return (
            f"{again} begins at iteration 1: there is no checkpoint yet "
            "(checkpoint.every_iterations in the settings)"
        )
    if not settings.checkpoint.resume:
        again += " and checkpoint.resume: true in the settings"
    return f"{again} goes on from its last checkpoint"


def _fail(code: int, cause: str, folder: Path, resume: str) -> NoReturn:
    if code == EXIT_REFUSED:
        raise BadInputError("the executor refuses this run", [cause or f"see {folder}/run.log"])
    if code == EXIT_CANCELLED:
        raise RunFailedError("cancelled", [resume], code=EXIT_CANCELLED)
    if code < 0:
        raise RunFailedError(f"the run was ended by signal {-code}", [resume])
    headline = cause or (
        "the run ended without a report" if code == 0 else f"the run ended with exit code {code}"
    )
    raise RunFailedError(headline, [f"its output is in {folder}/run.log", resume])
