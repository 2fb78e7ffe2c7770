"""How far a profile is, on stderr: a bar for each kind of node that is measured."""

from typing import Any, Self

from pydantic import ValidationError
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from automap.profiler.results.profile_report import Progress as Reached
from automap.service.cli.terminal import console, formats


class ProfileProgress:
    """Bars at a terminal; elsewhere, and with `quiet`, nothing."""

    def __init__(self, *, quiet: bool) -> None:
        shown = console.stderr_console()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[shapes]}"),
            TimeElapsedColumn(),
            console=shown,
            transient=True,
            disable=quiet or not shown.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bar.start()
        self._tasks[""] = self._bar.add_task("starting", total=1.0, shapes="")
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def show(self, reached: Reached) -> None:
        """On a cluster a table is named `POOL: TABLE`, and each pool has a bar."""
        pool = reached.table.rpartition(": ")[0]
        if pool not in self._tasks:  # the first takes over the one that said: starting
            known = self._tasks.pop("", None)
            new = self._bar.add_task("", shapes="") if known is None else known
            self._tasks[pool] = new
        self._bar.update(
            self._tasks[pool],
            completed=min(reached.seconds, reached.budget_seconds),
            total=reached.budget_seconds,
            description=Text(reached.table).plain,
            shapes=f"{reached.done} of {reached.wanted} shapes",
        )


class MeasureProgress(ProfileProgress):
    """The events of a job that measures; in a pipe a line for each table that is done."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._console = console.stderr_console()
        self._lines = not quiet and not self._console.is_terminal

    def take(self, event: dict[str, Any]) -> None:
        """Show what it says; others' events are passed over."""
        match event.get("type"):
            case "progress":
                self._reach(event)
            case "profile":
                self._say(f"{event.get('pool')}: stored as {event.get('version')}")
            case "status" | "state":
                self._say(str(event.get("status") or event.get("state")))

    def _reach(self, event: dict[str, Any]) -> None:
        try:
            reached = Reached.model_validate(
                {name: event.get(name) for name in Reached.model_fields}
            )
        except ValidationError:  # another version's
            return
        self.show(reached)
        if reached.done >= reached.wanted:
            self._say(f"{reached.table}: {reached.done} shapes, {reached.seconds:.0f} s")

    def _say(self, line: str) -> None:
        if self._lines:
            self._console.print(Text(formats.printable(line)), soft_wrap=True)
