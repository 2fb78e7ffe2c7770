"""What an export needs to know of a plan: a copy and a call per role, and ranges as nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from automap.planner.catalogue.hardware import Pool
from automap.planner.frameworks.description import ENGINES, Framework
from automap.planner.job.job import Job
from automap.planner.plan.types import CallPlan, CopyPlan, Plan
from automap.planner.targets import TARGETS, Target
from automap.planner.targets.automap import FSDP

TRAINERS = ("actor", "reference", "critic")
"""Roles that frameworks put into one process on each GPU of their first range."""


@dataclass(frozen=True, slots=True)
class NodeRange:
    """A range of GPUs as frameworks have pools: equally many on each of so many nodes."""

    num_nodes: int
    gpus_per_node: int


@dataclass(frozen=True, slots=True)
class Subject:
    """A plan as an export reads it."""

    job: Job
    plan: Plan
    framework: Framework
    homes: dict[str, CopyPlan]
    shadows: tuple[CopyPlan, ...]
    token_budgets: frozenset[str] | None = None
    """Roles that compute so many tokens at once even where a number of sequences would do; None:
    as the framework does by itself, which `has_budget` tells."""
    spare_cache_bytes: int = 0
    """Bytes of cache on each GPU that engines get beyond what the plan counts on."""
    says_model: bool = True
    """The launch is to say what the actor is; one that exists says it already."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Key → value that a launch which is converted has of it, and no plan: it goes before what the
    export would write."""
    most_sequences: int | None = None
    """Sequences that such a launch runs at once on all of its engines; None: it has no limit."""

    @property
    def target(self) -> Target:
        """What the framework can run."""
        return next(each for each in TARGETS.values() if each.name == self.framework.target)

    @property
    def actor(self) -> CopyPlan:
        """The actor's home."""
        return self.homes["actor"]

    @property
    def trainers(self) -> list[CopyPlan]:
        """Homes of actor, reference and critic, as far as the job has them."""
        return [self.homes[role] for role in TRAINERS if role in self.homes]

    @property
    def reward(self) -> CopyPlan | None:
        """The reward model; None: a function or a service scores."""
        return self.homes.get("reward")

    @property
    def rollout(self) -> CopyPlan:
        """The copy that generates."""
        copies = {copy.id: copy for copy in self.plan.copies}
        return copies[self.generations[0].copy_id or ""]

    @property
    def apart(self) -> bool:
        """Whether generation has GPUs of its own."""
        return self.rollout.kind == "shadow"

    @property
    def engine(self) -> str:
        """Kind of engine of the actor, which is that of all roles."""
        return self.engine_of(self.actor)

    def has_budget(self, role: str) -> bool:
        """Whether a role is to compute so many tokens at once."""
        if self.token_budgets is not None:
            return role in self.token_budgets
        return self.framework.fills_micro_batches and self.job.spec.workload.packed_sequences

    def states_budget(self, role: str) -> bool:
        """Whether a launch that was read gives a role a number of tokens."""
        return self.token_budgets is not None and role in self.token_budgets

    @property
    def virtual_stages(self) -> int:
        """Virtual stages of actor, reference and critic, which have them in common."""
        return self.actor.layout.virtual_pipeline_parallel_size

    def engine_of(self, copy: CopyPlan) -> str:
        """Kind of training engine of a home; where the plan does not say, by software or layout.

        DeepSpeed runs a layout whatever else could.
        """
        if "zero" in self.framework.engines:
            return "zero"
        if copy.engine in ENGINES:
            return copy.engine
        stack = self.job.spec.workload.training_stack
        if stack is not None:
            return "fsdp" if stack in FSDP.stacks else "megatron"
        return "fsdp" if copy.layout.sharding in ("gradient", "full") else "megatron"

    @property
    def generations(self) -> list[CallPlan]:
        """The calls that generate."""
        return [call for call in self.plan.calls if call.kind == "generate"]

    def call(self, role: str, kind: str) -> CallPlan | None:
        """The first call of a role and kind; None: the plan has none."""
        for call in self.plan.calls:
            if (call.role, call.kind) == (role, kind):
                return call
        return None

    def pool(self, copy: CopyPlan) -> Pool:
        """The pool that a copy is in."""
        return next(pool for pool in self.job.pools if pool.name == copy.pool)

    def node_range(self, copy: CopyPlan) -> NodeRange | None:
        """The nodes of a copy; None: it has not equally many GPUs on each of them."""
        each = self.pool(copy).gpus_per_node
        if copy.first_gpu % each == 0 and copy.num_gpus % each == 0:
            return NodeRange(copy.num_gpus // each, each)
        last = copy.first_gpu + copy.num_gpus - 1
        return NodeRange(1, copy.num_gpus) if copy.first_gpu // each == last // each else None

    def nodes(self, copies: Sequence[CopyPlan]) -> set[tuple[str, int]]:
        """(pool, number of the node) of every node that copies touch."""
        return {
            (copy.pool, gpu // self.pool(copy).gpus_per_node)
            for copy in copies
            for gpu in range(copy.first_gpu, copy.first_gpu + copy.num_gpus)
        }

    def gpus_of_node(self) -> list[int]:
        """Numbers of the GPUs that the plan uses on a node; on several nodes it is all of them."""
        copies = self.plan.copies
        each = self.pool(copies[0]).gpus_per_node
        if len(self.nodes(copies)) > 1:
            return list(range(each))
        ranges = [range(copy.first_gpu, copy.first_gpu + copy.num_gpus) for copy in copies]
        return sorted({gpu % each for gpus in ranges for gpu in gpus})


def subject_of(job: Job, plan: Plan, framework: Framework) -> Subject:
    """The plan by roles; roles that it has not are refused later, by their algorithm."""
    homes = {copy.role: copy for copy in plan.copies if copy.kind == "home"}
    shadows = tuple(copy for copy in plan.copies if copy.kind == "shadow")
    return Subject(job, plan, framework, homes, shadows)


def same_range(one: CopyPlan, other: CopyPlan) -> bool:
    """Whether two copies have the same GPUs."""
    return (one.pool, one.first_gpu, one.num_gpus) == (other.pool, other.first_gpu, other.num_gpus)


def overlap(one: CopyPlan, other: CopyPlan) -> bool:
    """Whether two copies share GPUs."""
    ends = one.first_gpu + one.num_gpus, other.first_gpu + other.num_gpus
    return one.pool == other.pool and one.first_gpu < ends[1] and other.first_gpu < ends[0]
