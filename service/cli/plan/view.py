"""A plan for people: calls, copies, timeline, totals, and what other strategies would cost."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from automap.planner import Plan, Strategy
from automap.planner.cost import ENGINES, STACKS
from automap.planner.plan import CopyPlan, SecondsByPart
from automap.service.cli.plan.call_table import call_table, shares
from automap.service.cli.plan.gantt import gantt
from automap.service.cli.plan.timeline import events_of
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.tables import MEDIUM_COLUMNS, NOTHING, plain_table


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
    parts: list[RenderableType] = [headline(plan), runner(plan, unicode=unicode)]
    for title, section in sections:
        parts += [Text(), Text(title, style="bold underline"), section]
    if plan.assumptions:
        assumed = "\n".join(f"- {line}" for line in plan.assumptions)
        parts += [Text(), Text("Assumptions", style="bold underline"), Text(assumed)]
    return Group(*parts)


def _chart_title(plan: Plan) -> str:
    if plan.staleness == 0 and plan.iteration_barrier:
        return "One iteration"
    title = "One period of the repeating schedule (iterations overlap"
    if plan.staleness:
        title += f"; rollouts are {formats.number_of(plan.staleness, 'iteration')} old"
    return title + ")"


def print_plan(plan: Plan, console: Console, *, unicode: bool) -> None:
    """Write the whole view."""
    console.print(plan_view(plan, width=console.width, unicode=unicode))


def headline(plan: Plan) -> Text:
    """The plan in one line: name, seconds, tokens per second, risk, and how good it provably is."""
    return Text.assemble(
        (formats.printable(plan.name).replace("\n", "\\n"), "bold"),
        f" ({plan.algorithm or 'own dataflow'}, {formats.count(plan.gpus_used)} GPUs): ",
        (f"{_iteration(plan)} per iteration", "bold"),
        f", {formats.count(plan.tokens_per_second)} tokens/s, {_risk(plan)}{_proof(plan)}",
    )


def runner(plan: Plan, *, unicode: bool) -> Text:
    """What runs the plan as it is, in one line."""
    if not plan.runs_with:
        return Text("runs with: nothing known, as parts of it can only be priced", style="yellow")
    check = " \N{CHECK MARK}" if unicode else ""
    return Text(f"runs with: {', '.join(name + check for name in plan.runs_with)}")


def _iteration(plan: Plan) -> str:
    return formats.interval(plan.iteration_seconds, plan.iteration_seconds_interval)


def _risk(plan: Plan) -> str:
    chance = plan.out_of_memory_probability
    return "" if chance is None else f"out of memory: {formats.chance(chance)}, "


def _proof(plan: Plan) -> str:
    match plan.search.status:
        case "optimal":
            return "proven optimal"
        case "feasible" if plan.search.robust is not None:
            return f"regret at most {100 * plan.search.robust.worst_regret:.2g}%"
        case "feasible" if plan.search.within_gap:
            return f"proven to within {formats.gap(plan.relative_gap)} of the best"
        case "feasible":
            return f"not proven: stopped at {_limit(plan)}, gap {formats.gap(plan.relative_gap)}"
        case "given" if plan.search.strategy is not None:
            return f"as {plan.search.strategy} places it"
        case "given":
            return "as given"


def _limit(plan: Plan) -> str:
    return f"the time limit of {plan.spec.search.time_limit_seconds:g} s"


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
    return shares({**amounts, "idle": max(0.0, available - sum(amounts.values()))})


def copy_table(copies: Sequence[CopyPlan], *, wide: bool) -> Table:
    """A row per set of weights with what it holds through the whole iteration."""
    table = plain_table()
    table.add_column("copy", no_wrap=True)
    table.add_column("engine")
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
            copy.engine or copy.kind,
            Text(formats.gpu_range(copy.pool, first_gpu=copy.first_gpu, num_gpus=copy.num_gpus)),
            copy.layout.in_short(),
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
    known = plan.iteration_seconds_interval is not None
    yield "iteration", _iteration(plan) + (", in brackets an 80 % interval" if known else "")
    yield (
        "throughput",
        f"{formats.count(plan.tokens_per_second)} tokens/s "
        f"({formats.count(plan.tokens_per_iteration)} tokens an iteration)",
    )
    yield (
        "price",
        f"{formats.price(plan.price_per_iteration)} an iteration, "
        f"{formats.price(plan.price_per_million_tokens)} per million tokens "
        "(unit of price_per_gpu_hour; US dollars by default)",
    )
    iterations = plan.spec.workload.iterations
    yield (
        "whole run",
        f"{formats.duration(plan.run_seconds)} for {formats.price(plan.run_price)} "
        f"({formats.number_of(iterations, 'iteration')})",
    )
    yield "GPU time", _gpu_time(plan)
    if plan.provenance.operator_tables:
        yield "operator times", _operator_times(plan.provenance.operator_tables)
    for pool, profile in plan.provenance.measured_profiles.items():
        yield "profile", f"{pool}: version {profile}"
    named = plan.spec.workload.training_stack
    if named is not None:
        yield "training stack", f"{named}: {STACKS[named].summary}"
    engine = ENGINES[plan.spec.workload.rollout_engine]
    yield "rollout engine", f"{engine.name}: {engine.summary}"
    yield "proof", _proof_line(plan)
    search = plan.search
    if search.status != "given":
        yield "searched", search.space
        yield (
            "search",
            f"{formats.seconds(plan.search_seconds)} s: "
            f"pricing {formats.seconds(search.pricing_seconds)} s "
            f"({formats.count(search.candidates_priced)} candidates), "
            f"solving {formats.seconds(search.solving_seconds)} s "
            f"({formats.count(search.options)} options left)",
        )


def _operator_times(tables: Mapping[str, str | None]) -> str:
    """Where the seconds of operators come from, GPU type by GPU type; the rest is formulas."""
    return "; ".join(
        f"{gpu}: by formula alone"
        if source is None
        else f"{gpu}: from tables measured on it, the rest by formula"
        if source == gpu
        else f"{gpu}: scaled from tables measured on {source}, the rest by formula"
        for gpu, source in tables.items()
    )


def _proof_line(plan: Plan) -> str:
    search = plan.search
    if search.strategy is not None:
        return f"none: {search.stopped}"
    if search.status == "given":
        return "none: the placement was given, nothing was searched"
    write, unit = {
        "throughput": (formats.seconds, " s"),
        "price": (formats.price, " an iteration"),
        "run_price": (formats.price, " the whole run"),
        "fewest_gpus": (formats.count, " GPUs"),
    }[search.objective]
    found, bound = write(search.objective_value), write(search.lower_bound)
    verdict = "optimal"
    if search.robust is not None:
        return str(search.stopped)
    if search.within_gap:
        verdict = "within search.optimality_gap"
    elif search.status == "feasible":
        verdict = f"best found when the search stopped at {_limit(plan)}"
    return (
        f"{verdict}: {found}{unit} against a proven bound of {bound}{unit}, "
        f"gap {formats.gap(plan.relative_gap)}"
    )


def strategy_table(strategies: Sequence[Strategy], *, claims: bool = False) -> Table:
    """What named strategies cost beside the plan: the fastest first, those that fail last.

    With `claims` also what each itself takes the iteration to last.
    """
    table = plain_table()
    table.add_column("strategy", no_wrap=True)
    table.add_column("iteration\nseconds", justify="right", no_wrap=True)
    table.add_column("times\nslower", justify="right", no_wrap=True)
    if claims:
        table.add_column("by its\nown cost", justify="right", no_wrap=True)
    table.add_column("price an\niteration", justify="right", no_wrap=True)
    table.add_column("why")
    for strategy in sorted(strategies, key=_strategy_rank):
        table.add_row(Text(strategy.name), *_strategy_cells(strategy, claims=claims))
    return table


def strategy_lines(strategies: Sequence[Strategy]) -> Iterator[Text]:
    """A line per strategy: the fastest first, those that fail last."""
    for each in sorted(strategies, key=_strategy_rank):
        if each.iteration_seconds is None:
            yield Text(f"{each.name}: cannot run, {each.reason}")
        else:
            slower = "" if each.times_slower is None else f", {each.times_slower:.2f} times as long"
            yield Text(f"{each.name}: {formats.seconds(each.iteration_seconds)} s{slower}")


def _strategy_rank(strategy: Strategy) -> tuple[bool, float, str]:
    return not strategy.feasible, strategy.iteration_seconds or 0.0, strategy.name


def _strategy_cells(strategy: Strategy, *, claims: bool) -> Iterator[RenderableType]:
    numbers = (
        (strategy.iteration_seconds, formats.seconds),
        (strategy.times_slower, lambda value: f"{value:.2f}"),
        *([(strategy.claimed_seconds, formats.seconds)] if claims else []),
        (strategy.price_per_iteration, formats.price),
    )
    for value, write in numbers:
        yield NOTHING if value is None else write(value)
    why = Text("cannot run: " if not strategy.feasible else "", style="bold")
    yield why.append(strategy.reason, style="not bold")
