"""FLOPs and tokens of a call that its model needs, however it is split, padded or recomputed.

The counting is that of the operators that the cost model prices: the linear layers of
`shards.attention_linears` and `shards.mlp_linears` and the output head at 2·m·n·k FLOPs a product,
and causal attention at half of its two products, as in `operators.roofline`. Attention itself is
included, by the tokens that each layer attends to, and so are recurrences of layers with a state;
routers, norms and other elementwise work are not.
"""

from collections.abc import Iterator

import numpy as np

from automap.planner.catalogue.architecture import layers_by_mixer
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.batches import LENGTH_POINTS, PROMPT_POINTS, sequence_lengths
from automap.planner.cost.layer.attended import (
    attended_squares,
    attends,
    attention_flops,
    indexer_flops,
    is_limited,
    state_flops_per_token,
)
from automap.planner.cost.memory import call_precision
from automap.planner.cost.operators.roofline import Peaks
from automap.planner.cost.shards import (
    Linear,
    attention_linears,
    expert_linears,
    latent_linears,
    mlp_linears,
)
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.layout import FloatArray
from automap.planner.spec import WorkloadSpec
from automap.planner.spec.lengths import LengthSpec


def model_flops(model: Model, call: Call, workload: WorkloadSpec) -> float:
    """FLOPs of one iteration's call on the model, over all GPUs.

    A train call is a forward pass and a backward pass of twice its FLOPs; recomputed activations
    do not count (Chowdhery et al. 2022, arXiv:2204.02311, Appendix B). Frozen weights have no
    gradient of their own: with LoRA, backward costs them another forward pass, and the adapters
    two. Generation is one forward pass over each response, and one over its prompt for all
    responses that share it.
    """
    if call.kind == "generate":
        return _generation_flops(model, call, workload)
    lengths = sequence_lengths(workload)
    layers, adapters, head = _flops_per_token(model)
    attention = _attention_flops(model, lengths.points, lengths.weights)
    tokens = lengths.mean_tokens
    if call.kind == "forward":
        each = tokens * (layers + head) + attention
    elif model.lora_rank is None:
        each = 3.0 * (tokens * (layers + head) + attention)
    else:
        each = tokens * (2.0 * (layers + head) + 3.0 * adapters) + 3.0 * attention
    return _sequences(call) * each


def tokens_processed(call: Call, workload: WorkloadSpec) -> float:
    """Tokens of one iteration's call: those generated, else those of prompts and responses.

    Where sequences are padded, that is to the longest, the padding counts, as in `model_flops`.
    """
    if call.kind == "generate":
        return call.num_sequences * workload.response_length.mean_tokens
    return _sequences(call) * sequence_lengths(workload).mean_tokens


def peak_flops_per_second(model: Model, call: Call, workload: WorkloadSpec, pool: Pool) -> float:
    """Dense peak of one of the pool's GPUs in the precision of the call's matrix products."""
    return Peaks.of(pool.gpu).flops_per_second(call_precision(model, call, workload))


def _sequences(call: Call) -> int:
    return call.epochs * call.num_sequences + call.extra_forward_sequences


