"""`automap compare --targets`: the best plan of a job inside each target, in one table."""

import json
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from automap.planner import Plan, TargetCost, target_costs
from automap.planner.errors import SpecError
from automap.planner.frameworks import framework, framework_names
from automap.planner.job import resolve
from automap.planner.spec import JobSpec
from automap.planner.targets import ANY, TARGETS, limits_in_words
from automap.service.cli.options.plans import CompareArguments
from automap.service.cli.options.shared import target_of
from automap.service.cli.plan.inputs import working
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, need_valid
from automap.service.cli.terminal.tables import plain_table

ALL = "all"
SAME = 5e-4
"""Share by which a plan may be above the best one and be shown as no dearer."""


def compare_targets(given: CompareArguments, spec: JobSpec) -> None:
    """Plan the job inside each target, without its limits, and show one beside the other."""
    if given.strategy:
        raise BadInputError("--strategy and --targets are two comparisons", ["give one of them"])
    names = [name for name in TARGETS if name != ANY.name]
    wanted = (
        names
        if given.targets == ALL
        else [target_of(each.strip()) for each in (given.targets or "").split(",")]
    )
    need_valid("--targets", wanted, names)
    with working("Planning for each target", given.show) as tell:
        chosen = [name for name in names if name in wanted]
        costs = target_costs(spec, chosen, by_limit=False, nearest=True, tell=tell)
    if given.show.json:
        console.write_json(json.dumps([_as_json(each) for each in costs], indent=2))
        return
    out = console.stdout_console()
    costs.sort(key=lambda each: (each.plan is None, _objective(each)))
    best = best_of_all(spec, costs)
    if best:
        out.print(f"Best of all that can be priced: {best}\n")
    out.print(_table(costs))
    _print_notes(spec, costs, out)
    if given.show.quiet:
        return
    for each in costs:
        _print_lacks(each, out, details=given.details)
    if not given.details:
        told = (
            "Rows are optima: automap plan may take a simpler plan within "
            "search.simplicity_tolerance of one. --details lists every limit of each target, and "
            "`automap targets SPEC` its cost."
        )
        out.print(Text(f"\n{told}", style="dim"), soft_wrap=True)


def best_of_all(spec: JobSpec, costs: Iterable[TargetCost]) -> str:
    """What plans cost at least, by engine where targets generate with several; empty: not known."""
    found: dict[str, float] = {}
    for each in costs:
        if each.plan is not None and each.free_value is not None:
            asked = "rollout_engine" in each.otherwise
            engine = (spec if asked else each.plan.spec).workload.rollout_engine
            found[engine] = min(found.get(engine, each.free_value), each.free_value)
    texts = {engine: formats.objective_text(spec.search, value) for engine, value in found.items()}
    if len(set(texts.values())) < 2:
        return next(iter(texts.values()), "")
    engines = sorted(found, key=lambda each: found[each])
    return ", ".join(f"{texts[engine]} with {engine}" for engine in engines)


def _print_notes(spec: JobSpec, costs: list[TargetCost], out: Console) -> None:
    """What the table does not say of its rows."""
    for each in costs:
        if each.plan is None:
            out.print(Text(f"{each.target}: {formats.printable(_why_not(each))}"), soft_wrap=True)
        elif each.otherwise:
            out.print(Text(f"* {each.target}: {_otherwise(spec, each)}"), soft_wrap=True)
    for told in (_flows(costs), of_drivers(costs)):
        if told:
            out.print(Text(told), soft_wrap=True)
    if waiting := [each.target for each in costs if each.plan and waits_in_turn(each.plan)]:
        told = (
            "generation has GPUs of its own, and either they wait or those that train: "
            "search.staleness: 1 lets both work at once, on responses of the weights before"
        )
        out.print(Text(f"{', '.join(waiting)}: {told}"), soft_wrap=True)


def _flows(costs: Iterable[TargetCost]) -> str:
    """Which rows generate without batches, where others do in them and could do without."""
    planned = [(each.target, each.plan) for each in costs if each.plan is not None]
    flowing = [target for target, plan in planned if plan.spec.search.continuous_rollouts]
    could = [
        target
        for target, plan in planned
        if target not in flowing
        and plan.spec.search.staleness > 1
        and TARGETS[target].continuous is not None
    ]
    if not flowing or not could:
        return ""
    return (
        f"{', '.join(flowing)}: generate without batches, and never otherwise with this staleness; "
        f"search.continuous_rollouts: true asks {' and '.join(could)} for it, whose rows are of "
        "batches"
    )


