"""Activations and logits: the bytes that forward passes keep, per GPU."""

from dataclasses import dataclass, replace

import numpy as np

from automap.planner.catalogue.architecture import LayerGroup, ModelArchitecture, layer_groups
from automap.planner.catalogue.layer_kinds import LatentAttention, Mlp
from automap.planner.cost import constants
from automap.planner.cost.batches import SequenceLengths
from automap.planner.cost.layer.attended import attends, mixer_width
from automap.planner.cost.layer.logits import (
    head_gradient_bytes,
    head_state_bytes,
    logits_bytes,
)
from automap.planner.cost.memory import product_precision
from automap.planner.cost.peaks import peak_tokens
from automap.planner.cost.rows import ceil_div, distinct_rows
from automap.planner.cost.shards import (
    attention_linears,
    local_key_value_heads,
)
from automap.planner.cost.stacks import STACKS, SoftwareStack, stack_of
from automap.planner.cost.stage_layers import stage_layers
from automap.planner.job.job import Model
from automap.planner.layout import RECOMPUTES, FloatArray, IntArray, Layouts
from automap.planner.spec import SelectiveRecompute, WorkloadSpec

SELECTIVE = RECOMPUTES.index("selective")
FULL = RECOMPUTES.index("full")


def layer_activation_bytes(
    arch: ModelArchitecture,
    *,
    tensor_parallel_size: IntArray,
    recompute: IntArray,
    mlp: Mlp,
    element_bytes: int = 2,
    stack: SoftwareStack = STACKS["megatron-core"],
    attended_tokens: float = 0.0,
    dropout: bool = True,
    eight_bit: bool = False,
) -> FloatArray:
    """Bytes per token that one layer keeps for its backward pass, on one GPU.

    Korthikanti et al. 2022 (arXiv:2205.05198), section 4, carried over to grouped heads, gated
    MLPs and experts: per token inputs of both norms 2h, inputs of both projections 2h, queries,
    keys and values, the attention output, the MLP's pre-activation and activation. With sequence
    parallelism and flash attention that is 32·h/t bytes for GPT (their 34·h/t less two dropout
    masks). Unfused attention adds the masks and the scores over `attended_tokens`; without
    `dropout` (inference) no masks, the scores before and after softmax. `eight_bit`: products of
    the layer are in 8 bits. `selective` keeps what the stack keeps then; `full` keeps the layer's
    input alone.
    """
    tensor = tensor_parallel_size
    hidden = arch.hidden_size / (tensor if stack.sequence_parallel else np.ones_like(tensor))
    blocks = (arch.mixer != "none") + (mlp != "none")
    keeps = stack.memory
    before, after = _mlp_elements(arch, tensor, mlp=mlp, keeps_activation=keeps.keeps_activation)
    # Each chosen expert has its own copy of the token at its input and at its output.
    copies = 2 * arch.num_experts_per_token * arch.expert_hidden_size
    parts = _Elements(
        hidden=hidden,
        blocks=blocks,
        # Models with gated MLPs have RMSNorms.
        inputs=(keeps.norm_elements if arch.gated_mlp else 1) * blocks * hidden,
        attention=_attention_elements(arch, tensor, repeats_heads=keeps.repeats_heads)
        + keeps.norm_elements * _normed_heads(arch, tensor),
        keys=arch.head_dim * local_key_value_heads(arch, tensor) * attends(arch),
        before=before,
        after=after,
        dispatched=copies / tensor if mlp == "experts" else np.zeros(len(tensor)),
    )
    if eight_bit and stack.memory.keeps_eight_bit_inputs:
        outputs = attention_linears(arch, tensor)[-1].inputs if arch.mixer != "none" else 0 * tensor
        parts = parts.in_eight_bits(outputs, element_bytes)
    if stack.attention == "unfused":
        # Two masks of one byte; softmax and its dropped-out copy, and a mask of one byte.
        mask = 1 / element_bytes if dropout else 0.0
        heads = arch.num_attention_heads * attends(arch)
        scores = heads / tensor * attended_tokens * (2 + mask)
        kept = parts.all + 2 * hidden * mask + np.where(recompute == SELECTIVE, 0.0, scores)
    else:
        chosen = parts.selective(stack.memory.selective, gated=arch.gated_mlp)
        kept = np.where(recompute == SELECTIVE, chosen, parts.all)
    return element_bytes * np.where(recompute == FULL, hidden, kept)


