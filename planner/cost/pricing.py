"""Prices of copies and calls, batched or one at a time: the one way into the cost model.

Candidates price thousands of rows through these functions; a placement's estimate, and the check
of a plan, price single rows through the very same ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.cluster import Pool
from planner.cost import generation, intervals, memory, streaming, transition
from planner.cost.corrections import RoleClass, TermKind
from planner.cost.estimates import BytesColumns, CallEstimates, summed
from planner.cost.profile import Profile, load_profile, measured_profile
from planner.cost.scoring import price_forward
from planner.cost.streaming import TailEstimates, TailSetting
from planner.cost.training import price_train
from planner.dataflow import Call
from planner.job import Job, Model
from planner.layout import FloatArray, IntArray, Layouts
from planner.spec import WorkloadSpec

RESOLUTION_SECONDS = 1e-6
"""Prices are whole microseconds, rounded up: finer is noise, and the search becomes exact."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Generation layouts as columns, one row each."""

    tensor_parallel_size: IntArray
    pipeline_parallel_size: IntArray
    expert_parallel_size: IntArray
    data_parallel_size: IntArray

    def columns(self) -> Mapping[str, IntArray]:
        """As keyword arguments of planner.cost.generation."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def take(self, rows: IntArray) -> "Engine":
        """The given rows, in that order."""
        return Engine(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def layouts(self) -> Layouts:
        """Layouts that are stored the way this engine generates."""
        one = np.ones_like(self.tensor_parallel_size)
        sizes = (self.tensor_parallel_size, self.pipeline_parallel_size, self.data_parallel_size)
        return Layouts(
            num_gpus=sizes[0] * sizes[1] * sizes[2],
            tensor_parallel_size=sizes[0],
            pipeline_parallel_size=sizes[1],
            virtual_pipeline_parallel_size=one,
            context_parallel_size=one,
            data_parallel_size=sizes[2],
            expert_parallel_size=self.expert_parallel_size,
            sharding=0 * one,
            offload=0 * one,
        )

    @staticmethod
    def joined(parts: Sequence["Engine"]) -> "Engine":
        """Several column sets one below the other."""
        names = Engine.__dataclass_fields__
        return Engine(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @staticmethod
    def of(layouts: Layouts) -> "Engine":
        """The engine of a copy that is stored the way it generates."""
        return Engine(
            layouts.tensor_parallel_size,
            layouts.pipeline_parallel_size,
            layouts.expert_parallel_size,
            layouts.data_parallel_size,
        )


@dataclass(frozen=True, slots=True)
class Course:
    """Parts of a generation's seconds."""

    released: tuple[float, ...]
    """Until each chunk but the last is out; none where nothing is streamed."""
    bulk: float | None
    """Until its tail begins; None: it has none."""


@dataclass(frozen=True, slots=True)
class CopyBytes:
    """What copies hold, one row per layout."""

    resident: BytesColumns
    host: IntArray
    """Per GPU, on the host."""


