"""Price every candidate of a job: all layouts of all copies, all settings of all calls."""

from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.memory import fillable_bytes
from automap.planner.cost.pricing import Pricing
from automap.planner.dataflow.graph import Call
from automap.planner.job import pins
from automap.planner.job.job import Job
from automap.planner.job.pins import shadowed_roles
from automap.planner.layout import IntArray
from automap.planner.search.candidates import enumeration
from automap.planner.search.candidates.call_settings import Block, Settings, no_rows
from automap.planner.search.candidates.tables import (
    CallTable,
    CopyTable,
    Tables,
    front,
    joined_calls,
    joined_layouts,
)


@dataclass(frozen=True, slots=True)
class _Served:
    """A call on a copy that can run it."""

    index: int
    call: Call
    copy: int
    kind: Hashable
    """A key that two calls share if their layouts and prices are equal, row by row."""


def price_candidates(
    job: Job, *, fits_only: bool = True, lean: bool = False, deadline: float = inf
) -> Tables:
    """All candidates with their prices.

    With `fits_only`, rows that exceed a GPU's memory by themselves are left out; without, they stay
    so that an impossible job can say by how many bytes. With `lean` there are only the settings
    that can take the least memory: one row in a micro-batch, the smallest cache.

    Raises:
        NoSolutionInTimeError: time.perf_counter passed the deadline before all was priced.
    """
    candidates = Candidates(job, fits_only=fits_only, lean=lean, deadline=deadline)
    calls, num_priced = candidates.calls()
    return Tables(candidates.copies, calls, job.dataflow.calls, num_priced)


