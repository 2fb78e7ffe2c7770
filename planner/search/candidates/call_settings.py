"""The settings of one call on the layouts of one copy, priced: micro-batches, engines, caches."""

from dataclasses import dataclass, replace

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.estimates import CallEstimates
from automap.planner.cost.pricing import GenerationLayouts, Pricing, whole_microseconds
from automap.planner.cost.rows import distinct_columns, distinct_rows
from automap.planner.dataflow.graph import Call
from automap.planner.job import pins
from automap.planner.job.job import Job
from automap.planner.layout import RECOMPUTES, BoolArray, FloatArray, IntArray, Layouts
from automap.planner.search.candidates import enumeration
from automap.planner.search.candidates.generate_settings import (
    MOST_PAIRS,
    Generations,
    LayoutsBySize,
    ReshardedHomes,
    best_runs,
    parts_of,
    still_in_time,
)
from automap.planner.search.candidates.tables import CallTable, front_rows, settings_of_rows


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one copy in one pool; `rows` are their numbers in the copy's table."""

    pool_index: int
    pool: Pool
    rows: IntArray
    layouts: Layouts
    resident_bytes: IntArray
    room_bytes: IntArray
    """Bytes per GPU that a call may take beside what is resident."""
    host_bytes: IntArray
    sync_seconds: FloatArray
    node_sync_seconds: FloatArray

    def where(self, kept: BoolArray) -> "Block":
        """Some of the rows."""
        if kept.all():
            return self
        return replace(
            self,
            rows=self.rows[kept],
            layouts=self.layouts.take(np.flatnonzero(kept)),
            resident_bytes=self.resident_bytes[kept],
            room_bytes=self.room_bytes[kept],
            host_bytes=self.host_bytes[kept],
            sync_seconds=self.sync_seconds[kept],
            node_sync_seconds=self.node_sync_seconds[kept],
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """Prices the settings of a job's calls; `lean` and `deadline` as in `price_candidates`."""

    job: Job
    pricing: Pricing
    lean: bool
    generations: Generations
    deadline: float

    @classmethod
    def of(cls, job: Job, pricing: Pricing, *, lean: bool, deadline: float) -> "Settings":
        """Settings of a job's calls, none of them priced yet."""
        return cls(job, pricing, lean, Generations(job, pricing, lean), deadline)

    def table(
        self, call: Call, index: int, copy_index: int, block: Block, *, on_shadow: bool
    ) -> tuple[CallTable, int]:
        """(settings, how many were priced for them) on the rows of one pool."""
        still_in_time(self.deadline)
        if call.kind == "generate":
            price = self._generate_on_shadow if on_shadow else self._generate_from_home
            return price(index, call, copy_index, block)
        return self._batched(index, call, copy_index, block)

    def _batched(
        self, index: int, call: Call, copy_index: int, block: Block
    ) -> tuple[CallTable, int]:
        """Train and forward calls: every layout with every micro-batch and recomputation.

        Offload only adds its copies' seconds and bytes, so layouts that differ in nothing else are
        priced once, and share the settings among which nothing beats another.
        """
        wanted = pins.settings(self.job, call)
        modes = enumeration.recomputes(self.job, wanted) if call.kind == "train" else [0]
        first, base_of = distinct_rows(*block.layouts.columns_without_offload())
        base = block.layouts.take(first).without_offload()
        rows, micro, recompute = self._grid(call, base, modes=modes)
        priced = self._priced(call, block.pool, base, rows, micro, recompute)
        seconds, transient = priced.seconds.total, priced.transient.total
        extra_seconds, extra_bytes = self.pricing.offload(call, block.pool, block.layouts)
        num_priced = int(np.bincount(rows, minlength=len(first))[base_of].sum())
        # Where calls have settings in common, another one may need what is beaten here.
        target = self.job.target
        shares = target.shared_settings or target.settings_of_role
        useful = np.arange(len(rows)) if shares else front_rows(rows, seconds, transient)
        owner, shared = settings_of_rows(base_of, rows[useful])
        setting = useful[shared]
        table = CallTable(
            call=index,
            copy=copy_index,
            copy_row=block.rows[owner],
            seconds=whole_microseconds(seconds[setting] + extra_seconds[owner]),
            transient_bytes=transient[setting] + extra_bytes[owner],
            micro_batch_size=micro[setting],
            recompute=recompute[setting],
            kv_cache_bytes=np.zeros_like(setting),
            engine=GenerationLayouts.of(base).take(rows[setting]),
        )
        return table, num_priced

    def _grid(
        self, call: Call, layouts: Layouts, *, modes: list[int]
    ) -> tuple[IntArray, IntArray, IntArray]:
        """(row, micro-batch, recomputation): every layout with every setting it may have."""
        wanted = pins.settings(self.job, call)
        sizes = np.array(enumeration.micro_batch_sizes(wanted), dtype=np.int64)
        rows, micro, recompute = enumeration.settings_grid(
            len(layouts), sizes[:1] if self.lean else sizes, np.array(modes, dtype=np.int64)
        )
        keep = self._even(call, layouts.data_parallel_size, rows, micro)
        if call.kind == "train":
            keep = keep[self._recomputes(call, layouts)[rows[keep], recompute[keep]]]
        return rows[keep], micro[keep], recompute[keep]

    def _recomputes(self, call: Call, layouts: Layouts) -> BoolArray:
        """[layout, mode] whether the engine that trains it recomputes so."""
        assert call.model is not None
        engines = self.job.engines_of(call.model)
        known = [[mode in engine.recomputes for mode in RECOMPUTES] for engine in engines.engines]
        return np.array(known, dtype=np.bool_)[engines.of_layouts(layouts)]

    def _priced(
        self,
        call: Call,
        pool: Pool,
        layouts: Layouts,
        rows: IntArray,
        micro: IntArray,
        recompute: IntArray,
    ) -> CallEstimates:
        if call.kind == "train":
            return self.pricing.train(
                call, pool, layouts, rows=rows, micro_batch_size=micro, recompute=recompute
            )
        return self.pricing.forward(call, pool, layouts, rows=rows, micro_batch_size=micro)

    def _even(self, call: Call, data: IntArray, rows: IntArray, micro: IntArray) -> IntArray:
        """Micro-batches no larger than a rank's share; evenly divided where the spec insists."""
        batch = call.num_sequences
        if call.kind == "train":
            batch = -(-call.epochs * call.num_sequences // max(call.num_updates, 1))
        largest = np.maximum(2 ** np.ceil(np.log2(-(-batch // data))), micro.min(initial=1))
        keep = micro <= largest[rows]
        if self.job.spec.constraints.require_even_batch:
            keep &= batch % (data[rows] * micro) == 0
        if self.job.target.even_batches:
            keep &= self.job.scored_together(call) % (data[rows] * micro) == 0
        return np.flatnonzero(keep)

    def _generate_on_shadow(
        self, index: int, call: Call, copy_index: int, block: Block
    ) -> tuple[CallTable, int]:
        """Every shadow with every cache budget: it is stored as one of the engines of the homes."""
        known, number = self.generations.on(call, block.pool, GenerationLayouts.of(block.layouts))
        ran, owner = known.runs, known.owner[known.runs.base]
        by_engine = np.argsort(owner, kind="stable")
        row, place = settings_of_rows(number, owner[by_engine])
        run = by_engine[place]
        seconds = whole_microseconds(ran.seconds[run])
        base, zero = ran.base[run], np.zeros_like(run)
        table = CallTable(
            call=index,
            copy=copy_index,
            copy_row=block.rows[row],
            seconds=seconds,
            transient_bytes=ran.transient_bytes(known.estimates)[run],
            micro_batch_size=zero,
            recompute=zero,
            kv_cache_bytes=known.budgets[base],
            engine=known.engine.take(base),
            **ran.columns(run, seconds),
        )
        return table, int(np.bincount(known.owner)[number].sum())

    def _generate_from_home(
        self, index: int, call: Call, copy_index: int, block: Block
    ) -> tuple[CallTable, int]:
        """Every home layout with every engine layout on the same GPUs and every cache budget.

        Generation layouts are priced once per size of the range, reshards once per pair of
        layouts; homes that reshard alike share the settings among which nothing beats another.
        """
        known = self.generations.of(call, block.pool)
        if len(known.owner) == 0:
            return no_rows(index, copy_index), 0
        homes = self._reshards(call, block, known.engines)
        best = best_runs(known, homes, deadline=self.deadline)
        copy_row, shared = settings_of_rows(homes.kind, best.home)
        run = best.run[shared]
        base, zero = known.runs.base[run], np.zeros_like(run)
        seconds = best.seconds[shared]
        table = CallTable(
            call=index,
            copy=copy_index,
            copy_row=block.rows[copy_row],
            seconds=seconds,
            transient_bytes=best.transient_bytes[shared],
            micro_batch_size=zero,
            recompute=zero,
            kv_cache_bytes=known.budgets[base],
            engine=known.engine.take(base),
            **known.runs.columns(run, seconds),
        )
        sizes = np.searchsorted(known.engines.counts, block.layouts.num_gpus)
        return table, int(known.num_runs[sizes].sum())

    def _reshards(self, call: Call, block: Block, engines: LayoutsBySize) -> ReshardedHomes:
        """The homes that differ in what a reshard takes, each with every engine of its size."""
        home_size = np.searchsorted(engines.counts, block.layouts.num_gpus)
        columns = self.pricing.reshard_kind(block.pool, block.layouts)
        alike, alike_of = distinct_rows(home_size, *columns)
        size = home_size[alike]
        home, engine = settings_of_rows(size, engines.size_of)
        moves, weights = self._reshard(
            call, block.pool, block.layouts.take(alike), engines.layouts, home, engine
        )
        first_pair = np.cumsum(engines.lengths[size]) - engines.lengths[size]
        table = np.zeros((2, len(size), int(engines.lengths.max(initial=0))))
        column = engine - engines.first[size[home]]
        table[0, home, column], table[1, home, column] = moves, weights
        first, kind_of = distinct_columns(size[:, None], table[0], table[1])
        kind = kind_of[alike_of]
        room = np.zeros(len(first), dtype=np.int64)
        np.maximum.at(room, kind, block.room_bytes)
        return ReshardedHomes(kind, size[first], room, first_pair[first], moves, weights)

    def _reshard(
        self,
        call: Call,
        pool: Pool,
        homes: Layouts,
        engines: GenerationLayouts,
        home: IntArray,
        engine: IntArray,
    ) -> tuple[FloatArray, IntArray]:
        """(seconds, transient weight bytes) of pairs of a home with an engine.

        Pairs are many, and few differ in what a reshard depends on: those are priced.
        """
        _, home_kind = distinct_rows(*self.pricing.reshard_kind(pool, homes))
        _, shape = distinct_rows(
            engines.tensor_parallel_size,
            engines.pipeline_parallel_size,
            engines.expert_parallel_size,
        )
        first, pair = distinct_rows(home_kind[home], shape[engine])
        seconds, held = [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
        for part in parts_of(np.arange(len(first)) // MOST_PAIRS):
            still_in_time(self.deadline)
            some = first[part]
            priced = self.pricing.reshard(
                call, pool, homes.take(home[some]), engines.take(engine[some])
            )
            seconds.append(priced[0])
            held.append(priced[1])
        return np.concatenate(seconds)[pair], np.concatenate(held)[pair]


def no_rows(call: int, copy: int) -> CallTable:
    """The table of a call that nothing can run; without a table it would pass for a function."""
    none = np.zeros(0, dtype=np.int64)
    return CallTable(
        call=call,
        copy=copy,
        copy_row=none,
        seconds=np.zeros(0),
        transient_bytes=none,
        micro_batch_size=none,
        recompute=none,
        kv_cache_bytes=none,
        engine=GenerationLayouts(none, none, none, none),
    )
