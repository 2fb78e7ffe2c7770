"""The engines that may generate on a home's range: every layout with every cache budget, priced."""

import time
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.estimates import CallEstimates
from automap.planner.cost.memory import usable_bytes
from automap.planner.cost.pricing import GenerationLayouts, Pricing, whole_microseconds
from automap.planner.cost.rows import distinct_rows
from automap.planner.dataflow.graph import Call
from automap.planner.errors import NoSolutionInTimeError
from automap.planner.job.job import Job
from automap.planner.layout import FloatArray, IntArray
from automap.planner.search.candidates import enumeration
from automap.planner.search.candidates.streams_and_tails import Runs, runs, wanted_tails
from automap.planner.search.candidates.tables import front_rows, kinds_of, settings_of_rows

MOST_PAIRS = 2**20
"""Pairs of a home with an engine or a run that are priced at once: memory and the time between
two looks at the clock do not grow with their number."""


@dataclass(frozen=True, slots=True)
class LayoutsBySize:
    """Generation layouts of one pool, sorted by the number of GPUs of their range."""

    counts: IntArray
    """[size] GPUs of a range, rising."""
    layouts: GenerationLayouts
    size_of: IntArray
    """[engine] index of the size of its range in `counts`."""
    first: IntArray
    """[size] number of the first engine of that size."""
    lengths: IntArray
    """[size] how many engines there are of that size."""

    @classmethod
    def of_any_size(cls, layouts: GenerationLayouts) -> "LayoutsBySize":
        """Layouts in the given order, where their sizes do not matter."""
        zero = np.zeros(1, dtype=np.int64)
        number = len(layouts.tensor_parallel_size)
        return cls(zero, layouts, np.zeros(number, dtype=np.int64), zero, zero + number)

    def numbers_of(self, asked: GenerationLayouts) -> IntArray | None:
        """[row] which of the engines each of those asked is; None where one is none of them."""
        columns = GenerationLayouts.joined([self.layouts, asked]).columns().values()
        _, codes = distinct_rows(*columns)
        own, theirs = np.split(codes, [len(self.size_of)])
        number = np.full(len(codes), -1, dtype=np.int64)
        number[own] = np.arange(len(own))
        found: IntArray = number[theirs]
        return None if (found < 0).any() else found


@dataclass(frozen=True, slots=True)
class Generation:
    """A generate call on the engines of one pool, without what a home's reshard adds."""

    engines: LayoutsBySize
    engine: GenerationLayouts
    """[row] generation layouts, one row per engine and cache budget."""
    owner: IntArray
    """[row] number of the engine."""
    budgets: IntArray
    """[row] bytes of the KV cache."""
    estimates: CallEstimates
    runs: Runs
    """The runs that may be best in some home, in the order of the sizes of their engines."""
    num_runs: IntArray
    """[size] how many runs were priced."""

    @property
    def run_size(self) -> IntArray:
        """[run] index of the size of the range of its engine, rising."""
        return self.engines.size_of[self.owner[self.runs.base]]


@dataclass(frozen=True, slots=True)
class ReshardedHomes:
    """The homes of one pool by kind: those of a kind reshard alike to every engine."""

    kind: IntArray
    """[home]"""
    size: IntArray
    """[kind] index of the size of its range."""
    room_bytes: IntArray
    """[kind] bytes per GPU that the generation may take where there is most room."""
    first_pair: IntArray
    """[kind] number of its pair with the first engine of its size."""
    seconds: FloatArray
    """[pair] seconds of the reshard."""
    weight_bytes: IntArray
    """[pair] transient bytes per GPU of weights."""


@dataclass(frozen=True, slots=True)
class HomeRuns:
    """Runs with the reshard from a kind of home, kind after kind."""

    home: IntArray
    """[row] kind of the home."""
    run: IntArray
    seconds: FloatArray
    transient_bytes: IntArray

    @classmethod
    def joined(cls, parts: "list[HomeRuns]") -> "HomeRuns":
        """Several, one after the other."""
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(each, name) for each in parts]) for name in names))


def still_in_time(deadline: float) -> None:
    """Nothing before the deadline, a reading of time.perf_counter.

    Raises:
        NoSolutionInTimeError: after it.
    """
    if time.perf_counter() > deadline:
        raise NoSolutionInTimeError(0.0, pricing=True)


def parts_of(numbers: IntArray) -> list[IntArray]:
    """The rows of each run of equal numbers."""
    return np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(numbers)) + 1)


