"""Settings of a generate call beyond its engine and cache: streams and tails, as columns."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.estimates import CallEstimates
from automap.planner.cost.generation.streaming import TAILS, ready_shares
from automap.planner.cost.pricing import GenerationLayouts, Pricing
from automap.planner.dataflow.graph import Call
from automap.planner.layout import FloatArray, IntArray
from automap.planner.spec import SearchSpec

_RATIOS = np.array([1, *(tail.ratio for tail in TAILS)], dtype=np.int64)


def wanted_tails(search: SearchSpec) -> list[int]:
    """Numbers of the TAILS that a spec lets generations have, from 1."""
    return [
        number
        for number, tail in enumerate(TAILS, start=1)
        if (search.generation_tensor_schedule if tail.ratio == 1 else search.generation_tail)
    ]


@dataclass(frozen=True, slots=True)
class Runs:
    """One row per engine, cache budget and tail; without tails as many as the first two."""

    base: IntArray
    """Row of the engine and its budget."""
    seconds: FloatArray
    """Seconds of the call without the reshard of its weights."""
    outstanding: FloatArray | None = None
    tail: IntArray | None = None
    seconds_after_split: FloatArray | None = None
    weight_bytes: IntArray | None = None
    """Transient bytes per GPU beside what the engine and its budget take."""

    @property
    def plain(self) -> bool:
        """Nothing is streamed and nothing has a tail: runs compare by seconds and bytes alone."""
        return self.outstanding is None and self.tail is None

    def take(self, rows: IntArray) -> "Runs":
        """The given rows."""
        columns: list[Any] = [getattr(self, name) for name in Runs.__dataclass_fields__]
        taken: list[Any] = [None if column is None else column[rows] for column in columns]
        return Runs(*taken)

    def transient_bytes(self, estimates: CallEstimates) -> IntArray:
        """Transient bytes per GPU of each row, without what a reshard receives."""
        held = estimates.transient.total[self.base]
        return held if self.weight_bytes is None else held + self.weight_bytes

    def columns(self, rows: IntArray, seconds: FloatArray) -> dict[str, Any]:
        """Optional columns of a call table for the given rows, which take so many seconds."""
        found: dict[str, Any] = {}
        if self.outstanding is not None:
            found["chunk_ready_shares"] = ready_shares(self.outstanding[rows], seconds)
        if self.tail is not None and self.seconds_after_split is not None:
            main_phase = ready_shares(self.seconds_after_split[rows][:, None], seconds)[:, 0]
            # Where no GPU is freed early it does not matter when.
            main_phase = np.where(_RATIOS[self.tail[rows]] > 1, main_phase, 1.0)
            found |= {"tail": self.tail[rows], "main_phase_shares": main_phase}
        return found


def runs(
    pricing: Pricing,
    call: Call,
    pool: Pool,
    engine: GenerationLayouts,
    budgets: IntArray,
    estimates: CallEstimates,
) -> Runs:
    """The rows of `estimates`, and below them those with a tail, where the spec wants tails."""
    seconds, every = estimates.seconds.total, np.arange(len(budgets), dtype=np.int64)
    outstanding = pricing.outstanding_seconds(call, pool, engine, kv_cache_bytes=budgets)
    wanted = wanted_tails(pricing.job.spec.search)
    if not wanted:
        return Runs(every, seconds, outstanding)
    zero = np.zeros_like(every)
    parts = [Runs(every, seconds, outstanding, zero, np.zeros(len(every)), zero)]
    for number in wanted:
        tail = TAILS[number - 1]
        priced = pricing.tail(call, pool, engine, kv_cache_bytes=budgets, tail=tail)
        rows = np.flatnonzero(priced.possible)
        parts.append(
            Runs(
                rows,
                (seconds + priced.extra.total)[rows],
                None if priced.outstanding is None else priced.outstanding[rows],
                np.full(len(rows), number, dtype=np.int64),
                priced.seconds_after_split[rows],
                priced.weight_bytes[rows],
            )
        )
    return Runs(*(_joined(parts, name) for name in Runs.__dataclass_fields__))


def _joined(parts: list[Runs], name: str) -> Any:
    columns = [getattr(part, name) for part in parts]
    return None if columns[0] is None else np.concatenate(columns)
