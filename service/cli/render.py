"""A plan for people: calls, copies, timeline, totals, and what other strategies would cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.result import CallPlan, CopyPlan, Plan, SecondsByPart, Strategy
from service.cli import formats
from service.cli.gantt import gantt
from service.cli.timeline import Event, events_of

MEDIUM_COLUMNS = 100
WIDE_COLUMNS = 140
BAR_COLUMNS = 10
NOTHING = "–"
RECOMPUTE = {None: NOTHING, "none": NOTHING, "selective": "part", "full": "full"}
PART_NAMES = {"communication": "comm."}


def plan_view(plan: Plan, *, width: int, unicode: bool = True) -> Group:
    """Everything about a plan, `width` columns wide."""
    sections: list[tuple[str, RenderableType]] = [
        ("Calls", call_table(plan, width=width)),
        ("Copies", copy_table(plan.copies, wide=width >= MEDIUM_COLUMNS)),
        (_chart_title(plan), gantt(plan, width=width, unicode=unicode)),
        ("Totals", totals(plan)),
    ]
    if plan.alternatives:
        sections.append(("Other strategies", strategy_table(plan.alternatives)))
    parts: list[RenderableType] = [headline(plan)]
    for title, section in sections:
        parts += [Text(), Text(title, style="bold underline"), section]
    if plan.assumptions:
        parts += [Text(), Text("Rests on: " + "; ".join(plan.assumptions), style="dim")]
    return Group(*parts)


def _chart_title(plan: Plan) -> str:
    if plan.staleness == 0 and plan.iteration_barrier:
        return "One iteration"
    old = f", rollouts {formats.number_of(plan.staleness, 'iteration')} old" if plan.staleness else ""
    return f"One period of the repeating schedule (iterations overlap{old})"


def print_plan(plan: Plan, console: Console, *, unicode: bool) -> None:
    """Write the whole view."""
    console.print(plan_view(plan, width=console.width, unicode=unicode))


def headline(plan: Plan) -> Text:
    """The plan in one line: name, seconds, tokens per second, and how good that provably is."""
    return Text.assemble(
        (plan.name, "bold"),
        f" ({plan.algorithm or 'own dataflow'}, {formats.count(plan.gpus_used)} GPUs): ",
        (f"{formats.seconds(plan.iteration_seconds)} s per iteration", "bold"),
        f", {formats.count(plan.tokens_per_second)} tokens/s, {_proof(plan)}",
    )


def _proof(plan: Plan) -> str:
    match plan.search.status:
        case "optimal":
            return "proven optimal"
        case "feasible":
            return f"not proven, gap at most {formats.gap(plan.relative_gap)}"
        case "given":
            return "as given"


def _table() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)


@dataclass(frozen=True, slots=True)
class _CallColumns:
    """Which of the call table's optional columns there is a use and room for."""

    copy: bool
    stage: bool
    share: bool
    bar: bool
    details: bool


def call_table(plan: Plan, *, width: int) -> Table:
    """A row per call and weight sync, in time order; the first column is the key of the chart."""
    events = events_of(plan)
    columns = _CallColumns(
        copy=width >= MEDIUM_COLUMNS,
        stage=(staged := any(event.stage for event in events)),
        share=width >= MEDIUM_COLUMNS or not staged,
        bar=width >= MEDIUM_COLUMNS,
        details=width >= WIDE_COLUMNS,
    )
    table = _table()
    for header, options in _call_headers(columns):
        table.add_column(header, **options)
    kinds: dict[str, str] = {copy.id: copy.kind for copy in plan.copies}
    notes = []
    if not columns.copy and "shadow" in kinds.values():
        notes.append("* on the shadow copy")
    if columns.stage:
        notes.append("stage +1: for the iteration that began a period before")
    if notes:
        table.caption = Text("; ".join(notes), style="dim")
        table.caption_justify = "left"
    for event in events:
        table.add_row(*_call_cells(event, plan, kinds, columns))
    return table


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
    if columns.share:
        yield "share", number
    yield "memory\nGiB", number
    if columns.bar:
        yield "", word
    if columns.details:
        yield "time is", {}
        yield "estimate", word


def _call_cells(
    event: Event, plan: Plan, kinds: dict[str, str], columns: _CallColumns
) -> Iterator[RenderableType]:
    call = event.call
    on_gpu = call if call is not None and call.copy_id else None
    kind = kinds[on_gpu.copy_id or ""] if on_gpu else "both" if event.sync else NOTHING
    star = "*" if kind == "shadow" and not columns.copy else ""
    yield from (Text(event.key, style="bold"), Text(event.name + star), Text(_ranges(event)))
    if columns.copy:
        yield kind
    layout = on_gpu.parallelism if on_gpu else None
    yield formats.parallelism(layout) if layout else NOTHING
    yield str((call and call.micro_batch_size) or NOTHING)
    yield RECOMPUTE[call.recompute if call else None]
    if columns.stage:
        yield f"+{event.stage}" if event.stage else ""
    yield formats.seconds(event.duration_seconds)
    if columns.share:
        yield formats.percent(event.duration_seconds / plan.iteration_seconds)
    yield _peak(on_gpu) if on_gpu else NOTHING
    if columns.bar:
        yield _bar(on_gpu.peak_bytes / on_gpu.capacity_bytes) if on_gpu else ""
    if columns.details:
        yield _made_of(call.seconds_by_part) if call else "weight transfer"
        yield call.source if call else ""


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
    return _shares({name: getattr(parts, name) for name in SecondsByPart.model_fields})


