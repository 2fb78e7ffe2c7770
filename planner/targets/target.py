"""What is to run a plan: the engines it has, and the schedules and precisions that they know."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from automap.planner.catalogue import gpu_type
from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.hardware import Pool
from automap.planner.layout import (
    OFFLOADS,
    BoolArray,
    GenerationLayouts,
    IntArray,
    Layouts,
    RangeRelation,
)
from automap.planner.spec import (
    MEMORY_SETTINGS,
    ClusterSpec,
    JobSpec,
    TargetName,
    TrainingStack,
    WorkloadSpec,
    streaming_field,
    tail_field,
)
from automap.planner.targets.capabilities import RolloutCapabilities, Rule, TrainingCapabilities
from automap.planner.targets.continuous import ContinuousRules
from automap.planner.targets.forms import Form


@dataclass(frozen=True, slots=True)
class Target:
    """One table of capabilities. The searched space is what it allows, and no more."""

    name: TargetName
    summary: str
    """What it stands for, for readers of a plan."""
    training: tuple[TrainingCapabilities, ...]
    """Engines of copies that train or score; the first that allows a layout runs it."""
    rollout: RolloutCapabilities
    in_place_of_gpus: tuple[tuple[str, str], ...] = ()
    """(what only a GPU runs, what a pool of CPU cores runs in its place)."""
    ranges: RangeRelation = "any"
    """How the GPU ranges of two copies may share GPUs."""
    process_roles: frozenset[str] = frozenset()
    """Roles that live in one process per GPU: on one range, in one engine, and with the sizes in
    common that it says."""
    alike_roles: frozenset[str] = frozenset()
    """Roles that have the engine, and the sizes in common that it says, wherever they are."""
    forms: tuple[Form, ...] = ()
    """Ways in which models share GPUs, of which a placement has one; without any, every way."""
    roles: frozenset[str] | None = None
    """Models that it knows; without a set, every one."""
    algorithms: frozenset[str] | None = None
    """Algorithms that it has; without a set, every one, and dataflows of one's own."""
    optimizers: frozenset[str] | None = None
    """`workload.optimizer` that it has; without a set, every one."""
    recomputes_log_probs: bool = False
    """Old log-probabilities are computed again, never taken from the rollout."""
    recomputes_for_reward_kl: bool = False
    """With the KL divergence in the reward old log-probabilities are computed again."""
    one_gpu_type: bool = False
    """All nodes have GPUs of one type."""
    shadows_apart: bool = False
    """A rollout that is not on its model's own GPUs has GPUs of its own."""
    not_apart: frozenset[str] = frozenset()
    """Algorithms whose rollouts are on the GPUs that train."""
    not_stale: frozenset[str] = frozenset()
    """Algorithms that have no staleness."""
    one_engine: bool = False
    """All generations of a model are by one engine with one cache, of as many responses each."""
    stale_rollouts_apart: bool = False
    """With `search.staleness` nothing is generated on the GPUs that train."""
    one_stale_update: bool = False
    """With `search.staleness` a batch is trained on in one update an epoch."""
    rollouts_apart: bool = False
    """Nothing is generated on the GPUs that train."""
    tensor_in_node: bool = False
    """Tensor groups lie in one node, also where the GPUs of several are linked."""
    whole_nodes: bool = False
    """Every range takes whole nodes, where its pool has several."""
    even_batches: bool = False
    """Data ranks, and their micro-batches, divide the sequences of an update or a call."""
    within_positions: bool = False
    """Sequences are no longer than the positions of the model that generates them."""
    pretraining: bool = True
    """Knows a pre-train batch in the loss (`workload.pretrain_loss`)."""
    served_roles: frozenset[str] = frozenset()
    """Models that an engine for inference serves beside the others."""
    one_epoch_apart: bool = False
    """With rollouts on GPUs of their own a batch is trained on once."""
    one_epoch: bool = False
    """A batch is trained on once."""
    max_staleness: int | None = None
    """The largest `search.staleness`; None: any."""
    turns: tuple[tuple[str, str], ...] = ()
    """(role, kind) of calls that follow one another in this order, wherever they are; without any,
    calls wait for what they read alone."""
    deals_tokens: bool = True
    """Software that fills micro-batches up to a number of tokens also deals sequences to data ranks
    so that these have equally many tokens; otherwise they come as they are."""
    packed_only: bool = False
    """Sequences are packed, never padded."""
    padded_only: bool = False
    """Sequences are padded, never packed."""
    kl_places: tuple[tuple[str, str], ...] = ()
    """(algorithm, the `workload.kl` that it has beside none); of others, any. Where a spec leaves
    it open, it is that one."""
    one_turn: bool = False
    """Responses have one turn."""
    shared_settings: bool = False
    """All calls that train have one micro-batch and recomputation, all that score one
    micro-batch."""
    one_micro_batch: bool = False
    """Calls that train and calls that score have one micro-batch; only with `shared_settings`."""
    one_server: bool = False
    """Rollouts on GPUs of their own are by one server in one node, in which a mixture of experts
    is one replica."""
    settings_of_role: bool = False
    """All calls of a model have one micro-batch."""
    whole_prompts: bool = False
    """Data ranks divide the prompts of an iteration: all responses to one go to the same rank."""
    offloads_to_generate: bool = False
    """What trains is on the host while the same GPUs generate."""
    offloads_to_train: bool = False
    """Where several models train, each is on the host while another one works."""
    overlaps_only_stale: bool = False
    """Iterations overlap only with `search.staleness`."""
    packed_context: bool = False
    """Context parallelism needs packed sequences."""
    shared_reference: bool = False
    """The reference has the actor's architecture."""
    streams: bool = True
    """Scores responses while the generation that they are of still runs."""
    tails: bool = True
    """Has a generation end on a part of its GPUs, or with a larger tensor size."""
    continuous: ContinuousRules | None = None
    """How it generates without batches (`search.continuous_rollouts`); None: it cannot."""
    max_out_of_memory_probability: float = 0.05
    """What `search.max_out_of_memory_probability` is where the spec leaves it out."""
    simplicity_tolerance: float = 0.03
    """What `search.simplicity_tolerance` is where the spec leaves it out."""
    cuda_only: bool = False
    """Runs on NVIDIA's GPUs (and CPU cores) alone."""
    training_precisions: frozenset[str] | None = None
    """`workload.training_precision` beside null and 16 bits; None: every one."""
    takes_memory_settings: bool = True
    """Can be told in which precision gradients and weights are kept, and what is selective."""

    def refuses_job(self, spec: JobSpec) -> tuple[str, str] | None:
        """(field, why) of the first setting of a job that it cannot run; None: it runs all."""
        workload = spec.workload
        refused = (
            self._refuses_flow(spec)
            or self._refuses_algorithm(spec)
            or self._refuses_kind(spec)
            or self._refuses_memory_settings(workload)
            or self._refuses_update(workload)
        )
        if refused is not None:
            return refused
        if workload.pretrain_loss and not self.pretraining:
            return "workload.pretrain_loss", "it is true"
        if workload.rollout_engine not in self.rollout.names:
            return "workload.rollout_engine", f"it is {workload.rollout_engine}"
        cache = workload.rollout_cache_precision
        known = self.rollout.cache_precisions
        if known is not None and cache not in known:
            return "workload.rollout_cache_precision", f"it is {cache}"
        known, products = self.training_precisions, workload.training_precision
        if known is not None and products not in (None, *known):
            return "workload.training_precision", f"it is {products}"
        precision = workload.rollout_precision or workload.precision
        known = self.rollout.precisions
        if known is not None and precision not in known:
            made = ", ".join(sorted(known))
            why = f"it is {precision}, which is not made from training's weights as they come"
            return "workload.rollout_precision", f"{why} ({made} are)"
        if precision in self.rollout.precisions_on_gpus_only and (cores := pools_of_cores(spec)):
            why = f"it is {precision}, which only GPUs run, and pool {cores[0]} has CPU cores"
            return "workload.rollout_precision", why
        if not self.engines(workload):
            on_host = workload.optimizer_cpu_offload
            if on_host and self.engines(
                workload.model_copy(update={"optimizer_cpu_offload": False})
            ):
                why = "it is true, and optimizers update on the GPUs"
                return "workload.optimizer_cpu_offload", why
            return "workload.training_stack", f"it is {workload.training_stack}"
        return None

    def _refuses_flow(self, spec: JobSpec) -> tuple[str, str] | None:
        if not self.streams and (field := streaming_field(spec)) is not None:
            return field, "it is true"
        if not self.tails and (field := tail_field(spec)) is not None:
            return field, "it is true"
        if self.continuous is not None:
            return self.continuous.refuses(spec.search, spec.algorithm)
        if spec.search.continuous_rollouts:
            return "search.continuous_rollouts", "it is true"
        return None

    def _refuses_memory_settings(self, workload: WorkloadSpec) -> tuple[str, str] | None:
        for field in () if self.takes_memory_settings else MEMORY_SETTINGS:
            if (value := getattr(workload, field)) not in (None, False, "fp32"):
                return f"workload.{field}", f"it is {value}; leave it out"
        return None

    def _refuses_kind(self, spec: JobSpec) -> tuple[str, str] | None:
        workload = spec.workload
        place = dict(self.kl_places).get(spec.algorithm or "")
        if place is not None and workload.kl not in ("none", place):
            return "workload.kl", f"it is {workload.kl}, and {spec.algorithm} has it in the {place}"
        if self.one_turn and workload.turns > 1:
            return "workload.turns", f"it is {workload.turns}, and responses have one turn"
        return None

    def _refuses_update(self, workload: WorkloadSpec) -> tuple[str, str] | None:
        if self.optimizers is not None and workload.optimizer not in self.optimizers:
            return "workload.optimizer", f"it is {workload.optimizer}"
        if self.recomputes_log_probs and workload.old_log_probs != "recompute":
            why = f"it is {workload.old_log_probs}, and they are always computed again"
            return "workload.old_log_probs", why
        from_rollout = workload.old_log_probs == "rollout"
        if self.recomputes_for_reward_kl and from_rollout and workload.kl == "reward":
            why = "it is rollout, and with kl in the reward they are always computed again"
            return "workload.old_log_probs", why
        return None

    def _refuses_algorithm(self, spec: JobSpec) -> tuple[str, str] | None:
        if self.algorithms is not None and spec.algorithm not in self.algorithms:
            name = spec.algorithm or "a dataflow of one's own"
            return "algorithm", f"it is {name}, and there are {', '.join(sorted(self.algorithms))}"
        if self.roles is not None and (others := sorted(set(spec.models) - self.roles)):
            return f"models.{others[0]}", f"it knows only {', '.join(sorted(self.roles))}"
        if self.one_gpu_type and isinstance(spec.cluster, ClusterSpec):
            types = sorted({pool.gpu for pool in spec.cluster.pools})
            if len(types) > 1:
                return "cluster.pools", f"they have GPUs of several types: {', '.join(types)}"
            if len({pool.gpus_per_node for pool in spec.cluster.pools}) > 1:
                return "cluster.pools", "their nodes have different numbers of GPUs"
        if self.cuda_only and (others := pools_without_cuda(spec)):
            return (
                "cluster.pools",
                f"pool {others[0]} has GPUs without CUDA, and only those with it are described",
            )
        return self._refuses_schedule(spec)

    def _refuses_schedule(self, spec: JobSpec) -> tuple[str, str] | None:
        workload, search = spec.workload, spec.search
        if search.staleness and spec.algorithm in self.not_apart:
            return "search.staleness", f"{spec.algorithm} generates on the GPUs that train"
        if search.staleness and spec.algorithm in self.not_stale:
            return "search.staleness", f"it is {search.staleness}, and {spec.algorithm} has none"
        if self.one_engine and spec.algorithm == "remax" and workload.responses_per_prompt > 1:
            # The second of its generations has one.
            why = f"it is {workload.responses_per_prompt}, and remax generates a greedy one besides"
            return "workload.responses_per_prompt", why
        if self.one_epoch_apart and search.staleness and workload.epochs > 1:
            why = f"it is {workload.epochs}, and with staleness a batch is trained on once"
            return "workload.epochs", why
        most = self.max_staleness
        if most is not None and search.staleness > most:
            return "search.staleness", f"it is {search.staleness}, at most {most} is known"
        if self.one_epoch and workload.epochs > 1:
            return "workload.epochs", f"it is {workload.epochs}, and a batch is trained on once"
        return self._refuses_batches(spec)

    def _refuses_batches(self, spec: JobSpec) -> tuple[str, str] | None:
        workload, search = spec.workload, spec.search
        prompts, updates = workload.prompts_per_iteration, workload.updates_per_epoch
        if self.packed_only and not workload.packed_sequences:
            return "workload.packed_sequences", "it is false"
        if self.padded_only and workload.packed_sequences:
            return "workload.packed_sequences", "it is true, and sequences are padded"
        if self.one_stale_update and search.staleness and updates > 1:
            why = f"it is {updates}, and with staleness a batch is one update"
            return "workload.updates_per_epoch", why
        if self.overlaps_only_stale and not search.iteration_barrier and not search.staleness:
            return "search.iteration_barrier", "it is false, and staleness is 0"
        if self.even_batches and prompts % updates:
            return "workload.updates_per_epoch", f"{updates} do not divide {prompts} prompts"
        return None

    def range_rules(
        self,
        layouts: Layouts,
        *,
        pool: Pool,
        num_nodes: int,
        workload: WorkloadSpec,
        trains: bool,
        is_shadow: bool = False,
        alternates: bool = False,
    ) -> Iterator[Rule]:
        """Rules on the range of a copy, and on its ranks' shares of a batch.

        Args:
            layouts: Of the copy.
            pool: Where it is.
            num_nodes: Nodes of the whole cluster.
            workload: What it trains on or scores.
            trains: False for models that only score, and for shadows.
            is_shadow: Whether it only generates: an engine takes requests one by one.
            alternates: Whether the job has several models that train.
        """
        each = pool.gpus_per_node
        if self.tensor_in_node:
            yield _tensor_in_node(layouts.tensor_parallel_size, pool)
        if self.whole_nodes and num_nodes > 1:
            yield f"ranges are whole nodes of {each} GPUs", layouts.num_gpus % each == 0
        if self.even_batches and trains:
            batch = workload.sequences_per_update
            words = f"data ranks divide the {batch} sequences of an update"
            yield words, batch % layouts.data_parallel_size == 0
        if self.whole_prompts and not is_shadow:
            prompts, batch = workload.prompts_per_iteration, workload.sequences_per_update
            ranks = layouts.data_parallel_size
            words = f"data ranks divide the {prompts} prompts, and an update has {batch} sequences"
            yield words, (prompts % ranks == 0) & (ranks <= batch)
        if self.offloads_to_train and trains and alternates:
            words = "offload is weights where several models train"
            yield words, layouts.offload == OFFLOADS.index("weights")
        if self.packed_context and not workload.packed_sequences:
            words = "context_parallel_size is 1 without packed_sequences"
            yield words, layouts.context_parallel_size == 1

    def server_rules(
        self, architecture: ModelArchitecture, layouts: GenerationLayouts, *, pool: Pool
    ) -> Iterator[Rule]:
        """Rules on a rollout that has GPUs of its own."""
        if not self.one_server:
            return
        each, data = pool.gpus_per_node, layouts.data_parallel_size
        gpus = layouts.tensor_parallel_size * layouts.pipeline_parallel_size * data
        yield f"rollouts apart are in one node of {each} GPUs", gpus <= each
        if architecture.num_experts:
            yield "data_parallel_size is 1 where experts are served apart", data == 1

    def engine_rules(self, layouts: GenerationLayouts, *, pool: Pool) -> Iterator[Rule]:
        """Rules on how an engine that generates lies in the nodes of a pool."""
        if not self.tensor_in_node:
            return
        expert, tensor = layouts.expert_parallel_size, layouts.tensor_parallel_size
        yield _tensor_in_node(tensor, pool)
        # Replicas of attention that share experts are one engine.
        words = f"expert groups of several replicas fill nodes of {pool.gpus_per_node} GPUs"
        yield words, (expert <= tensor) | (expert % pool.gpus_per_node == 0)

    def refuses_model(
        self,
        architecture: ModelArchitecture,
        *,
        role: str,
        lora: bool,
        workload: WorkloadSpec,
    ) -> str | None:
        """What a model has that every engine lacks, in words; None: one runs it."""
        refusals = [
            engine.refuses_model(architecture, lora=lora, precision=workload.precision)
            for engine in self.engines(workload, role)
        ]
        if not refusals:
            return "a model beside those that it trains"
        return None if None in refusals else refusals[0]

    def engines(
        self, workload: WorkloadSpec, role: str | None = None
    ) -> tuple[TrainingCapabilities, ...]:
        """The engines that may be priced as the software that is given, if any is, and update so.

        With a role only those that train or score it.
        """
        stack = workload.training_stack
        return tuple(
            each
            for each in self.training
            if (stack is None or stack in each.stacks)
            and (each.optimizer_cpu_offload or not workload.optimizer_cpu_offload)
            and (role is None or each.roles is None or role in each.roles)
        )


