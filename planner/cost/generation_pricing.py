"""Prices of a job's generate calls: their reshard, their tail, and when their chunks are out."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import memory, transition
from automap.planner.cost.estimates import CallEstimates, summed
from automap.planner.cost.generation import continuous, generate_call, streaming
from automap.planner.cost.generation.continuous import Admission, ContinuousGeneration
from automap.planner.cost.generation.kv_cache import full_kv_cache_bytes, minimum_kv_cache_bytes
from automap.planner.cost.generation.streaming import TailEstimates, TailSetting
from automap.planner.cost.priced_job import PricedJob
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.layout import FloatArray, GenerationLayouts, IntArray, Layouts


@dataclass(frozen=True, slots=True)
class OutputTimeline:
    """When the output of a generation is ready: shares of its seconds, rounded up to 1/64."""

    chunk_ready_shares: tuple[float, ...]
    """Share until each chunk but the last is ready; empty where nothing is streamed."""
    main_phase_share: float | None
    """Share until the tail begins, on fewer GPUs; None: no tail, or none that frees GPUs."""


@dataclass(frozen=True)
class GenerationPricing(PricedJob):
    """Prices of a job's generate calls."""

    @cached_property
    def streaming_calls(self) -> frozenset[str]:
        """Ids of calls whose responses others take in chunks."""
        return frozenset(edge.source for edge in self.job.dataflow.edges if edge.streamed)

    def generate(
        self,
        call: Call,
        pool: Pool,
        generation_layouts: GenerationLayouts,
        *,
        kv_cache_bytes: IntArray,
        tail: TailSetting | None = None,
    ) -> CallEstimates:
        """Price a generation on weights that already lie in its layout, one row per candidate."""
        steady = self.continuous_generation(
            call, pool, generation_layouts, kv_cache_bytes=kv_cache_bytes
        )
        if steady is not None:
            estimates = continuous.estimates_of(
                steady, self._model(call), pool, generation_layouts, kv_cache_bytes=kv_cache_bytes
            )
            # What flows follows no call, so nothing lies between.
            factor = self._generate_factor(call, pool)
            return replace(estimates, seconds=estimates.seconds.times(factor))
        estimates = generate_call.price_generate(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            generation_layouts,
            kv_cache_bytes=kv_cache_bytes,
            max_sequences=self.job.target.rollout.max_sequences,
        )
        estimates = self._corrected(estimates, "generate", call, pool)
        if tail is None:
            return estimates
        priced = self.tail(call, pool, generation_layouts, kv_cache_bytes=kv_cache_bytes, tail=tail)
        weights = estimates.transient.weights + priced.weight_bytes
        return replace(
            estimates,
            seconds=summed(estimates.seconds, priced.extra),
            transient=replace(estimates.transient, weights=weights),
        )

    def admission(self, call: Call) -> Admission | None:
        """How many of a call's responses may be in flight; None without continuous rollouts."""
        return Admission.of(self.job, call)

    def continuous_generation(
        self,
        call: Call,
        pool: Pool,
        generation_layouts: GenerationLayouts,
        *,
        kv_cache_bytes: IntArray,
        admission: Admission | None = None,
    ) -> ContinuousGeneration | None:
        """The steady state of a generation; None where it drains, batch by batch.

        Without an `admission` the one that the spec gives.
        """
        admission = admission or self.admission(call)
        if admission is None or admission.drains:
            return None
        return continuous.continuous_generation(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            generation_layouts,
            admission,
            kv_cache_bytes=kv_cache_bytes,
            max_sequences=self.job.target.rollout.max_sequences,
        )

    def generate_from_home(
        self,
        call: Call,
        pool: Pool,
        layouts: Layouts,
        generation_layouts: GenerationLayouts,
        *,
        kv_cache_bytes: IntArray,
        tail: TailSetting | None = None,
    ) -> CallEstimates:
        """Price a generation on a training home; the reshard is part of the call."""
        estimates = self.generate(
            call, pool, generation_layouts, kv_cache_bytes=kv_cache_bytes, tail=tail
        )
        seconds, transient = self.reshard(call, pool, layouts, generation_layouts)
        return CallEstimates(
            replace(estimates.seconds, transition=estimates.seconds.transition + seconds),
            replace(estimates.transient, weights=estimates.transient.weights + transient),
            estimates.source,
        )

    def reshard(
        self, call: Call, pool: Pool, layouts: Layouts, generation_layouts: GenerationLayouts
    ) -> tuple[FloatArray, IntArray]:
        """(seconds, transient weight bytes) from home layouts to generation layouts."""
        seconds, _, transient = transition.reshard(
            self._model(call),
            self.workload,
            self.as_copied(pool),
            self.profile(pool),
            layouts,
            tensor_parallel_size=generation_layouts.tensor_parallel_size,
            pipeline_parallel_size=generation_layouts.pipeline_parallel_size,
            expert_parallel_size=generation_layouts.expert_parallel_size,
            own_weights=self.has_own_weights(call, pool),
        )
        return self.factor(pool, "transition", self._model(call)) * seconds, transient

    def has_own_weights(self, call: Call, pool: Pool) -> bool:
        """Whether the engine's weights lie beside those that train on the same devices."""
        model, rollout = self._model(call), self.job.target.rollout
        has_adapter = model.lora_rank is not None
        return rollout.has_own_weights(model.architecture, pool.gpu, has_adapter=has_adapter)

    def reshard_kind(self, pool: Pool, layouts: Layouts) -> tuple[IntArray, ...]:
        """Columns [home] of all that a reshard depends on in a home; equal ones reshard alike."""
        return transition.reshard_kind(pool, layouts)

    def kv_cache_limits(
        self, call: Call, generation_layouts: GenerationLayouts
    ) -> tuple[IntArray, IntArray]:
        """(least, full) cache bytes per GPU [candidate].

        With the least, one longest sequence runs; with the full, hardly a sequence ever waits.
        """
        model, admission = self._model(call), self.admission(call)
        least = minimum_kv_cache_bytes(model, self.workload, generation_layouts)
        if admission is None or admission.drains:
            return least, full_kv_cache_bytes(model, call, self.workload, generation_layouts)
        full = continuous.full_cache_bytes(
            model, call, self.workload, admission, generation_layouts
        )
        return least, np.maximum(full, least)

    def generation_phases(
        self,
        call: Call,
        pool: Pool,
        generation_layouts: GenerationLayouts,
        *,
        kv_cache_bytes: IntArray,
    ) -> generate_call.GenerationPhases:
        """Prefill and decode of a generation, with the timeline of its batch."""
        return generate_call.generation_phases(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            generation_layouts,
            kv_cache_bytes=kv_cache_bytes,
            max_sequences=self.job.target.rollout.max_sequences,
        )

    def generation_deviation(
        self,
        call: Call,
        pool: Pool,
        generation_layouts: GenerationLayouts,
        *,
        kv_cache_bytes: IntArray,
    ) -> FloatArray:
        """Standard deviation of a generation's seconds when its lengths are drawn anew."""
        steady = self.continuous_generation(
            call, pool, generation_layouts, kv_cache_bytes=kv_cache_bytes
        )
        if steady is not None:
            return self._generate_factor(call, pool) * steady.deviation_seconds
        phases = self.generation_phases(
            call, pool, generation_layouts, kv_cache_bytes=kv_cache_bytes
        )
        return self._generate_factor(call, pool) * phases.deviation_seconds

    def outstanding_seconds(
        self,
        call: Call,
        pool: Pool,
        generation_layouts: GenerationLayouts,
        *,
        kv_cache_bytes: IntArray,
    ) -> FloatArray | None:
        """Seconds [candidate, chunk] from each chunk but the last being ready to the end.

        None where no call takes its responses in chunks.
        """
        if call.id not in self.streaming_calls:
            return None
        phases = self.generation_phases(
            call, pool, generation_layouts, kv_cache_bytes=kv_cache_bytes
        )
        chunks = self.job.spec.search.stream_chunks
        return self._generate_factor(call, pool) * streaming.outstanding_seconds(phases, chunks)

    def output_timeline(
        self,
        call: Call,
        pool: Pool,
        generation_layouts: GenerationLayouts,
        *,
        kv_cache_bytes: IntArray,
        tail: TailSetting | None,
        seconds: float,
    ) -> OutputTimeline:
        """When the chunks of a single generation are ready, and when its tail begins.

        `seconds` are the whole call's, its reshard included.
        """
        column, main_phase = np.array([seconds]), None
        if tail is None:
            outstanding = self.outstanding_seconds(
                call, pool, generation_layouts, kv_cache_bytes=kv_cache_bytes
            )
        else:
            priced = self.tail(
                call, pool, generation_layouts, kv_cache_bytes=kv_cache_bytes, tail=tail
            )
            outstanding = priced.outstanding
            if tail.ratio > 1:
                split = streaming.ready_shares(priced.seconds_after_split[:, None], column)
                main_phase = float(split[0, 0])
        if outstanding is None:
            return OutputTimeline((), main_phase)
        return OutputTimeline(
            tuple(streaming.ready_shares(outstanding, column)[0].tolist()), main_phase
        )

    def tail(
        self,
        call: Call,
        pool: Pool,
        generation_layouts: GenerationLayouts,
        *,
        kv_cache_bytes: IntArray,
        tail: TailSetting,
    ) -> TailEstimates:
        """Price what a tail on fewer, or on wider, replicas changes in a generation."""
        chunks = self.job.spec.search.stream_chunks if call.id in self.streaming_calls else None
        phases = self.generation_phases(
            call, pool, generation_layouts, kv_cache_bytes=kv_cache_bytes
        )
        factor = self._generate_factor(call, pool)
        if tail.tensor_factor == 1:
            priced = streaming.price_tail(phases, tail, phases, generation_layouts, chunks=chunks)
            return priced.times(factor)
        wide = tail.widened(generation_layouts)
        after = self.generation_phases(call, pool, wide, kv_cache_bytes=kv_cache_bytes)
        weights = self._shard_bytes(call, wide)
        priced = streaming.price_tail(
            phases,
            tail,
            after,
            generation_layouts,
            chunks=chunks,
            relayout_seconds=weights / pool.intra_node_bytes_per_second,
        )
        possible = priced.possible & self._may_be_wide(self._model(call), pool, wide)
        return replace(priced, possible=possible, weight_bytes=weights).times(factor)

    def relayout_seconds(
        self, call: Call, pool: Pool, generation_layouts: GenerationLayouts, tail: TailSetting
    ) -> FloatArray:
        """Seconds [candidate] to move the weights for a tail of another tensor size."""
        if tail.tensor_factor == 1:
            return np.zeros(len(generation_layouts.tensor_parallel_size))
        weights = self._shard_bytes(call, tail.widened(generation_layouts))
        seconds = weights / pool.intra_node_bytes_per_second
        return self._generate_factor(call, pool) * seconds

    def _shard_bytes(self, call: Call, wide: GenerationLayouts) -> IntArray:
        """Bytes of weights that each GPU gets for the tail, beside its old shard."""
        precision = self.workload.rollout_precision or self.workload.precision
        return memory.weight_bytes(self._model(call), wide.layouts(), precision=precision)

    def _may_be_wide(
        self, model: Model, pool: Pool, wide: GenerationLayouts
    ) -> npt.NDArray[np.bool_]:
        """Rows whose tail has a tensor size that a call could also begin with."""
        tensor = wide.tensor_parallel_size
        across_nodes = self.job.rollout_spans_nodes(model.role, pool)
        fits: npt.NDArray[np.bool_] = (
            (model.architecture.num_attention_heads % tensor == 0)
            & pool.is_within_reach(tensor, across_nodes=across_nodes)
            & pool.is_whole_nodes_or_divides_one(tensor)
            & (wide.expert_parallel_size == 1)
        )
        return fits

    def _generate_factor(self, call: Call, pool: Pool) -> float:
        return self.factor(pool, "generate", self._model(call))
