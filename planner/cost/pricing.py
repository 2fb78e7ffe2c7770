"""Prices of copies and calls, batched or one at a time: the one way into the cost model.

Candidates price thousands of rows through these functions; a placement's estimate, and the check
of a plan, price single rows through the very same ones.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import intervals, memory, transition
from automap.planner.cost.estimates import BytesColumns, CallEstimates
from automap.planner.cost.generation.generation_pricing import GenerationPricing
from automap.planner.cost.priced_job import role_class
from automap.planner.cost.training.forward_call import price_forward, reloaded
from automap.planner.cost.training.train_call import offloaded, price_train
from automap.planner.dataflow.graph import Call
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


@dataclass(frozen=True)
class Pricing(GenerationPricing):
    """The cost model applied to one job."""

    def home_bytes(self, role: str, pool: Pool, layouts: Layouts) -> CopyBytes:
        """Bytes that a home of a role holds through the iteration [layout]."""
        model = self.job.models[role]
        resident, host = memory.home_resident_bytes(model, self.workload, layouts)
        if role in self.generating:
            host = host + transition.base_copy_limit(model, self.workload, pool)
        return CopyBytes(resident, host)

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
        model, profile = self.job.models[role], self.profile(pool)
        seconds = transition.sync_send_seconds(
            model, self.workload, pool, profile, layouts, self.multi_node
        )
        return whole_microseconds(seconds)

    def receive_seconds(self, role: str, pool: Pool, layouts: Layouts) -> FloatArray:
        """Seconds of a weight sync on the side of the shadow that receives [layout]."""
        model, profile = self.job.models[role], self.profile(pool)
        seconds = transition.sync_receive_seconds(
            model, self.workload, pool, profile, layouts, self.multi_node
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
        estimates = price_train(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            layouts,
            micro_batch_size=micro_batch_size,
            recompute=recompute,
            rows=rows,
        )
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
        estimates = price_forward(
            self._model(call),
            call,
            self.workload,
            pool,
            self.profile(pool),
            layouts,
            micro_batch_size=micro_batch_size,
            rows=rows,
        )
        return self._corrected(estimates, "forward", call, pool)

    def offload(self, call: Call, pool: Pool, layouts: Layouts) -> tuple[FloatArray, IntArray]:
        """(seconds, bytes per GPU) that its home's offload adds to a train or scoring call."""
        model = self._model(call)
        trains = call.kind == "train"
        found = (offloaded if trains else reloaded)(model, self.workload, pool, layouts)
        factor = self.factor(pool, "train" if trains else "forward", model)
        return factor * found[0], found[1].total

    def call_bounds(
        self, call: Call, seconds: float, *, transition: float, deviation: float
    ) -> tuple[float, float]:
        """80 % interval (low, high) of a call's seconds around its estimate `seconds`."""
        model = self._model(call)
        products = memory.product_precision(model, self.workload)
        return intervals.call_bounds(
            seconds,
            kind=intervals.call_kind(call.kind, model.architecture, products),
            transition_seconds=transition,
            multi_node=self.multi_node,
            deviation=deviation,
        )


def whole_microseconds(seconds: FloatArray) -> FloatArray:
    """Seconds rounded up to the resolution of prices."""
    return np.ceil(seconds / RESOLUTION_SECONDS - 1e-6) * RESOLUTION_SECONDS
