"""Price every candidate of a job: all layouts of all copies, all settings of all calls."""

from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from planner.cluster import Pool
from planner.cost.estimates import CallEstimates
from planner.cost.memory import usable_bytes
from planner.cost.pricing import Engine, Pricing, whole_microseconds
from planner.cost.rows import distinct_columns, distinct_rows
from planner.dataflow import Call, weights_edge
from planner.job import Job
from planner.layout import FloatArray, IntArray, Layouts
from planner.search import enumeration
from planner.search.runs import runs, wanted_tails
from planner.search.tables import (
    CallTable,
    CopyTable,
    Tables,
    front,
    front_rows,
    joined_calls,
    joined_layouts,
    kinds_of,
)


@dataclass(frozen=True, slots=True)
class _Block:
    """The rows of one copy in one pool; `rows` are their numbers in the copy's table."""

    pool_index: int
    pool: Pool
    rows: IntArray
    layouts: Layouts
    resident_bytes: IntArray
    host_bytes: IntArray
    sync_seconds: FloatArray


@dataclass(frozen=True, slots=True)
class _Engines:
    """Engine layouts in the order of their sizes."""

    counts: IntArray
    """[size] GPUs of a range, rising."""
    layouts: Engine
    size_of: IntArray
    """[engine]"""
    first: IntArray
    """[size] first engine."""
    lengths: IntArray
    """[size] engines."""


def price(job: Job, *, fits_only: bool = True, lean: bool = False) -> Tables:
    """All candidates with their prices.

    With `fits_only`, rows that exceed a GPU's memory by themselves are left out; without, they stay
    so that an impossible job can say by how many bytes. With `lean` there are only the settings
    that can take the least memory: one row in a micro-batch, the smallest cache.
    """
    return _Pricer(job, fits_only, lean).tables()


def shadowed_roles(job: Job) -> list[str]:
    """Roles that may have a shadow: their rollouts follow the training of earlier iterations."""
    if not job.spec.constraints.allow_shadow_copies:
        return []
    return [role for role in job.models if weights_edge(job.dataflow, role) is not None]