def _shares(amounts: dict[str, float]) -> str:
    total = sum(amounts.values())
    if total <= 0:
        return NOTHING
    ranked = sorted(((amount / total, name) for name, amount in amounts.items()), reverse=True)
    return ", ".join(
        f"{formats.percent(share)} {PART_NAMES.get(name, name)}"
        for share, name in ranked
        if share >= 0.01
    )


def _gpu_time(plan: Plan) -> str:
    """Where the GPU-seconds of one iteration go, idle ones on the nodes in use included."""
    available = plan.gpus_used * plan.iteration_seconds
    amounts = dict.fromkeys(SecondsByPart.model_fields, 0.0)
    for event in events_of(plan):
        num_gpus = sum(gpus.num_gpus for gpus in event.ranges)
        if event.call is None:
            amounts["transition"] += num_gpus * event.duration_seconds
            continue
        for name in SecondsByPart.model_fields:
            amounts[name] += num_gpus * getattr(event.call.seconds_by_part, name)
    return _shares({**amounts, "idle": max(0.0, available - sum(amounts.values()))})


def copy_table(copies: Sequence[CopyPlan], *, wide: bool) -> Table:
    """A row per set of weights with what it holds through the whole iteration."""
    table = _table()
    table.add_column("copy", no_wrap=True)
    table.add_column("kind")
    table.add_column("GPUs", overflow="fold")
    table.add_column("layout")
    table.add_column("sharded")
    table.add_column("offload")
    if wide:
        for kind in ("weights", "gradients", "optimizer"):
            table.add_column(f"{kind}\nGiB", justify="right")
    table.add_column("resident\nGiB/GPU", justify="right")
    table.add_column("on host\nGiB/GPU", justify="right")
    for copy in copies:
        held = copy.bytes_by_kind
        kinds = (held.weights, held.gradients, held.optimizer) if wide else ()
        table.add_row(
            Text(copy.id),
            copy.kind,
            Text(formats.gpu_range(copy.pool, first_gpu=copy.first_gpu, num_gpus=copy.num_gpus)),
            formats.parallelism(copy.layout),
            NOTHING if copy.layout.sharding == "none" else copy.layout.sharding,
            NOTHING if copy.offload == "none" else copy.offload,
            *(formats.gib(value) for value in kinds),
            formats.gib(copy.resident_bytes),
            formats.gib(copy.host_bytes),
        )
    return table


def totals(plan: Plan) -> Table:
    """Iteration, throughput, price, the whole run, the proof and what the search took."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in _total_lines(plan):
        table.add_row(Text(name), Text(value))
    return table


def _total_lines(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "iteration", f"{formats.seconds(plan.iteration_seconds)} s"
    yield (
        "throughput",
        f"{formats.count(plan.tokens_per_second)} tokens/s "
        f"({formats.count(plan.tokens_per_iteration)} tokens an iteration)",
    )
    yield (
        "price",
        f"{formats.price(plan.price_per_iteration)} an iteration, "
        f"{formats.price(plan.price_per_million_tokens)} per million tokens",
    )
    iterations = plan.spec.workload.iterations
    yield (
        "whole run",
        f"{formats.duration(plan.run_seconds)} for {formats.price(plan.run_price)} "
        f"({formats.number_of(iterations, 'iteration')})",
    )
    yield "GPU time", _gpu_time(plan)
    yield "proof", _proof_line(plan)
    search = plan.search
    if search.status != "given":
        yield (
            "search",
            f"{formats.seconds(plan.search_seconds)} s: "
            f"pricing {formats.seconds(search.pricing_seconds)} s "
            f"({formats.count(search.candidates_priced)} candidates), "
            f"solving {formats.seconds(search.solving_seconds)} s "
            f"({formats.count(search.options)} options left)",
        )


def _proof_line(plan: Plan) -> str:
    search = plan.search
    if search.status == "given":
        return "none: the placement was given, nothing was searched"
    unit = {"throughput": " s", "price": " an iteration", "fewest_gpus": " GPUs"}[search.objective]
    write = formats.price if search.objective == "price" else formats.seconds
    if search.objective == "fewest_gpus":
        write = formats.count
    found, bound = write(search.objective_value), write(search.lower_bound)
    verdict = "optimal" if search.status == "optimal" else "best found in the time"
    return (
        f"{verdict}: {found}{unit} against a proven bound of {bound}{unit}, "
        f"gap {formats.gap(plan.relative_gap)}; {search.space}"
    )


def strategy_table(strategies: Sequence[Strategy]) -> Table:
    """What named strategies cost beside the plan: the fastest first, those that fail last."""
    table = _table()
    table.add_column("strategy", no_wrap=True)
    table.add_column("iteration\nseconds", justify="right", no_wrap=True)
    table.add_column("times\nslower", justify="right", no_wrap=True)
    table.add_column("price an\niteration", justify="right", no_wrap=True)
    table.add_column("why")
    for strategy in sorted(strategies, key=_strategy_rank):
        table.add_row(Text(strategy.name), *_strategy_cells(strategy))
    return table


def _strategy_rank(strategy: Strategy) -> tuple[bool, float, str]:
    return not strategy.feasible, strategy.iteration_seconds or 0.0, strategy.name


def _strategy_cells(strategy: Strategy) -> Iterator[RenderableType]:
    numbers = (
        (strategy.iteration_seconds, formats.seconds),
        (strategy.times_slower, lambda value: f"{value:.2f}"),
        (strategy.price_per_iteration, formats.price),
    )
    for value, write in numbers:
        yield NOTHING if value is None else write(value)
    why = Text("cannot run: " if not strategy.feasible else "", style="bold")
    yield why.append(strategy.reason, style="not bold")
