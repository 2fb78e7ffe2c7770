"""Rules on what a model's layers hold, counted here layer by layer from the sizes alone.

The cost model counts kinds of layers and multiplies; this walks from the first layer to the last.
What it finds is a lower bound: norms, biases, padding and replicated heads come on top.
"""

from collections.abc import Iterator

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.layer_kinds import LayerKind
from automap.planner.check.subject import Subject
from automap.planner.plan.types import CallPlan, CopyPlan

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
STATE_BYTES = 4
OTHER_STATE = ("megatron-deepspeed", "pytorch-bf16")
"""Training stacks that keep gradients, moments or masters otherwise than in fp32."""
PLAIN = LayerKind(letter="=")


def kinds_in_order(arch: ModelArchitecture) -> Iterator[LayerKind]:
    """The kind of every layer, first to last."""
    by_letter = {kind.letter: kind for kind in arch.layer_kinds}
    for layer in range(arch.num_layers):
        if arch.layer_pattern:
            yield by_letter[arch.layer_pattern[layer % len(arch.layer_pattern)]]
        elif layer < arch.num_dense_layers:
            yield LayerKind(letter="=", mlp="dense")
        else:
            yield PLAIN


def matrix_parameters(arch: ModelArchitecture) -> int:
    """Weights of all matrices: the embedding, the layers, the head."""
    tables = 1 if arch.tied_embeddings else 2
    layers = sum(mixer_weights(arch, kind) + _mlp(arch, kind) for kind in kinds_in_order(arch))
    return tables * arch.vocab_size * arch.hidden_size + layers


def cache_bytes(arch: ModelArchitecture, *, tokens: int, element_bytes: int) -> int:
    """Bytes that a sequence of so many tokens has in all layers, whole on one GPU."""
    total = 0
    for kind in kinds_in_order(arch):
        mixer = kind.mixer or arch.mixer
        if mixer == "attention":
            window = own(kind.sliding_window, arch.sliding_window)
            window = window or own(kind.attention_chunk_size, arch.attention_chunk_size)
            kept = min(tokens, window) if window else tokens
            total += kept * _token_bytes(arch, kind, element_bytes)
        elif mixer == "gated_delta_net" and arch.gated_delta_net:
            net = arch.gated_delta_net
            keys, values = net.linear_num_key_heads, net.linear_num_value_heads
            total += STATE_BYTES * values * net.linear_key_head_dim * net.linear_value_head_dim
            channels = 2 * keys * net.linear_key_head_dim + values * net.linear_value_head_dim
            total += 2 * channels * (net.linear_conv_kernel_dim - 1)
        elif mixer == "mamba2" and arch.mamba2:
            space = arch.mamba2
            inner = space.mamba_num_heads * space.mamba_head_dim
            total += STATE_BYTES * inner * space.ssm_state_size
            channels = inner + 2 * space.n_groups * space.ssm_state_size
            total += 2 * channels * (space.conv_kernel - 1)
    return total


def own(size: int | None, usual: int) -> int:
    """A size of a kind of layer, or the model's where it has none of its own."""
    return usual if size is None else size


def _token_bytes(arch: ModelArchitecture, kind: LayerKind, element_bytes: int) -> int:
    if arch.latent_attention is not None:
        latent = arch.latent_attention
        elements = latent.kv_lora_rank + latent.qk_rope_head_dim
        own_indexer = arch.runs_indexer if kind.runs_indexer is None else kind.runs_indexer
        if arch.indexer is not None and own_indexer:
            elements += arch.indexer.index_head_dim
        return elements * element_bytes
    if arch.key_value_bytes_per_token_per_layer:
        return arch.key_value_bytes_per_token_per_layer * element_bytes // 2
    heads = own(kind.num_key_value_heads, arch.num_key_value_heads)
    return 2 * heads * own(kind.head_dim, arch.head_dim) * element_bytes


