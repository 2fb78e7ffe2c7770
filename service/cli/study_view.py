"""Answers of several plans for people: a row per plan."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.errors import Reason
from planner.result import Plan
from planner.studies import Explanation, Front, Variant, WhatIf
from service.cli import formats
from service.cli.call_table import NOTHING, plain_table


def front_view(front: Front, *, brief: bool = False) -> Group:
    """The plans of a front, fastest first, and what is proven of it."""
    table = plain_table()
    table.add_column("GPUs", justify="right", no_wrap=True)
    _add_plan_columns(table)
    for plan in front.plans:
        table.add_row(formats.count(plan.gpus_used), *_plan_cells(plan))
    proof = Text(_front_proof(front), style="bold")
    return Group(proof) if brief else Group(proof, Text(), table, *_open_nodes(front))


def what_if_view(answer: WhatIf) -> Group:
    """A row per cluster; below it why some have no plan."""
    table = plain_table()
    table.add_column("cluster", no_wrap=True)
    table.add_column("GPUs", justify="right", no_wrap=True)
    table.add_column("scaling", justify="right", no_wrap=True)
    _add_plan_columns(table)
    without: list[RenderableType] = []
    for variant in answer.variants:
        table.add_row(*_variant_cells(variant))
        if variant.plan is None:
            without.append(Text(f"{_cluster(variant)}: {_told(variant.reasons)}"))
    notes: list[RenderableType] = [Text(), *without] if without else []
    return Group(
        table,
        *notes,
        Text("scaling: tokens/s per paid GPU over those of the smallest cluster with the same GPU"),
    )


def explanation_view(explanation: Explanation) -> Group:
    """What makes an impossible job possible, and what that plan would cost."""
    parts: list[RenderableType] = []
    if explanation.remedies:
        table = plain_table()
        table.add_column("it would fit if you", ratio=3, overflow="fold")
        table.add_column("GPUs", justify="right", no_wrap=True)
        _add_plan_columns(table)
        for remedy in explanation.remedies:
            plan = remedy.plan
            change = Text(formats.printable(remedy.change))
            table.add_row(change, formats.count(plan.gpus_used), *_plan_cells(plan))
        parts += [Text("Each planned, the least change first:", style="bold"), table]
    else:
        parts.append(Text("No change that was tried makes it fit.", style="bold"))
    if explanation.untried:
        parts.append(Text("Would fit as well, but no time was left to plan it:", style="bold"))
        parts += [Text(f"- {formats.printable(text)}") for text in explanation.untried]
    return Group(*parts)


def shape(plan: Plan) -> str:
    """Which models lie where, and how those that train are split."""
    trained = {call.copy_id for call in plan.calls if call.kind == "train"}
    places: dict[str, list[str]] = {}
    for copy in plan.copies:
        where = formats.gpu_range(copy.pool, first_gpu=copy.first_gpu, num_gpus=copy.num_gpus)
        split = f" {formats.parallelism(copy.layout)}" if copy.id in trained else ""
        places.setdefault(where, []).append(copy.id + split)
    return "; ".join(f"{where} {', '.join(who)}" for where, who in places.items())


def _add_plan_columns(table: Table) -> None:
    for header in (
        "iteration\nseconds",
        "tokens/s",
        "price an\niteration",
        "per million\ntokens",
        "whole\nrun",
        "its\nprice",
        "gap",
    ):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("placement", overflow="fold")


def _plan_cells(plan: Plan) -> Iterator[RenderableType]:
    yield formats.seconds(plan.iteration_seconds)
    yield formats.count(plan.tokens_per_second)
    yield formats.price(plan.price_per_iteration)
    yield formats.price(plan.price_per_million_tokens)
    yield formats.duration(plan.run_seconds)
    yield formats.price(plan.run_price)
    yield NOTHING if plan.search.status == "given" else formats.gap(plan.relative_gap)
    yield Text(shape(plan))


def _variant_cells(variant: Variant) -> Iterator[RenderableType]:
    yield Text(_cluster(variant))
    if variant.plan is None or variant.scaling_efficiency is None:
        yield formats.count(variant.num_gpus)
        yield from [NOTHING] * 8
        yield Text("no plan; see below")
        return
    used, of = variant.plan.gpus_used, variant.num_gpus
    yield formats.count(used) + ("" if used >= of else f" of {formats.count(of)}")
    yield formats.percent(variant.scaling_efficiency)
    yield from _plan_cells(variant.plan)


def _cluster(variant: Variant) -> str:
    return f"{formats.number_of(variant.num_nodes, 'node')} {variant.gpu}"


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
