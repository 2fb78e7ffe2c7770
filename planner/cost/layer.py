"""Seconds of one micro-batch in a transformer layer.

Operators come from the profile; the backward pass is the same operators at other shapes: a
product (m, k) × (k, n) has the data gradient (m, n) × (n, k) and the weight gradient
(k, m) × (m, n). Communication is Megatron's with sequence parallelism.
"""

from dataclasses import dataclass

import numpy as np

from planner.cluster import Pool
from planner.cost import constants
from planner.cost.attention import attention_seconds
from planner.cost.batches import SequenceLengths
from planner.cost.communication import Collective, collective_seconds
from planner.cost.operators import TRAINING_COLLECTOR
from planner.cost.profile import Profile, Timed
from planner.cost.rows import ceil_div
from planner.cost.shards import (
    Linear,
    attention_linears,
    expert_shards,
    local_key_value_heads,
    mlp_linears,
)
from planner.cost.stacks import STACKS, SoftwareStack
from planner.job import Model
from planner.layout import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One pass over a micro-batch, one row each."""

    tensor_parallel_size: IntArray
    context_parallel_size: IntArray
    expert_parallel_size: IntArray
    num_sequences: IntArray
    tokens: IntArray
    """Of the whole tensor group: this context rank's share of the micro-batch."""

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Setting:
    """What every operator of a call shares."""

    model: Model
    pool: Pool
    profile: Profile
    precision: str
    lengths: SequenceLengths
    product_precision: str | None = None
    """Of the layers' matrix products where it differs (fp8 recipes); the rest keeps `precision`."""
    stack: SoftwareStack = STACKS["megatron-core"]
    """Of training and scoring; an inference engine reads none of it."""

    @property
    def element_bytes(self) -> int:
        """Bytes of one activation."""
        return constants.PRECISION_BYTES[self.precision]