def mixer_weights(arch: ModelArchitecture, kind: LayerKind) -> int:
    """Weights of the matrices that mix tokens in a layer."""
    hidden, mixer = arch.hidden_size, kind.mixer or arch.mixer
    if mixer == "gated_delta_net" and arch.gated_delta_net:
        net = arch.gated_delta_net
        keys = net.linear_num_key_heads * net.linear_key_head_dim
        values = net.linear_num_value_heads * net.linear_value_head_dim
        return hidden * (2 * keys + 3 * values + 2 * net.linear_num_value_heads)
    if mixer == "mamba2" and arch.mamba2:
        space = arch.mamba2
        inner = space.mamba_num_heads * space.mamba_head_dim
        groups = 2 * space.n_groups * space.ssm_state_size
        return hidden * (3 * inner + groups + space.mamba_num_heads)
    if mixer != "attention":
        return 0
    if arch.attention_parameters_per_layer:
        return arch.attention_parameters_per_layer
    return _latent(arch, kind) if arch.latent_attention else _attention(arch, kind)


def _attention(arch: ModelArchitecture, kind: LayerKind) -> int:
    width = own(kind.head_dim, arch.head_dim)
    query = arch.num_attention_heads * width
    key = own(kind.num_key_value_heads, arch.num_key_value_heads) * width
    shared = arch.shared_key_value if kind.shared_key_value is None else kind.shared_key_value
    queries = 3 * query if arch.attention_output_gate else 2 * query
    return arch.hidden_size * (queries + (key if shared else 2 * key))


def _latent(arch: ModelArchitecture, kind: LayerKind) -> int:
    latent = arch.latent_attention
    assert latent is not None, "asked before"
    hidden, heads = arch.hidden_size, arch.num_attention_heads
    query = heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim)
    rank = latent.q_lora_rank
    total = rank * (hidden + query) if rank else hidden * query
    total += hidden * (latent.kv_lora_rank + latent.qk_rope_head_dim)
    total += latent.kv_lora_rank * heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    total += heads * latent.v_head_dim * hidden
    own_indexer = arch.runs_indexer if kind.runs_indexer is None else kind.runs_indexer
    if arch.indexer is not None and own_indexer:
        width = arch.indexer.index_head_dim
        total += (rank or hidden) * arch.indexer.index_n_heads * width
        total += hidden * (width + arch.indexer.index_n_heads)
    return total


def _mlp(arch: ModelArchitecture, kind: LayerKind) -> int:
    """Weights of the matrices of a layer's MLP, or of its experts and what is around them."""
    mlp = kind.mlp or ("experts" if arch.num_experts else "dense")
    hidden, matrices = arch.hidden_size, 3 if arch.gated_mlp else 2
    if mlp == "dense":
        return matrices * hidden * arch.intermediate_size
    if mlp == "none":
        return 0
    inside = arch.expert_latent_size or hidden
    experts = arch.num_experts * (hidden + matrices * inside * arch.moe_intermediate_size)
    shared = matrices * hidden * arch.shared_expert_intermediate_size
    return experts + shared + 2 * hidden * arch.expert_latent_size


def lost_layers(subject: Subject) -> Iterator[str]:
    """Copies that cannot hold their model's matrices, and caches too small for one sequence."""
    for copy in subject.plan.copies:
        yield from _copy_holds_its_matrices(subject, copy)
        yield from _copy_holds_its_state(subject, copy)
    for call, copy in subject.placed_calls():
        if call.kind == "generate":
            yield from _cache_holds_a_sequence(subject, call, copy)


