"""What one GPU holds of a model: the matrices of a layer, parameters by part, layers per stage."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.weight_formats import part_precisions
from automap.planner.cost import constants
from automap.planner.cost.rows import ceil_div, distinct_rows
from automap.planner.job.job import Model
from automap.planner.layout import IntArray, Layouts, layers_per_stage


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer on one GPU: its product is [m, inputs] × [inputs, outputs], m tokens."""

    inputs: IntArray
    outputs: IntArray


@dataclass(frozen=True, slots=True)
class StageLayers:
    """Number of layers [layout] on the (first, a middle, the last) pipeline stage."""

    dense: tuple[IntArray, IntArray, IntArray]
    """Dense layers."""
    moe: tuple[IntArray, IntArray, IntArray]
    """Layers with routed experts."""


@dataclass(frozen=True, slots=True)
class StageParameters:
    """Parameters per GPU [layout] on the stage that holds most, before data-parallel sharding."""

    dense: IntArray
    """Parameters outside routed experts, replicated over data × context parallel ranks."""
    expert: IntArray
    """Parameters of routed experts, replicated over the ranks left beside the expert group."""
    adapter: IntArray
    """Parameters of that stage's LoRA adapters; zero under full fine-tuning."""
    largest_layer: IntArray
    """Parameters of the largest layer, experts included: what `full` sharding gathers at once."""


