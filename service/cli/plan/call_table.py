"""The table of calls: who runs where, how, how long, how well, and how full the memory gets."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypedDict

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from automap.planner import Plan
from automap.planner.plan import CallPlan, SecondsByPart
from automap.service.cli.plan.timeline import Event, GpuRange, events_of
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.tables import (
    MEDIUM_COLUMNS,
    NOTHING,
    PAGE_COLUMNS,
    WIDE_COLUMNS,
    kept_whole,
    plain_table,
)

BAR_COLUMNS = 10
RECOMPUTE = {None: NOTHING, "none": NOTHING, "selective": "part", "full": "full"}
PART_NAMES = {"communication": "comm."}


@dataclass(frozen=True, slots=True)
class _CallColumns:
    """Which of the call table's optional columns there is a use and room for."""

    settings: bool
    """Layout, micro-batch and recomputation in columns of their own; else below the name."""
    copy: bool
    pool: bool
    stage: bool
    share: bool
    efficiency: bool
    interval: bool
    bar: bool
    details: bool
    whole_names: bool


def call_table(plan: Plan, *, width: int) -> Table:
    """A row per call and weight sync, in time order; the first column is the key of the chart."""
    events = events_of(plan)
    columns = _CallColumns(
        settings=width >= PAGE_COLUMNS,
        copy=width >= MEDIUM_COLUMNS,
        pool=len({copy.pool for copy in plan.copies}) > 1,
        stage=any(event.stage for event in events),
        share=width >= MEDIUM_COLUMNS,
        efficiency=any(call.model_flops_utilization is not None for call in plan.calls),
        interval=width >= WIDE_COLUMNS
        and any(call.seconds_interval is not None for call in plan.calls),
        bar=width >= MEDIUM_COLUMNS,
        details=width >= WIDE_COLUMNS,
        whole_names=width >= PAGE_COLUMNS and kept_whole(event.name for event in events),
    )
    table = plain_table()
    for header, options in _call_headers(columns):
        table.add_column(header, **options)
    if notes := list(_notes(plan, events, columns)):
        table.caption = Text("; ".join(notes), style="dim")
        table.caption_justify = "left"
    kinds: dict[str, str] = {copy.id: copy.kind for copy in plan.copies}
    for event in events:
        table.add_row(*_call_cells(event, plan, kinds, columns))
    return table


def _notes(plan: Plan, events: list[Event], columns: _CallColumns) -> Iterator[str]:
    """What the marks in the table mean."""
    if not columns.copy and any(copy.kind == "shadow" for copy in plan.copies):
        yield "* on the shadow copy"
    if any(call.streamed_from for call in plan.calls):
        yield "~ begins while responses are still generated"
    yield from (_tail_note(event) for event in events if event.tail is not None)
    for call in plan.calls:
        if call.tail is not None and call.tail.tensor_parallel_size is not None:
            yield (
                f"{call.id} ends with tp{call.tail.tensor_parallel_size}, after "
                f"{formats.percent(call.tail.ended_share)} of its responses"
            )
    if columns.stage:
        yield "stage +1: for the iteration that began a period before"


def _tail_note(event: Event) -> str:
    assert event.tail is not None
    gpus, seconds = event.tail
    kept = formats.gpu_range(gpus.pool, first_gpu=gpus.first_gpu, num_gpus=gpus.num_gpus)
    return f"{event.name} goes on with {kept} alone after {formats.seconds(seconds)} s"


class _ColumnOptions(TypedDict, total=False):
    justify: Literal["left", "right"]
    no_wrap: bool
    overflow: Literal["fold"]


def _call_headers(columns: _CallColumns) -> Iterator[tuple[str, _ColumnOptions]]:
    number: _ColumnOptions = {"justify": "right", "no_wrap": True}
    word: _ColumnOptions = {"no_wrap": True}
    yield "", word
    yield "call", {"overflow": "fold", "no_wrap": columns.whole_names}
    yield "GPUs", word
    if columns.copy:
        yield "copy", word
    if columns.settings:
        yield "parallelism", {"overflow": "fold"}
        yield "micro", number
        yield "re-\ncomp", word
    if columns.stage:
        yield "stage", number
    yield "time\ns", number
    if columns.interval:
        yield "80 % of\nruns", number
    if columns.share:
        yield "share", number
    if columns.efficiency:
        yield "MFU", number
        yield "tok/s\n/GPU", number
    yield "memory\nGiB", number
    if columns.bar:
        yield "", word
    if columns.details:
        yield "time is", {}


