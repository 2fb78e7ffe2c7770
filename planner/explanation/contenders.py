"""A placement with its order of calls, timed under many errors at once.

A plan is a placement and, on every GPU, an order of calls; the runtime keeps both. With the order
fixed the period is the longest chain of calls (with a barrier) or the largest cycle ratio, so many
scenarios are timed in one go, without a solver. An error stretches a call as a whole: its chunks
are out and its main phase ends after the same shares of its seconds.
"""

from dataclasses import dataclass

import numpy as np

from automap.planner.explanation.factors import Factors
from automap.planner.explanation.study import Study
from automap.planner.layout import FloatArray
from automap.planner.search import Order, Selected


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """A placement that may win under some errors."""

    selected: Selected
    order: Order
    cyclic: bool
    owners: list[tuple[int, int]]
    """Per call (its number, pool); then per sync (copy, pool) of its two sides, two nodes each."""
    work_seconds: FloatArray
    """Seconds of calls without the two parts below, then of syncs."""
    transition_seconds: FloatArray
    host_seconds: FloatArray

    def durations(self, factors: list[Factors]) -> FloatArray:
        """[factors, calls then syncs] seconds of every node."""
        calls = len(self.host_seconds)
        own = self.owners[:calls]
        work = np.array([[f.work[o] for o in own] for f in factors])
        move = np.array([[f.transition[o] for o in own] for f in factors])
        host = np.array([[f.host[o] for o in own] for f in factors])
        found = self.work_seconds[:calls] * work + self.transition_seconds * move
        found = found + self.host_seconds * host
        sides = self.owners[calls:]
        if not sides:
            return np.asarray(found)
        sync = np.array([[f.sync[o] for o in sides] for f in factors]) * self.work_seconds[calls:]
        slower = np.maximum(sync[:, 0::2], sync[:, 1::2])
        return np.asarray(np.concatenate([found, slower], axis=1))

    def periods(self, factors: list[Factors]) -> FloatArray:
        """[factors] seconds of an iteration with this order."""
        durations = self.durations(factors)
        find = self.order.least_periods if self.cyclic else self.order.makespans
        return find(durations)


def contender(study: Study, selected: Selected) -> Contender:
    """A placement of the study, with the order that its timing has."""
    problem, assignment = study.space.alone(selected)
    order = Order.of_schedule(problem, assignment, selected.timing)
    tables = study.tables
    by_key = {(t.call, t.copy): n for n, t in enumerate(tables.calls)}
    owners: list[tuple[int, int]] = []
    work, moved, on_host = [], [], []
    for index, chosen in enumerate(selected.call_rows):
        pool, seconds, move, host = 0, problem.calls[index].fixed_seconds, 0.0, 0.0
        if chosen is not None:
            number, row = by_key[index, chosen[0]], chosen[1]
            pool = int(tables.copies[chosen[0]].pool[tables.calls[number].copy_row[row]])
            seconds = float(tables.calls[number].seconds[row])
            parts = study.parts_of(tables.calls[number], np.array([row]))
            move, host = float(parts.transition[0]), float(parts.host[0])
        owners.append((index, pool))
        work.append(seconds - move - host)
        moved.append(move)
        on_host.append(host)
    for sync in problem.syncs:
        for copy in (sync.home, sync.shadow):
            options = problem.copies[copy].options
            there = bool(problem.copies[sync.shadow].options)
            owners.append((copy, options[0].pool if options else 0))
            work.append(options[0].sync_seconds if there else 0.0)
    seconds_of = (np.array(each) for each in (work, moved, on_host))
    return Contender(selected, order, not problem.barrier, owners, *seconds_of)
