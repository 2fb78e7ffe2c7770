"""A job with its priced tables, and a cache of them for further questions about it."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from automap.planner.assembly.plan import placement_of
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.generation.streaming import TAILS
from automap.planner.cost.pricing import GenerationLayouts, Pricing
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Job, allowing
from automap.planner.job.resolution import resolve
from automap.planner.layout import FloatArray, IntArray
from automap.planner.plan.types import Placement, Plan
from automap.planner.search import CallTable, SearchSpace, Selected, Tables, price_candidates
from automap.planner.search.model.problem import Problem
from automap.planner.spec import JobSpec

MOST_JOBS = 3
"""Jobs whose tables a cache keeps; those of 1,024 GPUs take about 50 MB."""
PRICED = {
    "staleness",
    "iteration_barrier",
    "streaming",
    "stream_chunks",
    "generation_tail",
    "generation_tensor_schedule",
}
"""Fields of the search that decide which candidates there are, and their prices."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What of a call's seconds is wrong for other reasons than its work [row]."""

    transition: FloatArray
    """Seconds of a reshard from training to generation layout or to a tail's tensor size, of an
    offload and a reload."""
    host: FloatArray
    """Seconds of the framework's driver, and of an optimizer on the host."""


@dataclass(frozen=True)
class Study:
    """What every question about one job shares."""

    job: Job
    space: SearchSpace
    """All placements that are asked about."""

    @property
    def tables(self) -> Tables:
        """The candidates and their prices."""
        return self.space.tables

    @property
    def problem(self) -> Problem:
        """What is to be placed, without options."""
        return self.space.problem

    @cached_property
    def pricing(self) -> Pricing:
        """The cost model with this job's models, workload and pools."""
        return Pricing(self.job)

    @cached_property
    def parts(self) -> list[Parts]:
        """Per call table the parts of each row."""
        every = (np.arange(len(table), dtype=np.int64) for table in self.tables.calls)
        return [self.parts_of(*each) for each in zip(self.tables.calls, every, strict=True)]

    def parts_of(self, table: CallTable, rows: IntArray) -> Parts:
        """The parts of some rows, which are no more than their seconds."""
        copy = self.tables.copies[table.copy]
        transition, host = np.zeros(len(rows)), np.zeros(len(rows))
        pool_of = copy.pool[table.copy_row[rows]]
        for index, pool in enumerate(self.job.pools):
            here = np.flatnonzero(pool_of == index)
            if len(here):
                transition[here] = self._transition_seconds(table, pool, rows[here])
                host[here] = self._host_seconds(table, pool, rows[here])
        transition = np.minimum(transition, table.seconds[rows])
        return Parts(transition, np.minimum(host, table.seconds[rows] - transition))

    def _transition_seconds(self, table: CallTable, pool: Pool, rows: IntArray) -> FloatArray:
        """Seconds in rows of one pool of their reshard, offload and reload."""
        call, copy = self.job.dataflow.calls[table.call], self.tables.copies[table.copy]
        layouts = copy.layouts.take(table.copy_row[rows])
        if call.kind != "generate":
            return self.pricing.offload(call, pool, layouts)[0]
        seconds, engine = np.zeros(len(rows)), table.engine.take(rows)
        if copy.shadow_of is None:
            seconds += self.pricing.reshard(call, pool, layouts, engine)[0]
        if table.tail is not None:
            seconds += self._relayouts(call, pool, engine, table.tail[rows])
        return seconds

    def _host_seconds(self, table: CallTable, pool: Pool, rows: IntArray) -> FloatArray:
        """Seconds in rows of one pool of their framework's driver, and of an optimizer there."""
        call, copy = self.job.dataflow.calls[table.call], self.tables.copies[table.copy]
        optimizer = np.zeros(len(rows))
        if call.kind == "train" and self.job.spec.workload.optimizer_cpu_offload:
            first, row_of = np.unique(table.copy_row[rows], return_inverse=True)
            layouts, one = copy.layouts.take(first).without_offload(), np.ones_like(first)
            priced = self.pricing.train(
                call, pool, layouts, micro_batch_size=one, recompute=np.zeros_like(first)
            )
            optimizer = priced.seconds.optimizer[row_of]
        return self.pricing.host_seconds(call, pool, optimizer)

    def _relayouts(
        self, call: Call, pool: Pool, engine: GenerationLayouts, tails: IntArray
    ) -> FloatArray:
        """Seconds to the tensor size of each row's tail."""
        seconds = np.zeros(len(tails))
        for number, tail in enumerate(TAILS, start=1):
            here = np.flatnonzero(tails == number)
            if tail.tensor_factor > 1 and len(here):
                part = engine.take(here)
                seconds[here] = self.pricing.relayout_seconds(call, pool, part, tail)
        return seconds

    def placement(self, selected: Selected) -> Placement:
        """A placement by rows in words."""
        return placement_of(self.job, self.tables, selected)

    def gpus(self, selected: Selected) -> int:
        """GPUs of all nodes that a placement touches."""
        return sum(self.space.touched_gpus(selected))

    def on(self, space: SearchSpace) -> "Study":
        """This job with `space` as the placements that are asked about."""
        return replace(self, space=space)


class TableCache:
    """The tables of the jobs that were asked about last: the next question need not price them.

    It belongs to whoever asks more than one question, a planner process for one.
    """

    def __init__(self) -> None:
        self._tables: OrderedDict[str, Tables] = OrderedDict()

    def study(self, spec: JobSpec, *, fits_only: bool = True) -> Study:
        """The job with its tables: as they are kept, or priced and kept from now on.

        Raises:
            SpecError: as make_plan.
        """
        job = resolve(spec)
        key = _key(job, fits_only=fits_only)
        if key not in self._tables:
            self._tables[key] = price_candidates(job, fits_only=fits_only)
            while len(self._tables) > MOST_JOBS:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        return Study(job, SearchSpace.of(job, self._tables[key]))

    def holds(self, spec: JobSpec) -> bool:
        """True when the tables of a job need not be priced again."""
        return _key(resolve(spec), fits_only=True) in self._tables


def with_own_margin(plan: Plan) -> Plan:
    """The plan; where it does not keep the memory to spare that its spec asks for, without that.

    So are placements of the caller's own, and plans of versions that kept none: what they are
    compared with may fill the GPUs as they do.
    """
    chance = plan.out_of_memory_probability
    if chance is not None and chance <= resolve(plan.spec).max_out_of_memory_probability + 1e-9:
        return plan
    spec = allowing(plan.spec, out_of_memory_probability=1.0)
    return plan.model_copy(update={"spec": spec})


def study(spec: JobSpec, *, fits_only: bool = True) -> Study:
    """The job with its tables, priced and not kept: for a job that nobody asks about again.

    Raises:
        SpecError: as make_plan.
    """
    job = resolve(spec)
    return Study(job, SearchSpace.of(job, price_candidates(job, fits_only=fits_only)))


def _key(job: Job, *, fits_only: bool) -> str:
    """All that candidates and prices depend on: the spec without how to search, and versions."""
    spec, pricing = job.spec, Pricing(job)
    search = spec.search.model_dump(include=PRICED)
    limits = job.target.name, job.max_out_of_memory_probability
    document = spec.model_dump_json(exclude={"name", "search"})
    versions = [pricing.profile(pool).version for pool in job.pools]
    return f"{document} {search} {limits} {versions} {fits_only}"
