"""Turn a row into what the cost model prices: architecture, pool, layout, workload."""

import re
from collections.abc import Mapping
from functools import cache

import numpy as np
from pydantic import ValidationError

from automap.planner import catalogue
from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.stacks import STACKS
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve_pool
from automap.planner.layout import OFFLOADS, SHARDINGS, IntArray, Layouts
from automap.planner.spec import PoolSpec, TrainingStack, WorkloadSpec
from automap.planner.spec.lengths import LengthSpec
from automap.planner.validation.frameworks import FOLLOWED, NOTED, UNPRICED, Framework, framework_of
from automap.planner.validation.predictions import Assumptions, CannotPredictError
from automap.planner.validation.rows import MemoryRow, RunRow

SIZES = (
    "num_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
)
SAME_MODEL = (
    *SIZES[1:],
    "gated_mlp",
    "num_experts",
    "num_experts_per_token",
    "moe_intermediate_size",
)
"""Sizes by which a catalogue model is recognised; its depth may have been reduced."""

LATENT_ATTENTION = "multi-head latent attention"
PRODUCT_PRECISIONS = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
    "fp8": "fp8",
    "mxfp8": "fp8",
}
"""The cost model's name for the precision of matrix products; others it cannot price."""


def check_priceable(row: RunRow) -> None:
    """Refuse what the cost model has no term for.

    Raises:
        CannotPredictError: the notes name it.
    """
    note = row.note.lower()
    for phrase, reason in UNPRICED:
        if phrase in note and not _is_followed(row, phrase):
            raise CannotPredictError(reason)


def product_precision(row: RunRow) -> str:
    """Precision of the row's matrix products, as the cost model names it.

    Raises:
        CannotPredictError: it is not stated, or the cost model does not know it.
    """
    if row.precision is None:
        raise CannotPredictError("precision is not stated")
    if row.precision not in PRODUCT_PRECISIONS:
        raise CannotPredictError(f"{row.precision} is not in the cost model")
    return PRODUCT_PRECISIONS[row.precision]


def architecture_of(row: RunRow) -> ModelArchitecture:
    """The row's sizes; what no column has comes from the catalogue's model of the same sizes.

    Raises:
        CannotPredictError: sizes are missing, contradict one another, or attention is latent and
            the catalogue does not know the model.
    """
    sizes = {name: getattr(row, name) for name in SIZES}
    if row.num_experts and not row.num_dense_layers:
        # No layer has a dense MLP whose width could be stated.
        sizes["intermediate_size"] = row.intermediate_size or row.moe_intermediate_size
    missing = [name for name, size in sizes.items() if size is None]
    if missing:
        raise CannotPredictError(f"{missing[0]} is not stated")
    sizes["gated_mlp"] = row.gated_mlp != 0
    sizes["tied_embeddings"] = row.tied_embeddings == 1
    if row.num_experts:
        width = row.moe_intermediate_size or 0
        sizes |= {
            "num_experts": row.num_experts,
            "num_experts_per_token": row.num_experts_per_token or 0,
            "moe_intermediate_size": width,
            "shared_expert_intermediate_size": (row.num_shared_experts or 0) * width,
            "num_dense_layers": row.num_dense_layers or 0,
        }
    known = _known(row.model, tuple(sizes.get(name, 0) for name in SAME_MODEL))
    if known is None and LATENT_ATTENTION in row.note.lower():
        raise CannotPredictError("latent attention of a model that the catalogue does not have")
    base = known.model_dump() if known is not None else {}
    if base.get("layer_kinds"):
        sizes.pop("num_dense_layers", None)  # the kinds say which layers are dense
    try:
        return ModelArchitecture.model_validate(base | sizes)
    except ValidationError as error:
        raise CannotPredictError(f"architecture: {error.errors()[0]['msg']}") from None


def _is_followed(row: RunRow, phrase: str) -> bool:
    """Whether the notes only say what the catalogue knows of the model's layers."""
    if phrase not in FOLLOWED:
        return False
    try:
        return bool(architecture_of(row).layer_kinds)
    except CannotPredictError:
        return False


