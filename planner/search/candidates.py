"""Price every candidate of a job: all layouts of all copies, all settings of all calls."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from planner.cluster import Pool
from planner.cost.estimates import CallEstimates
from planner.cost.memory import usable_bytes
from planner.cost.pricing import Engine, Pricing, whole_microseconds
from planner.cost.rows import distinct_rows
from planner.dataflow import Call, weights_edge
from planner.job import Job
from planner.layout import FloatArray, IntArray, Layouts
from planner.search import enumeration
from planner.search.runs import runs, wanted_tails
from planner.search.tables import CallTable, CopyTable, Tables, front, joined_calls, joined_layouts


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
        copies = [self._copy(role, role, None) for role in roles]
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
        with ThreadPoolExecutor(self.job.spec.search.num_workers) as pool:
            priced = list(pool.map(lambda each: self._call_table(*each, copies=copies), served))
        calls = [table for table, _ in priced if table is not None]
        num_priced = sum(count for _, count in priced)
        return Tables(copies, calls, self.job.dataflow.calls, num_priced)

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
            for table in self._block_tables(index, call, copy_index, copy, block):
                count += len(table)
                parts.append(front(self._fitting(table, block)))
        if parts:
            return joined_calls(parts), count
        return (_no_rows(index, copy_index) if copy.shadow_of is None else None), count

    def _fitting(self, table: CallTable, block: _Block) -> CallTable:
        if not self.fits_only or len(table) == 0:
            return table
        resident = block.resident_bytes[table.copy_row - block.rows[0]]
        return table.take(resident + table.transient_bytes <= usable_bytes(block.pool))

    def _block_tables(
        self, index: int, call: Call, copy_index: int, copy: CopyTable, block: _Block
    ) -> Iterator[CallTable]:
        if len(block.rows) == 0:
            return
        if call.kind == "generate" and copy.shadow_of is None:
            yield from self._generate_from_home(index, call, copy_index, block)
        elif call.kind == "generate":
            yield self._generate_on_shadow(index, call, copy_index, block)
        else:
            yield self._batched(index, call, copy_index, block)

    def _batched(self, index: int, call: Call, copy_index: int, block: _Block) -> CallTable:
        """Train and forward calls: every layout with every micro-batch and recomputation.

        Offload only adds its copies' seconds and bytes, so layouts that differ in nothing else are
        priced once.
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
        extra_seconds, extra_bytes = self._offload_extra(call, block, base.take(base_of))
        owner, setting = _settings_of_rows(base_of, rows)
        return CallTable(
            call=index,
            copy=copy_index,
            copy_row=block.rows[owner],
            seconds=whole_microseconds(priced.seconds.total[setting] + extra_seconds[owner]),
            transient_bytes=priced.transient.total[setting] + extra_bytes[owner],
            micro_batch_size=micro[setting],
            recompute=recompute[setting],
            kv_cache_bytes=np.zeros_like(setting),
            engine=Engine.of(layouts).take(setting),
        )

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
    ) -> Iterator[CallTable]:
        """Every home layout with every engine layout on the same GPUs and every cache budget.

        Engines are priced once per size of the range, reshards once per pair of layouts.
        """
        for count in np.unique(block.layouts.num_gpus):
            homes = np.flatnonzero(block.layouts.num_gpus == count)
            layouts = enumeration.engines(self.job, call.role, block.pool, int(count))
            if len(layouts.tensor_parallel_size) == 0:
                continue
            engine, layout_of, budgets = self._budgets(call, block.pool, layouts)
            run = self.pricing.generate(call, block.pool, engine, kv_cache_bytes=budgets)
            pair_home, pair_engine = enumeration.settings_grid(
                len(homes), np.arange(len(layouts.tensor_parallel_size))
            )
            moves, weights = self.pricing.reshard(
                call,
                block.pool,
                block.layouts.take(homes[pair_home]),
                layouts.take(pair_engine),
            )
            all_runs = runs(self.pricing, call, block.pool, engine, budgets, run)
            home, of_run = enumeration.settings_grid(len(homes), np.arange(len(all_runs.base)))
            setting = all_runs.base[of_run]
            pair = home * len(layouts.tensor_parallel_size) + layout_of[setting]
            zero = np.zeros_like(setting)
            seconds = whole_microseconds(all_runs.seconds[of_run] + moves[pair])
            yield CallTable(
                call=index,
                copy=copy_index,
                copy_row=block.rows[homes[home]],
                seconds=seconds,
                transient_bytes=all_runs.transient_bytes(run)[of_run] + weights[pair],
                micro_batch_size=zero,
                recompute=zero,
                kv_cache_bytes=budgets[setting],
                engine=engine.take(setting),
                **all_runs.columns(of_run, seconds),
            )

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


def _settings_of_rows(base_of: IntArray, base_rows: IntArray) -> tuple[IntArray, IntArray]:
    """(row, setting) for every row with every setting of its base; `base_rows` must not fall."""
    first = np.searchsorted(base_rows, base_of, side="left")
    count = np.searchsorted(base_rows, base_of, side="right") - first
    owner = np.repeat(np.arange(len(base_of), dtype=np.int64), count)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    return owner, np.asarray(np.repeat(first, count) + within, dtype=np.int64)
