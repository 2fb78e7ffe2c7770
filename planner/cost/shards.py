"""What one GPU holds of a model: the matrices of a layer, parameters by part, layers per stage."""

from dataclasses import dataclass

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture, layer_groups
from automap.planner.catalogue.layer_kinds import Matrix, Mlp
from automap.planner.catalogue.weight_formats import part_precisions
from automap.planner.cost import constants
from automap.planner.cost.rows import ceil_div, distinct_rows
from automap.planner.cost.stage_layers import stage_layers
from automap.planner.job.job import Model
from automap.planner.layout import IntArray, Layouts


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer on one GPU: its product is [m, inputs] × [inputs, outputs], m tokens."""

    inputs: IntArray
    outputs: IntArray


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
    tables: IntArray
    """Parameters among `dense` that are no layer's: embedding, head, final norm."""


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
) -> tuple[Linear, ...]:
    """The projections of a layer's mixer, into it first and out of it last.

    Plain attention has a fused query-key-value projection (column-split) and the output one
    (row-split). An approximated attention keeps its parameter count: what the output projection
    does not account for is one projection of equal size.
    """
    plain = arch.mixer == "attention" and arch.latent_attention is None
    if not plain:
        return tuple(_split(matrix, tensor_parallel_size) for matrix in arch.mixer_matrices)
    hidden = np.full_like(tensor_parallel_size, arch.hidden_size)
    query = ceil_div(arch.query_size, tensor_parallel_size)
    key_value = _key_value_outputs(arch, tensor_parallel_size)
    outputs = query * (2 if arch.attention_output_gate else 1) + key_value
    if arch.attention_parameters_per_layer:
        rest = arch.attention_parameters_per_layer // arch.hidden_size - arch.query_size
        outputs = ceil_div(max(rest, arch.head_dim), tensor_parallel_size)
    return Linear(hidden, outputs), Linear(query, hidden)


def _key_value_outputs(arch: ModelArchitecture, tensor_parallel_size: IntArray) -> IntArray:
    """Width of keys and values on one GPU; values may be the keys."""
    each = arch.head_dim * local_key_value_heads(arch, tensor_parallel_size)
    return (1 if arch.shared_key_value else 2) * each


def _split(matrix: Matrix, tensor_parallel_size: IntArray) -> Linear:
    inputs, outputs, how = matrix
    ranks = tensor_parallel_size
    whole = np.ones_like(ranks)
    return Linear(
        ceil_div(inputs, ranks if how == "row" else whole),
        ceil_div(outputs, ranks if how == "column" else whole),
    )


def mlp_linears(
    arch: ModelArchitecture, tensor_parallel_size: IntArray, width: int
) -> tuple[Linear, Linear]:
    """Up (with gate) and down projection of an MLP of that width, split over the tensor group."""
    hidden = np.full_like(tensor_parallel_size, arch.hidden_size)
    local = ceil_div(width, tensor_parallel_size)
    return Linear(hidden, local * (2 if arch.gated_mlp else 1)), Linear(local, hidden)


def expert_linears(arch: ModelArchitecture, expert_tensor_size: IntArray) -> tuple[Linear, Linear]:
    """Up (with gate) and down projection of a routed expert, split over so many GPUs."""
    hidden = np.full_like(expert_tensor_size, arch.expert_hidden_size)
    local = ceil_div(arch.moe_intermediate_size, expert_tensor_size)
    return Linear(hidden, local * (2 if arch.gated_mlp else 1)), Linear(local, hidden)


def latent_linears(arch: ModelArchitecture, tensor_parallel_size: IntArray) -> tuple[Linear, ...]:
    """The projections to the latent that routed experts work on and back; every GPU has them."""
    if not arch.expert_latent_size:
        return ()
    hidden = np.full_like(tensor_parallel_size, arch.hidden_size)
    latent = np.full_like(tensor_parallel_size, arch.expert_latent_size)
    return Linear(hidden, latent), Linear(latent, hidden)


def padded_vocabulary(arch: ModelArchitecture, tensor_parallel_size: IntArray) -> IntArray:
    """Rows of the embedding on one GPU: vocabulary padded to a multiple of 128·t, over t."""
    multiple = constants.VOCABULARY_MULTIPLE * tensor_parallel_size
    return ceil_div(arch.vocab_size, multiple) * constants.VOCABULARY_MULTIPLE


def _attention_parameters(arch: ModelArchitecture, tensor_parallel_size: IntArray) -> IntArray:
    """Parameters of one layer's mixer on one GPU.

    Key-value heads may repeat over the tensor group; biases after a sum always do, and what is no
    matrix beside latent attention, a delta-net or a state space is counted so.
    """
    if arch.attention_parameters_per_layer:
        return ceil_div(arch.attention_parameters, tensor_parallel_size)
    linears = attention_linears(arch, tensor_parallel_size)
    if arch.mixer != "attention" or arch.latent_attention is not None:
        return _matrix_values(linears, tensor_parallel_size) + arch.other_mixer_parameters
    query = ceil_div(arch.query_size, tensor_parallel_size)
    biased = arch.attention_bias or arch.linear_bias
    projections = (
        arch.hidden_size * linears[0].outputs
        + biased * (query + _key_value_outputs(arch, tensor_parallel_size))
        + arch.hidden_size * query
    )
    whole = (arch.linear_bias or arch.attention_output_bias) * arch.hidden_size
    whole += arch.query_key_norm * 2 * arch.head_dim
    if arch.query_key_norm_over_heads:
        whole += arch.query_size + arch.key_value_size
    sinks = ceil_div(arch.attention_sinks * arch.num_attention_heads, tensor_parallel_size)
    return np.asarray(projections + whole + sinks, dtype=np.int64)