def expert_shards(
    *, tensor_parallel_size: IntArray, expert_parallel_size: IntArray
) -> tuple[IntArray, IntArray]:
    """(GPUs over which a layer's experts are split, tensor size inside one expert).

    Expert groups smaller than the tensor group split each expert's width over the rest of it, so
    experts are always split over at least the tensor group: max(e, t) ways.
    """
    shards = np.maximum(tensor_parallel_size, expert_parallel_size)
    return shards, np.maximum(shards // expert_parallel_size, 1)


def local_key_value_heads(arch: ModelArchitecture, tensor_parallel_size: IntArray) -> IntArray:
    """Key-value heads on one GPU; they are replicated once the tensor size exceeds their number."""
    return ceil_div(arch.num_key_value_heads, tensor_parallel_size)


def attention_linears(
    arch: ModelArchitecture, tensor_parallel_size: IntArray
) -> tuple[Linear, Linear]:
    """The fused query-key-value projection (column-split) and the output one (row-split).

    An approximated attention keeps its parameter count: what the output projection does not
    account for is one projection of equal size.
    """
    hidden = np.full_like(tensor_parallel_size, arch.hidden_size)
    query = ceil_div(arch.query_size, tensor_parallel_size)
    key_value = 2 * arch.head_dim * local_key_value_heads(arch, tensor_parallel_size)
    outputs = query + key_value
    if arch.attention_parameters_per_layer:
        rest = arch.attention_parameters_per_layer // arch.hidden_size - arch.query_size
        outputs = ceil_div(max(rest, arch.head_dim), tensor_parallel_size)
    return Linear(hidden, outputs), Linear(query, hidden)


def mlp_linears(
    arch: ModelArchitecture, tensor_parallel_size: IntArray, width: int
) -> tuple[Linear, Linear]:
    """Up (with gate) and down projection of an MLP of that width, split over the tensor group."""
    hidden = np.full_like(tensor_parallel_size, arch.hidden_size)
    local = ceil_div(width, tensor_parallel_size)
    return Linear(hidden, local * (2 if arch.gated_mlp else 1)), Linear(local, hidden)


def padded_vocabulary(arch: ModelArchitecture, tensor_parallel_size: IntArray) -> IntArray:
    """Rows of the embedding on one GPU: vocabulary padded to a multiple of 128·t, over t."""
    multiple = constants.VOCABULARY_MULTIPLE * tensor_parallel_size
    return ceil_div(arch.vocab_size, multiple) * constants.VOCABULARY_MULTIPLE


def stage_layers(arch: ModelArchitecture, pipeline_parallel_size: IntArray) -> StageLayers:
    """Layers of the first, the longest middle and the last stage, as `layers_per_stage` has them.

    Leading dense layers of a mixture of experts fill the first stage; other stages are taken as
    all experts.
    """
    first, middle, last = _ends_and_middle(arch.num_layers)[:, pipeline_parallel_size]
    num_moe = arch.num_moe_layers
    dense_first = np.minimum(arch.num_layers - num_moe, first)
    moe_middle, moe_last = np.minimum(num_moe, middle), np.minimum(num_moe, last)
    return StageLayers(
        dense=(dense_first, middle - moe_middle, last - moe_last),
        moe=(first - dense_first, moe_middle, moe_last),
    )


@cache
def _ends_and_middle(num_layers: int) -> IntArray:
    """[3, stages]: layers of the first, the longest middle and the last of so many stages.

    Without a middle one, the last stage's; column 0 is no number of stages.
    """
    found = np.zeros((3, num_layers + 1), dtype=np.int64)
    for stages in range(1, num_layers + 1):
        cut = layers_per_stage(num_layers, stages)
        found[:, stages] = cut[0], max(cut[1:-1], default=cut[-1]), cut[-1]
    return found


def _attention_parameters(arch: ModelArchitecture, tensor_parallel_size: IntArray) -> IntArray:
    """Parameters of one layer's attention on one GPU.

    Key-value heads may repeat over the tensor group; biases after a sum always do.
    """
    if arch.attention_parameters_per_layer:
        return ceil_div(arch.attention_parameters, tensor_parallel_size)
    query = ceil_div(arch.query_size, tensor_parallel_size)
    key_value = 2 * arch.head_dim * local_key_value_heads(arch, tensor_parallel_size)
    biased = arch.attention_bias or arch.linear_bias
    projections = (arch.hidden_size + biased) * (query + key_value) + arch.hidden_size * query
    whole = arch.linear_bias * arch.hidden_size + arch.query_key_norm * 2 * arch.head_dim
    return np.asarray(projections + whole, dtype=np.int64)


def _mlp_parameters(
    arch: ModelArchitecture, tensor_parallel_size: IntArray, width: int
) -> IntArray:
    """Parameters of an MLP of that width on one GPU; the bias after the sum is not split."""
    up, down = mlp_linears(arch, tensor_parallel_size, width)
    biases = arch.linear_bias * (up.outputs + arch.hidden_size)
    return np.asarray(up.inputs * up.outputs + down.inputs * down.outputs + biases, dtype=np.int64)


def _layer_parameters(
    arch: ModelArchitecture, tensor_parallel_size: IntArray, expert_parallel_size: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """(dense layer, expert layer without its experts, its experts): parameters on one GPU."""
    attention = _attention_parameters(arch, tensor_parallel_size) + arch.norm_parameters_per_layer
    dense = attention + _mlp_parameters(arch, tensor_parallel_size, arch.intermediate_size)
    moe = attention + arch.router_parameters
    if arch.shared_expert_intermediate_size:
        width = arch.shared_expert_intermediate_size
        moe = moe + _mlp_parameters(arch, tensor_parallel_size, width)
    _, inside = expert_shards(
        tensor_parallel_size=tensor_parallel_size, expert_parallel_size=expert_parallel_size
    )
    local_experts = ceil_div(arch.num_experts, expert_parallel_size)
    experts = np.zeros_like(dense)
    if arch.num_experts:
        experts = local_experts * _mlp_parameters(arch, inside, arch.moe_intermediate_size)
    return dense, moe, experts


def _end_parameters(model: Model, layouts: Layouts) -> tuple[IntArray, IntArray, IntArray]:
    """Parameters on one GPU: (embedding with positions, final norm with head, a single stage's).

    On a single stage (p = 1) tied embeddings share their table with the head.
    """
    arch = model.architecture
    table = padded_vocabulary(arch, layouts.tensor_parallel_size) * arch.hidden_size
    embedding = table + arch.position_embedding_parameters
    norm = arch.final_norm_parameters
    scalar = np.full_like(table, arch.scalar_head_parameters)
    head = norm + (scalar if model.scalar_head else table)
    shares_table = arch.tied_embeddings and not model.scalar_head
    return embedding, head, embedding + (norm if shares_table else head)


def _adapter_parameters(model: Model, layouts: Layouts) -> IntArray:
    """LoRA parameters on one GPU: those of the fullest stage's share of the layers.

    Split like the matrices they stand beside; the half of each adapter that a tensor group
    replicates is left out, being r·h of some r·(in + out).
    """
    if model.lora_rank is None:
        return np.zeros_like(layouts.tensor_parallel_size)
    arch = model.architecture
    shards = layouts.tensor_parallel_size
    if arch.num_experts:
        shards, _ = expert_shards(
            tensor_parallel_size=shards, expert_parallel_size=layouts.expert_parallel_size
        )
    layers = ceil_div(arch.num_layers, layouts.pipeline_parallel_size)
    return ceil_div(arch.lora_parameters(model.lora_rank) * layers, arch.num_layers * shards)


def parameters_by_stage(model: Model, layouts: Layouts) -> tuple[IntArray, IntArray]:
    """(dense, expert) parameters per GPU of [first, middle, last] stage × rows.

    A single stage is the first. Where a stage does not exist, its dense parameters are −1.
    """
    dense_layer, moe_layer, experts = _layer_parameters(
        model.architecture, layouts.tensor_parallel_size, layouts.expert_parallel_size
    )
    embedding, head, both_ends = _end_parameters(model, layouts)
    stages = stage_layers(model.architecture, layouts.pipeline_parallel_size)
    single = layouts.pipeline_parallel_size == 1
    ends = (np.where(single, both_ends, embedding), np.zeros_like(embedding), head)
    dense = np.stack(
        [
            stages.dense[stage] * dense_layer + stages.moe[stage] * moe_layer + ends[stage]
            for stage in range(3)
        ]
    )
    expert = np.stack([in_moe * experts for in_moe in stages.moe])
    missing = np.stack([np.zeros_like(single), layouts.pipeline_parallel_size < 3, single])
    return np.where(missing, -1, dense), np.where(missing, 0, expert)


def block_values_by_stage(
    arch: ModelArchitecture, layouts: Layouts, *, precision: str
) -> tuple[IntArray, IntArray]:
    """(dense, expert) weights per GPU of [first, middle, last] stage × rows that have 4 bits.

    A part of what `parameters_by_stage` counts; for stages that do not exist it means nothing.
    """
    tensor, expert = layouts.tensor_parallel_size, layouts.expert_parallel_size
    parts = part_precisions(arch, precision)
    attention, mlp, shared, experts = (np.zeros_like(tensor) for _ in range(4))
    if parts.attention == precision:
        attention = _matrix_values(attention_linears(arch, tensor))
    if parts.mlp == precision:
        mlp = _matrix_values(mlp_linears(arch, tensor, arch.intermediate_size))
        shared = _matrix_values(mlp_linears(arch, tensor, arch.shared_expert_intermediate_size))
    if arch.num_experts:
        _, inside = expert_shards(tensor_parallel_size=tensor, expert_parallel_size=expert)
        one = _matrix_values(mlp_linears(arch, inside, arch.moe_intermediate_size))
        experts = ceil_div(arch.num_experts, expert) * one
    stages = stage_layers(arch, layouts.pipeline_parallel_size)
    dense = [
        of_dense * (attention + mlp) + of_moe * (attention + shared)
        for of_dense, of_moe in zip(stages.dense, stages.moe, strict=True)
    ]
    return np.stack(dense), np.stack([of_moe * experts for of_moe in stages.moe])


def _matrix_values(linears: tuple[Linear, ...]) -> IntArray:
    return np.asarray(sum(one.inputs * one.outputs for one in linears), dtype=np.int64)


def stage_parameters(model: Model, layouts: Layouts) -> StageParameters:
    """Parameters per GPU on the stage that holds most, by how they are replicated."""
    first, inverse = distinct_rows(
        layouts.tensor_parallel_size,
        layouts.pipeline_parallel_size,
        layouts.expert_parallel_size,
    )
    shapes = layouts.take(first)
    arch = model.architecture
    dense, expert = parameters_by_stage(model, shapes)
    rows = np.arange(len(shapes))
    worst = np.argmax(dense + expert, axis=0)
    dense_layer, moe_layer, experts = _layer_parameters(
        arch, shapes.tensor_parallel_size, shapes.expert_parallel_size
    )
    has_dense = np.int64(arch.num_moe_layers < arch.num_layers)
    has_moe = np.int64(arch.num_moe_layers > 0)
    largest_layer = np.maximum(has_dense * dense_layer, has_moe * (moe_layer + experts))
    return StageParameters(
        dense=dense[worst, rows][inverse],
        expert=expert[worst, rows][inverse],
        adapter=_adapter_parameters(model, shapes)[inverse],
        largest_layer=largest_layer[inverse],
    )