class _Pricer:
    """Walks copies, then the calls on each."""

    def __init__(self, job: Job, fits_only: bool, lean: bool) -> None:
        self.job = job
        self.pricing = Pricing(job)
        self.fits_only, self.lean = fits_only, lean
        self.blocks: list[list[_Block]] = []

    def tables(self) -> Tables:
        roles = list(self.job.models)
        copies: list[CopyTable] = []
        for role in roles:
            copies.append(self._copy_like_another(role, copies) or self._copy(role, role, None))
        for role in shadowed_roles(self.job):
            shadow = self._copy(f"{role}.shadow", role, roles.index(role))
            if len(shadow):
                copies.append(shadow)
            else:  # no GPU holds one; without rows it does not exist
                self.blocks.pop()
        served = [
            (index, call, copy_index)
            for index, call in enumerate(self.job.dataflow.calls)
            for copy_index, copy in enumerate(copies)
            if copy.role == call.model and (copy.shadow_of is None or call.kind == "generate")
        ]
        # numpy lets go of the interpreter inside large operations, so threads share the work.
        kinds = [self._call_kind(call, copies[copy_index]) for _, call, copy_index in served]
        first = dict(zip(reversed(kinds), reversed(served), strict=True))
        with ThreadPoolExecutor(self.job.spec.search.num_workers) as pool:
            tables = pool.map(
                lambda each: self._call_table(*each, copies=copies), list(first.values())
            )
            priced = dict(zip(first, tables, strict=True))
        calls = [
            replace(table, call=index, copy=copy_index)
            for kind, (index, _, copy_index) in zip(kinds, served, strict=True)
            for table in [priced[kind][0]]
            if table is not None
        ]
        num_priced = sum(priced[kind][1] for kind in kinds)
        return Tables(copies, calls, self.job.dataflow.calls, num_priced)

    def _role_kind(self, role: str) -> Hashable:
        """Equal for roles whose homes have the same layouts, bytes and seconds."""
        constraints = self.job.spec.constraints
        return (
            replace(self.job.models[role], role=""),
            constraints.parallelism.get(role),
            constraints.pools.get(role),
            role in self.pricing.generating,
            role in shadowed_roles(self.job),
        )

    def _call_kind(self, call: Call, copy: CopyTable) -> Hashable:
        """Equal for calls that are priced alike on copies that are alike."""
        unnamed = call.model_copy(update={"id": "", "role": "", "model": ""})
        wanted = self.job.spec.constraints.parallelism.get(call.role)
        streamed = call.id in self.pricing.streaming_calls
        return self._role_kind(copy.role), copy.shadow_of is None, unnamed, wanted, streamed

    def _copy_like_another(self, role: str, copies: list[CopyTable]) -> CopyTable | None:
        """The home of a role, where that of an earlier one is alike."""
        kind = self._role_kind(role)
        for index, copy in enumerate(copies):
            if self._role_kind(copy.role) == kind:
                self.blocks.append(self.blocks[index])
                return replace(copy, id=role, role=role)
        return None

    def _copy(self, name: str, role: str, home: int | None) -> CopyTable:
        blocks: list[_Block] = []
        for block in self._copy_blocks(role, home, first_row=0):
            first = sum(len(earlier.rows) for earlier in blocks)
            rows = np.arange(first, first + len(block.rows), dtype=np.int64)
            blocks.append(
                _Block(
                    block.pool_index,
                    block.pool,
                    rows,
                    block.layouts,
                    block.resident_bytes,
                    block.host_bytes,
                    block.sync_seconds,
                )
            )
        self.blocks.append(blocks)
        pools = [np.full(len(block.rows), block.pool_index, dtype=np.int64) for block in blocks]
        return CopyTable(
            id=name,
            role=role,
            shadow_of=home,
            pool=np.concatenate(pools),
            layouts=joined_layouts([block.layouts for block in blocks]),
            resident_bytes=np.concatenate([block.resident_bytes for block in blocks]),
            host_bytes=np.concatenate([block.host_bytes for block in blocks]),
            sync_seconds=np.concatenate([block.sync_seconds for block in blocks]),
        )

    def _copy_blocks(self, role: str, home: int | None, *, first_row: int) -> Iterator[_Block]:
        pinned = self.job.spec.constraints.pools.get(role)
        synced = role in shadowed_roles(self.job)
        for index, pool in enumerate(self.job.pools):
            if pinned not in (None, pool.name):
                continue
            if home is None:
                layouts = enumeration.home_layouts(self.job, role, pool)
                held = self.pricing.home_bytes(role, pool, layouts)
                sync = self.pricing.send_seconds(role, pool, layouts)
            else:
                layouts = enumeration.shadow_layouts(self.job, role, pool)
                held = self.pricing.shadow_bytes(role, layouts)
                sync = self.pricing.receive_seconds(role, pool, layouts)
            keep = np.arange(len(layouts), dtype=np.int64)
            if self.fits_only:
                keep = np.flatnonzero(held.resident.total <= usable_bytes(pool))
            yield _Block(
                index,
                pool,
                keep + first_row,
                layouts.take(keep),
                held.resident.total[keep],
                held.host[keep],
                sync[keep] if synced else np.zeros(len(keep)),
            )

    def _call_table(
        self, index: int, call: Call, copy_index: int, *, copies: list[CopyTable]
    ) -> tuple[CallTable | None, int]:
        """(settings of a call on one copy, candidates priced); None: no shadow can serve it."""
        copy, parts, count = copies[copy_index], [], 0
        for block in self.blocks[copy_index]:
            if len(block.rows) == 0:
                continue
            table, priced = self._block_table(index, call, copy_index, copy, block)
            count += priced
            parts.append(front(self._fitting(table, block)))
        if parts:
            return joined_calls(parts), count
        return (_no_rows(index, copy_index) if copy.shadow_of is None else None), count

    def _fitting(self, table: CallTable, block: _Block) -> CallTable:
        if not self.fits_only or len(table) == 0:
            return table
        resident = block.resident_bytes[table.copy_row - block.rows[0]]
        return table.take(resident + table.transient_bytes <= usable_bytes(block.pool))

    def _block_table(
        self, index: int, call: Call, copy_index: int, copy: CopyTable, block: _Block
    ) -> tuple[CallTable, int]:
        """(settings, how many were priced for them) on the rows of one pool."""
        if call.kind == "generate" and copy.shadow_of is None:
            return self._generate_from_home(index, call, copy_index, block)
        if call.kind == "generate":
            table = self._generate_on_shadow(index, call, copy_index, block)
            return table, len(table)
        return self._batched(index, call, copy_index, block)

    def _batched(
        self, index: int, call: Call, copy_index: int, block: _Block
    ) -> tuple[CallTable, int]:
        """Train and forward calls: every layout with every micro-batch and recomputation.

        Offload only adds its copies' seconds and bytes, so layouts that differ in nothing else are
        priced once, and share the settings among which nothing beats another.
        """
        wanted = enumeration.constraint_of(self.job, call.role)
        sizes = np.array(enumeration.micro_batch_sizes(wanted), dtype=np.int64)
        if self.lean:
            sizes = sizes[:1]
        modes = enumeration.recomputes(self.job, wanted) if call.kind == "train" else [0]
        first, base_of = distinct_rows(*block.layouts.columns_without_offload())
        base = block.layouts.take(first).without_offload()
        rows, micro, recompute = enumeration.settings_grid(
            len(first), sizes, np.array(modes, dtype=np.int64)
        )
        keep = self._even(call, base.data_parallel_size[rows], micro)
        rows, micro, recompute = rows[keep], micro[keep], recompute[keep]
        layouts = base.take(rows)
        priced = self._priced(call, block.pool, layouts, micro, recompute)
        seconds, transient = priced.seconds.total, priced.transient.total
        extra_seconds, extra_bytes = self._offload_extra(call, block, base.take(base_of))
        num_priced = int(np.bincount(rows, minlength=len(first))[base_of].sum())
        useful = front_rows(rows, seconds, transient)
        owner, shared = _settings_of_rows(base_of, rows[useful])
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
            engine=Engine.of(layouts).take(setting),
        )
        return table, num_priced

    def _priced(
        self, call: Call, pool: Pool, layouts: Layouts, micro: IntArray, recompute: IntArray
    ) -> CallEstimates:
        if call.kind == "train":
            return self.pricing.train(
                call, pool, layouts, micro_batch_size=micro, recompute=recompute
            )
        return self.pricing.forward(call, pool, layouts, micro_batch_size=micro)

    def _offload_extra(
        self, call: Call, block: _Block, base: Layouts
    ) -> tuple[FloatArray, IntArray]:
        """(seconds, transient bytes) that each row's offload adds, whatever its settings."""
        zero = np.zeros(len(block.rows), dtype=np.int64)
        away = np.flatnonzero(block.layouts.offload)
        seconds, transient = np.zeros(len(block.rows)), zero.copy()
        if len(away):
            one, none = zero[away] + 1, zero[away]
            with_it = self._priced(call, block.pool, block.layouts.take(away), one, none)
            without = self._priced(call, block.pool, base.take(away), one, none)
            seconds[away] = with_it.seconds.total - without.seconds.total
            transient[away] = with_it.transient.total - without.transient.total
        return seconds, transient

    def _even(self, call: Call, data: IntArray, micro: IntArray) -> IntArray:
        """Micro-batches no larger than a rank's share; evenly divided where the spec insists."""
        batch = call.num_sequences
        if call.kind == "train":
            batch = -(-call.epochs * call.num_sequences // max(call.num_updates, 1))
        largest = np.maximum(2 ** np.ceil(np.log2(-(-batch // data))), micro.min(initial=1))
        keep = micro <= largest
        if self.job.spec.constraints.require_even_batch:
            keep &= batch % (data * micro) == 0
        return np.flatnonzero(keep)

    def _generate_on_shadow(
        self, index: int, call: Call, copy_index: int, block: _Block
    ) -> CallTable:
        engine, rows, budgets = self._budgets(call, block.pool, Engine.of(block.layouts))
        estimates = self.pricing.generate(call, block.pool, engine, kv_cache_bytes=budgets)
        all_runs = runs(self.pricing, call, block.pool, engine, budgets, estimates)
        base, seconds = all_runs.base, whole_microseconds(all_runs.seconds)
        zero = np.zeros_like(base)
        return CallTable(
            call=index,
            copy=copy_index,
            copy_row=block.rows[rows[base]],
            seconds=seconds,
            transient_bytes=all_runs.transient_bytes(estimates),
            micro_batch_size=zero,
            recompute=zero,
            kv_cache_bytes=budgets[base],
            engine=engine.take(base),
            **all_runs.columns(np.arange(len(base)), seconds),
        )

    def _generate_from_home(
        self, index: int, call: Call, copy_index: int, block: _Block
    ) -> tuple[CallTable, int]:
        """Every home layout with every engine layout on the same GPUs and every cache budget.

        Engines are priced once per size of the range, reshards once per pair of layouts; homes
        that reshard alike share the settings among which nothing beats another.
        """
        engines = self._engines(call, block)
        if len(engines.size_of) == 0:
            return _no_rows(index, copy_index), 0
        engine, owner, budgets = self._budgets(call, block.pool, engines.layouts)
        priced = self.pricing.generate(call, block.pool, engine, kv_cache_bytes=budgets)
        ran = runs(self.pricing, call, block.pool, engine, budgets, priced)
        home_size = np.searchsorted(engines.counts, block.layouts.num_gpus)
        size_of = engines.size_of[owner[ran.base]]
        num_priced = int(np.bincount(size_of, minlength=len(engines.counts))[home_size].sum())
        if ran.plain:
            # Of the budgets of one engine those that another one beats are beaten in every home.
            ran = ran.take(front_rows(owner, ran.seconds, ran.transient_bytes(priced)))
        else:
            # Which shares of the seconds pass before something is free depends on the reshard.
            ran = ran.take(np.argsort(size_of, kind="stable"))
        home, kind, moves, weights, first_pair = self._reshards(call, block, engines, home_size)
        # Runs are in the order of the sizes of their engines.
        engine_of = owner[ran.base]
        row, run = _matching(home_size[home], engines.size_of[engine_of])
        pair = first_pair[row] + engine_of[run] - engines.first[home_size[home[row]]]
        seconds = whole_microseconds(ran.seconds[run] + moves[pair])
        transient = ran.transient_bytes(priced)[run] + weights[pair]
        courses = ran.columns(run, seconds)
        useful = front_rows(row, seconds, transient, kinds_of(*courses.values()))
        copy_row, shared = _settings_of_rows(kind, row[useful])
        setting = useful[shared]
        base, zero = ran.base[run[setting]], np.zeros_like(setting)
        table = CallTable(
            call=index,
            copy=copy_index,
            copy_row=block.rows[copy_row],
            seconds=seconds[setting],
            transient_bytes=transient[setting],
            micro_batch_size=zero,
            recompute=zero,
            kv_cache_bytes=budgets[base],
            engine=engine.take(base),
            **{name: course[setting] for name, course in courses.items()},
        )
        return table, num_priced

    def _engines(self, call: Call, block: _Block) -> "_Engines":
        """The engine layouts of every size that a home of the block has."""
        counts = np.unique(block.layouts.num_gpus)
        parts = [
            enumeration.engines(self.job, call.role, block.pool, int(count)) for count in counts
        ]
        lengths = np.array([len(part.tensor_parallel_size) for part in parts], dtype=np.int64)
        return _Engines(
            counts=counts,
            layouts=Engine.joined(parts),
            size_of=np.repeat(np.arange(len(counts)), lengths),
            first=np.cumsum(lengths) - lengths,
            lengths=lengths,
        )

    def _reshards(
        self, call: Call, block: _Block, engines: "_Engines", home_size: IntArray
    ) -> tuple[IntArray, IntArray, FloatArray, IntArray, IntArray]:
        """(a home of every kind, kind of every home, seconds and bytes per pair, first pair).

        Pairs are a home with each engine of its size; homes of one kind reshard alike to all.
        """
        home, pair_engine = _matching(home_size, engines.size_of)
        moves, weights = self.pricing.reshard(
            call, block.pool, block.layouts.take(home), engines.layouts.take(pair_engine)
        )
        first_pair = np.cumsum(engines.lengths[home_size]) - engines.lengths[home_size]
        most = int(engines.lengths.max(initial=0))
        columns = np.zeros((2, len(home_size), most))
        column = pair_engine - engines.first[home_size[home]]
        columns[0, home, column], columns[1, home, column] = moves, weights
        first, kind = distinct_columns(home_size[:, None], columns[0], columns[1])
        return first, kind, moves, weights, first_pair[first]

    def _budgets(self, call: Call, pool: Pool, engine: Engine) -> tuple[Engine, IntArray, IntArray]:
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


def _no_rows(call: int, copy: int) -> CallTable:
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
        engine=Engine(none, none, none, none),
    )


def _matching(left: IntArray, right: IntArray) -> tuple[IntArray, IntArray]:
    """Every pair (i, j) with left[i] = right[j], in order; `right` must not fall."""
    return _settings_of_rows(left, right)


def _settings_of_rows(base_of: IntArray, base_rows: IntArray) -> tuple[IntArray, IntArray]:
    """(row, setting) for every row with every setting of its base; `base_rows` must not fall."""
    first = np.searchsorted(base_rows, base_of, side="left")
    count = np.searchsorted(base_rows, base_of, side="right") - first
    owner = np.repeat(np.arange(len(base_of), dtype=np.int64), count)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    return owner, np.asarray(np.repeat(first, count) + within, dtype=np.int64)
