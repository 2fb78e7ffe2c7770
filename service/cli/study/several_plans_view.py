"""Answers of several plans for people: a row per plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from automap.planner import Front, Plan, WhatIf
from automap.planner.catalogue import gpu_type
from automap.planner.errors import Reason
from automap.planner.studies import Refusal, Variant
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.tables import NOTHING, plain_table

WIDE = 140
"""From this width on each placement is beside its figures, not below them."""

FIGURES = ("iteration\nseconds", "tokens/s", "price an\niteration", "per 1M\ntokens", "gap")
RUN_FIGURES = ("whole\nrun", "its\nprice")


@dataclass(frozen=True, slots=True)
class _Row:
    """A plan, or none, under the name that distinguishes it from the others."""

    name: str
    cells: tuple[str, ...]
    """The cells before the plan's own figures."""
    plan: Plan | None
    pools: Mapping[str, str] | None = None
    """What to call a pool whose name says another thing than what it is here; None: its name."""


def front_view(front: Front, *, width: int, brief: bool = False) -> Group:
    """The plans of a front, fastest first, and what is proven of it."""
    proof = Text(_front_proof(front), style="bold")
    if brief:
        return Group(proof)
    rows = [_Row(f"{formats.count(plan.gpus_used)} GPUs", (), plan) for plan in front.plans]
    return Group(proof, Text(), *_figures(rows, ("plan",), width=width), *_open_nodes(front))


def what_if_view(answer: WhatIf, *, width: int, brief: bool = False) -> Group:
    """A row per cluster; below it why some have no plan."""
    if brief:
        return Group(*(Text(_in_a_line(variant)) for variant in answer.variants))
    rows = [
        _Row(_cluster(variant), (_gpus(variant), _scaling(variant)), variant.plan, pools)
        for variant in answer.variants
        for pools in [_renamed(answer, variant)]
    ]
    without = [
        Text(f"{_cluster(variant)}: {_told(variant.reasons)}")
        for variant in answer.variants
        if variant.plan is None
    ]
    return Group(
        *_figures(rows, ("cluster", "GPUs", "scaling"), width=width),
        *([Text(), *without] if without else []),
        Text(),
        Text("scaling: tokens/s per paid GPU over those of the smallest cluster with the same GPU"),
    )


def refusal_view(refusal: Refusal, *, width: int) -> Group:
    """What makes an impossible job possible, and what that plan would cost."""
    parts: list[RenderableType] = []
    if refusal.remedies:
        parts.append(Text("It would fit if you …; each planned, the least change first:"))
        rows = []
        for number, remedy in enumerate(refusal.remedies, start=1):
            parts.append(Text(f"{number}. {formats.printable(remedy.change)}"))
            gpus = formats.count(remedy.plan.gpus_used)
            rows.append(_Row(str(number), (gpus,), remedy.plan))
        parts += [Text(), *_figures(rows, ("", "GPUs"), width=width)]
    else:
        parts.append(Text("No change that was tried makes it fit.", style="bold"))
    if refusal.untried:
        parts.append(Text("Would fit as well, but no time was left to plan it:", style="bold"))
        parts += [Text(f"- {formats.printable(text)}") for text in refusal.untried]
    return Group(*parts)


def shape(plan: Plan, *, pools: Mapping[str, str] | None = None) -> str:
    """Which models lie where, and how those that train are split.

    `pools`: what to call a pool whose name says another thing than what it is here.
    """
    trained = {call.copy_id for call in plan.calls if call.kind == "train"}
    places: dict[str, list[str]] = {}
    for copy in plan.copies:
        pool = (pools or {}).get(copy.pool, copy.pool)
        where = formats.gpu_range(pool, first_gpu=copy.first_gpu, num_gpus=copy.num_gpus)
        split = f" {copy.layout.in_short()}" if copy.id in trained else ""
        places.setdefault(where, []).append(copy.id + split)
    return "; ".join(f"{where} {', '.join(who)}" for where, who in places.items())


