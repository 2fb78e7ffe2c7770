"""A run for people: how far it is, and what its calls take beside what the plan predicts."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from pydantic import ValidationError
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from automap.executor.telemetry.run_report import RunReport
from automap.executor.telemetry.run_report_view import render_report
from automap.planner.plan.types import Plan
from automap.planner.runs.suggestion import Suggestion
from automap.planner.units import MIB
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.console import stderr_console
from automap.service.cli.terminal.tables import NOTHING, plain_table
from automap.service.runs import call_seconds
from automap.service.runs.drift_report import advice, suggestion_lines
from automap.service.schemas.documents import JsonObject
from automap.service.schemas.jobs import CallSeconds

REFRESH_SECONDS = 0.25
REWARD = "critic/score/mean"
"""Among the metrics of an iteration, under verl's name."""


def seconds_table(calls: Sequence[CallSeconds]) -> Table:
    """A row per call: seconds as predicted and as measured, and the bytes that moved."""
    table = plain_table()
    table.add_column("call", no_wrap=True)
    table.add_column("predicted\ns", justify="right", no_wrap=True)
    table.add_column("measured\ns", justify="right", no_wrap=True)
    table.add_column("measured ÷\npredicted", justify="right", no_wrap=True)
    table.add_column("moved\nMiB", justify="right", no_wrap=True)
    table.add_column("times", justify="right", no_wrap=True)
    for call in calls:
        table.add_row(
            Text(formats.printable(call.call)),
            _seconds(call.predicted_seconds),
            _seconds(call.measured_seconds),
            ratio(call.predicted_seconds, call.measured_seconds),
            NOTHING if call.measured_bytes is None else f"{call.measured_bytes / MIB:.2f}",
            formats.count(call.count) if call.count else NOTHING,
        )
    return table


def ratio(predicted: float | None, measured_seconds: float | None) -> str:
    """Measured over predicted, two significant digits."""
    if not predicted or measured_seconds is None:
        return NOTHING
    return f"{measured_seconds / predicted:.2g}"


def _seconds(value: float | None) -> str:
    return NOTHING if value is None else formats.seconds(value)


def drift_lines(lines: Sequence[str]) -> list[Text]:
    """A section of what has drifted from the plan; nothing if nothing has."""
    if not lines:
        return []
    title = Text("Other than planned", style="bold underline")
    return [Text(), title, *(Text(formats.printable(line)) for line in lines)]


class RunProgress:
    """Takes a run's events and shows them on stderr: a live table, or a line an iteration."""

    def __init__(self, plan: Plan | None, *, iterations: int, quiet: bool) -> None:
        self._plan = plan
        self._iterations = iterations
        self._iteration = 0
        self._reward: float | None = None
        self._doing = "starting"
        self._measured = call_seconds.NOTHING
        self._console = stderr_console()
        self._quiet = quiet
        self._shown_at = 0.0
        live = self._console.is_terminal and not quiet
        self._live = Live(console=self._console, auto_refresh=False) if live else None
        self.folder: str | None = None
        """Where the run writes, once that is known."""
        self.cause = ""
        """Why the run failed, once it says so."""
        self.report: JsonObject | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._refresh()
            self._live.stop()

    @property
    def calls(self) -> list[CallSeconds]:
        """What is known of every call."""
        return call_seconds.calls_of(self._plan, self._measured)

    @property
    def summary(self) -> Text:
        """Iterations, the last one's mean reward, and their seconds in one line."""
        seconds = call_seconds.iteration_seconds(self._measured)
        line = Text(f"{self._iteration} of {formats.number_of(self._iterations, 'iteration')}")
        if self._reward is not None:
            line.append(f", reward {self._reward:.3f}")
        if seconds is not None:
            line.append(f", {formats.seconds(seconds)} s each")
        if self._plan is not None:
            predicted = formats.seconds(self._plan.iteration_seconds)
            line.append(f" (predicted {predicted} s)")
        return line

    def result(self) -> RenderableType:
        """The report, if it is one that we can read, or else what its calls took."""
        try:
            report = RunReport.model_validate(self.report)
            return Group(render_report(report), *drift_lines(advice(report, run=self.folder)))
        except ValidationError:
            return Group(self.summary, Text(), seconds_table(self.calls))

    def take(self, event: JsonObject) -> None:
        """Show one event."""
        self._measured = call_seconds.with_events(self._measured, [event])
        match event["type"]:
            case "iteration":
                self._iteration = int(call_seconds.number(event.get("iteration")) or 0)
                self._say(Text.assemble("iteration ", self.summary))
            case "metrics":
                metrics = event.get("metrics")
                found = metrics.get(REWARD) if isinstance(metrics, dict) else None
                self._reward = call_seconds.number(found)
            case "call":
                self._doing = f"{event.get('call')} done"
            case "state" | "status":
                self._doing = str(event.get("state") or event.get("status"))
                self._say(Text(formats.printable(self._doing)))
            case "log":
                self.note(str(event.get("message", "")))
            case "drift":
                self._tell_drift(event)
            case "failed":
                self.cause = str(event.get("cause", "")) or "the run failed"
            case "finished":
                report = event.get("report")
                self.report = report if isinstance(report, dict) else {}
        self._refresh_soon()

    def _tell_drift(self, event: JsonObject) -> None:
        document = event.get("suggestion")
        if not isinstance(document, dict):
            self.note(f"as planned again after iteration {event.get('iteration')}")
            return
        try:
            suggestion = Suggestion.model_validate(document)
        except ValidationError:  # another version's
            return
        for line in suggestion_lines(suggestion):
            self.note(line)

    def note(self, message: str) -> None:
        """Show a line for good."""
        self._print(Text(formats.printable(message)))

    def _say(self, line: Text) -> None:
        """To those who have no live table."""
        if self._live is None:
            self._print(line)

    def _print(self, line: Text) -> None:
        if not self._quiet:
            self._console.print(line, soft_wrap=True)

    def _refresh_soon(self) -> None:
        if time.monotonic() - self._shown_at > REFRESH_SECONDS:
            self._refresh()

    def _refresh(self) -> None:
        if self._live is not None:
            self._shown_at = time.monotonic()
            self._live.update(self._view(), refresh=True)

    def _view(self) -> RenderableType:
        head = Text.assemble((f"{formats.printable(self._doing)}: ", "bold"), self.summary)
        return Group(head, Text(), seconds_table(self.calls))