@dataclass(frozen=True, slots=True)
class UnitSeconds:
    """Seconds of a layer (or embedding, or head) for one micro-batch, one row each."""

    forward: FloatArray
    backward: FloatArray
    selective: FloatArray
    """What selective recomputation repeats in the backward pass."""
    forward_communication: FloatArray
    backward_communication: FloatArray
    source: IntArray

    def take(self, rows: IntArray) -> "UnitSeconds":
        """The given rows, in that order."""
        return UnitSeconds(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def add(*parts: Timed) -> Timed:
    """Seconds summed, the weakest provenance kept."""
    seconds, source = parts[0]
    for part in parts[1:]:
        seconds = seconds + part.seconds
        source = np.maximum(source, part.source)
    return Timed(seconds, source)


def scaled(timed: Timed, factor: FloatArray | IntArray | float) -> Timed:
    """Seconds times a factor, provenance as it is."""
    return Timed(timed.seconds * factor, timed.source)


def _product(setting: Setting, m: IntArray, n: IntArray | int, k: IntArray | int) -> Timed:
    """C[m, n] = A[m, k]·B[k, n] at the rate that lasts."""
    precision = setting.product_precision or setting.precision
    collector = TRAINING_COLLECTOR if precision == "fp8" else None
    short = setting.profile.gemm(m, n, k, precision=precision, collector=collector)
    return scaled(short, 1.0 / constants.SUSTAINED_SHARE)


def _linear(setting: Setting, tokens: IntArray, linear: Linear) -> tuple[Timed, Timed]:
    """(forward, backward) seconds of a product; frozen weights have no weight gradient."""
    forward = _product(setting, tokens, linear.outputs, linear.inputs)
    data_gradient = _product(setting, tokens, linear.inputs, linear.outputs)
    rank = setting.model.lora_rank
    if not setting.model.trainable:
        return forward, data_gradient
    if rank is None:
        weight = _product(setting, linear.inputs, linear.outputs, tokens)
        traffic = constants.GRADIENT_TRAFFIC_BYTES * linear.inputs * linear.outputs
        return forward, add(data_gradient, weight, setting.profile.memory_bound(traffic))
    adapter = add(
        _product(setting, tokens, rank, linear.inputs),
        _product(setting, tokens, linear.outputs, rank),
    )
    return add(forward, adapter), add(data_gradient, scaled(adapter, 2.0))


def linears_seconds(
    setting: Setting, tokens: IntArray, linears: tuple[Linear, ...]
) -> tuple[Timed, Timed]:
    """(forward, backward) seconds of several products over the same tokens."""
    pairs = [_linear(setting, tokens, one) for one in linears]
    return add(*(pair[0] for pair in pairs)), add(*(pair[1] for pair in pairs))


def _attention(setting: Setting, batch: MicroBatch) -> tuple[Timed, Timed]:
    return attention_seconds(
        setting.model.architecture,
        setting.pool,
        setting.profile,
        setting.stack,
        setting.lengths,
        precision=setting.precision,
        tensor_parallel_size=batch.tensor_parallel_size,
        context_parallel_size=batch.context_parallel_size,
        num_sequences=batch.num_sequences,
    )


def _elementwise(setting: Setting, batch: MicroBatch, width: IntArray) -> Timed:
    """Norms, residuals, rotary and activation forward of one layer: bytes moved.

    Two norms read and write h, two residual sums read 2h and write h, over 1/t of the tokens;
    rotary reads and writes queries and keys; the activation reads `width` (twice when gated).
    """
    arch, tensor = setting.model.architecture, batch.tensor_parallel_size
    rotary = 2 * (arch.query_size + arch.key_value_size) / tensor
    activation = width * (3 if arch.gated_mlp else 2)
    per_token = 10 * arch.hidden_size / tensor + rotary + activation
    kernels = 6.0
    num_bytes = np.asarray(setting.element_bytes * per_token * batch.tokens, dtype=np.float64)
    passes = setting.stack.elementwise_passes
    return scaled(setting.profile.memory_bound(passes * num_bytes / kernels), kernels)


def collective(
    setting: Setting,
    name: Collective,
    num_bytes: FloatArray | IntArray,
    *,
    group_size: IntArray,
    stride: IntArray | int,
) -> Timed:
    """Seconds of a collective as this software runs it."""
    alone = collective_seconds(
        setting.pool, setting.profile, name, num_bytes, group_size=group_size, stride=stride
    )
    return scaled(alone, setting.stack.collective_slowdown)


def tensor_pair(setting: Setting, batch: MicroBatch) -> Timed:
    """The all-gather before and the reduce-scatter after a block, in the tensor group.

    What is gathered for products in fp8 is cast before it travels.
    """
    elements = batch.tokens * setting.model.architecture.hidden_size
    gathered = constants.PRECISION_BYTES[setting.product_precision or setting.precision]
    group = batch.tensor_parallel_size
    return add(
        collective(setting, "all_gather", elements * gathered, group_size=group, stride=1),
        collective(
            setting,
            "reduce_scatter",
            elements * setting.element_bytes,
            group_size=group,
            stride=1,
        ),
    )


def _context_ring(setting: Setting, batch: MicroBatch, attention: Timed) -> Timed:
    """What of the ring's c − 1 key-value exchanges attention does not hide, forward."""
    arch, context = setting.model.architecture, batch.context_parallel_size
    heads = local_key_value_heads(arch, batch.tensor_parallel_size)
    size = 2 * heads * arch.head_dim * setting.element_bytes * batch.tokens
    step = collective(
        setting, "send_recv", size, group_size=context, stride=batch.tensor_parallel_size
    )
    rest = np.maximum(step.seconds - attention.seconds / context, 0.0)
    exposed = np.asarray(rest * (context - 1), dtype=np.float64)
    return Timed(exposed, np.where(context > 1, step.source, 0))


def dense_layer_seconds(setting: Setting, batch: MicroBatch) -> UnitSeconds:
    """One layer with a dense MLP: two all-gather + reduce-scatter pairs each way."""
    arch, tensor = setting.model.architecture, batch.tensor_parallel_size
    linears = attention_linears(arch, tensor) + mlp_linears(arch, tensor, arch.intermediate_size)
    forward, backward = linears_seconds(setting, batch.tokens, linears)
    attention = _attention(setting, batch)
    elementwise = _elementwise(setting, batch, ceil_div(arch.intermediate_size, tensor))
    return _layer(
        setting,
        forward=forward,
        backward=backward,
        attention=attention,
        elementwise=elementwise,
        communication=scaled(tensor_pair(setting, batch), 2.0),
        ring=_context_ring(setting, batch, attention[0]),
    )


def moe_layer_seconds(setting: Setting, batch: MicroBatch) -> UnitSeconds:
    """One layer with routed experts: attention as ever, dispatch, experts, combine."""
    arch, tensor = setting.model.architecture, batch.tensor_parallel_size
    linears: tuple[Linear, ...] = attention_linears(arch, tensor)
    width = arch.num_experts_per_token * arch.moe_intermediate_size // tensor
    communication = add(tensor_pair(setting, batch), expert_exchange(setting, batch))
    if arch.shared_expert_intermediate_size:
        linears += mlp_linears(arch, tensor, arch.shared_expert_intermediate_size)
        width = width + ceil_div(arch.shared_expert_intermediate_size, tensor)
        communication = add(communication, tensor_pair(setting, batch))
    forward, backward = linears_seconds(setting, batch.tokens, linears)
    experts, experts_backward = experts_seconds(setting, batch)
    attention = _attention(setting, batch)
    return _layer(
        setting,
        forward=add(forward, experts),
        backward=add(backward, experts_backward),
        attention=attention,
        elementwise=_elementwise(setting, batch, width),
        communication=communication,
        ring=_context_ring(setting, batch, attention[0]),
    )


def experts_seconds(setting: Setting, batch: MicroBatch) -> tuple[Timed, Timed]:
    """(forward, backward) of a GPU's routed experts: one product after the other, balanced.

    Training frameworks run a grouped product, about as fast as its parts; the profile's fused
    expert kernels belong to inference engines.
    """
    arch, tensor = setting.model.architecture, batch.tensor_parallel_size
    shards, inside = expert_shards(
        tensor_parallel_size=tensor, expert_parallel_size=batch.expert_parallel_size
    )
    group_tokens = ceil_div(batch.tokens * shards, tensor)
    rows = ceil_div(group_tokens * arch.num_experts_per_token, arch.num_experts)
    linears = mlp_linears(arch, inside, arch.moe_intermediate_size)
    forward, backward = linears_seconds(setting, rows, linears)
    local = ceil_div(arch.num_experts, batch.expert_parallel_size)
    return scaled(forward, local), scaled(backward, local)


def expert_exchange(setting: Setting, batch: MicroBatch) -> Timed:
    """Tokens to their experts and back: two all-to-alls, gather and scatter inside an expert."""
    arch, expert = setting.model.architecture, batch.expert_parallel_size
    shards, inside = expert_shards(
        tensor_parallel_size=batch.tensor_parallel_size, expert_parallel_size=expert
    )
    token = arch.hidden_size * setting.element_bytes
    own = ceil_div(batch.tokens, batch.tensor_parallel_size) * token
    copies = np.where(expert > 1, arch.num_experts_per_token, 1)
    exchange = collective(
        setting, "all_to_all", own * copies, group_size=expert, stride=shards // expert
    )
    gathered = own * copies * inside
    return add(
        scaled(exchange, 2.0),
        collective(setting, "all_gather", gathered, group_size=inside, stride=1),
        collective(setting, "reduce_scatter", gathered, group_size=inside, stride=1),
    )


def _layer(
    setting: Setting,
    *,
    forward: Timed,
    backward: Timed,
    attention: tuple[Timed, Timed],
    elementwise: Timed,
    communication: Timed,
    ring: Timed,
) -> UnitSeconds:
    """Assemble a layer; elementwise kernels move twice the bytes backward."""
    there = add(forward, attention[0], elementwise)
    back = add(backward, attention[1], scaled(elementwise, 2.0))
    host = setting.profile.host_work(setting.stack.name)
    moved = add(communication, ring)
    moved_back = add(communication, scaled(ring, 2.0))
    return UnitSeconds(
        forward=np.maximum(there.seconds, host.layer_forward_seconds),
        backward=np.maximum(back.seconds, host.layer_backward_seconds),
        selective=attention[0].seconds + elementwise.seconds,
        forward_communication=moved.seconds,
        backward_communication=moved_back.seconds,
        source=add(there, back, moved).source,
    )