def _copy_holds_its_matrices(subject: Subject, copy: CopyPlan) -> Iterator[str]:
    """GPUs over which every weight lies once have at least the bytes of all matrices."""
    workload, layout = subject.job.spec.workload, copy.layout
    precision: str = workload.precision
    if copy.kind == "shadow":
        precision = workload.rollout_precision or precision
    if precision not in BYTES or copy.offload == "weights":
        return
    gpus = copy.num_gpus if layout.sharding == "full" else holders(copy)
    model = subject.job.models[copy.role]
    arch = model.architecture
    tables = (1 if arch.tied_embeddings else 2) * arch.vocab_size * arch.hidden_size
    layers, size = matrix_parameters(arch) - tables, BYTES[precision]
    if model.scalar_head:
        tables = arch.vocab_size * arch.hidden_size
    low = workload.fp8_param_gather and model.trainable and model.lora_rank is None
    kept = BYTES["fp8"] if low and copy.kind == "home" else size
    needed = kept * layers + size * tables
    held = gpus * copy.bytes_by_kind.weights
    if held < needed:
        yield (
            f"copy {copy.id} holds {held} bytes of weights on {gpus} GPUs, but the layers, the "
            f"embedding and the head of its model have {needed}"
        )


def _copy_holds_its_state(subject: Subject, copy: CopyPlan) -> Iterator[str]:
    """A copy that trains has the gradients, moments and masters of its matrices.

    Sharded they lie once on all GPUs of the copy, otherwise once on those that hold the weights.
    Fully sharded weights may be the masters. A plan states the bytes of the GPU that is the fullest
    over all kinds, and of unequal stages that one may have less state than others.
    """
    workload, model = subject.job.spec.workload, subject.job.models[copy.role]
    stages, shape = copy.layout.pipeline_parallel_size, model.architecture
    if stages > 1 and (shape.num_layers % stages or shape.num_dense_layers or shape.layer_kinds):
        return
    trains = model.trainable and model.lora_rank is None and copy.kind == "home"
    if not trains or copy.offload != "none" or workload.training_stack in OTHER_STATE:
        return
    arch, sharding, held = model.architecture, copy.layout.sharding, copy.bytes_by_kind
    parameters = matrix_parameters(arch)
    if model.scalar_head and not arch.tied_embeddings:
        parameters -= arch.vocab_size * arch.hidden_size
    kept = workload.gradient_precision or "fp32"
    summed = workload.gradient_accumulation_precision or kept
    gradient = BYTES[kept] + (BYTES[summed] if summed != kept else 0)
    moments = 2 * BYTES["fp32"] if workload.optimizer == "adam" else 0
    masters = 0 if workload.precision == "fp32" else BYTES["fp32"]
    on_host = copy.host_bytes if workload.optimizer_cpu_offload else 0
    updated = held.optimizer + on_host + (held.weights if sharding == "full" else 0)
    kinds = (
        ("gradients", held.gradients, gradient, ("gradient", "full")),
        ("optimizer state", updated, moments + masters, ("optimizer", "gradient", "full")),
    )
    for name, found, size, sharded in kinds:
        gpus = copy.num_gpus if sharding in sharded else holders(copy)
        if gpus * found < size * parameters:
            yield (
                f"copy {copy.id} holds {gpus * found} bytes of {name} on {gpus} GPUs, but its "
                f"matrices have {size * parameters}"
            )


def holders(copy: CopyPlan) -> int:
    """GPUs over which every weight of a copy lies once, where nothing is sharded."""
    layout = copy.layout
    replica = layout.tensor_parallel_size * layout.pipeline_parallel_size
    return replica * max(1, layout.expert_parallel_size // layout.tensor_parallel_size)


def _cache_holds_a_sequence(subject: Subject, call: CallPlan, copy: CopyPlan) -> Iterator[str]:
    """A replica's GPUs together have room for the longest sequence."""
    workload, engine = subject.job.spec.workload, call.parallelism
    assert engine is not None, "the references were checked"
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    element = BYTES[workload.rollout_cache_precision]
    arch = subject.job.models[copy.role].architecture
    needed = cache_bytes(arch, tokens=longest, element_bytes=element)
    gpus = engine.tensor_parallel_size * engine.pipeline_parallel_size
    if gpus * (call.kv_cache_bytes or 0) < needed:
        yield (
            f"call {call.id} has {gpus} × {call.kv_cache_bytes} cache bytes, but its longest "
            f"sequence has {needed} in all layers"
        )
