"""Training software by name: the few constants in which frameworks and their generations differ.

Everything else of the cost model holds for all of them. Constants of speed have priors from physics
and papers, and are fitted with `python -m benchmarks.fit_training TABLE.csv` on published training
runs; one that does not lower the errors of runs left out of the fit is the level of all stacks
(docs/concepts/accuracy.md has the errors). What a stack keeps in memory is not fitted; `python -m
benchmarks.fit_memory TABLE.csv` tells how wrong it is.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from automap.planner.cost import constants
from automap.planner.spec import SelectiveRecompute, TrainingStack, WorkloadSpec
from automap.planner.targets.capabilities import ContextParallelism


@dataclass(frozen=True, slots=True)
class StackMemory:
    """What one kind of training software keeps on a GPU; the defaults are Megatron-core's.

    Nothing here is fitted: each is what the software's documentation or source says.
    """

    gradient_bytes: int = constants.GRADIENT_BYTES
    """Bytes of gradients per trained parameter, kept through all micro-batches of a step."""
    accumulation_bytes: int = 0
    """Bytes per trained parameter of a buffer of its own in which gradients of micro-batches
    are summed; sharded where gradients are."""
    master_bytes: int = constants.MASTER_BYTES
    """Bytes of the optimizer's copy of the weights per trained parameter; 0 where it updates 16-bit
    weights themselves."""
    moment_bytes: int = constants.MOMENT_BYTES
    """Bytes per trained parameter and moment of the optimizer."""
    masters_are_weights: bool = False
    """Fully sharded weights that train lie as the optimizer's masters do, and are cast when they
    are gathered; no 16-bit copy lies beside them."""
    gradients_on_demand: bool = False
    """Gradients come into being in the backward pass, while activations go, and are freed at the
    step (zero_grad(set_to_none=True)); otherwise their buffers stay."""
    step_bytes: int = 0
    """Bytes of gradient copies that the optimizer makes at its step, per parameter it updates. The
    caching allocator has no blocks of their size, so they add to what the passes took."""
    bucket_bytes: int = 0
    """Bytes of the flat buffer through which gradients are reduced."""
    logit_bytes: int = constants.TRAIN_LOGITS_BYTES
    """Bytes per logit in training."""
    scored_logit_bytes: int = constants.FORWARD_LOGITS_BYTES
    """Bytes per logit in scoring."""
    logit_chunk_bytes: int = 0
    """Bytes of fp32 logits on a GPU that exist at a time: training and scoring make those of a few
    tokens after the other, and the backward pass makes them again and sums the head's gradient in
    fp32. 0 where those of a whole micro-batch are there."""
    eight_bit_copy_bytes: int = 0
    """Bytes per weight that 8-bit copies take while a call computes: the cast copy and its
    transpose, which the products of all its micro-batches share. 0 where weights are cast anew for
    each product."""
    eight_bit_weights: bool = False
    """The weights of the layers are kept in 8 bits alone; the masters are their precise copy."""
    keeps_eight_bit_inputs: bool = False
    """With products in 8 bits, what a weight gradient needs of a product's input is kept in 8 bits,
    as the product read it; otherwise in 16, to be cast again."""
    selective: SelectiveRecompute = "core_attention"
    """What selective recomputation makes again."""
    keeps_outputs: bool = False
    """A pipeline stage keeps what it has sent until the backward pass of that micro-batch."""
    norm_elements: int = 1
    """16-bit elements that an RMSNorm keeps for each one of its input: one where it is a fused
    kernel, more where it is plain PyTorch operations in fp32. Frozen ones keep one less,
    which is not counted."""
    keeps_activation: bool = False
    """A gated MLP keeps its activation apart from the product with the other half, as plain PyTorch
    operations do."""
    repeats_heads: bool = False
    """Attention keeps a copy of keys and values per query head."""


@dataclass(frozen=True, slots=True)
class SoftwareStack:
    """Constants of one kind of training software: its speed relative to the operator tables."""

    name: TrainingStack
    summary: str
    attention: Literal["flash", "unfused"]
    """flash: one kernel that never stores the scores. unfused: product, masked softmax, product,
    from the time when models had dropout; scores and masks wait for the backward pass."""
    attention_share: float
    """Rate of attention over the operator tables' kernel (flash), or over the products and the
    traffic of the scores (unfused), forward and backward, before the GPU generation's share
    (planner/cost/gpu_generations.py)."""
    elementwise_passes: float
    """Memory traffic of norms, residuals and activations over what is counted of them."""
    collective_slowdown: float
    """Exposed seconds of collectives over the tables' in isolation: below 1 where the software
    overlaps tensor-parallel collectives, above 1 where it copies, casts or waits around them."""
    host_work: Literal["megatron-core", "fsdp"]
    """The framework whose measured host work applies, where a profile has measured it."""
    fuses_elementwise: bool = True
    """Norms, rotary embeddings and activations are a kernel each, of a compiler or written by hand;
    otherwise PyTorch's operations, one kernel after the other."""
    sequence_parallel: bool = True
    """Tensor groups split norms, residual sums and what they keep among their ranks (Korthikanti et
    al. 2022, arXiv:2205.05198); otherwise every rank has all tokens there."""
    overlaps_data: bool = True
    """Gradients are reduced and weights gathered beside the passes; otherwise after and before
    them."""
    overlaps_stages: bool = False
    """Messages between interleaved pipeline stages travel beside another chunk's compute."""
    expert_layer_seconds: float = 0.0
    """Least time of one layer with experts forward, twice that backward, whatever the GPU: the host
    launches dispatch, experts and combine piece by piece and waits for the dispatch in between.
    0 where CUDA graphs, fused permutation or large micro-batches hide it."""
    context_parallelism: ContextParallelism = "ring"
    """How attention comes by the whole sequence, of which each context rank has a slice."""
    balances_tokens: bool = False
    """Data ranks have equally many tokens, and so have micro-batches, which are filled up to a
    number of them. Otherwise each takes the next so many sequences, however long they are."""
    memory: StackMemory = StackMemory()


