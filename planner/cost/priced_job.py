"""A job and what its prices rest on: the operator times of its pools, and what runs taught."""

from dataclasses import dataclass, replace
from functools import cached_property

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import constants
from automap.planner.cost.batches import sequence_lengths
from automap.planner.cost.estimates import CallEstimates
from automap.planner.cost.generation.continuous import Admission
from automap.planner.cost.operators.profile import Profile, load_profile, measured_profile
from automap.planner.cost.rl_systems import UNKNOWN, RlSystem, system_of
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Job, Model
from automap.planner.profiles.corrections import RoleClass, TermKind
from automap.planner.spec import TrainingStack, WorkloadSpec


@dataclass(frozen=True)
class PricedJob:
    """A job, and the operator times and corrections that apply to it."""

    job: Job
    corrected: bool = True
    """Prices include the corrections that runs have taught of its profiles; False: without."""
    one_node: bool = False
    """Prices hold for placements that lie in one node, whatever other nodes there are."""

    stack: TrainingStack | None = None
    """Software that is priced; None: what the spec names, or the target's first."""

    @cached_property
    def workload(self) -> WorkloadSpec:
        """The workload of the job's spec, with the software that is priced named."""
        given = self.job.spec.workload
        stack = self.stack or given.training_stack or self.job.target.training[0].stacks[0]
        return given.model_copy(update={"training_stack": stack})

    @cached_property
    def multi_node(self) -> bool:
        """True unless all is done in one node: then weight syncs stay inside it."""
        return not self.one_node and sum(pool.num_nodes for pool in self.job.pools) > 1

    def profile(self, pool: Pool) -> Profile:
        """Operator times of the pool's GPU: measured on the pool itself, or those shipped."""
        if pool.profile is not None:
            # Measured on the pool itself, so its link is the table's, whatever the spec says of it.
            link = pool.intra_node_bytes_per_second
            return measured_profile(pool.gpu, pool.profile, link)
        return load_profile(pool.gpu)

    @cached_property
    def system(self) -> RlSystem:
        """The RL framework that is to run the plan; it adds nothing where it was not measured."""
        return system_of(self.job.target.name) if self.job.counts_driver else UNKNOWN

    def as_copied(self, pool: Pool) -> Pool:
        """The pool with a host link no faster than the framework copies to and from the host."""
        rate = self.system.host_copy_bytes_per_second
        if rate is None:
            return pool
        link = min(pool.host_link_bytes_per_second, rate / constants.HOST_LINK_EFFICIENCY)
        return replace(pool, host_link_bytes_per_second=link)

    @cached_property
    def _longest(self) -> int:
        return sequence_lengths(self.workload).max_tokens

    def driver_seconds(self, call: Call, pool: Pool) -> tuple[float, float]:
        """Seconds of the framework's driver in a call's price: (handing it its batch, after it).

        What an iteration takes around its calls follows the last that trains. Where runs have
        taught what lies between calls, that is known, and no more is added. Engines that never
        drain are handed no batch.
        """
        admission = Admission.of(self.job, call)
        if call.model is None or not (admission is None or admission.drains):
            return 0.0, 0.0
        handover = self.system.handover_seconds(call.num_sequences * self._longest)
        last = [each.id for each in self.job.dataflow.calls if each.kind == "train"][-1:]
        follows = [call.id] == last and not self._has_learnt_between(pool)
        return handover, self.system.iteration_seconds if follows else 0.0

    def iteration_driver_seconds(self) -> tuple[float, float]:
        """Seconds of the driver in an iteration: (handing all calls their batches, after them)."""
        each = [self.driver_seconds(call, self.job.pools[0]) for call in self.job.dataflow.calls]
        return sum(handed for handed, _ in each), sum(around for _, around in each)

    def factor(self, pool: Pool, kind: TermKind, model: Model) -> float:
        """Factor on the seconds of a term that runs have taught; 1 without a calibrated profile."""
        corrections = self.profile(pool).corrections if self.corrected else None
        return corrections.factor(kind, role_class(model)) if corrections else 1.0

    def _corrected(
        self, estimates: CallEstimates, kind: TermKind, call: Call, pool: Pool
    ) -> CallEstimates:
        """Estimates with the framework's driver, a factor that runs taught, and what follows."""
        factor, steps = self.factor(pool, kind, self._model(call)), max(call.num_updates, 1)
        handover, around = self.driver_seconds(call, pool)
        handover += constants.CORE_CALL_SECONDS * steps if pool.gpu.is_core else 0.0
        between = around + self._between_calls(pool) * steps
        if factor == 1.0 and not between and not handover:
            return estimates
        seconds = estimates.seconds
        seconds = replace(seconds, overhead=seconds.overhead + handover).times(factor)
        return replace(estimates, seconds=replace(seconds, between=seconds.between + between))

    def _between_calls(self, pool: Pool) -> float:
        """Seconds from a call to the next: what runs have taught; else on cores as shipped."""
        if self._has_learnt_between(pool):
            return self.profile(pool).corrections.between_calls_seconds
        shipped = self.corrected and pool.gpu.is_core
        return constants.CORE_BETWEEN_CALLS_SECONDS if shipped else 0.0

    def _has_learnt_between(self, pool: Pool) -> bool:
        return self.corrected and bool(self.profile(pool).corrections.between)

    def _model(self, call: Call) -> Model:
        assert call.model is not None, "a function has no price here"
        return self.job.models[call.model]


def role_class(model: Model) -> RoleClass:
    """Class of a model for corrections: whether it turns a token into a scalar or into logits."""
    return "scalar" if model.scalar_head else "language"