@dataclass(frozen=True, slots=True)
class _Elements:
    """What one layer keeps of a token for its backward pass on one GPU, in elements."""

    hidden: FloatArray
    """The layer's input, a token's part on this GPU."""
    blocks: int
    """Norms: 2 where the layer has a mixer and an MLP."""
    inputs: FloatArray
    """Inputs of the norms."""
    attention: FloatArray
    """Queries, keys, values and attention output."""
    keys: IntArray
    """Keys among them."""
    before: FloatArray
    """Up (and gate) projection, before the activation function."""
    after: FloatArray
    dispatched: FloatArray
    norm_share: float = 1.0
    """Size of a norm's output over that of an element."""

    @property
    def norms(self) -> FloatArray:
        """Outputs of the norms."""
        return self.norm_share * self.blocks * self.hidden

    @property
    def all(self) -> FloatArray:
        """Without recomputation."""
        kept = self.inputs + self.norms + self.attention + self.before + self.after
        return kept + self.dispatched

    def in_eight_bits(self, attention_output: IntArray, element_bytes: int) -> "_Elements":
        """Inputs of products in 8 bits: of norms, activation and experts; attention's beside it."""
        share = 1 / element_bytes
        return replace(
            self,
            norm_share=share,
            attention=self.attention + share * attention_output,
            after=share * self.after,
            dispatched=(1 + share) / 2 * self.dispatched,
        )

    def selective(self, kind: SelectiveRecompute, *, gated: bool) -> FloatArray:
        """With selective recomputation; fused attention keeps no scores that it could drop.

        Where results of products are kept, norms and activations are made again. Every other
        product are keys, the output projection, and the gate.
        """
        if kind == "core_attention":
            return self.all
        if kind == "modules":
            return self.all - self.norms - self.after
        if kind == "alternate_blocks":
            return (self.all + self.hidden) / 2
        kept = self.hidden + self.attention + self.before + self.dispatched / 2
        if kind == "products":
            return kept + self.blocks * self.hidden
        return kept + self.hidden - self.keys - (self.before / 2 if gated else 0.0)


def _attention_elements(
    arch: ModelArchitecture, tensor: IntArray, *, repeats_heads: bool
) -> FloatArray:
    """Elements of one token's queries, keys, values and attention output on one GPU.

    A layer with a state keeps its projection, what is convolved and the output.
    """
    if not attends(arch):
        kept = sum(outputs for _, outputs, how in arch.mixer_matrices if how == "column")
        rows = sum(inputs for inputs, _, how in arch.mixer_matrices if how == "row")
        return np.asarray((kept + mixer_width(arch) + rows) / tensor, dtype=np.float64)
    if arch.latent_attention is not None:
        return _latent_elements(arch, arch.latent_attention, tensor)
    gate = arch.query_size / tensor if arch.attention_output_gate else 0.0
    query = arch.query_size / tensor
    grouped = 2 * arch.head_dim * local_key_value_heads(arch, tensor)
    return 2 * query + (2 * query if repeats_heads else grouped) + 2 * gate


def _normed_heads(arch: ModelArchitecture, tensor: IntArray) -> FloatArray:
    """Elements of one token's queries and keys on one GPU, where they have norms of their own."""
    has_norms = attends(arch) and (arch.query_key_norm or arch.query_key_norm_over_heads)
    keys = arch.head_dim * local_key_value_heads(arch, tensor)
    return has_norms * (arch.query_size / tensor + keys)


