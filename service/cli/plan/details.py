"""What `--details` adds to a plan: totals, search, software, bytes, strategies, assumptions."""

from collections.abc import Iterator, Mapping
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from automap.planner import Plan
from automap.planner.cost import ENGINES, STACKS
from automap.planner.plan import ContinuousReport, SecondsByPart
from automap.service.cli.plan.call_table import shares
from automap.service.cli.plan.copy_table import bytes_table
from automap.service.cli.plan.headline import iteration, time_limit
from automap.service.cli.plan.strategies import strategy_table
from automap.service.cli.plan.timeline import events_of
from automap.service.cli.terminal import formats


def details(plan: Plan) -> Iterator[tuple[str, RenderableType]]:
    """Sections with their titles, below the view that is always there."""
    yield "Totals", totals(plan)
    yield "GiB per GPU through the iteration", bytes_table(plan.copies)
    if plan.alternatives:
        yield "Other strategies", strategy_table(plan.alternatives)
    if plan.assumptions:
        yield "Assumptions", Text("\n".join(f"- {line}" for line in plan.assumptions))


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
    yield "iteration", iteration(plan) + (", in brackets an 80 % interval" if known else "")
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
    if plan.continuous is not None:
        yield "in flight", in_flight(plan.continuous)
    stages = _stages(plan)
    if stages:
        yield "layers per stage", "; ".join(stages)
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


def in_flight(steady: ContinuousReport) -> str:
    """How full engines are that never drain, and what staleness would fill them."""
    least = steady.least_full_staleness
    enough = "no staleness keeps" if least is None else f"staleness {least} is the least that keeps"
    return (
        f"a replica runs {steady.running_per_replica:.0f} of at most {steady.slots_per_replica} "
        f"responses; {enough} it full"
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


def _stages(plan: Plan) -> list[str]:
    """Layers per stage of each copy and generation where they are not equal: 3, 4 × 6, 3."""
    stated = [(copy.id, copy.layers_per_stage) for copy in plan.copies]
    stated += [(call.id, call.layers_per_stage) for call in plan.calls if call.kind == "generate"]
    found = []
    for name, stages in stated:
        runs = [(layers, len(list(same))) for layers, same in groupby(stages or [])]
        words = [f"{layers} × {count}" if count > 1 else str(layers) for layers, count in runs]
        if words:
            found.append(f"{name} {', '.join(words)}")
    return found


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
    if search.within_tolerance is not None:
        within = f"within {100 * search.within_tolerance:g}% of the optimum"
        verdict = f"simple or with memory to spare, {within}"
    elif search.within_gap:
        verdict = "within search.optimality_gap"
    elif search.status == "feasible":
        verdict = f"best found when the search stopped at {time_limit(plan)}"
    return (
        f"{verdict}: {found}{unit} against a proven bound of {bound}{unit}, "
        f"gap {formats.gap(plan.relative_gap)}"
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
    return shares({**amounts, "idle": max(0.0, available - sum(amounts.values()))})
