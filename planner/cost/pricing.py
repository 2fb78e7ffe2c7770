"""Prices of copies and calls, batched or one at a time: the one way into the cost model.

Candidates price thousands of rows through these functions; a placement's estimate, and the check
of a plan, price single rows through the very same ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.cluster import Pool
from planner.cost import generation, intervals, memory, transition
from planner.cost.estimates import BytesColumns, CallEstimates
from planner.cost.profile import Profile, load_profile, measured_profile
from planner.cost.scoring import price_forward
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
class CopyBytes:
    """What copies hold, one row per layout."""

    resident: BytesColumns
    host: IntArray
    """Per GPU, on the host."""


@dataclass(frozen=True)
class Pricing:
    """The cost model applied to one job."""

    job: Job

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
        return price_train(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            layouts,
            micro_batch_size=micro_batch_size,
            recompute=recompute,
        )

    def forward(
        self, call: Call, pool: Pool, layouts: Layouts, *, micro_batch_size: IntArray
    ) -> CallEstimates:
        """A scoring call on a home or a shadow."""
        return price_forward(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            layouts,
            micro_batch_size=micro_batch_size,
        )

    def generate(
        self, call: Call, pool: Pool, engine: Engine, *, kv_cache_bytes: IntArray
    ) -> CallEstimates:
        """Generation on weights that are already laid out for it."""
        return generation.price_generate(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            **engine.columns(),
            kv_cache_bytes=kv_cache_bytes,
        )

    def generation_deviation(
        self, call: Call, pool: Pool, engine: Engine, *, kv_cache_bytes: IntArray
    ) -> FloatArray:
        """Standard deviation of a generation's seconds when its lengths are drawn anew."""
        return generation.generation_phases(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            **engine.columns(),
            kv_cache_bytes=kv_cache_bytes,
        ).deviation_seconds

    def call_bounds(
        self, call: Call, seconds: float, *, transition: float, deviation: float
    ) -> tuple[float, float]:
        """(low, high) seconds of a call that is estimated to take so many."""
        return intervals.call_bounds(
            seconds,
            kind=intervals.call_kind(call.kind, self._model(call).architecture),
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
        return seconds, transient

    def generate_from_home(
        self,
        call: Call,
        pool: Pool,
        layouts: Layouts,
        engine: Engine,
        *,
        kv_cache_bytes: IntArray,
    ) -> CallEstimates:
        """Generation on a training home: the reshard is part of the call."""
        estimates = self.generate(call, pool, engine, kv_cache_bytes=kv_cache_bytes)
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

    def _model(self, call: Call) -> Model:
        assert call.model is not None, "a function has no price here"
        return self.job.models[call.model]


def whole_microseconds(seconds: FloatArray) -> FloatArray:
    """Seconds rounded up to the resolution of prices."""
    return np.ceil(seconds / RESOLUTION_SECONDS - 1e-6) * RESOLUTION_SECONDS
