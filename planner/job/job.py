"""A job with every name resolved: what pricing, search and check read."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.hardware import Pool
from automap.planner.catalogue.weight_formats import weight_bytes
from automap.planner.dataflow.graph import Call, Dataflow
from automap.planner.layout import Layouts
from automap.planner.spec import JobSpec
from automap.planner.targets.capabilities import Rule
from automap.planner.targets.target import ModelEngines, Target

FULL_DOMAIN_SHARE = 0.6
"""The share of an NVLink domain's memory that the weights of a rollout may fill: the rest is for
what the GPU's software keeps, and a cache worth having."""


@dataclass(frozen=True, slots=True)
class Model:
    """The network behind a role."""

    role: str
    architecture: ModelArchitecture
    scalar_head: bool
    """Whether it has one output per token instead of a vocabulary, as critics, rewards and costs
    have."""
    trainable: bool
    lora_rank: int | None


@dataclass(frozen=True, slots=True)
class Job:
    """A spec with its dataflow traced, its models and pools looked up.

    `models` has the roles that hold weights; a reward function is in `dataflow` alone. A reference
    that is the actor's base with the adapter off is not in `models`; its calls have model "actor".
    """

    spec: JobSpec
    dataflow: Dataflow
    models: dict[str, Model]
    pools: tuple[Pool, ...]
    target: Target
    """What is to run the plan."""
    counts_driver: bool = True
    """Whether prices have what the target's driver was measured to take. Beside other targets, of
    which nobody has measured it, they must not."""

    @property
    def training_slack(self) -> int:
        """Iterations by which a rollout's weights may follow the training they would wait for.

        The staleness; with continuous rollouts what their software leaves of it to batches that are
        finished and not yet trained on.
        """
        search, rules = self.spec.search, self.target.continuous
        if not search.continuous_rollouts or rules is None:
            return search.staleness
        return rules.training_slack(search.staleness)

    def engines_of(self, role: str, target: Target | None = None) -> ModelEngines:
        """The engines that can train or score the model of a role; of the job's own target."""
        model, workload = self.models[role], self.spec.workload
        engines = tuple(
            engine
            for engine in (target or self.target).engines(workload, role)
            if engine.refuses_model(
                model.architecture,
                lora=model.lora_rank is not None,
                precision=workload.precision,
            )
            is None
        )
        return ModelEngines(model.architecture, model.trainable, engines, workload.training_stack)

    def range_rules(
        self,
        pool: Pool,
        layouts: Layouts,
        *,
        trains: bool,
        target: Target | None = None,
        is_shadow: bool = False,
    ) -> Iterator[Rule]:
        """Rules of a target, the job's own by default, on the range and ranks of a copy."""
        return (target or self.target).range_rules(
            layouts,
            pool=pool,
            num_nodes=sum(each.num_nodes for each in self.pools),
            workload=self.spec.workload,
            trains=trains,
            is_shadow=is_shadow,
            alternates=sum(model.trainable for model in self.models.values()) > 1,
        )

    def rollout_spans_nodes(self, role: str, pool: Pool) -> bool:
        """Whether groups of the engine that generates with a model may leave an NVLink domain.

        They may where the spec lets all groups, and where one domain holds no whole replica with
        room for a cache: then nobody has a choice.
        """
        if self.spec.constraints.tensor_parallel_across_nodes:
            return True
        workload = self.spec.workload
        precision = workload.rollout_precision or workload.precision
        weights = sum(weight_bytes(self.models[role].architecture, precision))
        return weights > FULL_DOMAIN_SHARE * pool.reach_gpus * pool.gpu.memory_bytes

    def scored_together(self, call: Call) -> int:
        """Sequences of a call that a target with even batches computes before it goes on.

        Those of an update, also of a call that scores where rollouts are stale: it follows them.
        """
        workload = self.spec.workload
        by_update = call.kind == "train" or self.spec.search.staleness > 0
        return workload.sequences_per_update if by_update else call.num_sequences

    @property
    def max_out_of_memory_probability(self) -> float:
        """Chance of running out of memory that no searched plan exceeds: the spec's or target's."""
        given = self.spec.search.max_out_of_memory_probability
        return self.target.max_out_of_memory_probability if given is None else given

    @property
    def simplicity_tolerance(self) -> float:
        """Share by which a plan may miss the optimum to be simple: the spec's or the target's."""
        given = self.spec.search.simplicity_tolerance
        return self.target.simplicity_tolerance if given is None else given

    def without_margin(self) -> "Job":
        """The job, with plans that may fill the GPUs by estimate."""
        return replace(self, spec=allowing(self.spec, out_of_memory_probability=1.0))

    @property
    def num_gpus(self) -> int:
        """GPUs of all pools, kept-free ones included."""
        return sum(pool.num_gpus for pool in self.pools)


def allowing(spec: JobSpec, *, out_of_memory_probability: float) -> JobSpec:
    """The spec, with plans that may run out of memory with this chance."""
    update = {"max_out_of_memory_probability": out_of_memory_probability}
    return spec.model_copy(update={"search": spec.search.model_copy(update=update)})