class Candidates:
    """The layouts of every copy, and on them, as asked for, the settings of every call."""

    def __init__(
        self, job: Job, *, fits_only: bool = True, lean: bool = False, deadline: float = inf
    ) -> None:
        self.job = job
        self.pricing = Pricing(job)
        self.fits_only = fits_only
        self.settings = Settings.of(job, self.pricing, lean=lean, deadline=deadline)
        self.blocks: list[list[Block]] = []
        """Per copy, its rows in each pool."""
        self.copies: list[CopyTable] = []
        self._add_copies()
        self._served = [
            _Served(index, call, number, self._call_kind(call, copy))
            for index, call in enumerate(job.dataflow.calls)
            for number, copy in enumerate(self.copies)
            if copy.role == call.model and (copy.shadow_of is None or call.kind == "generate")
        ]

    def _add_copies(self) -> None:
        roles = list(self.job.models)
        for role in roles:
            self.copies.append(
                self._copy_like_another(role, self.copies) or self._copy(role, role, None)
            )
        for role in shadowed_roles(self.job):
            shadow = self._copy(pins.shadow_id(role), role, roles.index(role))
            if len(shadow):
                self.copies.append(shadow)
            else:  # no GPU holds one; without rows it does not exist
                self.blocks.pop()

    def calls(self) -> tuple[list[CallTable], int]:
        """(tables of the calls on all rows of every copy, candidates priced)."""
        first: dict[Hashable, _Served] = {}
        for each in self._served:
            first.setdefault(each.kind, each)
        # Shadows take their prices from the homes', so they come last and need not wait.
        kinds = sorted(first, key=lambda kind: self.copies[first[kind].copy].shadow_of is not None)
        # numpy lets go of the interpreter inside large operations, so threads share the work.
        with ThreadPoolExecutor(self.job.spec.search.num_workers) as pool:
            tables = pool.map(self._call_table, [first[kind] for kind in kinds])
            priced = dict(zip(kinds, tables, strict=True))
        calls = [
            replace(table, call=each.index, copy=each.copy, process=self._engine(each.call, table))
            for each in self._served
            for table in [priced[each.kind][0]]
            if table is not None
        ]
        return calls, sum(priced[each.kind][1] for each in self._served)

    def _engine(self, call: Call, table: CallTable) -> IntArray | None:
        """What a call has in common with others: generations of a model, or calls of a kind.

        Generations are alike, so no setting that one of them needs is beaten in another. None: it
        has nothing in common.
        """
        if self.job.target.shared_settings and call.kind != "generate":
            return enumeration.shared_settings(self.job, call, table)
        if self.job.target.settings_of_role and call.kind != "generate":
            return enumeration.settings_of_role(self.job, call, table)
        if not pins.shares_engine(self.job, call):
            return None
        return np.column_stack([*table.engine.columns().values(), table.kv_cache_bytes])

    def _role_kind(self, role: str) -> Hashable:
        """A key that roles share if their homes have the same layouts, bytes and seconds."""
        return (
            replace(self.job.models[role], role=""),
            pins.home_sizes(self.job, role),
            pins.home_pool(self.job, role),
            pins.shadow_pool(self.job, role),
            tuple(pins.shadow_sizes(self.job, role)),
            role in self.pricing.generating,
            role in shadowed_roles(self.job),
            role in self.job.target.process_roles | self.job.target.alike_roles,
            tuple(engine.name for engine in self.job.engines_of(role).engines),
        )

    def _call_kind(self, call: Call, copy: CopyTable) -> Hashable:
        """Equal for calls that are priced alike on copies that are alike."""
        unnamed = call.model_copy(update={"id": "", "role": "", "model": ""})
        fixed = pins.engine_sizes if call.kind == "generate" else pins.settings
        pinned = pins.call_pool(self.job, call), fixed(self.job, call)
        streamed = call.id in self.pricing.streaming_calls
        return self._role_kind(copy.role), copy.shadow_of is None, unnamed, pinned, streamed

    def _copy_like_another(self, role: str, copies: list[CopyTable]) -> CopyTable | None:
        """The home of a role, where that of an earlier one is alike."""
        kind = self._role_kind(role)
        for index, copy in enumerate(copies):
            if self._role_kind(copy.role) == kind:
                self.blocks.append(self.blocks[index])
                return replace(copy, id=role, role=role)
        return None

    def _copy(self, name: str, role: str, home: int | None) -> CopyTable:
        blocks: list[Block] = []
        for block in self._copy_blocks(role, home):
            first = sum(len(earlier.rows) for earlier in blocks)
            rows = np.arange(first, first + len(block.rows), dtype=np.int64)
            blocks.append(replace(block, rows=rows))
        self.blocks.append(blocks)
        pools = [np.full(len(block.rows), block.pool_index, dtype=np.int64) for block in blocks]
        sync = np.concatenate([block.sync_seconds for block in blocks])
        node_sync = np.concatenate([block.node_sync_seconds for block in blocks])
        layouts = joined_layouts([block.layouts for block in blocks])
        return CopyTable(
            id=name,
            role=role,
            shadow_of=home,
            pool=np.concatenate(pools),
            layouts=layouts,
            resident_bytes=np.concatenate([block.resident_bytes for block in blocks]),
            host_bytes=np.concatenate([block.host_bytes for block in blocks]),
            sync_seconds=sync,
            node_sync_seconds=None if np.array_equal(sync, node_sync) else node_sync,
            process=None
            if home is not None
            else enumeration.process_columns(self.job, role, layouts),
        )

    def _copy_blocks(self, role: str, home: int | None) -> Iterator[Block]:
        synced = role in shadowed_roles(self.job)
        for index, pool in enumerate(self.job.pools):
            if not pins.may_lie_in(self.job, role, pool.name, shadow=home is not None):
                continue
            if home is None:
                layouts = enumeration.home_layouts(self.job, role, pool)
                held = self.pricing.home_bytes(role, pool, layouts)
                side = Pricing.send_seconds
            else:
                layouts = enumeration.shadow_layouts(self.job, role, pool)
                held = self.pricing.shadow_bytes(role, layouts)
                side = Pricing.receive_seconds
            keep = np.arange(len(layouts), dtype=np.int64)
            if self.fits_only:
                keep = np.flatnonzero(held.resident.total <= self._fillable(pool))
            kept = layouts.take(keep)
            across = alone = np.zeros(len(keep))
            if synced:
                across = alone = side(self.pricing, role, pool, kept)
            if synced and self.pricing.multi_node:
                inside = side(replace(self.pricing, one_node=True), role, pool, kept)
                alone = np.where(kept.num_gpus <= pool.gpus_per_node, inside, across)
            yield Block(
                index,
                pool,
                keep,
                kept,
                held.resident.total[keep],
                self._room(pool, held.resident.total[keep]),
                held.host[keep],
                across,
                alone,
            )

    def _call_table(self, each: _Served) -> tuple[CallTable | None, int]:
        """(settings of a call on one copy, candidates priced); None: no shadow can serve it."""
        on_shadow = self.copies[each.copy].shadow_of is not None
        parts, count = [], 0
        for whole in self.blocks[each.copy]:
            pool, layouts = whole.pool, whole.layouts
            block = whole.where(
                enumeration.may_serve(self.job, each.call, pool, layouts, shadow=on_shadow)
            )
            if not len(block.rows):
                continue
            table, priced = self.settings.table(
                each.call, each.index, each.copy, block, on_shadow=on_shadow
            )
            count += priced
            parts.append(front(self._fitting(table, each.copy, block)))
        if parts:
            return joined_calls(parts), count
        return (None if on_shadow else no_rows(each.index, each.copy)), count

    def _fitting(self, table: CallTable, copy: int, block: Block) -> CallTable:
        if len(table) == 0:
            return table
        resident = self.copies[copy].resident_bytes[table.copy_row]
        return table.take(table.transient_bytes <= self._room(block.pool, resident))

    def _room(self, pool: Pool, resident: IntArray) -> IntArray:
        """Bytes per GPU [row] that a call may take beside what is resident."""
        if not self.fits_only:
            return np.full(len(resident), np.iinfo(np.int64).max)
        return np.asarray(self._fillable(pool) - resident, dtype=np.int64)

    def _fillable(self, pool: Pool) -> int:
        probability = self.job.max_out_of_memory_probability
        return fillable_bytes(pool, max_out_of_memory_probability=probability)