def _figures(
    rows: Sequence[_Row], headers: Sequence[str], *, width: int
) -> Iterator[RenderableType]:
    """The table of what plans take and cost; where it is narrow, their placements below it."""
    wide = width >= WIDE
    table = plain_table()
    table.add_column(headers[0], no_wrap=wide, max_width=None if wide else 14)
    for header in (*headers[1:], *FIGURES, *(RUN_FIGURES if wide or len(headers) < 3 else ())):
        table.add_column(header, justify="right", no_wrap=True)
    if wide:
        table.add_column("placement", overflow="fold")
    for row in rows:
        cells = list(_figure_cells(row.plan, run=wide or len(headers) < 3))
        where = "" if row.plan is None else shape(row.plan, pools=row.pools)
        placement = [Text(where)] if wide else []
        table.add_row(Text(row.name), *row.cells, *cells, *placement)
    yield table
    if not wide:
        yield Text()
        for row in rows:
            if row.plan is not None:
                yield Text(f"{row.name}: {shape(row.plan, pools=row.pools)}")


def _figure_cells(plan: Plan | None, *, run: bool) -> Iterator[RenderableType]:
    if plan is None:
        yield from [NOTHING] * (len(FIGURES) + (len(RUN_FIGURES) if run else 0))
        return
    yield formats.seconds(plan.iteration_seconds)
    yield formats.count(plan.tokens_per_second)
    yield formats.price(plan.price_per_iteration)
    yield formats.price(plan.price_per_million_tokens)
    yield NOTHING if plan.search.status == "given" else formats.gap(plan.relative_gap)
    if run:
        yield formats.duration(plan.run_seconds)
        yield formats.price(plan.run_price)


def _gpus(variant: Variant) -> str:
    used = variant.num_gpus if variant.plan is None else variant.plan.gpus_used
    of = f" of {formats.count(variant.num_gpus)}" if used < variant.num_gpus else ""
    return formats.count(used) + of


def _scaling(variant: Variant) -> str:
    efficiency = variant.scaling_efficiency
    return NOTHING if efficiency is None else formats.percent(efficiency)


def _cluster(variant: Variant) -> str:
    return f"{formats.number_of(variant.num_nodes, 'node')} {variant.gpu}"


def _renamed(answer: WhatIf, variant: Variant) -> dict[str, str]:
    """The pool by its GPUs where these are others than the spec's: its name may be the old type."""
    if isinstance(answer.spec.cluster, str):  # stored on a service
        return {variant.pool: variant.gpu}
    own = next(pool.gpu for pool in answer.spec.cluster.pools if pool.name == variant.pool)
    return {} if gpu_type(own).name == variant.gpu else {variant.pool: variant.gpu}


def _in_a_line(variant: Variant) -> str:
    plan = variant.plan
    if plan is None:
        return f"{_cluster(variant)}: no plan, {_told(variant.reasons)}"
    return (
        f"{_cluster(variant)}: {formats.seconds(plan.iteration_seconds)} s per iteration, "
        f"{formats.count(plan.tokens_per_second)} tokens/s, "
        f"{formats.price(plan.price_per_iteration)} an iteration"
    )


def _told(reasons: Sequence[Reason]) -> str:
    return "; ".join(formats.printable(reason.summary) for reason in reasons)


def _front_proof(front: Front) -> str:
    beaten = f" by more than {100 * front.tolerance:g} %" if front.tolerance else ""
    verdict = (
        f"proven: no plan of the searched space beats these{beaten} in both seconds and price"
        if front.proven
        else f"not proven: stopped at the time limit of {front.spec.search.time_limit_seconds:g} s"
    )
    return (
        f"{formats.printable(front.spec.name)}: {formats.number_of(len(front.plans), 'plan')} "
        f"({formats.count(front.searches)} of "
        f"{formats.number_of(front.node_numbers, 'number')} of nodes searched, "
        f"{formats.seconds(front.seconds)} s), {verdict}"
    )


def _open_nodes(front: Front) -> Iterator[RenderableType]:
    if not front.undecided:
        return
    yield Text()
    yield Text("Left open:", style="bold")
    for each in front.undecided:
        gpus = ", ".join(f"{pool} {count}" for pool, count in each.gpus.items())
        yield Text(
            f"- up to {gpus} GPUs: no iteration below {formats.seconds(each.lower_bound_seconds)} s"
        )