def _latent_elements(
    arch: ModelArchitecture, latent: LatentAttention, tensor: IntArray
) -> FloatArray:
    """Elements of one token's latent vectors, which every GPU has, and of its heads."""
    heads = arch.num_attention_heads * 2 * (latent.query_key_head_dim + latent.v_head_dim)
    return np.asarray(latent.q_lora_rank + latent.cache_elements + heads / tensor)


def _mlp_elements(
    arch: ModelArchitecture, tensor: IntArray, *, mlp: Mlp, keeps_activation: bool
) -> tuple[FloatArray, FloatArray]:
    """Elements (before, after) the activation of one token's MLP or chosen experts, on one GPU."""
    width = arch.intermediate_size if mlp == "dense" else 0
    if mlp == "experts":
        chosen = arch.num_experts_per_token * arch.moe_intermediate_size
        width = chosen + arch.shared_expert_intermediate_size
    local = width / tensor
    gate = 2 if arch.gated_mlp else 1
    return gate * local, (gate if keeps_activation else 1) * local


def micro_batches_in_flight(layouts: Layouts, num_micro_batches: IntArray) -> FloatArray:
    """Micro-batches whose activations the first stage holds, in units of its whole stage.

    1F1B: min(p, m). Interleaved with v chunks: p·(1 + (p − 1)/(p·v)) (Korthikanti 2022, 4.2.3).
    """
    stages = layouts.pipeline_parallel_size.astype(np.float64)
    chunks = layouts.virtual_pipeline_parallel_size
    interleaved = stages + (stages - 1) / chunks
    depth = np.where(chunks > 1, interleaved, stages)
    in_flight: FloatArray = np.minimum(depth, num_micro_batches)
    return in_flight


def activation_bytes(
    model: Model,
    workload: WorkloadSpec,
    lengths: SequenceLengths,
    layouts: Layouts,
    *,
    micro_batch_size: IntArray,
    num_micro_batches: IntArray,
    recompute: IntArray,
    first_stage: bool = False,
) -> tuple[IntArray, IntArray]:
    """(activations, logits) of training per GPU on whichever end of the pipeline needs more.

    The first stage holds the most micro-batches, the last stage the logits; the layer that the
    backward pass re-creates and the logits are not there at the same time. `first_stage`: what
    that one holds, were it the fullest or not.
    """
    peak = peak_tokens(workload, lengths, micro_batch_size)
    one = ceil_div(peak, layouts.context_parallel_size)
    many = _tokens_in_flight(
        workload,
        lengths,
        layouts,
        micro_batch_size=micro_batch_size,
        num_micro_batches=num_micro_batches,
    )
    kept = _kept_per_token(model, workload, lengths, layouts, recompute)
    working = one * kept.working
    first, last = many * kept.early_stage, one * kept.last_stage
    memory = stack_of(workload).memory
    logits = logits_bytes(model, memory, layouts, one, per_logit=memory.logit_bytes)
    logits += head_gradient_bytes(model, workload, layouts)
    states = one * head_state_bytes(model, workload)
    single = layouts.pipeline_parallel_size == 1
    last_needs_more = last + np.maximum(working, states + logits) > first + working
    on_last = single | (last_needs_more & (not first_stage))
    activations = np.where(single | ~on_last, first, last)
    logits, states = np.where(on_last, logits, 0.0), np.where(on_last, states, 0.0)
    activations += np.maximum(working - logits, states)
    return np.ceil(activations).astype(np.int64), np.ceil(logits).astype(np.int64)