def _in_chunks(memory: StackMemory) -> StackMemory:
    """The memory of a stack whose logits are those of automap's executor.

    executor/engines/log_probs.py has CHUNK_BYTES of them at a time. Scoring: a chunk's while the
    next one's are divided by the temperature, fp32 each (3 x 4). Backward: log-probabilities, two
    gradients in fp32, and one in 16 bits (3 x 4 + 2).
    """
    return replace(memory, logit_bytes=14, scored_logit_bytes=12, logit_chunk_bytes=256 * 2**20)


MEGATRON_CORE = SoftwareStack(
    "megatron-core",
    "Megatron-core with Transformer Engine, 2024 and later",
    attention="flash",
    attention_share=0.85,
    elementwise_passes=0.86,
    collective_slowdown=0.87,
    host_work="megatron-core",
    overlaps_stages=True,
    # transformer_engine/pytorch/module/base.py: weight workspaces, kept from the first micro-batch;
    # linear.py: the quantised input is what is saved. Recipes pick recompute_modules.
    memory=StackMemory(eight_bit_copy_bytes=2, keeps_eight_bit_inputs=True, selective="modules"),
)
FSDP = SoftwareStack(
    "fsdp",
    "PyTorch FSDP (or XLA) with a compiler and FlashAttention-2, 2024 and later",
    attention="flash",
    attention_share=0.6,
    elementwise_passes=0.98,
    collective_slowdown=1.15,
    host_work="fsdp",
    context_parallelism="ulysses",
    # fully_shard(mp_policy=...) shards fp32 parameters and casts what it gathers.
    memory=StackMemory(masters_are_weights=True, selective="products"),
)
TRANSFORMERS = replace(
    FSDP,
    name="transformers",
    summary="FSDP2 or ZeRO over Transformers' modules without a compiler, 2025",
    # Not fitted: rates are those of FSDP. Modules are not compiled, unless a launch asks for it.
    fuses_elementwise=False,
    # modeling_qwen2.py (transformers 5): an RMSNorm keeps
    # its input in fp32 and, in 16 bits, what it multiplies with its weight; down_proj(act_fn(gate)
    # * up) keeps all four. verl compiles the entropy alone (workers/engine/fsdp, 0.9.1).
    memory=replace(FSDP.memory, norm_elements=3, keeps_activation=True),
)
MEGATRON_2021 = SoftwareStack(
    "megatron-2021",
    "Megatron-LM before flash attention, 2021 and 2022",
    attention="unfused",
    attention_share=0.73,
    elementwise_passes=0.98,
    collective_slowdown=1.05,
    host_work="megatron-core",
    sequence_parallel=False,
    overlaps_data=False,
    # Gradients of fp16 runs are accumulated and reduced in fp16, after the passes, and cast
    # for the step (megatron/optimizer/optimizer.py, 2.x).
    memory=StackMemory(gradient_bytes=2, step_bytes=4),
)