def _call_cells(
    event: Event, plan: Plan, kinds: dict[str, str], columns: _CallColumns
) -> Iterator[RenderableType]:
    call = event.call
    on_gpu = call if call is not None and call.copy_id else None
    kind = kinds[on_gpu.copy_id or ""] if on_gpu else "both" if event.sync else NOTHING
    yield Text(event.key, style="bold")
    yield Text(_name(event, kind, columns))
    yield Text("\n".join(_gpus(gpus, columns) for gpus in event.ranges) or "host")
    if columns.copy:
        yield kind
    if columns.settings:
        yield from _settings(on_gpu)
    if columns.stage:
        yield f"+{event.stage}" if event.stage else ""
    yield formats.seconds(event.duration_seconds)
    if columns.interval:
        yield _interval(call)
    if columns.share:
        yield formats.percent(event.duration_seconds / plan.iteration_seconds)
    if columns.efficiency:
        yield from _efficiency(on_gpu)
    yield _peak(on_gpu) if on_gpu else NOTHING
    if columns.bar:
        yield _bar(on_gpu.peak_bytes / on_gpu.capacity_bytes) if on_gpu else ""
    if columns.details:
        yield _made_of(call.seconds_by_part) if call else "weight transfer"


def _name(event: Event, kind: str, columns: _CallColumns) -> str:
    call = event.call
    name = event.name + ("*" if kind == "shadow" and not columns.copy else "")
    name += "~" if call is not None and call.streamed_from else ""
    if columns.settings or call is None or not call.copy_id:
        return name
    layout, micro, recompute = _settings(call)
    given = [
        layout,
        *([f"micro {micro}"] if micro != NOTHING else []),
        *([f"recompute {recompute}"] if recompute != NOTHING else []),
    ]
    return f"{name}\n {', '.join(given)}"


def _settings(call: CallPlan | None) -> tuple[str, str, str]:
    """(layout, micro-batch, recomputation) as words."""
    layout = call.parallelism if call else None
    return (
        layout.in_short() if layout else NOTHING,
        str((call and call.micro_batch_size) or NOTHING),
        RECOMPUTE[call.recompute if call else None],
    )


def _efficiency(call: CallPlan | None) -> Iterator[str]:
    """Model FLOPs utilization, and tokens per second and GPU."""
    used = call.model_flops_utilization if call else None
    tokens = call.tokens_per_second_per_gpu if call else None
    yield NOTHING if used is None else formats.percent(used)
    yield NOTHING if tokens is None else formats.rate(tokens)


def _interval(call: CallPlan | None) -> str:
    bounds = call.seconds_interval if call is not None else None
    if bounds is None:
        return NOTHING
    return f"{formats.seconds(bounds.low)}–{formats.seconds(bounds.high)}"


def _gpus(gpus: GpuRange, columns: _CallColumns) -> str:
    """A range of GPUs, with its pool only where there are several."""
    if columns.pool:
        return formats.gpu_range(gpus.pool, first_gpu=gpus.first_gpu, num_gpus=gpus.num_gpus)
    return formats.gpu_numbers(first_gpu=gpus.first_gpu, num_gpus=gpus.num_gpus)


def _peak(call: CallPlan) -> str:
    return f"{formats.gib(call.peak_bytes)}/{formats.gib(call.capacity_bytes)}"


def _bar(share: float) -> Text:
    """Memory in use as a bar; red when less than a twentieth is left."""
    filled = min(BAR_COLUMNS, round(share * BAR_COLUMNS))
    style = "red" if share > 0.95 else "yellow" if share > 0.8 else "green"
    return Text("█" * filled + "░" * (BAR_COLUMNS - filled), style=style)


def _made_of(parts: SecondsByPart) -> str:
    """The parts of a call's seconds that matter, the largest first."""
    return shares({name: getattr(parts, name) for name in SecondsByPart.model_fields})


def shares(amounts: dict[str, float]) -> str:
    """Amounts as shares of their sum, the largest first; below a hundredth they are left out."""
    total = sum(amounts.values())
    if total <= 0:
        return NOTHING
    ranked = sorted(((amount / total, name) for name, amount in amounts.items()), reverse=True)
    return ", ".join(
        f"{formats.percent(share)} {PART_NAMES.get(name, name)}"
        for share, name in ranked
        if share >= 0.01
    )
