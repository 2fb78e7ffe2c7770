"""Prices of copies and calls, batched or one at a time: the one way into the cost model.

Candidates price thousands of rows through these functions; a placement's estimate, and the check
of a plan, price single rows through the very same ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import intervals, memory, transition
from automap.planner.cost.estimates import (
    BytesColumns,
    CallEstimates,
    Columns,
    SecondsColumns,
    joined,
)
from automap.planner.cost.generation_pricing import GenerationPricing
from automap.planner.cost.priced_job import role_class
from automap.planner.cost.stacks import stack_of
from automap.planner.cost.training.forward_call import price_forward, reloaded
from automap.planner.cost.training.train_call import offloaded, price_train
from automap.planner.dataflow.graph import Call
from automap.planner.job import pins
from automap.planner.job.job import Model
from automap.planner.layout import FloatArray, GenerationLayouts, IntArray, Layouts

__all__ = ["CopyBytes", "GenerationLayouts", "Pricing", "role_class", "whole_microseconds"]

RESOLUTION_SECONDS = 1e-6
"""Prices are whole microseconds, rounded up: finer is noise, and the search becomes exact."""


@dataclass(frozen=True, slots=True)
class CopyBytes:
    """Bytes per GPU that copies hold through the iteration [layout]."""

    resident: BytesColumns
    host: IntArray
    """Bytes of host memory per GPU."""


@dataclass(frozen=True, slots=True)
class _Added:
    """What an offload adds to a call [layout]."""

    seconds: FloatArray
    transient_bytes: IntArray


@dataclass(frozen=True)
class Pricing(GenerationPricing):
    """The cost model applied to one job."""

    def home_bytes(self, role: str, pool: Pool, layouts: Layouts) -> CopyBytes:
        """Bytes that a home of a role holds through the iteration [layout]."""
        model = self.job.models[role]

        def held(priced: Pricing, rows: IntArray) -> CopyBytes:
            found = memory.home_resident_bytes(model, priced.workload, layouts.take(rows))
            return CopyBytes(*found)

        result = self._by_engine(role, layouts, None, held)
        if role in self.generating:
            base = transition.base_copy_limit(
                model, self.workload, pool, odd_sizes=self._gives_odd_sizes(role)
            )
            return CopyBytes(result.resident, result.host + base)
        return result

    def _gives_odd_sizes(self, role: str) -> bool:
        """Whether the spec gives an engine of the role a size that is no power of two."""
        engines = [
            pins.engine_sizes(self.job, call)
            for call in self.job.dataflow.calls
            if call.model == role and call.kind == "generate"
        ]
        sizes = [getattr(each, name) or 1 for each in engines for name in pins.ENGINE_SIZES]
        return any(size.bit_count() > 1 for size in sizes)

    def shadow_bytes(self, role: str, layouts: Layouts) -> CopyBytes:
        """Bytes that a shadow of a role holds through the iteration [layout]."""
        model = self.job.models[role]
        resident = memory.shadow_resident_bytes(model, self.workload, layouts)
        return CopyBytes(resident, transition.base_copy_bytes(model, self.workload, layouts))

    @cached_property
    def generating(self) -> frozenset[str]:
        """Roles whose models generate."""
        calls = self.job.dataflow.calls
        return frozenset(call.model for call in calls if call.model and call.kind == "generate")

    def send_seconds(self, role: str, pool: Pool, layouts: Layouts) -> FloatArray:
        """Seconds of a weight sync on the side of the home that sends [layout]."""
        return self._sync_seconds(transition.sync_send_seconds, role, pool, layouts)

    def receive_seconds(self, role: str, pool: Pool, layouts: Layouts) -> FloatArray:
        """Seconds of a weight sync on the side of the shadow that receives [layout]."""
        return self._sync_seconds(transition.sync_receive_seconds, role, pool, layouts)

    def _sync_seconds(
        self, price: Callable[..., FloatArray], role: str, pool: Pool, layouts: Layouts
    ) -> FloatArray:
        seconds = price(
            self.job.models[role],
            self.workload,
            self.as_copied(pool),
            self.profile(pool),
            layouts,
            self.multi_node,
            whole=self.job.target.rollout.whole_syncs,
        )
        return whole_microseconds(seconds)

    def train(
        self,
        call: Call,
        pool: Pool,
        layouts: Layouts,
        *,
        micro_batch_size: IntArray,
        recompute: IntArray,
        rows: IntArray | None = None,
    ) -> CallEstimates:
        """Price a train call on its home, one row per candidate.

        `rows` names the row of `layouts` that each candidate has; None: candidate i has row i.
        """

        def price(priced: Pricing, numbers: IntArray) -> CallEstimates:
            return price_train(
                self._model(call),
                call,
                priced.workload,
                pool,
                self.profile(pool),
                layouts,
                micro_batch_size=micro_batch_size[numbers],
                recompute=recompute[numbers],
                rows=numbers if rows is None else rows[numbers],
                dealt=self.job.target.deals_tokens,
                state_pool=self.as_copied(pool),
            )

        estimates = self._by_engine(self._model(call).role, layouts, rows, price)
        return self._corrected(estimates, "train", call, pool)

    def forward(
        self,
        call: Call,
        pool: Pool,
        layouts: Layouts,
        *,
        micro_batch_size: IntArray,
        rows: IntArray | None = None,
    ) -> CallEstimates:
        """Price a scoring call on a home or a shadow, one row per candidate.

        `rows` names the row of `layouts` that each candidate has; None: candidate i has row i.
        """

        def price(priced: Pricing, numbers: IntArray) -> CallEstimates:
            return price_forward(
                self._model(call),
                call,
                priced.workload,
                self.as_copied(pool),
                self.profile(pool),
                layouts,
                micro_batch_size=micro_batch_size[numbers],
                rows=numbers if rows is None else rows[numbers],
                dealt=self.job.target.deals_tokens,
            )

        estimates = self._by_engine(self._model(call).role, layouts, rows, price)
        return self._corrected(estimates, "forward", call, pool)

    def offload(self, call: Call, pool: Pool, layouts: Layouts) -> tuple[FloatArray, IntArray]:
        """(seconds, bytes per GPU) that its home's offload adds to a train or scoring call."""
        model = self._model(call)
        trains = call.kind == "train"

        def added(priced: Pricing, rows: IntArray) -> _Added:
            move = offloaded if trains else reloaded
            seconds, held = move(model, priced.workload, self.as_copied(pool), layouts.take(rows))
            return _Added(seconds, held.total)

        found = self._by_engine(model.role, layouts, None, added)
        factor = self.factor(pool, "train" if trains else "forward", model)
        return factor * found.seconds, found.transient_bytes

    def _by_engine(
        self,
        role: str,
        layouts: Layouts,
        rows: IntArray | None,
        price: "Callable[[Pricing, IntArray], Columns]",
    ) -> Columns:
        """What `price` says of each candidate, priced as the engine that runs its layout.

        `rows` names the row of `layouts` that each candidate has; None: candidate i has row i.
        `price` gets the numbers of the candidates that one engine runs.
        """
        engines = self.job.engines_of(role)
        numbers = engines.of_layouts(layouts) if len(engines.engines) > 1 else None
        if numbers is None:
            every = np.arange(len(layouts) if rows is None else len(rows), dtype=np.int64)
            return price(replace(self, stack=engines.stack_of(0)), every)
        numbers = np.maximum(numbers if rows is None else numbers[rows], 0)
        found = np.unique(numbers).tolist() or [0]
        return joined(
            [
                (mine, price(replace(self, stack=engines.stack_of(number)), mine))
                for number in found
                for mine in [np.flatnonzero(numbers == number)]
            ]
        )

    def interval_kind(self, call: Call, model: Model, pool: Pool) -> intervals.Kind:
        """The kind of quantity that the seconds of a model's call on a pool are."""
        workload = self.workload
        generates = call.kind == "generate"
        software = workload.rollout_engine if generates else stack_of(workload).name
        experts = model.architecture.num_experts > 0
        return intervals.call_kind(
            call.kind,
            model.architecture,
            memory.call_precision(model, call, workload),
            assumed=pool.gpu.is_assumed,
            seen=intervals.is_seen(software, pool.gpu.generation, experts=experts),
        )

    @property
    def transfer_kind(self) -> intervals.Kind:
        """The kind of quantity that the seconds of a weight sync are."""
        return intervals.transfer_kind(multi_node=self.multi_node)

    @property
    def transition_kind(self) -> intervals.Kind:
        """The kind of quantity that a call's reshard, offload and reload are."""
        if self.system.host_copy_bytes_per_second is not None:
            return intervals.HOST_WORK
        return self.transfer_kind

    def host_seconds(self, call: Call, pool: Pool, optimizer: FloatArray) -> FloatArray:
        """Seconds of a call's price that its framework's driver or an optimizer on the host takes.

        `optimizer` [row]: seconds of its optimizer, wherever that updates.
        """
        updates = float(self.workload.optimizer_cpu_offload)
        return np.asarray(sum(self.driver_seconds(call, pool)) + updates * optimizer)

    def call_bounds(
        self, call: Call, pool: Pool, seconds: float, *, parts: SecondsColumns, deviation: float
    ) -> tuple[float, float]:
        """80 % interval (low, high) of a call's seconds around its estimate, of these parts."""
        transition = min(float(parts.transition[0]), seconds)
        on_host = float(self.host_seconds(call, pool, parts.optimizer[:1])[0])
        on_host = min(on_host, seconds - transition)
        kinds: list[tuple[float, intervals.Kind]] = [
            (seconds - transition - on_host, self.interval_kind(call, self._model(call), pool)),
            (transition, self.transition_kind),
            (on_host, intervals.HOST_WORK),
        ]
        return intervals.call_bounds(kinds, deviation=deviation)


def whole_microseconds(seconds: FloatArray) -> FloatArray:
    """Seconds rounded up to the resolution of prices."""
    return np.ceil(seconds / RESOLUTION_SECONDS - 1e-6) * RESOLUTION_SECONDS
