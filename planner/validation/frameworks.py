"""Defaults of the frameworks behind published runs, used where a row does not state a setting.

A row's `source` names the project; each project has documented defaults. Nothing here is fitted.
"""

import re
from dataclasses import dataclass
from typing import Literal

from automap.planner.cost.layer.transformer_layer import Adapters
from automap.planner.spec import SelectiveRecompute, TrainingStack


@dataclass(frozen=True, slots=True)
class Framework:
    """Documented defaults of a training framework."""

    name: str
    phrases: tuple[str, ...]
    """Lower-case names in `source` that identify it: its own or its repository's, whole words."""
    training_stack: TrainingStack
    """Stack with whose constants the cost model prices it (planner/cost/stacks.py)."""
    sharding: Literal["none", "optimizer", "gradient", "full"]
    recompute: Literal["none", "selective", "full"]
    why: str
    adapters: Adapters = "all"
    """Linear layers to which its finetuning recipes add an adapter."""
    packed_sample_tokens: int | None = None
    """Length of the samples that finetuning packs into one sequence; None: it packs none."""
    noted: tuple[str, ...] = ()
    """Lower-case words of `notes` that identify it where `source` names no software."""
    workloads: tuple[str, ...] = ()
    """Workloads of a table that these defaults are for; empty: all."""
    several_gpus: bool | None = None
    """True: for runs on several GPUs only; False: for runs on one; None: for both."""
    splits_sequences: bool = False
    """Whether these are the defaults of runs alone that state sequence parallelism."""
    ties_embeddings: bool = True
    """Whether a model that ties its embeddings is trained so; else the head is a copy."""
    pages_optimizer: bool = False
    """Whether its recipes page optimizer state to the host where the GPU cannot hold it."""
    memory_stack: TrainingStack | None = None
    """Stack whose memory constants it has, where they are not those of `training_stack`."""
    selective: SelectiveRecompute | None = None
    """What its selective recomputation makes again, where that is not what its stack does."""
    gradient_precision: Literal["bf16"] | None = None
    """Precision of gradients in its published runs, where that is not what its stack has."""
    fp8_param_gather: bool = False
    """Whether its 8-bit recipes keep the weights of the layers in 8 bits alone."""
    prints_first_stage: bool = False
    """Whether its published memory is that of the first pipeline stage, unless notes say otherwise.
    """

    @property
    def reason(self) -> str:
        """Text for an assumption: whose default it is, and why."""
        return f"({self.name}: {self.why})"


FRAMEWORKS: tuple[Framework, ...] = (
    Framework(
        "MaxText",
        ("maxtext",),
        "fsdp",
        "full",
        "selective",
        "weights sharded over the fsdp axis; GPU recipes keep the products and repeat the rest",
        noted=("maxtext", "jax"),
    ),
    Framework(
        "Megatron-LM of 2022",
        ("korthikanti",),
        "megatron-2022",
        "none",
        "none",
        "the distributed optimizer and recomputation are options",
        splits_sequences=True,
    ),
    Framework(
        "Megatron-LM of 2021 and 2022",
        ("sc21", "korthikanti"),
        "megatron-2021",
        "none",
        "none",
        "the distributed optimizer and recomputation are options",
    ),
    Framework(
        "Megatron-DeepSpeed of 2021",
        ("v100 tuning",),
        "megatron-2021",  # one node, so DeepSpeed's slow exchange between nodes does not show
        "optimizer",
        "none",
        "ZeRO stage 1; no --checkpoint-activations is the default",
        memory_stack="megatron-deepspeed",
        prints_first_stage=True,  # Rank 0 logs. Runs fail whose printed memory is far from full.
    ),
    Framework(
        "Megatron-DeepSpeed",
        ("bigscience",),
        "megatron-deepspeed",
        "optimizer",
        "none",
        "ZeRO stage 1; no --checkpoint-activations is the default",
        prints_first_stage=True,
    ),
    Framework(
        "NeMo-RL",
        ("nemo-rl",),
        "nemo-rl",
        "optimizer",
        "full",
        "distributed optimizer; activation_checkpointing, as one published layout (8B, whole on "
        "each of 8 H100) does not fit without it",
    ),
    Framework(
        "verl",
        ("verl",),
        "verl",
        "full",
        "full",
        "FSDP2; enable_gradient_checkpointing is its default",
    ),
    Framework(
        "NeMo / Megatron-Bridge",
        ("megatron-bridge", "nvidia/nemo", "nemo-megatron-launcher"),
        "megatron-core",
        "optimizer",
        "none",
        "recipes train with the distributed optimizer and recompute nothing unless stated",
        adapters="query-key-value",
        packed_sample_tokens=200,
        # scripts/performance/helpers.py (NeMo 2.4): grad_reduce_in_fp32 = False for all; recipes
        # of mixed precision: fp8_param_gather = True.
        gradient_precision="bf16",
        fp8_param_gather=True,
    ),
    Framework(
        "Megatron-LM",
        ("megatron-lm",),
        "megatron-core",
        "optimizer",
        "none",
        "example scripts pass --use-distributed-optimizer; no --recompute-… option is the default",
        fp8_param_gather=True,  # examples/llama/train_llama3_8b_h100_fp8.sh: --fp8-param-gather
    ),
    Framework(
        "llm-foundry",
        ("llm-foundry",),
        "fsdp-eager",
        "full",
        "none",
        "FSDP with Triton attention, not compiled; activation checkpointing is an option",
    ),
    Framework(
        "torchtitan",
        ("torchtitan",),
        "fsdp",
        "full",
        "none",
        "fully sharded data parallelism; activation checkpointing is an option",
        memory_stack="torchtitan",
        selective="alternate_products",
        noted=("torchtitan",),
    ),
    Framework(
        "fms-fsdp",
        ("fms-fsdp",),
        "fsdp",
        "full",
        "none",
        "fully sharded data parallelism; activation checkpointing is an option",
        selective="alternate_blocks",
    ),
    Framework(
        "LitGPT, all weights on several GPUs",
        ("litgpt",),
        "pytorch-bf16",
        "optimizer",
        "full",
        "FSDP with activation checkpointing of every block; weights and gradients stay whole while "
        "gradients accumulate (no_sync)",
        workloads=("pretrain", "sft"),
        several_gpus=True,
        ties_embeddings=False,
    ),
    Framework(
        "LitGPT, all weights on one GPU",
        ("litgpt",),
        "pytorch-bf16",
        "none",
        "none",
        "no strategy, so nothing is recomputed",
        workloads=("pretrain", "sft"),
        several_gpus=False,
        ties_embeddings=False,
        pages_optimizer=True,
    ),
    Framework(
        "LitGPT, adapters",
        ("litgpt",),
        "pytorch-bf16",
        "none",
        "none",
        "single-device recipes; the tables print the same memory for several devices",
        ties_embeddings=False,
    ),
)
UNKNOWN = Framework(
    "unknown framework",
    (),
    "megatron-core",
    "optimizer",
    "none",
    "the most common setting of published runs",
)
UNKNOWN_SHARDED = Framework(
    "unknown framework, fully sharded",
    (),
    "fsdp",
    "full",
    "none",
    "fully sharded data parallelism is PyTorch's or alike",
)
COLLECTIONS = {"dgx cloud benchmarking": "NeMo / Megatron-Bridge"}
"""Phrases of `source` of collections with runs of several frameworks: that of most of them."""