def _mlp_parameters(arch: ModelArchitecture, linears: tuple[Linear, Linear]) -> IntArray:
    """Parameters of an MLP on one GPU; the bias after the sum is not split."""
    up, down = linears
    biases = arch.linear_bias * (up.outputs + down.outputs)
    return np.asarray(up.inputs * up.outputs + down.inputs * down.outputs + biases, dtype=np.int64)


def _layer_parameters(
    arch: ModelArchitecture,
    mlp: Mlp,
    tensor_parallel_size: IntArray,
    expert_parallel_size: IntArray,
) -> tuple[IntArray, IntArray]:
    """(a layer with such an MLP without its experts, its experts): parameters on one GPU."""
    tensor = tensor_parallel_size
    layer = _attention_parameters(arch, tensor) + arch.norm_parameters_per_layer(mlp)
    experts = np.zeros_like(layer)
    if mlp == "dense":
        layer = layer + _mlp_parameters(arch, mlp_linears(arch, tensor, arch.intermediate_size))
    if mlp == "experts":
        layer = layer + arch.router_parameters
        if arch.shared_expert_intermediate_size:
            shared = mlp_linears(arch, tensor, arch.shared_expert_intermediate_size)
            gate = arch.shared_expert_gate * arch.hidden_size
            layer = layer + _mlp_parameters(arch, shared) + gate
        _, inside = expert_shards(
            tensor_parallel_size=tensor, expert_parallel_size=expert_parallel_size
        )
        local_experts = ceil_div(arch.num_experts, expert_parallel_size)
        experts = local_experts * _mlp_parameters(arch, expert_linears(arch, inside))
    return layer, experts


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


def _parameters_at_ends(model: Model, layouts: Layouts) -> IntArray:
    """Parameters outside layers on one GPU of [first, middle, last] stage × rows."""
    embedding, head, both_ends = _end_parameters(model, layouts)
    single = layouts.pipeline_parallel_size == 1
    return np.stack([np.where(single, both_ends, embedding), np.zeros_like(embedding), head])


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
    arch, tensor = model.architecture, layouts.tensor_parallel_size
    single = layouts.pipeline_parallel_size == 1
    dense = _parameters_at_ends(model, layouts)
    expert = np.zeros_like(dense)
    counts = stage_layers(arch, layouts.pipeline_parallel_size)
    for group, count in zip(layer_groups(arch), counts, strict=True):
        layer, experts = _layer_parameters(
            group.sizes, group.mlp, tensor, layouts.expert_parallel_size
        )
        dense = dense + count * layer
        expert = expert + count * experts
    missing = np.stack([np.zeros_like(single), layouts.pipeline_parallel_size < 3, single])
    return np.where(missing, -1, dense), np.where(missing, 0, expert)


def block_values_by_stage(
    arch: ModelArchitecture, layouts: Layouts, *, precision: str
) -> tuple[IntArray, IntArray]:
    """(dense, expert) weights per GPU of [first, middle, last] stage × rows that have 4 bits.

    A part of what `parameters_by_stage` counts; for stages that do not exist it means nothing.
    """
    tensor = layouts.tensor_parallel_size
    _, inside = expert_shards(
        tensor_parallel_size=tensor, expert_parallel_size=layouts.expert_parallel_size
    )
    local = ceil_div(arch.num_experts, layouts.expert_parallel_size)
    dense = np.zeros((3, len(layouts)), dtype=np.int64)
    expert = np.zeros_like(dense)
    counts = stage_layers(arch, layouts.pipeline_parallel_size)
    for group, count in zip(layer_groups(arch), counts, strict=True):
        sizes, parts = group.sizes, part_precisions(group.sizes, precision)
        if parts.attention == precision:
            dense += count * _matrix_values(attention_linears(sizes, tensor), tensor)
        if parts.mlp == precision and group.mlp != "none":
            shared = sizes.shared_expert_intermediate_size
            width = sizes.intermediate_size if group.mlp == "dense" else shared
            dense += count * _matrix_values(mlp_linears(sizes, tensor, width), tensor)
        if group.mlp == "experts":
            one = _matrix_values(expert_linears(sizes, inside), tensor)
            expert += count * local * one
    return dense, expert


def _matrix_values(linears: tuple[Linear, ...], like: IntArray) -> IntArray:
    found = np.zeros_like(like)
    for one in linears:
        found = found + one.inputs * one.outputs
    return found


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
    ends = _parameters_at_ends(model, shapes)[worst, rows]
    largest_layer = np.zeros_like(shapes.tensor_parallel_size)
    for group in layer_groups(arch):
        layer, experts = _layer_parameters(
            group.sizes, group.mlp, shapes.tensor_parallel_size, shapes.expert_parallel_size
        )
        largest_layer = np.maximum(largest_layer, layer + experts)
    return StageParameters(
        dense=dense[worst, rows][inverse],
        expert=expert[worst, rows][inverse],
        adapter=_adapter_parameters(model, shapes)[inverse],
        largest_layer=largest_layer[inverse],
        tables=ends[inverse],
    )
