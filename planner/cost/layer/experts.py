"""Seconds of one micro-batch in a layer with routed experts: dispatch, experts, combine.

Routing is balanced and drops nothing. Every GPU of an expert group sends its tokens' copies to the
GPUs of their experts and gets the results back; in between it multiplies what it received, a
product per local expert, because training frameworks run grouped products.
"""

import numpy as np

from automap.planner.cost import constants
from automap.planner.cost.communication import collective_seconds
from automap.planner.cost.layer.transformer_layer import (
    KernelContext,
    MicroBatch,
    UnitSeconds,
    add,
    collective,
    context_exchange,
    elementwise_seconds,
    layer_attention,
    layer_seconds,
    linears_seconds,
    scaled,
    tensor_pair,
)
from automap.planner.cost.operators.profile import Timed
from automap.planner.cost.rows import ceil_div
from automap.planner.cost.shards import (
    Linear,
    attention_linears,
    expert_linears,
    expert_shards,
    latent_linears,
    mlp_linears,
)


def moe_layer_seconds(context: KernelContext, batch: MicroBatch) -> UnitSeconds:
    """Seconds of one layer with routed experts: attention, dispatch, experts, combine."""
    arch, tensor = context.model.architecture, batch.tensor_parallel_size
    linears: tuple[Linear, ...] = attention_linears(arch, tensor) + latent_linears(arch, tensor)
    # A layer with a mixer gathers and scatters around it; the experts have their exchange.
    around = 1.0 if arch.mixer != "none" else 0.0
    width = arch.num_experts_per_token * arch.moe_intermediate_size // tensor
    communication = add(
        scaled(tensor_pair(context, batch), around), expert_exchange(context, batch)
    )
    if arch.shared_expert_intermediate_size:
        linears += mlp_linears(arch, tensor, arch.shared_expert_intermediate_size)
        width = width + ceil_div(arch.shared_expert_intermediate_size, tensor)
        communication = add(communication, tensor_pair(context, batch))
    forward, backward = linears_seconds(context, batch.tokens, linears)
    experts, experts_backward = experts_seconds(context, batch)
    sorting = permutation_seconds(context, batch)
    biases, biases_backward = bias_seconds(context, batch)
    attention = layer_attention(context, batch)
    return layer_seconds(
        context,
        forward=add(forward, experts, sorting, biases),
        backward=add(backward, experts_backward, sorting, biases_backward),
        attention=attention,
        elementwise=elementwise_seconds(context, batch, width),
        communication=communication,
        exchange=context_exchange(context, batch, attention[0]),
        num_sequences=batch.num_sequences,
        least_seconds=context.stack.expert_layer_seconds,
    )


def experts_seconds(context: KernelContext, batch: MicroBatch) -> tuple[Timed, Timed]:
    """(forward, backward) seconds of a GPU's routed experts: one product after the other, balanced.

    A grouped product is about as fast as its parts; the profile's fused expert kernels belong to
    inference engines. What arrives for products in 8 bits is cast by a kernel of its own.
    """
    arch, tensor = context.model.architecture, batch.tensor_parallel_size
    shards, inside = expert_shards(
        tensor_parallel_size=tensor, expert_parallel_size=batch.expert_parallel_size
    )
    group_tokens = ceil_div(batch.tokens * shards, tensor)
    rows = ceil_div(group_tokens * arch.num_experts_per_token, arch.num_experts)
    linears = expert_linears(arch, inside)
    trained = context if context.adapters == "all" else context.frozen
    forward, backward = linears_seconds(trained, rows, linears)
    local = ceil_div(arch.num_experts, batch.expert_parallel_size)
    launch = 2.0 * constants.LAUNCH_SECONDS
    if context.product_bytes < context.element_bytes:
        if context.stack.memory.eight_bit_copy_bytes:  # else each product casts its own input
            operands = rows * (linears[0].inputs + linears[1].inputs)
            forward = add(forward, context.profile.memory_bound(constants.CAST_BYTES * operands))
        launch += 2.0 * constants.EXPERT_OPERAND_HOST_SECONDS
    # The number of tokens of each expert is known after the dispatch; before, nothing is launched.
    least = 0.0 if context.drops_tokens else launch
    return (
        scaled(Timed(np.maximum(forward.seconds, least), forward.source), local),
        scaled(Timed(np.maximum(backward.seconds, least), backward.source), local),
    )


def permutation_seconds(context: KernelContext, batch: MicroBatch) -> Timed:
    """Seconds to sort token copies by expert and sum them again: memory traffic of one direction.

    A token is read and its k copies written, and the other way round for the results. Where
    copies travel, both sides sort them once more by local expert (read and write each).
    """
    arch, group = context.model.architecture, batch.expert_parallel_size
    copies = arch.num_experts_per_token
    per_token = np.where(group > 1, 6 * copies + 2, 2 * copies + 2) * arch.expert_hidden_size
    tokens = ceil_div(batch.tokens, batch.tensor_parallel_size)
    return context.profile.memory_bound(context.element_bytes * per_token * tokens)


def bias_seconds(context: KernelContext, batch: MicroBatch) -> tuple[Timed, Timed]:
    """(forward, backward) seconds that biases of routed experts add, by bytes moved; 0 without.

    A grouped product does not add them to its result: that is weighted with a token's
    probability, in fp32, by one eager kernel after another (Megatron-core 0.16,
    `TEGroupedMLP._apply_bias`; backward its gradients, and sums over tokens of both biases').
    """
    arch = context.model.architecture
    if not arch.linear_bias:
        nothing = Timed(np.zeros(len(batch)), np.zeros(len(batch), dtype=np.int64))
        return nothing, nothing
    shards, inside = expert_shards(
        tensor_parallel_size=batch.tensor_parallel_size,
        expert_parallel_size=batch.expert_parallel_size,
    )
    copies = ceil_div(batch.tokens * shards, batch.tensor_parallel_size)
    copies = ceil_div(copies * arch.num_experts_per_token, batch.expert_parallel_size)
    up = ceil_div(arch.moe_intermediate_size, inside) * (2 if arch.gated_mlp else 1)
    after = constants.BIAS_FORWARD_BYTES * arch.expert_hidden_size
    back = constants.BIAS_BACKWARD_BYTES * arch.expert_hidden_size + context.element_bytes * up
    return context.profile.memory_bound(copies * after), context.profile.memory_bound(copies * back)


def expert_exchange(context: KernelContext, batch: MicroBatch) -> Timed:
    """Seconds to send tokens to their experts and the results back.

    There are two all-to-alls, and a gather and a scatter inside an expert that is itself split.

    Nothing runs beside them, so no software makes them shorter than the tables.
    """
    arch, expert = context.model.architecture, batch.expert_parallel_size
    shards, inside = expert_shards(
        tensor_parallel_size=batch.tensor_parallel_size, expert_parallel_size=expert
    )
    token = arch.expert_hidden_size * context.element_bytes
    own = ceil_div(batch.tokens, batch.tensor_parallel_size) * token
    copies = np.where(expert > 1, arch.num_experts_per_token, 1)
    exchange = collective_seconds(
        context.pool,
        context.profile,
        "all_to_all",
        own * copies,
        group_size=expert,
        stride=shards // expert,
    )
    gathered = own * copies * inside
    return add(
        scaled(exchange, 2.0),
        collective(context, "all_gather", gathered, group_size=inside, stride=1),
        collective(context, "reduce_scatter", gathered, group_size=inside, stride=1),
    )
