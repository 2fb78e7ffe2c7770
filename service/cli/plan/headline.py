"""The plan in its first lines: how long an iteration takes, how good that is, what runs it."""

from rich.text import Text

from automap.planner import Plan
from automap.planner.plan import AssumedNetwork
from automap.service.cli.terminal import formats


def headline(plan: Plan) -> Text:
    """The plan in one line: name, seconds, tokens per second, and how good that provably is."""
    return Text.assemble(
        (formats.printable(plan.name).replace("\n", "\\n"), "bold"),
        f" ({plan.algorithm or 'own dataflow'}, {formats.count(plan.gpus_used)} GPUs): ",
        (f"{iteration(plan)} per iteration", "bold"),
        f", {formats.count(plan.tokens_per_second)} tokens/s{_memory_risk(plan)}, {_proof(plan)}",
    )


def runner(plan: Plan, *, unicode: bool) -> Text:
    """What runs the plan as it is, in one line."""
    if not plan.runs_with:
        return Text("runs with: nothing known, as parts of it can only be priced", style="yellow")
    check = " \N{CHECK MARK}" if unicode else ""
    return Text(f"runs with: {', '.join(name + check for name in plan.runs_with)}")


def network(plan: Plan, assumed: AssumedNetwork) -> str:
    """The network that one pool is assumed to have, and the plan's seconds at a quarter of it."""
    # The next tick of the search, where the network does not matter, may be the faster one.
    slower = max(assumed.iteration_seconds_at_a_quarter, plan.iteration_seconds)
    return (
        f"network of {assumed.pool}: not given, {assumed.inter_node_bytes_per_second / 1e9:g} GB/s "
        f"per GPU assumed; at a quarter of it {formats.seconds(slower)} s per iteration "
        f"({formats.percent(slower / plan.iteration_seconds - 1.0)} more)"
    )


def iteration(plan: Plan) -> str:
    """Seconds of an iteration, with their interval where it is known."""
    return formats.interval(plan.iteration_seconds, plan.iteration_seconds_interval)


def _memory_risk(plan: Plan) -> str:
    """The chance that some call runs out of memory; nothing where the plan does not say."""
    chance = plan.out_of_memory_probability
    return "" if chance is None else f", out of memory: {formats.chance(chance)}"


def _proof(plan: Plan) -> str:
    match plan.search.status:
        case "optimal":
            return "proven optimal"
        case "feasible" if plan.search.robust is not None:
            return f"regret at most {100 * plan.search.robust.worst_regret:.2g}%"
        case "feasible" if plan.search.within_tolerance is not None:
            return _simple(plan, plan.search.within_tolerance)
        case "feasible" if plan.search.within_gap:
            return f"proven to within {formats.gap(plan.relative_gap)} of the best"
        case "feasible":
            return (
                f"not proven: stopped at {time_limit(plan)}, gap {formats.gap(plan.relative_gap)}"
            )
        case "given" if plan.search.strategy is not None:
            return f"as {plan.search.strategy} places it"
        case "given":
            return "as given"


def _simple(plan: Plan, tolerance: float) -> str:
    """How far a simple plan is from the optimum, and how to get that."""
    best = "fastest is {} faster" if plan.search.objective == "throughput" else "best is {} cheaper"
    return (
        f"within {100 * tolerance:g}% of the proven optimum; the "
        f"{best.format(formats.gap(plan.relative_gap))}: --simplicity-tolerance 0"
    )


def time_limit(plan: Plan) -> str:
    """The limit that a search ended at."""
    return f"the time limit of {plan.spec.search.time_limit_seconds:g} s"