def _generation_flops(model: Model, call: Call, workload: WorkloadSpec) -> float:
    shared = max(call.num_sequences // workload.prompts_per_iteration, 1)
    prompts = call.num_sequences / min(shared, workload.responses_per_prompt)
    prompt, prompt_square = _moments(workload.prompt_length, PROMPT_POINTS)
    response, response_square = _moments(workload.response_length, LENGTH_POINTS)
    layers, _, head = _flops_per_token(model)
    # A response's tokens attend to the prompt and to one another: (p + r)² − p².
    attended = 2.0 * prompt * response + response_square
    of_response = response * (layers + head) + _all_attention_flops(model, attended)
    of_prompt = prompt * layers + _all_attention_flops(model, prompt_square)
    more_response, more_prompt = _limited_attention_flops(model, workload)
    return call.num_sequences * (of_response + more_response) + prompts * (of_prompt + more_prompt)


def _moments(lengths: LengthSpec, num_points: int) -> tuple[float, float]:
    """(mean, mean of the square) of a length."""
    points, weights = lengths.discretised(num_points)
    return float(points @ weights), float(np.square(points) @ weights)


def _flops_per_token(model: Model) -> tuple[float, float, float]:
    """(layers, adapters, head): FLOPs of a token's forward pass through their products."""
    arch = model.architecture
    layers = sum(2.0 * count * _size(one) for one, count in _linears(model))
    rank = model.lora_rank or 0
    adapters = sum(
        2.0 * count * rank * float(one.inputs[0] + one.outputs[0]) for one, count in _linears(model)
    )
    head = 0.0 if model.scalar_head else 2.0 * arch.hidden_size * arch.vocab_size
    return layers, adapters, head


def _size(linear: Linear) -> float:
    return float(linear.inputs[0]) * float(linear.outputs[0])


def _linears(model: Model) -> Iterator[tuple[Linear, int]]:
    """Whole linear layers, each with how many of them a token passes."""
    arch, whole = model.architecture, np.ones(1, dtype=np.int64)
    experts = arch.num_moe_layers
    counts = [
        *((attention_linears(sizes, whole), count) for sizes, count in layers_by_mixer(arch)),
        (mlp_linears(arch, whole, arch.intermediate_size), arch.num_dense_mlp_layers),
        (expert_linears(arch, whole), experts * arch.num_experts_per_token),
        (mlp_linears(arch, whole, arch.shared_expert_intermediate_size), experts),
        (latent_linears(arch, whole), experts),
    ]
    for linears, count in counts:
        yield from ((linear, count) for linear in linears)


def _attention_flops(model: Model, lengths: FloatArray, weights: FloatArray) -> float:
    """Mean forward FLOPs of attention and recurrences in all layers over such sequences."""
    squares = float(np.square(lengths) @ weights)
    limited = 0.0
    for sizes, count in layers_by_mixer(model.architecture):
        if attends(sizes) and is_limited(sizes):
            pairs = float(attended_squares(sizes, lengths) @ weights)
            limited += count * attention_flops(sizes, pairs)
        limited += count * state_flops_per_token(sizes) * float(lengths @ weights)
    return _all_attention_flops(model, squares) + limited


def _all_attention_flops(model: Model, squared_length: float) -> float:
    """Forward FLOPs over a squared number of tokens in layers that attend to all of them.

    An indexer looks at all of them, whatever its layer attends to.
    """
    found = 0.0
    for sizes, count in layers_by_mixer(model.architecture):
        if attends(sizes) and not is_limited(sizes):
            found += attention_flops(sizes, squared_length) * count
        found += indexer_flops(sizes, squared_length) * count
    return found


def _limited_attention_flops(model: Model, workload: WorkloadSpec) -> tuple[float, float]:
    """(of a response, of a prompt): FLOPs in layers that attend to a part, or keep a state."""
    if not any(
        is_limited(sizes) or not attends(sizes) for sizes, _ in layers_by_mixer(model.architecture)
    ):
        return 0.0, 0.0
    prompts, prompt_weights = workload.prompt_length.discretised(PROMPT_POINTS)
    responses, response_weights = workload.response_length.discretised(LENGTH_POINTS)
    wholes = (prompts[:, None] + responses[None, :]).ravel()
    weights = np.asarray(np.outer(prompt_weights, response_weights).ravel(), dtype=np.float64)

    def mean(lengths: FloatArray, weights: FloatArray) -> float:
        squares = float(np.square(lengths) @ weights)
        return _attention_flops(model, lengths, weights) - _all_attention_flops(model, squares)

    of_prompt = mean(
        np.asarray(prompts, dtype=np.float64), np.asarray(prompt_weights, dtype=np.float64)
    )
    return mean(np.asarray(wholes, dtype=np.float64), weights) - of_prompt, of_prompt