NOTED: tuple[tuple[str, str], ...] = (
    ("sliding window", "sliding-window layers are priced with full attention"),
    ("chunked attention", "chunked-attention layers are priced with full attention"),
    ("async tp", "tensor-parallel communication is priced as exposed (the run overlapped it)"),
    ("in every other layer", "layers of a kind are priced as if the dense ones came first"),
    ("rowwise", "scales of whole tensors are priced (the run had one per row)"),
    ("hybrid sharding", "hybrid sharding is priced as sharding over all data-parallel ranks"),
)
"""Phrases of `notes` (lower case) that name what the cost model does not follow."""

UNPRICED: tuple[tuple[str, str], ...] = (
    ("gated linear attention", "gated linear attention is not in the cost model"),
    ("optimizer offloaded to cpu", "an optimizer step on the CPU is not in the cost model"),
    ("base weights quantised to 4 bits", "4-bit base weights are not in the cost model"),
)
"""Phrases of `notes` (lower case) for which there is no prediction."""

FOLLOWED = frozenset(
    {"sliding window", "chunked attention", "in every other layer", "gated linear attention"}
)
"""Phrases of `notes` that the cost model follows where the catalogue has the model's layers."""


def framework_of(
    source: str,
    workload: str | None = None,
    num_gpus: int = 1,
    *,
    splits_sequences: bool = False,
    note: str = "",
    sharding: str | None = None,
) -> Framework:
    """The framework behind a row, by what it states.

    `source` names it, or `note` does where that is no name. Else full sharding says that it shards
    as FSDP does, and a collection of runs has a usual one. Where nothing does it is `UNKNOWN`.
    """
    for one in FRAMEWORKS:
        fits = not one.workloads or workload in one.workloads
        fits = fits and one.several_gpus in (None, num_gpus > 1)
        fits = fits and (splits_sequences or not one.splits_sequences)
        if fits and _names(source, one.phrases):
            return one
    for one in FRAMEWORKS:
        if _names(note, one.noted):
            return one
    if sharding == "full":
        return UNKNOWN_SHARDED
    usual = [name for phrase, name in COLLECTIONS.items() if _names(source, (phrase,))]
    return next((one for one in FRAMEWORKS if one.name in usual), UNKNOWN)


def _names(text: str, phrases: tuple[str, ...]) -> bool:
    """Whether a text has one of the phrases in whole words, capitals or not."""
    lower = text.lower()
    return any(re.search(rf"(?<![a-z0-9]){re.escape(one)}(?![a-z0-9])", lower) for one in phrases)