def of_drivers(costs: Iterable[TargetCost]) -> str:
    """What the drivers of some targets take besides; empty: of none it is known."""
    known = [
        f"{formats.seconds(each.driver_seconds)} s of {each.target}"
        for each in costs
        if each.plan is not None and each.driver_seconds is not None
    ]
    if not known:
        return ""
    return (
        f"Drivers come on top, {' and '.join(known)} as measured, nobody knows how much of the "
        "others; automap plan counts what is measured"
    )


def waits_in_turn(plan: Plan) -> bool:
    """Whether models that train generate on other GPUs, for want of a staleness that may be had."""
    apart = {each.id for each in plan.copies if each.kind == "shadow"}
    generates_apart = any(each.kind == "generate" and each.copy_id in apart for each in plan.calls)
    if plan.spec.search.staleness or not generates_apart:
        return False
    search = plan.spec.search.model_copy(update={"staleness": 1})
    try:
        resolve(plan.spec.model_copy(update={"search": search}))
    except SpecError:
        return False
    return True


def _objective(cost: TargetCost) -> float:
    return 0.0 if cost.plan is None else cost.plan.search.objective_value


def _why_not(cost: TargetCost) -> str:
    """Why there is no plan, without what the row says already."""
    return cost.reason.rpartition("cannot run this job: ")[2].partition(" (change ")[0]


def _otherwise(spec: JobSpec, cost: TargetCost) -> str:
    """What its plan has of the workload instead of what the spec asks for."""
    told = (
        f"{name} {formats.printable(str(value))}, not {getattr(spec.workload, name)}"
        for name, value in cost.otherwise.items()
    )
    return f"planned with {'; '.join(told)}, which it lacks"


def _print_lacks(cost: TargetCost, out: Console, *, details: bool) -> None:
    """What of the best plan of all a target cannot run, and with details all that it cannot."""
    if cost.plan is not None and cost.free_value is not None:
        out.print(Text(f"\n{cost.target} {_beside_the_best(cost)}", style="bold"))
        for line in cost.lacks:
            out.print(Text(f"  {formats.printable(line)}", style="dim"), soft_wrap=True)
    if details:
        out.print(Text(f"\n{cost.target} cannot be told:", style="bold"))
        for line in _unsaid(cost) or ["nothing that plans decide is beyond it"]:
            out.print(Text(f"  {line}", style="dim"), soft_wrap=True)


def _beside_the_best(cost: TargetCost) -> str:
    if cost.lacks:
        return "cannot run the best of all plans as it is:"
    if cost.plan is None or not cost.share or cost.share < SAME:
        return "runs the best plan"
    if cost.plan.search.status == "optimal":
        return "runs the best plan, and its software is priced as slower"
    return "runs the best plan, which its own search did not find in time"


def _table(costs: list[TargetCost]) -> Table:
    table = plain_table()
    table.add_column("target", no_wrap=True)
    for head in ("seconds", "price", "out of memory", "proof", "its limits cost"):
        table.add_column(head, justify="right")
    for each in costs:
        plan = each.plan
        if plan is None:
            table.add_row(each.target, "-", "-", "-", "no plan", "-")
            continue
        chance = plan.out_of_memory_probability
        table.add_row(
            f"{each.target} *" if each.otherwise else each.target,
            f"{formats.seconds(plan.iteration_seconds)} s",
            formats.price(plan.price_per_iteration),
            "-" if chance is None else formats.chance(chance),
            "optimal" if plan.search.status == "optimal" else "not proven",
            "not known" if each.share is None else f"{100 * each.share:.1f} %",
        )
    return table


def _unsaid(cost: TargetCost) -> list[str]:
    """What a target cannot be told: a framework's limits in its words, else those of its table."""
    if cost.target in framework_names():
        return [limit.what for limit in framework(cost.target).limits]
    return limits_in_words(TARGETS[cost.target])


def _as_json(cost: TargetCost) -> dict[str, Any]:
    plan = cost.plan
    return {
        "target": cost.target,
        "reason": cost.reason,
        "otherwise": cost.otherwise,
        "iteration_seconds": None if plan is None else plan.iteration_seconds,
        "price_per_iteration": None if plan is None else plan.price_per_iteration,
        "out_of_memory_probability": None if plan is None else plan.out_of_memory_probability,
        "status": None if plan is None else plan.search.status,
        "free_value": cost.free_value,
        "share": cost.share,
        "driver_seconds": cost.driver_seconds,
        "lacks": cost.lacks,
        "cannot_be_told": _unsaid(cost),
        "plan": None if plan is None else plan.model_dump(mode="json", by_alias=True),
    }