def _tokens_in_flight(
    workload: WorkloadSpec,
    lengths: SequenceLengths,
    layouts: Layouts,
    *,
    micro_batch_size: IntArray,
    num_micro_batches: IntArray,
) -> FloatArray:
    """Tokens whose activations one GPU of the first stage holds [candidate].

    Filled micro-batches all have as many tokens as one is sized for, as long as there are so many;
    of others the sequences of all that are held are drawn together.
    """
    in_flight = micro_batches_in_flight(layouts, num_micro_batches)
    if stack_of(workload).balances_tokens:
        most = peak_tokens(workload, lengths, micro_batch_size * num_micro_batches)
        each = peak_tokens(workload, lengths, micro_batch_size)
        return np.minimum(in_flight * each, most) / layouts.context_parallel_size
    held = np.ceil(micro_batch_size * np.maximum(in_flight, 1)).astype(np.int64)
    tokens = ceil_div(peak_tokens(workload, lengths, held), layouts.context_parallel_size)
    many: FloatArray = tokens * (in_flight / np.maximum(held / micro_batch_size, 1))
    return many


@dataclass(frozen=True, slots=True)
class _Kept:
    """Bytes per token that are kept for the backward pass [candidate]."""

    working: FloatArray
    """Bytes of a layer that the backward pass makes again beside what it kept of that layer."""
    early_stage: FloatArray
    """Bytes on the first stage, or on a middle one, which may have a layer more but holds a
    micro-batch less."""
    last_stage: FloatArray


def _kept_per_token(
    model: Model,
    workload: WorkloadSpec,
    lengths: SequenceLengths,
    layouts: Layouts,
    recompute: IntArray,
) -> _Kept:
    columns = (layouts.tensor_parallel_size, layouts.pipeline_parallel_size, recompute)
    chosen, inverse = distinct_rows(*columns)
    tensor, pipeline, mode = (column[chosen] for column in columns)
    arch, stack = model.architecture, stack_of(workload)
    element = constants.PRECISION_BYTES[workload.precision]
    eight_bit = product_precision(model, workload) == "fp8"

    def layer(group: LayerGroup, mode: IntArray) -> FloatArray:
        return layer_activation_bytes(
            group.sizes,
            tensor_parallel_size=tensor,
            recompute=mode,
            mlp=group.mlp,
            element_bytes=element,
            stack=stack,
            attended_tokens=lengths.max_tokens,
            eight_bit=eight_bit,
        )

    kept, again = np.zeros((3, len(mode))), np.zeros(len(mode))
    groups = layer_groups(arch)
    for group, count in zip(groups, stage_layers(arch, pipeline), strict=True):
        own = layer(group, mode)
        kept = kept + count * own
        again = np.maximum(again, layer(group, np.zeros_like(mode)) - own)
    first, middle, last = kept
    early = np.maximum(first, np.where(pipeline > 2, middle, 0.0))
    if stack.memory.keeps_outputs:
        early = early + np.where(pipeline > 1, element * arch.hidden_size, 0)
    return _Kept(again[inverse], early[inverse], last[inverse])


def forward_activation_bytes(
    model: Model,
    workload: WorkloadSpec,
    lengths: SequenceLengths,
    layouts: Layouts,
    *,
    micro_batch_size: IntArray,
) -> tuple[IntArray, IntArray]:
    """(activations, logits) of an inference forward per GPU, on the last stage.

    Nothing is kept for a backward pass: one layer's working set at a time, without dropout.
    """
    arch, tensor = model.architecture, layouts.tensor_parallel_size
    peak = peak_tokens(workload, lengths, micro_batch_size)
    tokens = ceil_div(peak, layouts.context_parallel_size)
    layers = [
        layer_activation_bytes(
            group.sizes,
            tensor_parallel_size=tensor,
            recompute=np.zeros_like(tensor),
            mlp=group.mlp,
            element_bytes=constants.PRECISION_BYTES[workload.precision],
            stack=stack_of(workload),
            attended_tokens=lengths.max_tokens,
            dropout=False,
        )
        for group in layer_groups(arch)
    ]
    layer = np.maximum.reduce(layers)
    memory = stack_of(workload).memory
    logits = logits_bytes(model, memory, layouts, tokens, per_logit=memory.scored_logit_bytes)
    return np.ceil(tokens * layer).astype(np.int64), np.ceil(logits).astype(np.int64)
