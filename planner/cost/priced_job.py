"""A job and what its prices rest on: the operator times of its pools, and what runs taught."""

from dataclasses import dataclass, replace
from functools import cached_property

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.estimates import CallEstimates
from automap.planner.cost.operators.profile import Profile, load_profile, measured_profile
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

    def factor(self, pool: Pool, kind: TermKind, model: Model) -> float:
        """Factor on the seconds of a term that runs have taught; 1 without a calibrated profile."""
        corrections = self.profile(pool).corrections if self.corrected else None
        return corrections.factor(kind, role_class(model)) if corrections else 1.0

    def _corrected(
        self, estimates: CallEstimates, kind: TermKind, call: Call, pool: Pool
    ) -> CallEstimates:
        """Estimates with what runs have taught: a factor, and what lies before a call."""
        factor = self.factor(pool, kind, self._model(call))
        between = self._between_calls(pool) * max(call.num_updates, 1)
        if factor == 1.0 and not between:
            return estimates
        seconds = estimates.seconds.times(factor)
        return replace(estimates, seconds=replace(seconds, between=seconds.between + between))

    def _between_calls(self, pool: Pool) -> float:
        return self.profile(pool).corrections.between_calls_seconds if self.corrected else 0.0

    def _model(self, call: Call) -> Model:
        assert call.model is not None, "a function has no price here"
        return self.job.models[call.model]


def role_class(model: Model) -> RoleClass:
    """Class of a model for corrections: whether it turns a token into a scalar or into logits."""
    return "scalar" if model.scalar_head else "language"
