"""What an engine can be asked to do: its limits as data, and how layouts are held to them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.hardware import GpuType
from automap.planner.layout import (
    OFFLOADS,
    RECOMPUTES,
    SHARDINGS,
    BoolArray,
    GenerationLayouts,
    Layouts,
    layers_per_stage,
)
from automap.planner.spec import RolloutEngine, TrainingStack

Dimension = Literal["tensor", "pipeline", "virtual_pipeline", "context", "expert"]
DIMENSIONS: tuple[Dimension, ...] = (
    "tensor",
    "pipeline",
    "virtual_pipeline",
    "context",
    "expert",
)
ContextParallelism = Literal["ring", "ulysses"]
"""How attention comes by the whole sequence, of which each context rank has a slice: keys and
values of the other slices go around a ring, or all-to-alls change slices into heads and back."""
FEATURES: dict[str, tuple[bool, str]] = {
    "num_experts": (True, "a mixture of experts"),
    "attention_parameters_per_layer": (True, "multi-head latent attention"),
    "latent_attention": (True, "multi-head latent attention"),
    "indexer": (True, "an indexer that chooses what is attended to"),
    "gated_delta_net": (True, "gated linear attention"),
    "mamba2": (True, "state-space layers"),
    "layer_kinds": (True, "layers of several kinds"),
    "sliding_window": (True, "a sliding window"),
    "attention_chunk_size": (True, "attention in chunks"),
    "attention_output_bias": (True, "a bias on the output of attention"),
    "attention_output_gate": (True, "a gate on the output of attention"),
    "attention_sinks": (True, "attention sinks"),
    "query_key_norm_over_heads": (True, "norms over all queries and over all keys"),
    "sandwich_norms": (True, "norms after attention and MLP"),
    "shared_expert_gate": (True, "a gate on shared experts"),
    "expert_norms": (True, "norms of their own around experts"),
    "expert_latent_size": (True, "experts that work on a latent"),
    "num_dense_layers": (True, "dense layers before those with experts"),
    "shared_expert_intermediate_size": (True, "shared experts"),
    "learned_position_embeddings": (True, "learned position embeddings"),
    "linear_bias": (True, "a bias on every linear layer"),
    "norm_bias": (True, "LayerNorm with a bias"),
    "gated_mlp": (False, "MLPs without a gate"),
}
"""Field of an architecture that not every engine knows → (whether it is set where the model has
what engines may lack, what that is)."""


Rule = tuple[str, BoolArray]
"""What must hold, in words, and [layout] whether it does."""


def all_hold(rules: Iterable[Rule], num_layouts: int) -> BoolArray:
    """[layout] True where every rule holds."""
    found = np.ones(num_layouts, dtype=np.bool_)
    for _, holds in rules:
        found &= holds
    return found


@dataclass(frozen=True, slots=True)
class TrainingCapabilities:
    """What trains and scores: which models it knows, and how it can split them.

    The defaults refuse nothing.
    """

    name: str
    stacks: tuple[TrainingStack, ...]
    """Software that it may be priced as; as the first one, unless the spec names another."""
    dimensions: frozenset[Dimension] = frozenset(DIMENSIONS)
    """Parallel sizes that may exceed 1; data parallelism always may."""
    dense_dimensions: frozenset[Dimension] = frozenset()
    """Parallel sizes that may exceed 1 only of models without experts."""
    shardings: frozenset[str] = frozenset(SHARDINGS)
    """Ways to keep a model that trains on several replicas."""
    scoring_shardings: frozenset[str] = frozenset({"none", "full"})
    """Ways to keep a model that only scores, on several replicas."""
    unknown_features: frozenset[str] = frozenset()
    """Fields of an architecture (FEATURES) that it knows nothing of."""
    trains_adapters: bool = True
    """LoRA."""
    precisions: frozenset[str] = frozenset({"bf16", "fp16", "fp32"})
    """`workload.precision` of models without experts."""
    expert_precisions: frozenset[str] = frozenset({"bf16", "fp16", "fp32"})
    """`workload.precision` of mixtures of experts."""
    tensor_divides: frozenset[str] = frozenset({"num_attention_heads"})
    """Fields of an architecture that the tensor size divides."""
    tensor_repeats: frozenset[str] = frozenset()
    """Fields that it divides or is a multiple of."""
    context_parallelism: ContextParallelism | None = None
    """The kind that it has; None: that of the software it is priced as."""
    context_divides: frozenset[str] = frozenset()
    """Fields that tensor × context size divides, where context parallelism is used."""
    context_repeats: frozenset[str] = frozenset()
    """Fields that it divides or is a multiple of."""
    context_unknown_features: frozenset[str] = frozenset()
    """Fields of an architecture (FEATURES) that its context parallelism knows nothing of."""
    usual_stages: bool = False
    """Pipeline sizes are powers of two or divide the layers; virtual stages are equally long."""
    equal_stages: bool = False
    """All pipeline stages have equally many layers."""
    uniform_middle: bool = False
    """Only the first and the last pipeline stage may have another number of layers."""
    recomputes: frozenset[str] = frozenset(RECOMPUTES)
    """Ways to recompute activations in training."""
    roles: frozenset[str] | None = None
    """Roles that it trains or scores; without a set, every one."""
    offloads: frozenset[str] = frozenset(OFFLOADS)
    """What may be kept on the host of a model that trains."""
    scoring_offloads: frozenset[str] = frozenset({"none", "weights"})
    """What may be kept on the host of a model that only scores."""
    optimizer_cpu_offload: bool = True
    """Can have the optimizer update on the host (`workload.optimizer_cpu_offload`)."""
    process_dimensions: tuple[Dimension, ...] = ()
    """Parallel sizes that all models of one process have in common."""
    one_sharding: bool = False
    """Models that train have one sharding and one offload; those that only score are fully sharded
    where these are."""

    def refuses_model(
        self, architecture: ModelArchitecture, *, lora: bool, precision: str
    ) -> str | None:
        """What a model has that the engine lacks, in words; None: it runs it."""
        for name in sorted(self.unknown_features):
            is_set, what = FEATURES[name]
            if bool(getattr(architecture, name)) == is_set:
                return what
        if lora and not self.trains_adapters:
            return "LoRA"
        known = self.expert_precisions if architecture.num_experts else self.precisions
        return None if precision in known else f"precision {precision}"

    def allows(
        self, architecture: ModelArchitecture, layouts: Layouts, *, trains: bool
    ) -> BoolArray:
        """[layout] True where a model that it knows can be split so."""
        return all_hold(self.rules(architecture, layouts, trains=trains), len(layouts))

    def rules(
        self, architecture: ModelArchitecture, layouts: Layouts, *, trains: bool
    ) -> Iterator[Rule]:
        """(what must hold, [layout] whether it does) of every limit that the engine has."""
        for name in DIMENSIONS:
            of_dense = architecture.num_experts and name in self.dense_dimensions
            if name not in self.dimensions or of_dense:
                field = f"{name}_parallel_size"
                yield f"{field} is 1", getattr(layouts, field) == 1
        yield from self._sharding_rule(layouts, trains=trains)
        tensor = layouts.tensor_parallel_size
        for field in sorted(self.tensor_divides):
            number = getattr(architecture, field)
            yield f"tensor_parallel_size divides {field} ({number})", number % tensor == 0
        for field in sorted(self.tensor_repeats):
            number = getattr(architecture, field)
            holds = (number % tensor == 0) | (tensor % number == 0)
            yield f"tensor_parallel_size divides or repeats {field} ({number})", holds
        yield from self._context_rules(architecture, layouts)
        if self.usual_stages:
            yield from _stage_rules(architecture.num_layers, layouts)
        if self.equal_stages:
            stages, layers = layouts.pipeline_parallel_size, architecture.num_layers
            yield f"pipeline_parallel_size divides the {layers} layers", layers % stages == 0
        if self.uniform_middle:
            yield _middle_rule(architecture.num_layers, layouts)

    def _context_rules(self, architecture: ModelArchitecture, layouts: Layouts) -> Iterator[Rule]:
        whole = layouts.context_parallel_size == 1
        ranks = layouts.tensor_parallel_size * layouts.context_parallel_size
        for field in sorted(self.context_unknown_features):
            is_set, what = FEATURES[field]
            if bool(getattr(architecture, field)) == is_set:
                yield f"context_parallel_size is 1 with {what}", whole
        name = "tensor_parallel_size × context_parallel_size"
        for field in sorted(self.context_divides):
            number = getattr(architecture, field)
            yield f"{name} divides {field} ({number})", whole | (number % ranks == 0)
        for field in sorted(self.context_repeats):
            number = getattr(architecture, field)
            holds = whole | (number % ranks == 0) | (ranks % number == 0)
            yield f"{name} divides or repeats {field} ({number})", holds

    def offload_rule(self, layouts: Layouts, *, trains: bool) -> Rule:
        """(what may be on the host, [layout] whether that holds); it chooses no engine."""
        names = self.offloads if trains else self.scoring_offloads
        codes = [OFFLOADS.index(name) for name in names]
        words = " or ".join(sorted(names, key=OFFLOADS.index))
        return f"offload is {words}", np.isin(layouts.offload, codes)

    def _sharding_rule(self, layouts: Layouts, *, trains: bool) -> Iterator[Rule]:
        names = self.shardings if trains else self.scoring_shardings
        codes = [SHARDINGS.index(name) for name in names]
        single = layouts.data_parallel_size * layouts.context_parallel_size == 1
        unsharded = single & (layouts.sharding == SHARDINGS.index("none"))
        words = " or ".join(sorted(names, key=SHARDINGS.index))
        yield (
            f"sharding over several replicas is {words}",
            unsharded | np.isin(layouts.sharding, codes),
        )


def _middle_rule(num_layers: int, layouts: Layouts) -> Rule:
    sizes, of_row = np.unique(layouts.pipeline_parallel_size, return_inverse=True)
    holds = [len(set(layers_per_stage(num_layers, size)[1:-1])) <= 1 for size in sizes.tolist()]
    words = "only the first and the last pipeline stage differ in their layers"
    return words, np.array(holds, dtype=np.bool_)[of_row.reshape(-1)]


def _stage_rules(num_layers: int, layouts: Layouts) -> Iterator[Rule]:
    stages, virtual = layouts.pipeline_parallel_size, layouts.virtual_pipeline_parallel_size
    yield (
        f"pipeline_parallel_size is a power of two or divides the {num_layers} layers",
        ((stages & (stages - 1)) == 0) | (num_layers % stages == 0),
    )
    yield (
        f"virtual stages divide the {num_layers} layers",
        (virtual == 1) | (num_layers % (stages * virtual) == 0),
    )


@dataclass(frozen=True, slots=True)
class RolloutCapabilities:
    """What generates: how it can split a model over the GPUs of one replica.

    The defaults refuse nothing.
    """

    names: frozenset[RolloutEngine]
    """Software (`workload.rollout_engine`) that it stands for."""
    cache_precisions: frozenset[str] | None = None
    """`workload.rollout_cache_precision` it knows; without a set, every one."""
    experts: Literal["any", "split", "tensor", "replicas"] = "any"
    """Sizes of expert groups: any; or 1 (every expert is split over the tensor ranks); or also the
    tensor size (experts lie whole on these ranks), so one group within an engine; or also its
    multiples (the engine's replicas of attention share the experts)."""
    max_sequences: int | None = None
    """Most sequences that a replica runs at once; None: all that its cache holds."""
    own_weights: bool = False
    """On the GPUs that train it has all its weights for itself, beside what training has there;
    otherwise training's serve it as far as they can."""
    lends_on_cores: bool = False
    """On CPU cores training's weights serve it all the same, but not those of a model with experts,
    whose kernels pack theirs, nor the base that an adapter is added to."""
    whole_syncs: bool = False
    """Engines on GPUs of their own get weights whole, from one rank that trains; otherwise all that
    train share the sending, and each engine rank gets its own part."""
    pipelines: bool = True
    """Splits an engine into pipeline stages."""
    tensor_repeats: frozenset[str] = frozenset()
    """Fields of an architecture that the tensor size divides or is a multiple of."""
    precisions: frozenset[str] | None = None
    """`workload.rollout_precision` that it makes from training's weights as they come; without a
    set, every one."""
    precisions_on_gpus_only: frozenset[str] = frozenset()
    """`workload.rollout_precision` that CPU cores have no kernels for."""
    head_dims_on_cores: frozenset[int] | None = None
    """Sizes of a head that it has attention for on CPU cores; without a set, every one."""

    def has_own_weights(
        self, architecture: ModelArchitecture, gpu: GpuType, *, has_adapter: bool
    ) -> bool:
        """Whether its weights lie beside those that train on the same devices."""
        can_lend = not architecture.num_experts and not has_adapter
        return self.own_weights and not (self.lends_on_cores and gpu.is_core and can_lend)

    def refuses_on_cores(self, architecture: ModelArchitecture) -> str | None:
        """What a model has that it cannot generate with on CPU cores, in words; None: it can."""
        known = self.head_dims_on_cores
        if known is None or architecture.head_dim in known:
            return None
        sizes = ", ".join(map(str, sorted(known)))
        return f"head_dim {architecture.head_dim}, but on CPU cores attention is for {sizes}"

    def allows(self, architecture: ModelArchitecture, layouts: GenerationLayouts) -> BoolArray:
        """[layout] True where a model can be split so while it generates."""
        return all_hold(self.rules(architecture, layouts), len(layouts.tensor_parallel_size))

    def rules(self, architecture: ModelArchitecture, layouts: GenerationLayouts) -> Iterator[Rule]:
        """(what must hold, [layout] whether it does) of every limit that the engine has."""
        expert, tensor = layouts.expert_parallel_size, layouts.tensor_parallel_size
        if self.experts == "split":
            yield "expert_parallel_size is 1", expert == 1
        elif self.experts == "tensor":
            words = "expert_parallel_size is 1 or tensor_parallel_size"
            yield words, (expert == 1) | (expert == tensor)
        elif self.experts == "replicas":
            words = "expert_parallel_size is 1 or a multiple of tensor_parallel_size"
            yield words, (expert == 1) | (expert % tensor == 0)
        if not self.pipelines:
            yield "pipeline_parallel_size is 1", layouts.pipeline_parallel_size == 1
        for field in sorted(self.tensor_repeats):
            number = getattr(architecture, field)
            holds = (number % tensor == 0) | (tensor % number == 0)
            yield f"tensor_parallel_size divides or repeats {field} ({number})", holds
