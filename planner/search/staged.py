"""Pricing in two stages: what starts a search, then only what can be as good as the best start.

A large cluster has a hundred range sizes, and a search starts from twenty of them. With the best
start as a limit most rows of the others go by a lower bound that takes a third of their prices to
compute, before the rest of their settings are priced. Nothing that is part of a plan as good as the
start is left out, so the search over what stays is the search over all.
"""

import time
from dataclasses import dataclass, replace

import numpy as np

from automap.planner.job.job import Job
from automap.planner.search.candidates.streams_and_tails import wanted_tails
from automap.planner.search.candidates.tables import BoolArray, CallTable, Tables, joined_calls
from automap.planner.search.candidates.tabulate import Candidates
from automap.planner.search.model.solve import Limits
from automap.planner.search.objectives import attempted
from automap.planner.search.space.bounds_filter import rows_within
from automap.planner.search.space.rows import Rows, all_rows
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies import STARTS
from automap.planner.search.strategies.attempts import STARTING_COUNTS, Attempt, thinned


def can_be_staged(job: Job) -> bool:
    """True where a plan of the least period is all that is wanted, and seconds alone bound it.

    With streams and tails parts of a call's seconds count as well.
    """
    search = job.spec.search
    least_period = search.objective == "throughput" and search.strategy is None
    return least_period and not (search.robust or search.streaming or wanted_tails(search))


@dataclass(frozen=True, slots=True)
class Staged:
    """A job priced as far as its search needs, and where that starts."""

    tables: Tables
    """All candidates that a plan as good as the best start can use."""
    attempts: list[Attempt]
    """The same as on all candidates: the strategies use no others."""
    placing_seconds: float
    """What placing the strategies took."""


def staged(job: Job) -> Staged:
    """Price a job for which `can_be_staged` is true."""
    candidates = Candidates(job)
    every = [np.ones(len(copy), dtype=bool) for copy in candidates.copies]
    layouts = Tables(candidates.copies, [], job.dataflow.calls, 0)
    starting = thinned(SearchSpace.of(job, layouts), STARTING_COUNTS).copies
    # Shadows are few, and their prices are their bounds.
    for number, copy in enumerate(candidates.copies):
        starting[number] = every[number] if copy.shadow_of is not None else starting[number]
    calls, num_priced = candidates.calls(starting)
    tables = replace(layouts, calls=calls, num_priced=num_priced)
    whole = SearchSpace.of(job, tables)
    limits = Limits.within(job.spec.search.time_limit_seconds, seed=job.spec.search.seed)
    before = time.perf_counter()
    attempts = attempted(whole, STARTS, limits)
    placing_seconds = time.perf_counter() - before
    others = [all_ & ~some for all_, some in zip(every, starting, strict=True)]
    if any(mask.any() for mask in others):
        periods = [each.selected.timing.period for each in attempts if each.selected is not None]
        tables = _with_others(candidates, tables, others, min(periods, default=None))
    return Staged(tables, attempts, placing_seconds)


def _with_others(
    candidates: Candidates, tables: Tables, others: list[BoolArray], limit: float | None
) -> Tables:
    """The tables with those of the other rows that a plan within the limit can use."""
    wanted, num_bounded = others, 0
    if limit is not None:
        least, num_bounded = candidates.least(others)
        bounded = replace(tables, calls=_both(tables.calls, least))
        problem = SearchSpace.of(candidates.job, bounded).problem
        rows: Rows = rows_within(bounded.least_syncs(), problem, all_rows(bounded), limit)
        wanted = [mask & kept for mask, kept in zip(others, rows.copies, strict=True)]
    more, num_more = candidates.calls(wanted)
    return replace(
        tables,
        calls=_both(tables.calls, more),
        num_priced=tables.num_priced + num_bounded + num_more,
    )


def _both(calls: list[CallTable], more: list[CallTable]) -> list[CallTable]:
    """Tables with further rows below, so that the numbers of the first stay."""
    further = {(table.call, table.copy): table for table in more}
    return [
        joined_calls([table, further[table.call, table.copy]])
        if (table.call, table.copy) in further
        else table
        for table in calls
    ]
