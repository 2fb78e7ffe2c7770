"""The report of a profile: what was measured, how well it predicts itself, and the machine."""

import statistics
from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from automap.profiler.results.profile_report import (
    DRIFT_SHARE,
    ClusterReport,
    HeldOut,
    LayerError,
    ProfileReport,
    TableCoverage,
)
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.tables import plain_table

TARGET_ERROR = 0.05
"""Median error of shapes that were left out, from which a table is called rough."""


def print_report(report: ProfileReport, *, quiet: bool) -> None:
    """Show a report; quiet: its first line only."""
    out = console.stdout_console()
    out.print(Text(_headline(report)), soft_wrap=quiet)
    if quiet:
        return
    out.print()
    out.print(Text("Measured", style="bold"))
    out.print(_coverage_table(report.tables))
    if report.held_out:
        out.print()
        out.print(Text("Shapes left out, predicted from the others", style="bold"))
        out.print(_held_out_table(report.held_out))
    if report.layers:
        out.print()
        title = "Layers end to end, against what their operators add up to"
        out.print(Text(title, style="bold"))
        out.print(_layer_table(report.layers))
    for line in remarks(report):
        out.print(Text(f"- {line}"), soft_wrap=True)
    out.print()
    out.print(Text(f"Plan with it: automap plan SPEC --profile {report.folder}"), soft_wrap=True)


def print_cluster_report(report: ClusterReport, *, quiet: bool) -> None:
    """Show the kinds of node that were found, each with its profile and its link."""
    out = console.stdout_console()
    for kind in report.kinds:
        nodes = formats.number_of(len(kind.nodes), "node")
        out.print(Text(f"{kind.name}: {nodes} ({', '.join(kind.nodes[:4])})", style="bold"))
        print_report(kind.profile, quiet=quiet)
        if kind.link is not None:
            speed, latency = kind.link.bytes_per_second / 1e9, kind.link.seconds * 1e6
            between = " and ".join(kind.link.nodes)
            line = f"Between {between}: {speed:.3g} GB/s, {latency:.0f} µs"
            out.print(Text(line), soft_wrap=True)
        for remark in kind.remarks:
            out.print(Text(f"- {remark}"), soft_wrap=True)
        out.print()
    for failure in report.failures:
        out.print(Text(formats.printable(f"Not measured: {failure}"), style="red"), soft_wrap=True)
    out.print(Text(f"The cluster as a spec: {report.cluster_file}"), soft_wrap=True)


def _headline(report: ProfileReport) -> str:
    shapes = sum(table.measured for table in report.tables)
    wanted = sum(table.wanted for table in report.tables)
    before = f", {formats.count(report.resumed)} of them before" if report.resumed else ""
    return (
        f"{report.device}: {formats.count(shapes)} of {formats.count(wanted)} shapes measured"
        f"{before}; {report.seconds:.0f} s of a budget of {report.budget_seconds:g} s"
    )


def _coverage_table(tables: list[TableCoverage]) -> Table:
    table = plain_table()
    table.add_column("table", no_wrap=True)
    for name in ("shapes", "of", "failed", "samples", "rejected", "disturbed\nshapes", "±"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in tables:
        interval = each.median_interval
        table.add_row(
            each.table,
            *map(
                formats.count,
                (each.measured, each.wanted, each.failed, each.samples, each.rejected),
            ),
            formats.count(each.disturbed),
            "-" if interval is None else f"{100 * interval:.1f}%",
        )
    return table


def _held_out_table(results: list[HeldOut]) -> Table:
    table = plain_table()
    table.add_column("table", no_wrap=True)
    table.add_column("left out")
    for name in ("shapes", "median\nerror", "mean\nerror", ""):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for each in results:
        table.add_row(
            each.table,
            each.left_out,
            formats.count(each.shapes),
            f"{100 * each.median_error:.1f}%",
            f"{100 * each.mean_error:.1f}%",
            "" if each.median_error <= TARGET_ERROR else f"above {100 * TARGET_ERROR:g}%",
        )
    return table


def _layer_table(layers: list[LayerError]) -> Table:
    table = plain_table()
    for name in ("framework", "recompute", "part"):
        table.add_column(name, no_wrap=True)
    for name in ("batch", "measured\nms", "sum\nms", "error", "as\npriced"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why")
    for each in layers:
        table.add_row(
            each.framework,
            each.recompute,
            each.part,
            f"{each.num_sequences} × {each.sequence_length}",
            f"{1e3 * each.measured_seconds:.3g}",
            f"{1e3 * each.sum_seconds:.3g}",
            f"{100 * each.sum_error:+.0f}%",
            f"{100 * each.price_error:+.0f}%",
            each.explanation,
        )
    medians = [
        statistics.median([abs(error) for error in errors])
        for errors in zip(*((each.sum_error, each.price_error) for each in layers), strict=True)
    ]
    table.add_row("median", *[""] * 5, *(f"{100 * error:.0f}%" for error in medians), "")
    return table


def remarks(report: ProfileReport) -> Iterator[str]:
    """What disturbed a profile, in sentences."""
    conditions = report.conditions
    shapes = sum(table.measured for table in report.tables)
    busy, throttled = (
        f"{formats.count(sum(getattr(table, mark) for table in report.tables))} of "
        f"{formats.count(shapes)} shapes"
        for mark in ("busy", "throttled")
    )
    if conditions.busy:
        yield (
            f"The machine was busy when this began (load {conditions.load:g} on "
            f"{formats.number_of(conditions.cores, 'core')}): measure again when it is idle, into "
            "another folder."
        )
    if conditions.others:
        yield f"Others used it while {busy} were measured: {'; '.join(conditions.others)}."
    if conditions.slowed:
        yield f"The clock was slow while {throttled} were measured: {'; '.join(conditions.slowed)}."
    if conditions.drift > DRIFT_SHARE:
        yield (
            f"The same product took {100 * conditions.drift:.0f}% longer at the end: the clock "
            "slowed down, or others came."
        )
