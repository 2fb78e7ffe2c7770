"""A run report for people: predicted and measured side by side."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from automap.executor.telemetry.run_report import Comparison, RunReport

NOTHING = "-"
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


def render_report(report: RunReport) -> Group:
    """Outcome, seconds per call, bytes per call, last metrics, provenance; fits 80 columns."""
    parts: list[RenderableType] = [_headline(report)]
    if report.outcome.cause:
        parts.append(Text.assemble(("cause: ", "bold"), report.outcome.cause))
    parts += _section("Seconds per iteration", _seconds_table(report))
    bytes_table = _bytes_table(report)
    if bytes_table.row_count:
        parts += _section("Bytes on the worst rank", bytes_table)
    shown = [name for name in _SHOWN_METRICS if name in report.metrics]
    if shown:
        parts += _section("Last iteration", _pairs((name, _metric(report, name)) for name in shown))
    parts += _section("Ran on", _pairs(_provenance(report)))
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
        if rate.predicted is not None:
            line.append(f" (predicted {rate.predicted:,.0f})")
    return line


def _seconds_table(report: RunReport) -> Table:
    table = _plain_table()
    table.add_column("call", overflow="fold")
    for header in ("predicted", "measured", "ratio", "min", "max", "warm-up"):
        table.add_column(header, justify="right", no_wrap=True)
    for call in report.calls:
        table.add_row(Text(call.id), *_cells(call.seconds))
        if call.transition_seconds is not None:
            table.add_row(Text("  of which reshard", style="dim"), *_cells(call.transition_seconds))
    table.add_row(Text("iteration", style="bold"), *_cells(report.iteration_seconds))
    return table


def _cells(compared: Comparison) -> tuple[str, ...]:
    measured = compared.measured
    return (
        _seconds(compared.predicted),
        _seconds(measured.median if measured else None),
        NOTHING if compared.ratio is None else f"{compared.ratio:.2f}",
        _seconds(measured.min if measured else None),
        _seconds(measured.max if measured else None),
        _seconds(compared.warm_up[0] if compared.warm_up else None),
    )


def _bytes_table(report: RunReport) -> Table:
    table = _plain_table()
    table.add_column("call", overflow="fold")
    table.add_column("what", no_wrap=True)
    table.add_column("predicted", justify="right", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    for call in report.calls:
        for kind, compared in call.bytes.items():
            if compared.predicted or compared.measured:
                table.add_row(
                    Text(call.id),
                    kind.replace("_", " "),
                    _bytes(compared.predicted),
                    _bytes(compared.measured),
                )
    return table


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


def _pairs(lines: Iterator[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines:
        table.add_row(Text(name), Text(value))
    return table


def _plain_table() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)


def _metric(report: RunReport, name: str) -> str:
    value = report.metrics[name]
    return "not a number" if value is None else f"{value:.4g}"


def _seconds(value: float | None) -> str:
    if value is None:
        return NOTHING
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if value else "0"


def _bytes(value: int | None) -> str:
    if value is None:
        return NOTHING
    amount, unit = float(value), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if amount >= 100 else f"{amount:.3g} {_UNITS[unit]}"


def _number_of(value: int, noun: str) -> str:
    return f"{value:,} {noun}" + ("" if value == 1 else "s")