STACKS: dict[TrainingStack, SoftwareStack] = {
    stack.name: stack
    for stack in (
        MEGATRON_CORE,
        replace(
            MEGATRON_CORE,
            name="nemo-rl",
            summary="Megatron-core in NeMo-RL 0.4 to 0.6: packed sequences, no CUDA graphs, 2025",
            expert_layer_seconds=3.2e-3,  # python -m benchmarks.fit_rlhf TABLE.csv
            balances_tokens=True,
        ),
        replace(
            MEGATRON_CORE,
            name="verl-megatron",
            summary="Megatron-core in verl, 2025: packed sequences, balanced over ranks",
            # verl/utils/megatron_utils.py (0.9.1): overlap_grad_reduce is False unless overridden,
            # as it is by default in Megatron-core, and the weights' all-gather follows it. Nor are
            # tensor-parallel collectives overlapped (tp_comm_overlap); stages are, with virtual
            # ones.
            overlaps_data=False,
            collective_slowdown=1.0,
            balances_tokens=True,
            memory=replace(MEGATRON_CORE.memory, selective="core_attention"),  # its default
        ),
        replace(
            MEGATRON_CORE,
            name="automap-megatron",
            summary="Megatron-core in automap's executor: gradients are reduced after the passes",
            # executor/engines/megatron leaves overlap_grad_reduce, tp_comm_overlap and
            # overlap_p2p_comm at their defaults: off. engines/micro_batches.py fills.
            overlaps_data=False,
            overlaps_stages=False,
            collective_slowdown=1.0,
            balances_tokens=True,
            memory=_in_chunks(replace(MEGATRON_CORE.memory, selective="core_attention")),
        ),
        FSDP,
        TRANSFORMERS,
        replace(
            TRANSFORMERS,
            name="verl",
            summary="FSDP2 in verl, 2025: Transformers' modules, packed and balanced sequences",
            balances_tokens=True,
        ),
        replace(
            TRANSFORMERS,
            name="transformers-filled",
            summary="transformers with micro-batches filled with tokens",
            balances_tokens=True,
        ),
        replace(
            TRANSFORMERS,
            name="automap-fsdp",
            summary="transformers-filled in automap's executor: logits in chunks",
            balances_tokens=True,
            memory=_in_chunks(TRANSFORMERS.memory),
        ),
        replace(
            FSDP,
            name="torchtitan",
            summary="FSDP2 in torchtitan, 2024: every other product kept, the loss in fp32",
            # torchtitan/components/loss.py: F.cross_entropy of fp32 logits keeps log-probabilities,
            # and its backward writes their gradient and that of the logits.
            # distributed/activation_checkpoint.py: every second mm is made again.
            memory=replace(FSDP.memory, selective="alternate_products", logit_bytes=12),
        ),
        SoftwareStack(
            "fsdp-eager",
            "PyTorch FSDP without a compiler, Triton attention, 2023",
            attention="flash",
            attention_share=0.43,
            elementwise_passes=0.98,
            collective_slowdown=1.15,
            host_work="fsdp",
            context_parallelism="ulysses",
            # llmfoundry/models/mpt/modeling_mpt.py: loss_fn is fused_crossentropy, whose kernel
            # reads 16-bit logits and writes their gradient.
            memory=StackMemory(masters_are_weights=True, selective="products", logit_bytes=4),
        ),
        MEGATRON_2021,
        replace(
            MEGATRON_2021,
            name="megatron-2022",
            summary="Megatron-LM before flash attention, with sequence parallelism, 2022",
            sequence_parallel=True,
            # Figure 1 of arXiv:2205.05198 has 18 bytes per parameter: fp32 gradients.
            memory=StackMemory(),
        ),
        SoftwareStack(
            "megatron-deepspeed",
            "Megatron-LM on DeepSpeed's pipeline engine, before flash attention, 2022",
            attention="unfused",
            attention_share=0.57,
            elementwise_passes=0.98,
            collective_slowdown=1.7,
            host_work="megatron-core",
            sequence_parallel=False,
            overlaps_data=False,  # PipelineEngine reduces after the last backward pass.
            # deepspeed/runtime/zero/stage_1_and_2.py (0.6): 16-bit gradients are flattened (2) and
            # cast to fp32 (4) at the step; reduce_bucket_size is 5e8 elements of 2 bytes.
            memory=StackMemory(
                gradient_bytes=2,
                step_bytes=6,
                bucket_bytes=1_000_000_000,
                # The loss of that time subtracts the maximum into a second fp32 copy.
                logit_bytes=constants.TRAIN_LOGITS_BYTES + 4,
                keeps_outputs=True,
            ),
        ),
        SoftwareStack(
            "pytorch-bf16",
            "Plain PyTorch without a compiler, all state in bf16 (LitGPT's bf16-true), 2024",
            # Not fitted: no published step times; as PyTorch without a compiler was in 2023.
            attention="flash",
            attention_share=0.43,
            elementwise_passes=0.98,
            collective_slowdown=1.15,
            host_work="fsdp",
            fuses_elementwise=False,
            context_parallelism="ulysses",
            memory=StackMemory(
                gradient_bytes=2,
                gradients_on_demand=True,
                master_bytes=0,
                moment_bytes=2,
                # litgpt/model.py: RMSNorm multiplies with its weight in fp32; keys are expanded.
                norm_elements=4,
                keeps_activation=True,
                repeats_heads=True,
            ),
        ),
    )
}


