"""A rule on model FLOPs: those of a forward pass, counted here layer by layer from the sizes.

Two FLOPs per weight of every matrix that a token passes, and per pair of tokens that attend to one
another; routers and gates of one output are left out, as in the figures that plans state.
"""

import math
from collections.abc import Iterator

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.layer_kinds import LayerKind
from automap.planner.check.layers import kinds_in_order, mixer_weights, own
from automap.planner.check.subject import Subject
from automap.planner.cost.batches import sequence_lengths
from automap.planner.cost.model_flops import model_flops
from automap.planner.layout import FloatArray


def forward_flops(arch: ModelArchitecture, lengths: FloatArray, *, scalar_head: bool) -> FloatArray:
    """FLOPs of a forward pass over sequences of such lengths, one by one."""
    head = 0 if scalar_head else arch.vocab_size * arch.hidden_size
    total = 2.0 * head * lengths
    for kind in kinds_in_order(arch):
        total += 2.0 * (mixer_weights(arch, kind) + _passed_mlp(arch, kind)) * lengths
        total += _mixing(arch, kind, lengths)
    return total


def _passed_mlp(arch: ModelArchitecture, kind: LayerKind) -> int:
    """Weights of a layer's MLP that a token passes."""
    mlp = kind.mlp or ("experts" if arch.num_experts else "dense")
    hidden, matrices = arch.hidden_size, 3 if arch.gated_mlp else 2
    if mlp == "none":
        return 0
    if mlp == "dense":
        return matrices * hidden * arch.intermediate_size
    inside = arch.expert_latent_size or hidden
    chosen = arch.num_experts_per_token * matrices * inside * arch.moe_intermediate_size
    shared = matrices * hidden * arch.shared_expert_intermediate_size
    return chosen + shared + 2 * hidden * arch.expert_latent_size


def _mixing(arch: ModelArchitecture, kind: LayerKind, lengths: FloatArray) -> FloatArray:
    """FLOPs between a layer's projections: pairs of tokens, or the state."""
    mixer = kind.mixer or arch.mixer
    if mixer == "gated_delta_net" and arch.gated_delta_net:
        net = arch.gated_delta_net
        state = net.linear_num_value_heads * net.linear_key_head_dim * net.linear_value_head_dim
        return 3 * 2.0 * state * lengths
    if mixer == "mamba2" and arch.mamba2:
        space = arch.mamba2
        state = space.mamba_num_heads * space.mamba_head_dim * space.ssm_state_size
        return 2 * 2.0 * state * lengths
    if mixer != "attention":
        return np.zeros_like(lengths)
    heads, width = arch.num_attention_heads, 2 * own(kind.head_dim, arch.head_dim)
    looked: FloatArray = np.zeros_like(lengths)
    if arch.latent_attention:
        latent = arch.latent_attention
        width = latent.qk_nope_head_dim + latent.qk_rope_head_dim + latent.v_head_dim
    runs = arch.runs_indexer if kind.runs_indexer is None else kind.runs_indexer
    if arch.indexer and runs:
        every = lengths * lengths / 2.0
        looked = 2.0 * arch.indexer.index_n_heads * arch.indexer.index_head_dim * every
    return 2.0 * heads * width * _pairs(arch, kind, lengths) + looked


def _pairs(arch: ModelArchitecture, kind: LayerKind, lengths: FloatArray) -> FloatArray:
    """Pairs of tokens that attend to one another: a causal triangle, what a window cuts off it."""
    window = own(kind.sliding_window, arch.sliding_window)
    if not window and arch.indexer:
        window = arch.indexer.index_topk
    chunk = own(kind.attention_chunk_size, arch.attention_chunk_size)
    if chunk:
        rest = lengths % chunk
        return np.asarray((lengths - rest) * chunk / 2.0 + rest * rest / 2.0)
    triangle = lengths * lengths / 2.0
    if not window:
        return triangle
    return np.asarray(triangle - np.square(np.maximum(lengths - window, 0.0)) / 2.0)


def wrong_flops(subject: Subject) -> Iterator[str]:
    """Scoring calls whose model FLOPs are not those counted here."""
    workload = subject.job.spec.workload
    lengths = sequence_lengths(workload)
    for call, _ in subject.placed_calls():
        wanted = subject.calls[call.id]
        if call.kind != "forward" or wanted.model is None:
            continue
        model = subject.job.models[wanted.model]
        if model.architecture.attention_parameters_per_layer:
            continue  # its matrices are not known
        points = np.asarray(lengths.points, dtype=np.float64)
        each = forward_flops(model.architecture, points, scalar_head=model.scalar_head)
        sequences = wanted.epochs * wanted.num_sequences + wanted.extra_forward_sequences
        expected = sequences * float(each @ lengths.weights)
        found = model_flops(model, wanted, workload)
        if not math.isclose(found, expected, rel_tol=1e-6):
            yield f"call {call.id} has {found:.6e} model FLOPs, but layer by layer {expected:.6e}"
