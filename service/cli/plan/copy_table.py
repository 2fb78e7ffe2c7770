"""The table of copies: each set of weights that stays on GPUs, and what it holds there."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from automap.planner.plan import BytesByKind, CopyPlan
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.tables import NOTHING, PAGE_COLUMNS, kept_whole, plain_table


def copy_table(copies: Sequence[CopyPlan], *, width: int) -> Table:
    """A row per set of weights: where and how it lies, and its GiB per GPU all iteration long."""
    spacious = width >= PAGE_COLUMNS
    several_pools = len({copy.pool for copy in copies}) > 1
    offloads = any(copy.offload != "none" for copy in copies)
    on_host = any(copy.host_bytes for copy in copies)
    table = plain_table()
    whole = spacious and kept_whole(copy.id for copy in copies)
    table.add_column("copy", overflow="fold", no_wrap=whole)
    if spacious:
        table.add_column("engine", overflow="fold")
    table.add_column("GPUs", no_wrap=True)
    if spacious:
        table.add_column("layout", overflow="fold")
    table.add_column("sharded", no_wrap=True)
    if offloads:
        table.add_column("offload", no_wrap=True)
    table.add_column("GiB/GPU", justify="right", no_wrap=True)
    if on_host:
        table.add_column("on host", justify="right", no_wrap=True)
    for copy in copies:
        engine, layout = copy.engine or copy.kind, copy.layout.in_short()
        table.add_row(
            Text(copy.id if spacious else f"{copy.id}\n {layout} {engine}"),
            *([engine] if spacious else []),
            Text(_gpus(copy, several_pools=several_pools)),
            *([layout] if spacious else []),
            NOTHING if copy.layout.sharding == "none" else copy.layout.sharding,
            *([NOTHING if copy.offload == "none" else copy.offload] if offloads else []),
            formats.gib(copy.resident_bytes),
            *([formats.gib(copy.host_bytes)] if on_host else []),
        )
    return table


def bytes_table(copies: Sequence[CopyPlan]) -> Table:
    """A row per set of weights: its GiB per GPU by kind, and those in host memory."""
    kinds = [
        kind
        for kind in BytesByKind.model_fields
        if any(getattr(copy.bytes_by_kind, kind) for copy in copies)
    ]
    table = plain_table()
    table.add_column("copy", overflow="fold", no_wrap=kept_whole(copy.id for copy in copies))
    for kind in kinds:
        table.add_column(kind.replace("_", "\n"), justify="right", no_wrap=True)
    table.add_column("on host", justify="right", no_wrap=True)
    for copy in copies:
        held = (formats.gib(getattr(copy.bytes_by_kind, kind)) for kind in kinds)
        table.add_row(Text(copy.id), *held, formats.gib(copy.host_bytes))
    return table


def _gpus(copy: CopyPlan, *, several_pools: bool) -> str:
    if several_pools:
        return formats.gpu_range(copy.pool, first_gpu=copy.first_gpu, num_gpus=copy.num_gpus)
    return formats.gpu_numbers(first_gpu=copy.first_gpu, num_gpus=copy.num_gpus)