def stack_of(workload: WorkloadSpec) -> SoftwareStack:
    """The software that a workload is priced as, with what the workload sets of its memory.

    Megatron-core where it names none.
    """
    return _with_settings(
        STACKS[workload.training_stack or MEGATRON_CORE.name],
        workload.gradient_precision,
        workload.gradient_accumulation_precision,
        workload.fp8_param_gather,
        workload.selective_recompute,
    )


@lru_cache(maxsize=256)
def _with_settings(
    stack: SoftwareStack,
    gradients: str | None,
    accumulation: str | None,
    eight_bit_weights: bool,
    selective: SelectiveRecompute | None,
) -> SoftwareStack:
    kept = stack.memory
    if gradients is not None:
        kept = replace(kept, gradient_bytes=constants.PRECISION_BYTES[gradients])
    if accumulation is not None:
        own = 0 if accumulation == gradients else constants.PRECISION_BYTES[accumulation]
        kept = replace(kept, accumulation_bytes=own)
    if eight_bit_weights:
        # The weight itself is the cast copy; its transpose is left.
        kept = replace(
            kept, eight_bit_weights=True, eight_bit_copy_bytes=kept.eight_bit_copy_bytes - 1
        )
    if selective is not None:
        kept = replace(kept, selective=selective)
    return stack if kept is stack.memory else replace(stack, memory=kept)
