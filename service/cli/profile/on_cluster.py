"""`automap profile --on-cluster`: have a service measure the cluster of its workers; show it."""

import yaml
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from automap.profiler.results.profile_report import ClusterReport, KindReport
from automap.profiler.settings import MeasureSettings
from automap.service.cli.profile.view import remarks
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.tables import plain_table
from automap.service.schemas.measurements import ProfileJobRecord


def measure_request(settings: MeasureSettings, *, make_default: bool) -> dict[str, object]:
    """The body of POST /v1/profiles that asks for this."""
    given = settings.model_dump(
        mode="json", exclude_defaults=True, include=set(MeasureSettings.model_fields) - {"models"}
    )
    sizes = {
        name: model.model_dump(mode="json", exclude_defaults=True)
        for name, model in settings.models.items()
    }
    return {"measure": {**given, "architectures": sizes, "make_default": make_default}}


def show_measurement(record: ProfileJobRecord) -> None:
    """How far the job is, what it has stored, and the cluster that it found."""
    out = console.stdout_console()
    status = "cancelling" if record.cancelling else record.status
    out.print(
        Text.assemble(
            ("profile of the cluster", "bold"),
            f": {status}, {record.seconds:.0f} s of a budget of {record.budget_seconds:g} s",
            f", attempt {record.attempts}" if record.attempts > 1 else "",
        ),
        soft_wrap=True,
    )
    if record.waits_for is not None:
        out.print(Text(f"waits for {formats.printable(record.waits_for)}"), soft_wrap=True)
    if record.problem is not None:
        out.print(Text(formats.printable(record.problem.detail), style="red"), soft_wrap=True)
    kinds = _kinds(record)
    if record.profiles:
        out.print()
        out.print(_stored(record, kinds))
    for kind in kinds.values():
        for line in [*kind.remarks, *remarks(kind.profile)]:
            out.print(Text(formats.printable(f"- {kind.name}: {line}")), soft_wrap=True)
    if record.cluster is not None:
        document = {"cluster": record.cluster.model_dump(mode="json", exclude_none=True)}
        out.print()
        out.print(Text(yaml.safe_dump(document, sort_keys=False).rstrip()), soft_wrap=True)


def _kinds(record: ProfileJobRecord) -> dict[str, KindReport]:
    try:
        report = ClusterReport.model_validate(record.report)
    except ValidationError:  # there is none yet
        return {}
    return {kind.name: kind for kind in report.kinds}


def _stored(record: ProfileJobRecord, kinds: dict[str, KindReport]) -> Table:
    table = plain_table()
    for header in ("pool", "device type", "nodes", "profile"):
        table.add_column(header, justify="right" if header == "nodes" else "left", no_wrap=True)
    table.add_column("shapes", justify="right", no_wrap=True)
    for each in record.profiles:
        kind = kinds.get(each.pool)
        tables = [] if kind is None else kind.profile.tables
        measured, wanted = (
            formats.count(sum(getattr(one, name) for one in tables))
            for name in ("measured", "wanted")
        )
        nodes = str(len(each.nodes))
        shapes = f"{measured} of {wanted}" if tables else ""
        table.add_row(each.pool, each.device_type, nodes, each.version, shapes)
    return table
