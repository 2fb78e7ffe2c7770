"""A run report for people: predicted and measured side by side.

Only what can be compared is: seconds of a millisecond and more, and bytes that the plan and the
run count in the same way. Weights are shown as they were counted also where there is no prediction.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from automap.executor.telemetry.call_records import BytesKind, WeightsKind
from automap.executor.telemetry.run_report import CallReport, Comparison, RunReport

NOTHING = "-"
LEAST_SECONDS = 1e-3
"""Less is the clock's and the scheduler's as much as the call's: no ratio is formed of it."""
OWN_ROW_SHARE = 0.02
"""Share of an iteration from which a call has a row of its own."""
_WEIGHTS: frozenset[BytesKind] = frozenset(get_args(WeightsKind))
"""Counted from the tensors themselves, so shown also where the plan says nothing of them."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SHOWN_METRICS = (
    "critic/score/mean",
    "critic/rewards/mean",
    "response_length/mean",
    "response_length/clip_ratio",
    "actor/pg_loss",
    "actor/ppo_kl",
    "actor/grad_norm",
    "actor/lr",
    "critic/vf_loss",
    "critic/vf_explained_var",
)


def render_outcome(report: RunReport) -> Group:
    """How the run ended, after how many iterations, tokens per second, and why it failed."""
    parts: list[RenderableType] = [_headline(report)]
    if report.outcome.cause:
        parts.append(Text.assemble(("cause: ", "bold"), report.outcome.cause))
    return Group(*parts)


def render_measured(report: RunReport) -> Group:
    """Seconds per call, bytes per call, last metrics and provenance."""
    parts = _section("Seconds per iteration", _seconds_table(report))
    warm_up = report.iteration_seconds.warm_up
    if warm_up and report.iteration_seconds.measured is not None:
        seconds = ", ".join(map(two_digits, warm_up))
        first = "first iteration" if len(warm_up) == 1 else "first iteration after each start"
        parts.append(Text(f"The {first} ({seconds} s) warms up and is left out."))
    bytes_table = _bytes_table(report)
    if bytes_table.row_count:
        parts += _section("Bytes on the worst rank", bytes_table)
    shown = [name for name in _SHOWN_METRICS if name in report.metrics]
    if shown:
        cells = [each for name in shown for each in (name, _metric(report, name))]
        rows = [cells[first : first + 4] for first in range(0, len(cells), 4)]
        parts += _section("Last iteration", _grid(rows))
    parts += _section("Ran on", _grid(_provenance(report)))
    return Group(*parts)


def _section(title: str, content: RenderableType) -> list[RenderableType]:
    return [Text(), Text(title, style="bold underline"), content]


def _headline(report: RunReport) -> Text:
    restarts = report.outcome.restarts
    line = Text.assemble(
        (report.name, "bold"),
        f" ({report.algorithm or 'own dataflow'}): {report.outcome.state} after "
        f"{_number_of(report.iterations, 'iteration')}",
        f", resumed {_number_of(restarts, 'time')}" if restarts else "",
    )
    rate = report.tokens_per_second
    if rate.measured is not None:
        line.append(f", {rate.measured.median:,.0f} tokens/s")
    return line


def _seconds_table(report: RunReport) -> Table:
    """A row for each call that takes a notable part of an iteration, and one for all others."""
    table = _plain_table()
    table.add_column("call", overflow="fold")
    for header in ("predicted", "measured", "ratio", "min", "max"):
        table.add_column(header, justify="right", no_wrap=True)
    measured = report.iteration_seconds.measured
    least = max(LEAST_SECONDS, OWN_ROW_SHARE * (measured.median if measured else 0.0))
    saves = [each for each in report.calls if each.kind == "checkpoint"]
    calls = [each for each in report.calls if each.kind != "checkpoint"]
    others = [each for each in calls if _largest(each.seconds) < least]
    for call in calls:
        if _largest(call.seconds) < least:
            continue
        table.add_row(Text(call.id), *_cells(call.seconds))
        reshard = call.transition_seconds
        if reshard is not None and _largest(reshard) >= least:
            table.add_row(Text("  of which reshard", style="dim"), *_cells(reshard))
    if others:
        table.add_row(*_together(_number_of(len(others), "other call"), others))
    if saves:
        table.add_row(*_together("a checkpoint", saves))
    table.add_row(Text("iteration", style="bold"), *_cells(report.iteration_seconds))
    return table


def _together(name: str, calls: Sequence[CallReport]) -> tuple[Text | str, ...]:
    """One row for several calls."""
    medians = [call.seconds.measured.median for call in calls if call.seconds.measured]
    total = two_digits(sum(medians)) if medians else NOTHING
    return Text(name, style="dim"), NOTHING, total, NOTHING, NOTHING, NOTHING


def _largest(compared: Comparison) -> float:
    """Seconds that decide whether a row says anything: the larger of predicted and measured."""
    measured = compared.measured.median if compared.measured else 0.0
    return max(compared.predicted or 0.0, measured)


def _cells(compared: Comparison) -> tuple[str, ...]:
    measured = compared.measured
    return (
        _seconds(compared.predicted),
        _seconds(measured.median if measured else None),
        times(compared.predicted, measured.median if measured else None),
        _seconds(measured.min if measured else None),
        _seconds(measured.max if measured else None),
    )


def times(predicted_seconds: float | None, measured_seconds: float | None) -> str:
    """How many times the prediction was measured: 1.1×; `-` where either is too short to tell."""
    if min(predicted_seconds or 0.0, measured_seconds or 0.0) < LEAST_SECONDS:
        return NOTHING
    assert predicted_seconds is not None
    assert measured_seconds is not None
    return f"{two_digits(measured_seconds / predicted_seconds)}×"


def _bytes_table(report: RunReport) -> Table:
    table = _plain_table()
    table.add_column("call", overflow="fold")
    table.add_column("what", no_wrap=True)
    table.add_column("predicted", justify="right", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    comparable = _comparable_bytes(report)
    for call in report.calls:
        for kind, compared in call.bytes.items():
            shown = kind in _WEIGHTS or (kind in comparable and compared.predicted)
            if shown and compared.measured:
                table.add_row(
                    Text(call.id),
                    kind.replace("_", " "),
                    _bytes(compared.predicted),
                    _bytes(compared.measured),
                )
    return table


def _comparable_bytes(report: RunReport) -> Sequence[BytesKind]:
    """What plan and run count alike; memory not on CPUs, where a process counts its libraries."""
    received: tuple[BytesKind, ...] = ("reshard_received", "weight_sync_received")
    return received if report.provenance.device.kind == "cpu" else ("peak_memory", *received)


def _provenance(report: RunReport) -> Iterator[tuple[str, str]]:
    origin, device = report.provenance, report.provenance.device
    yield (
        "devices",
        f"{device.num_devices} x {device.name}, {_bytes(device.memory_bytes)}"
        + ("" if device.kind == "cuda" else " of the host"),
    )
    versions = {"automap": origin.code_version, **origin.versions}
    yield "software", ", ".join(f"{name} {found}" for name, found in versions.items() if found)
    if report.plan_id is not None:
        yield "plan", report.plan_id


def _grid(rows: Iterable[Sequence[str]]) -> Table:
    """Names and values in columns."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for cells in rows:
        while len(table.columns) < len(cells):
            is_name = len(table.columns) % 2 == 0
            table.add_column(no_wrap=is_name, overflow="fold")
        table.add_row(*map(Text, cells))
    return table


def _plain_table() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)


def _metric(report: RunReport, name: str) -> str:
    value = report.metrics[name]
    return "not a number" if value is None else f"{value:.3g}"


def _seconds(value: float | None) -> str:
    if value is None:
        return NOTHING
    if 0 < value < LEAST_SECONDS:
        return f"<{LEAST_SECONDS:g}"
    return two_digits(value)


def two_digits(value: float) -> str:
    """Two significant digits, or a whole number: 0.016, 0.50, 3.4, 141, 1,200."""
    return f"{value:#.2g}" if 0 < value < 9.95 else f"{value:,.0f}"


def _bytes(value: int | None) -> str:
    if value is None:
        return NOTHING
    amount, unit = float(value), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if amount >= 100 else f"{amount:.3g} {_UNITS[unit]}"


def _number_of(value: int, noun: str) -> str:
    return f"{value:,} {noun}" + ("" if value == 1 else "s")