def best_runs(known: Generation, homes: ReshardedHomes, *, deadline: float) -> HomeRuns:
    """For each kind of home the runs that fit beside it and that none beats in every way."""
    num_runs = np.bincount(known.run_size, minlength=len(known.engines.counts))
    parts = []
    for each in parts_of(np.cumsum(num_runs[homes.size]) // MOST_PAIRS):
        still_in_time(deadline)
        parts.append(_best_runs(known, homes, each))
    return HomeRuns.joined(parts)


def _best_runs(known: Generation, homes: ReshardedHomes, kinds: IntArray) -> HomeRuns:
    ran = known.runs
    place, run = settings_of_rows(homes.size[kinds], known.run_size)
    home = kinds[place]
    engine = known.owner[ran.base[run]]
    pair = homes.first_pair[home] + engine - known.engines.first[homes.size[home]]
    transient = ran.transient_bytes(known.estimates)[run] + homes.weight_bytes[pair]
    fits = np.flatnonzero(transient <= homes.room_bytes[home])
    home, run, pair, transient = home[fits], run[fits], pair[fits], transient[fits]
    seconds = whole_microseconds(ran.seconds[run] + homes.seconds[pair])
    columns = ran.columns(run, seconds)
    useful = front_rows(home, seconds, transient, kinds_of(*columns.values()))
    return HomeRuns(home[useful], run[useful], seconds[useful], transient[useful])


@dataclass(frozen=True, slots=True)
class Generations:
    """Prices each call once per pool: homes and shadows, and all stages, share its engines."""

    job: Job
    pricing: Pricing
    lean: bool
    known: dict[tuple[str, str], Generation] = field(default_factory=dict)
    locks: dict[tuple[str, str], Lock] = field(default_factory=dict)

    def of(self, call: Call, pool: Pool) -> Generation:
        """The call on all engines of the pool, on ranges of every size that a home may have."""
        key = call.id, pool.name
        with self.locks.setdefault(key, Lock()):
            if key not in self.known:
                self.known[key] = self._priced(call, pool, self._engines(call, pool))
        return self.known[key]

    def on(self, call: Call, pool: Pool, asked: GenerationLayouts) -> tuple[Generation, IntArray]:
        """The call's generation, and per asked layout the number of its engine there."""
        known = self.of(call, pool)
        number = known.engines.numbers_of(asked)
        if number is not None:
            return known, number
        engines = LayoutsBySize.of_any_size(asked)  # constraints set homes apart from shadows
        return self._priced(call, pool, engines), np.arange(len(engines.size_of))

    def _priced(self, call: Call, pool: Pool, engines: LayoutsBySize) -> Generation:
        engine, owner, budgets = self._with_budgets(call, pool, engines.layouts)
        estimates = self.pricing.generate(call, pool, engine, kv_cache_bytes=budgets)
        ran = runs(self.pricing, call, pool, engine, budgets, estimates)
        size_of = engines.size_of[owner[ran.base]]
        num_runs = np.bincount(size_of, minlength=len(engines.counts))
        if ran.plain:
            # Of the budgets of one engine those that another one beats are beaten in every home.
            ran = ran.take(front_rows(owner, ran.seconds, ran.transient_bytes(estimates)))
        else:
            # Which shares of the seconds pass before something is free depends on the reshard.
            ran = ran.take(np.argsort(size_of, kind="stable"))
        return Generation(engines, engine, owner, budgets, estimates, ran, num_runs)

    def _engines(self, call: Call, pool: Pool) -> LayoutsBySize:
        assert call.model is not None, "a function does not generate"
        counts = enumeration.home_counts(self.job, call.model, pool)
        none = np.zeros(0, dtype=np.int64)
        parts = [enumeration.engines(self.job, call, pool, count) for count in counts]
        lengths = np.array([len(part.tensor_parallel_size) for part in parts], dtype=np.int64)
        return LayoutsBySize(
            counts=np.array(counts, dtype=np.int64),
            layouts=GenerationLayouts.joined([GenerationLayouts(none, none, none, none), *parts]),
            size_of=np.repeat(np.arange(len(counts)), lengths),
            first=np.cumsum(lengths) - lengths,
            lengths=lengths,
        )

    def _with_budgets(
        self, call: Call, pool: Pool, engine: GenerationLayouts
    ) -> tuple[GenerationLayouts, IntArray, IntArray]:
        """(engines, their rows, cache bytes): every engine layout with every distinct budget."""
        least, full = self.pricing.kv_cache_limits(call, engine)
        if wanted_tails(self.job.spec.search):
            full = 2 * full  # on fewer replicas, more is held by each
        tried = enumeration.cache_budgets(least, full, usable_bytes=usable_bytes(pool))
        if self.lean:
            tried = tried[:1]
        rows, step = enumeration.settings_grid(len(least), np.arange(len(tried)))
        budgets = tried[step, rows]
        # Budgets rise with the step; those that the limits made equal are tried once.
        first = (step == 0) | (budgets != tried[np.maximum(step - 1, 0), rows])
        rows, budgets = rows[first], budgets[first]
        return engine.take(rows), rows, budgets
