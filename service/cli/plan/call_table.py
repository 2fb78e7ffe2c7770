"""The table of calls: who runs where, how, how long, and how full the memory gets."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypedDict

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from automap.planner import Plan
from automap.planner.plan import CallPlan, SecondsByPart
from automap.service.cli.plan.timeline import Event, events_of
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.tables import MEDIUM_COLUMNS, NOTHING, WIDE_COLUMNS, plain_table

BAR_COLUMNS = 10
RECOMPUTE = {None: NOTHING, "none": NOTHING, "selective": "part", "full": "full"}
PART_NAMES = {"communication": "comm."}


@dataclass(frozen=True, slots=True)
class _CallColumns:
    """Which of the call table's optional columns there is a use and room for."""

    copy: bool
    stage: bool
    share: bool
    interval: bool
    bar: bool
    details: bool


def call_table(plan: Plan, *, width: int) -> Table:
    """A row per call and weight sync, in time order; the first column is the key of the chart."""
    events = events_of(plan)
    columns = _CallColumns(
        copy=width >= MEDIUM_COLUMNS,
        stage=(staged := any(event.stage for event in events)),
        share=width >= MEDIUM_COLUMNS or not staged,
        interval=width >= WIDE_COLUMNS
        and any(call.seconds_interval is not None for call in plan.calls),
        bar=width >= MEDIUM_COLUMNS,
        details=width >= WIDE_COLUMNS,
    )
    table = plain_table()
    for header, options in _call_headers(columns):
        table.add_column(header, **options)
    kinds: dict[str, str] = {copy.id: copy.kind for copy in plan.copies}
    notes = []
    if not columns.copy and "shadow" in kinds.values():
        notes.append("* on the shadow copy")
    if any(call.streamed_from for call in plan.calls):
        notes.append("~ begins while responses are still generated")
    notes += [_tail_note(event) for event in events if event.tail is not None]
    notes += [
        f"{call.id} ends with tp{call.tail.tensor_parallel_size}, after "
        f"{formats.percent(call.tail.ended_share)} of its responses"
        for call in plan.calls
        if call.tail is not None and call.tail.tensor_parallel_size is not None
    ]
    if columns.stage:
        notes.append("stage +1: for the iteration that began a period before")
    if notes:
        table.caption = Text("; ".join(notes), style="dim")
        table.caption_justify = "left"
    for event in events:
        table.add_row(*_call_cells(event, plan, kinds, columns))
    return table


def _tail_note(event: Event) -> str:
    assert event.tail is not None
    gpus, seconds = event.tail
    kept = formats.gpu_range(gpus.pool, first_gpu=gpus.first_gpu, num_gpus=gpus.num_gpus)
    return f"{event.name} goes on with {kept} alone after {formats.seconds(seconds)} s"


class _ColumnOptions(TypedDict, total=False):
    justify: Literal["left", "right"]
    no_wrap: bool


def _call_headers(columns: _CallColumns) -> Iterator[tuple[str, _ColumnOptions]]:
    number: _ColumnOptions = {"justify": "right", "no_wrap": True}
    word: _ColumnOptions = {"no_wrap": True}
    for header in ("", "call", "GPUs"):
        yield header, word
    if columns.copy:
        yield "copy", word
    yield "parallelism", {}
    yield "micro", number
    yield "recom-\npute", word
    if columns.stage:
        yield "stage", number
    yield "time\ns", number
    if columns.interval:
        yield "80 % of\nruns", number
    if columns.share:
        yield "share", number
    yield "memory\nGiB", number
    if columns.bar:
        yield "", word
    if columns.details:
        yield "time is", {}
        yield "weakest\nsource", word


def _call_cells(
    event: Event, plan: Plan, kinds: dict[str, str], columns: _CallColumns
) -> Iterator[RenderableType]:
    call = event.call
    on_gpu = call if call is not None and call.copy_id else None
    kind = kinds[on_gpu.copy_id or ""] if on_gpu else "both" if event.sync else NOTHING
    star = "*" if kind == "shadow" and not columns.copy else ""
    star += "~" if call is not None and call.streamed_from else ""
    yield from (Text(event.key, style="bold"), Text(event.name + star), Text(_ranges(event)))
    if columns.copy:
        yield kind
    layout = on_gpu.parallelism if on_gpu else None
    yield layout.in_short() if layout else NOTHING
    yield str((call and call.micro_batch_size) or NOTHING)
    yield RECOMPUTE[call.recompute if call else None]
    if columns.stage:
        yield f"+{event.stage}" if event.stage else ""
    yield formats.seconds(event.duration_seconds)
    if columns.interval:
        yield _interval(call)
    if columns.share:
        yield formats.percent(event.duration_seconds / plan.iteration_seconds)
    yield _peak(on_gpu) if on_gpu else NOTHING
    if columns.bar:
        yield _bar(on_gpu.peak_bytes / on_gpu.capacity_bytes) if on_gpu else ""
    if columns.details:
        yield _made_of(call.seconds_by_part) if call else "weight transfer"
        yield call.source if call else ""


def _interval(call: CallPlan | None) -> str:
    bounds = call.seconds_interval if call is not None else None
    if bounds is None:
        return NOTHING
    return f"{formats.seconds(bounds.low)}–{formats.seconds(bounds.high)}"


def _ranges(event: Event) -> str:
    texts = [
        formats.gpu_range(gpus.pool, first_gpu=gpus.first_gpu, num_gpus=gpus.num_gpus)
        for gpus in event.ranges
    ]
    return "\n".join(texts) or "host"


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