def _known(name: str, sizes: tuple[object, ...]) -> ModelArchitecture | None:
    """The catalogue's model of these sizes; of several, the one of that name, or the first."""
    same = _catalogue_models().get(sizes, {})
    named = catalogue.find_model(name)
    first = next(iter(same.values()), None)
    return first if named is None else same.get(named.name, first)


@cache
def _catalogue_models() -> dict[tuple[object, ...], dict[str, ModelArchitecture]]:
    """Architectures of the catalogue by name, by the sizes that distinguish models."""
    found: dict[tuple[object, ...], dict[str, ModelArchitecture]] = {}
    for name, entry in catalogue.architectures().items():
        sizes = tuple(getattr(entry.architecture, field) for field in SAME_MODEL)
        found.setdefault(sizes, {})[name] = entry.architecture
    return found


def pool_of(row: RunRow, assumptions: Assumptions) -> Pool:
    """A pool of the row's nodes with the catalogue's links, or the network that its notes state.

    Raises:
        CannotPredictError: the sizes contradict those of the GPU's nodes.
    """
    per_node = (
        row.gpus_per_node
        or catalogue.node_type(catalogue.gpu_type(row.gpu_type).node).gpus_per_node
    )
    num_nodes = -(-row.num_gpus // per_node)
    stated = stated_port(row.note, per_node)
    pool = pool_with(row.gpu_type, num_nodes, per_node, stated)
    if row.num_gpus > pool.nvlink_domain_gpus and stated is None:
        assumptions.add("network between nodes: the catalogue's for this GPU")
    return pool


@cache
def pool_with(
    gpu: str, num_nodes: int, gpus_per_node: int, inter_node_bytes_per_second: float | None
) -> Pool:
    """A pool of nodes with the catalogue's figures for a GPU.

    Raises:
        CannotPredictError: the sizes contradict those of the GPU's nodes.
    """
    given = PoolSpec(
        name="measured",
        gpu=gpu,
        num_nodes=num_nodes,
        gpus_per_node=gpus_per_node,
        inter_node_bytes_per_second=inter_node_bytes_per_second,
    )
    try:
        return resolve_pool(given, field="row")
    except SpecError as error:
        raise CannotPredictError(f"{error.field}: {error.message}") from None


def stated_port(text: str, gpus_per_node: int) -> float | None:
    """Bytes per second and GPU of a network as notes and `fabric` put it; None: not stated.

    Read are "8 x 200 Gb/s … per node", "4 Omni-Path (100 Gb/s) links per node", "3200 Gb/s per
    node", "400 Gbps (per node, …)" and "400 Gb/s per GPU".
    """
    rate = r"(\d+) ?(?:Gb/s|Gbps)"
    several = re.search(rf"(\d+) ?x ?{rate}[^;]*per node", text) or re.search(
        r"(\d+) [\w-]+ \((\d+) Gb/s\) links per node", text
    )
    if several:
        return int(several[1]) * int(several[2]) * 1e9 / 8 / gpus_per_node
    whole = re.search(rf"{rate} \(?per node", text)
    if whole:
        return int(whole[1]) * 1e9 / 8 / gpus_per_node
    each = re.search(rf"{rate} per GPU", text)
    return int(each[1]) * 1e9 / 8 if each else None


def column(value: int) -> IntArray:
    """A column of one row."""
    return np.array([value], dtype=np.int64)


def layout_of(row: RunRow, defaults: Framework, assumptions: Assumptions) -> Layouts:
    """The row's layout; what it leaves out is 1, data parallelism what is left of the GPUs.

    Raises:
        CannotPredictError: the GPUs are no multiple of the stated sizes.
    """
    tensor, pipeline = row.tensor_parallel_size or 1, row.pipeline_parallel_size or 1
    context = row.context_parallel_size or 1
    inner = tensor * pipeline * context
    data = row.data_parallel_size or row.num_gpus // inner
    if inner * data != row.num_gpus:
        raise CannotPredictError("num_gpus is no multiple of the stated parallel sizes")
    expert = row.expert_parallel_size or 1
    if expert > 1 and not row.num_experts:
        raise CannotPredictError("expert parallelism without experts")
    if pipeline > 1 and row.virtual_pipeline_parallel_size is None:
        assumptions.add("virtual_pipeline_parallel_size not stated: 1")
    splits = splits_sequences(row, defaults)
    if tensor > 1 and row.sequence_parallel == 0 and splits:
        assumptions.add("sequence parallelism is priced although the run had none")
    if tensor > 1 and row.sequence_parallel == 1 and not splits:
        assumptions.add("no sequence parallelism is priced although the run had it")
    if row.sharding is None and row.num_gpus > 1:
        assumptions.add(
            f"sharding not stated: {defaults.sharding} ({defaults.name}: {defaults.why})"
        )
    sizes = {
        "num_gpus": row.num_gpus,
        "tensor_parallel_size": tensor,
        "pipeline_parallel_size": pipeline,
        "virtual_pipeline_parallel_size": row.virtual_pipeline_parallel_size or 1,
        "context_parallel_size": context,
        "data_parallel_size": data,
        "expert_parallel_size": expert,
        "sharding": SHARDINGS.index(row.sharding or defaults.sharding),
        "offload": OFFLOADS.index("none"),
    }
    return Layouts(**{name: column(size) for name, size in sizes.items()})


def memory_stack_of(defaults: Framework) -> TrainingStack:
    """The stack that prices the bytes of a framework's runs."""
    return defaults.memory_stack or defaults.training_stack


def stack_of(row: RunRow, defaults: Framework) -> TrainingStack:
    """The stack that prices what the row measured: seconds, or bytes."""
    return memory_stack_of(defaults) if isinstance(row, MemoryRow) else defaults.training_stack


def splits_sequences(row: RunRow, defaults: Framework) -> bool:
    """Whether the row is priced with sequence parallelism."""
    return STACKS[stack_of(row, defaults)].sequence_parallel


def framework(row: RunRow, assumptions: Assumptions) -> Framework:
    """The framework behind a row; its notes' departures from the cost model become assumptions."""
    note = row.note.lower()
    for phrase, text in NOTED:
        if phrase in note and not _is_followed(row, phrase):
            assumptions.add(text)
    return framework_of_row(row)


def framework_of_row(row: RunRow) -> Framework:
    """The framework behind a row."""
    return framework_of(
        row.source,
        getattr(row, "workload", None),
        row.num_gpus,
        splits_sequences=row.sequence_parallel == 1,
        note=row.note,
        sharding=row.sharding,
    )


def constant(tokens: int) -> LengthSpec:
    """A length without spread."""
    return LengthSpec(mean=tokens, max=tokens)


def whole_sequences(
    num_sequences: int,
    tokens: int,
    *,
    product_precision: str,
    training_stack: TrainingStack,
    settings: Mapping[str, object],
) -> WorkloadSpec:
    """A batch of equally long sequences; the planner splits them into prompt and response.

    Training reads only their sum, so the split (all but one token is prompt) does not matter.
    Where products are in 8 bits, everything else is in bf16. `settings`: further fields.

    Raises:
        CannotPredictError: a sequence has fewer than 2 tokens.
    """
    if tokens < 2:
        raise CannotPredictError("sequence_length below 2 tokens")
    document = {
        "prompts_per_iteration": num_sequences,
        "prompt_length": constant(tokens - 1),
        "response_length": constant(1),
        "precision": "bf16" if product_precision == "fp8" else product_precision,
        "training_precision": product_precision,
        "training_stack": training_stack,
        **settings,
    }
    try:
        return WorkloadSpec.model_validate(document)
    except ValidationError as error:
        raise CannotPredictError(f"workload: {error.errors()[0]['msg']}") from None