def _tensor_in_node(sizes: IntArray, pool: Pool) -> Rule:
    each = pool.gpus_per_node
    return f"tensor_parallel_size divides the {each} GPUs of a node", each % sizes == 0


def pools_of_cores(spec: JobSpec) -> list[str]:
    """Names of the pools whose devices are CPU cores; none of a cluster that is only named."""
    pools = spec.cluster.pools if isinstance(spec.cluster, ClusterSpec) else []
    return [pool.name for pool in pools if gpu_type(pool.gpu).is_core]


def pools_without_cuda(spec: JobSpec) -> list[str]:
    """Names of the pools whose GPUs are another vendor's than NVIDIA."""
    pools = spec.cluster.pools if isinstance(spec.cluster, ClusterSpec) else []
    return [pool.name for pool in pools if gpu_type(pool.gpu).is_assumed]


@dataclass(frozen=True, slots=True)
class ModelEngines:
    """The engines of a target that can run one model of a job, the preferred one first."""

    architecture: ModelArchitecture
    trains: bool
    engines: tuple[TrainingCapabilities, ...]
    stack: TrainingStack | None
    """What the spec names as the software to price."""

    def of_layouts(self, layouts: Layouts) -> IntArray:
        """[layout] number of the engine that runs it, wherever its state is; -1: none does."""
        found = np.full(len(layouts), -1, dtype=np.int64)
        for number in reversed(range(len(self.engines))):
            engine = self.engines[number]
            found[engine.allows(self.architecture, layouts, trains=self.trains)] = number
        return found

    def allows(self, layouts: Layouts) -> BoolArray:
        """[layout] True where an engine runs it, with what it keeps on the host."""
        numbers = self.of_layouts(layouts)
        found = np.zeros(len(layouts), dtype=np.bool_)
        for number, engine in enumerate(self.engines):
            _, holds = engine.offload_rule(layouts, trains=self.trains)
            found |= (numbers == number) & holds
        return found

    def stack_of(self, number: int) -> TrainingStack:
        """Software whose speed and memory are priced on the engine of this number."""
        return self.stack or self.engines[max(number, 0)].stacks[0]

    def refusals(self, layouts: Layouts) -> list[str]:
        """Per engine what one layout breaks of its limits; empty where an engine runs it."""
        if self.allows(layouts).all():
            return []
        found = []
        for engine in self.engines:
            rules = [
                *engine.rules(self.architecture, layouts, trains=self.trains),
                engine.offload_rule(layouts, trains=self.trains),
            ]
            broken = [rule for rule, holds in rules if not holds.all()]
            found.append(f"{engine.name} needs: {', '.join(broken)}")
        return found

    def only(self, name: str) -> "ModelEngines":
        """Only the engine of that name, or none."""
        return replace(self, engines=tuple(each for each in self.engines if each.name == name))
