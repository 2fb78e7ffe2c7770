"""A run for people: how far it is, and what its calls take beside what the plan predicts."""

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean
from typing import Self

from pydantic import ValidationError
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from automap.executor.telemetry.run_report import RunReport
from automap.executor.telemetry.run_report_view import render_measured, render_outcome, times
from automap.planner import Plan
from automap.planner.runs import Suggestion, planned_seconds
from automap.planner.units import MIB
from automap.service.cli.plan.gantt import gantt
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.console import stderr_console, unicode_output
from automap.service.cli.terminal.tables import NOTHING, plain_table
from automap.service.runs import call_seconds
from automap.service.runs.drift_report import drift_summary, suggestion_lines
from automap.service.schemas.documents import JsonObject
from automap.service.schemas.jobs import CallSeconds

REFRESH_SECONDS = 0.25
LINE_SECONDS = 5.0
SHORT_RUN = 10
"""Without a terminal a run of more iterations shows a line for one of them in so many seconds."""
BARS = "▁▂▃▄▅▆▇█"
MOST_BARS = 40
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
            times(call.predicted_seconds, call.measured_seconds),
            NOTHING if call.measured_bytes is None else f"{call.measured_bytes / MIB:.2f}",
            formats.count(call.count) if call.count else NOTHING,
        )
    return table


def _seconds(value: float | None) -> str:
    return NOTHING if value is None else formats.seconds(value)


def drift_lines(lines: Sequence[str]) -> list[Text]:
    """A section of what has drifted from the plan; nothing if nothing has."""
    if not lines:
        return []
    title = Text("Other than planned", style="bold underline")
    return [Text(), title, *(Text(formats.printable(line)) for line in lines)]


def _course_of_reward(rewards: Mapping[int, float]) -> Text:
    """The mean reward of the first and the last iteration, and a bar for each stretch between."""
    values = [rewards[iteration] for iteration in sorted(rewards)]
    line = Text.assemble(("mean reward ", "bold"), f"{values[0]:.2f} to {values[-1]:.2f}")
    least, most = min(values), max(values)
    if unicode_output() and most > least:
        bars = min(len(values), MOST_BARS)
        edges = [round(bar * len(values) / bars) for bar in range(bars + 1)]
        means = [mean(values[first:end]) for first, end in pairwise(edges)]
        share = (len(BARS) - 1) / (most - least)
        line.append("  " + "".join(BARS[round((value - least) * share)] for value in means))
    return line


class RunProgress:
    """Takes a run's events and shows them on stderr: a live table, or a line an iteration."""

    def __init__(self, plan: Plan | None, *, iterations: int, quiet: bool) -> None:
        self._plan = plan
        self._iterations = iterations
        self._iteration = 0
        self._rewards: dict[int, float] = {}
        self._doing = "starting"
        self._measured = call_seconds.NOTHING
        self._console = stderr_console()
        self._quiet = quiet
        self._shown_at = 0.0
        self._line_at = -LINE_SECONDS
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

    def __exit__(self, *_error: object) -> None:
        if self._live is not None:
            self._refresh()
            self._live.stop()

    @property
    def calls(self) -> list[CallSeconds]:
        """What is known of every call."""
        predicted = {} if self._plan is None else planned_seconds(self._plan)
        return call_seconds.calls_of(predicted, self._measured)

    @property
    def summary(self) -> Text:
        """Iterations, the last one's mean reward, and their seconds in one line."""
        seconds = call_seconds.iteration_seconds(self._measured)
        line = Text(f"{self._iteration} of {formats.number_of(self._iterations, 'iteration')}")
        if self._rewards:
            line.append(f", reward {self._rewards[max(self._rewards)]:.3f}")
        if seconds is not None:
            line.append(f", {formats.seconds(seconds)} s each")
        if self._plan is not None:
            predicted = formats.seconds(self._plan.iteration_seconds)
            line.append(f" (predicted {predicted} s)")
        return line

    def result(self, *, width: int) -> RenderableType:
        """The plan and the report, if it is one that we can read; else what its calls took."""
        try:
            report = RunReport.model_validate(self.report)
        except ValidationError:
            return Group(self.summary, Text(), seconds_table(self.calls))
        parts: list[RenderableType] = [render_outcome(report)]
        if len(self._rewards) > 1:
            parts.append(_course_of_reward(self._rewards))
        if self._plan is not None:
            title = f"The plan: {formats.seconds(self._plan.iteration_seconds)} s an iteration"
            chart = gantt(self._plan, width=width, unicode=unicode_output())
            parts += [Text(), Text(title, style="bold underline"), chart]
        drifted = drift_lines(drift_summary(report, folder=self.folder))
        return Group(*parts, render_measured(report), *drifted)

    def take(self, event: JsonObject) -> None:
        """Show one event."""
        self._measured = call_seconds.with_events(self._measured, [event])
        match event["type"]:
            case "iteration":
                self._iteration = int(call_seconds.number(event.get("iteration")) or 0)
                self._say_iteration()
            case "metrics":
                metrics = event.get("metrics")
                found = metrics.get(REWARD) if isinstance(metrics, dict) else None
                reward, iteration = map(call_seconds.number, (found, event.get("iteration")))
                if reward is not None:
                    self._rewards[int(iteration or self._iteration + 1)] = reward
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

    def _say_iteration(self) -> None:
        now = time.monotonic()
        due = now - self._line_at >= LINE_SECONDS or self._iterations <= SHORT_RUN
        if due or self._iteration == self._iterations:
            self._line_at = now
            self._say(Text.assemble("iteration ", self.summary))

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
