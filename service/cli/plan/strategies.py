"""Named strategies beside a plan: all of them as a table or lines, the best usual one as a line."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from automap.planner import Plan, Strategy
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.tables import NOTHING, plain_table


def nearest_usual(plan: Plan) -> str:
    """The best of the usual layouts that a plan is compared with, and what it costs more.

    Best and more are by price where the plan was searched for price, else by seconds.
    """
    by_price = plan.search.objective in ("price", "run_price")
    able = [each for each in plan.alternatives if each.iteration_seconds is not None]
    if plan.continuous is not None or (plan.staleness and not able):
        # Where rollouts never drain, or are stale inside most frameworks, nothing else is on their
        # GPUs: no usual layout is like that, and whether turns are faster is another search.
        return "none to compare: automap compare --schedules has synchronous plans beside it"
    if not able:
        return f"none to compare: {plan.alternatives[0].name}, {plan.alternatives[0].reason}"

    def times(each: Strategy) -> float:
        if by_price and plan.price_per_iteration:
            return (each.price_per_iteration or 0.0) / plan.price_per_iteration
        return (each.iteration_seconds or 0.0) / plan.iteration_seconds

    best = min(able, key=times)
    seconds = f"{formats.seconds(best.iteration_seconds or 0.0)} s"
    if by_price:
        seconds = f"{formats.price(best.price_per_iteration or 0.0)} an iteration, {seconds}"
    if best.reason == "same placement":
        return f"{best.name}: the same placement"
    percent = 100 * (times(best) - 1)
    if percent < 0:  # as the tolerance of a simpler plan allows
        more = "cheaper" if by_price else "faster"
        gain = f"{-percent:.1f} % {more} ({seconds})"
        return f"{best.name}: {gain}, less simple or with less memory free"
    return f"{best.name}: {percent:+.1f} % ({seconds})"


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