@dataclass(frozen=True)
class Pricing:
    """The cost model applied to one job."""

    job: Job
    corrected: bool = True
    """With what runs have taught of its profiles; False: as their tables say."""

    @property
    def workload(self) -> WorkloadSpec:
        """The job's workload."""
        return self.job.spec.workload

    @cached_property
    def multi_node(self) -> bool:
        """True unless the whole cluster is one node: then weight syncs stay inside it."""
        return sum(pool.num_nodes for pool in self.job.pools) > 1

    def profile(self, pool: Pool) -> Profile:
        """Operator times of the pool's GPU: measured on the pool itself, or those shipped."""
        if pool.profile is not None:
            # Measured on the pool itself, so its link is the table's, whatever the spec says of it.
            link = pool.intra_node_bytes_per_second
            return measured_profile(pool.gpu, pool.profile, link)
        return load_profile(pool.gpu)

    def home_bytes(self, role: str, pool: Pool, layouts: Layouts) -> CopyBytes:
        """What a home of a role holds through the iteration."""
        model = self.job.models[role]
        resident, host = memory.home_resident_bytes(model, self.workload, layouts)
        if role in self.generating:
            host = host + transition.base_copy_limit(model, self.workload, pool)
        return CopyBytes(resident, host)

    def shadow_bytes(self, role: str, layouts: Layouts) -> CopyBytes:
        """What a shadow of a role holds through the iteration."""
        model = self.job.models[role]
        resident = memory.shadow_resident_bytes(model, self.workload, layouts)
        return CopyBytes(resident, transition.base_copy_bytes(model, self.workload, layouts))

    @cached_property
    def generating(self) -> frozenset[str]:
        """Roles whose models generate."""
        calls = self.job.dataflow.calls
        return frozenset(call.model for call in calls if call.model and call.kind == "generate")

    def send_seconds(self, role: str, pool: Pool, layouts: Layouts) -> FloatArray:
        """A home's side of a weight sync."""
        return whole_microseconds(
            transition.sync_send_seconds(
                self.job.models[role],
                self.workload,
                pool,
                self.profile(pool),
                layouts,
                self.multi_node,
            )
        )

    def receive_seconds(self, role: str, pool: Pool, layouts: Layouts) -> FloatArray:
        """A shadow's side of a weight sync."""
        return whole_microseconds(
            transition.sync_receive_seconds(
                self.job.models[role],
                self.workload,
                pool,
                self.profile(pool),
                layouts,
                self.multi_node,
            )
        )

    def train(
        self,
        call: Call,
        pool: Pool,
        layouts: Layouts,
        *,
        micro_batch_size: IntArray,
        recompute: IntArray,
    ) -> CallEstimates:
        """A train call on its home."""
        estimates = price_train(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            layouts,
            micro_batch_size=micro_batch_size,
            recompute=recompute,
        )
        return self._corrected(estimates, "train", call, pool)

    def forward(
        self, call: Call, pool: Pool, layouts: Layouts, *, micro_batch_size: IntArray
    ) -> CallEstimates:
        """A scoring call on a home or a shadow."""
        estimates = price_forward(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            layouts,
            micro_batch_size=micro_batch_size,
        )
        return self._corrected(estimates, "forward", call, pool)

    def generate(
        self,
        call: Call,
        pool: Pool,
        engine: Engine,
        *,
        kv_cache_bytes: IntArray,
        tail: TailSetting | None = None,
    ) -> CallEstimates:
        """Generation on weights that are already laid out for it."""
        estimates = generation.price_generate(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            **engine.columns(),
            kv_cache_bytes=kv_cache_bytes,
        )
        estimates = self._corrected(estimates, "generate", call, pool)
        if tail is None:
            return estimates
        priced = self.tail(call, pool, engine, kv_cache_bytes=kv_cache_bytes, tail=tail)
        weights = estimates.transient.weights + priced.weight_bytes
        return replace(
            estimates,
            seconds=summed(estimates.seconds, priced.extra),
            transient=replace(estimates.transient, weights=weights),
        )

    def generation_deviation(
        self, call: Call, pool: Pool, engine: Engine, *, kv_cache_bytes: IntArray
    ) -> FloatArray:
        """Standard deviation of a generation's seconds when its lengths are drawn anew."""
        phases = self.generation_phases(call, pool, engine, kv_cache_bytes=kv_cache_bytes)
        return self._generate_factor(call, pool) * phases.deviation_seconds

    def outstanding_seconds(
        self, call: Call, pool: Pool, engine: Engine, *, kv_cache_bytes: IntArray
    ) -> FloatArray | None:
        """[row, chunk]: how long before a generation's end each chunk but the last is out.

        None where no call takes its responses in chunks.
        """
        if call.id not in self.streaming_calls:
            return None
        phases = self.generation_phases(call, pool, engine, kv_cache_bytes=kv_cache_bytes)
        chunks = self.job.spec.search.stream_chunks
        return self._generate_factor(call, pool) * streaming.outstanding_seconds(phases, chunks)

    def tail(
        self,
        call: Call,
        pool: Pool,
        engine: Engine,
        *,
        kv_cache_bytes: IntArray,
        tail: TailSetting,
    ) -> TailEstimates:
        """What a generation's tail on fewer, or on wider, replicas changes."""
        chunks = self.job.spec.search.stream_chunks if call.id in self.streaming_calls else None
        phases = self.generation_phases(call, pool, engine, kv_cache_bytes=kv_cache_bytes)
        factor = self._generate_factor(call, pool)
        if tail.tensor_factor == 1:
            priced = streaming.price_tail(phases, tail, phases, **engine.columns(), chunks=chunks)
            return priced.times(factor)
        tensor = engine.tensor_parallel_size * tail.tensor_factor
        data = np.maximum(engine.data_parallel_size // tail.tensor_factor, 1)
        wide = replace(engine, tensor_parallel_size=tensor, data_parallel_size=data)
        after = self.generation_phases(call, pool, wide, kv_cache_bytes=kv_cache_bytes)
        model = self._model(call)
        precision = self.workload.rollout_precision or self.workload.precision
        # Each GPU gets its new shard, beside the old one.
        weights = memory.weight_bytes(model, wide.layouts(), precision=precision)
        priced = streaming.price_tail(
            phases,
            tail,
            after,
            **engine.columns(),
            chunks=chunks,
            relayout_seconds=weights / pool.intra_node_bytes_per_second,
        )
        possible = priced.possible & self._may_be_wide(model, pool, wide)
        return replace(priced, possible=possible, weight_bytes=weights).times(factor)

    def _may_be_wide(self, model: Model, pool: Pool, wide: Engine) -> npt.NDArray[np.bool_]:
        """Where the tail's tensor groups are such as a call may begin with."""
        tensor = wide.tensor_parallel_size
        across_nodes = self.job.spec.constraints.tensor_parallel_across_nodes
        fits: npt.NDArray[np.bool_] = (
            (model.architecture.num_attention_heads % tensor == 0)
            & pool.is_within_reach(tensor, across_nodes=across_nodes)
            & pool.is_whole_nodes_or_divides_one(tensor)
            & (wide.expert_parallel_size == 1)
        )
        return fits

    def generation_phases(
        self, call: Call, pool: Pool, engine: Engine, *, kv_cache_bytes: IntArray
    ) -> generation.GenerationPhases:
        """Prefill and decode of a generation, with the course of its batch."""
        return generation.generation_phases(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            **engine.columns(),
            kv_cache_bytes=kv_cache_bytes,
        )

    def _generate_factor(self, call: Call, pool: Pool) -> float:
        return self.factor(pool, "generate", self._model(call))

    @cached_property
    def streaming_calls(self) -> frozenset[str]:
        """Calls whose responses others take in chunks."""
        return frozenset(edge.source for edge in self.job.dataflow.edges if edge.streamed)

    def course(
        self,
        call: Call,
        pool: Pool,
        engine: Engine,
        *,
        kv_cache_bytes: IntArray,
        tail: TailSetting | None,
        seconds: float,
    ) -> Course:
        """When a single generation's chunks are out and its bulk ends.

        `seconds` are the whole call's, its reshard included.
        """
        column, bulk = np.array([seconds]), None
        outstanding = None
        if tail is None:
            outstanding = self.outstanding_seconds(
                call, pool, engine, kv_cache_bytes=kv_cache_bytes
            )
        else:
            priced = self.tail(call, pool, engine, kv_cache_bytes=kv_cache_bytes, tail=tail)
            outstanding = priced.outstanding
        if tail is not None and tail.ratio > 1:
            bulk = float(streaming.release_shares(priced.bulk_outstanding[:, None], column)[0, 0])
        if outstanding is None:
            return Course((), bulk)
        return Course(tuple(streaming.release_shares(outstanding, column)[0].tolist()), bulk)

    def call_bounds(
        self, call: Call, seconds: float, *, transition: float, deviation: float
    ) -> tuple[float, float]:
        """(low, high) seconds of a call that is estimated to take so many."""
        model = self._model(call)
        products = memory.product_precision(model, self.workload)
        return intervals.call_bounds(
            seconds,
            kind=intervals.call_kind(call.kind, model.architecture, products),
            transition_seconds=transition,
            multi_node=self.multi_node,
            deviation=deviation,
        )

    def reshard(
        self, call: Call, pool: Pool, layouts: Layouts, engine: Engine
    ) -> tuple[FloatArray, IntArray]:
        """(seconds, transient weight bytes) from home layouts to generation layouts."""
        seconds, _, transient = transition.reshard(
            self._model(call),
            self.workload,
            pool,
            self.profile(pool),
            layouts,
            tensor_parallel_size=engine.tensor_parallel_size,
            pipeline_parallel_size=engine.pipeline_parallel_size,
            expert_parallel_size=engine.expert_parallel_size,
        )
        return self.factor(pool, "transition", self._model(call)) * seconds, transient

    def generate_from_home(
        self,
        call: Call,
        pool: Pool,
        layouts: Layouts,
        engine: Engine,
        *,
        kv_cache_bytes: IntArray,
        tail: TailSetting | None = None,
    ) -> CallEstimates:
        """Generation on a training home: the reshard is part of the call."""
        estimates = self.generate(call, pool, engine, kv_cache_bytes=kv_cache_bytes, tail=tail)
        seconds, transient = self.reshard(call, pool, layouts, engine)
        return CallEstimates(
            replace(estimates.seconds, transition=estimates.seconds.transition + seconds),
            replace(estimates.transient, weights=estimates.transient.weights + transient),
            estimates.source,
        )

    def kv_cache_limits(self, call: Call, engine: Engine) -> tuple[IntArray, IntArray]:
        """(least, full) cache bytes per GPU: one longest sequence; no sequence ever waits."""
        model, columns = self._model(call), engine.columns()
        return (
            generation.minimum_kv_cache_bytes(model, call, self.workload, **columns),
            generation.full_kv_cache_bytes(model, call, self.workload, **columns),
        )

    def factor(self, pool: Pool, kind: TermKind, model: Model) -> float:
        """What runs have taught of a term, where the pool has a calibrated profile; else 1."""
        corrections = self.profile(pool).corrections if self.corrected else None
        return corrections.factor(kind, role_class(model)) if corrections else 1.0

    def _corrected(
        self, estimates: CallEstimates, kind: TermKind, call: Call, pool: Pool
    ) -> CallEstimates:
        factor = self.factor(pool, kind, self._model(call))
        return (
            estimates
            if factor == 1.0
            else replace(estimates, seconds=estimates.seconds.times(factor))
        )

    def _model(self, call: Call) -> Model:
        assert call.model is not None, "a function has no price here"
        return self.job.models[call.model]


def role_class(model: Model) -> RoleClass:
    """Of a model: corrections differ by what it makes of a token."""
    return "scalar" if model.scalar_head else "language"


def whole_microseconds(seconds: FloatArray) -> FloatArray:
    """Seconds rounded up to the resolution of prices."""
    return np.ceil(seconds / RESOLUTION_SECONDS - 1e-6) * RESOLUTION_SECONDS
