"""Predict training rows: seconds of one optimizer step, and peak bytes of the fullest GPU."""

import re
from dataclasses import dataclass, fields, replace

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import constants, memory
from automap.planner.cost.batches import micro_batches, sequence_lengths
from automap.planner.cost.estimates import BytesColumns, CallEstimates
from automap.planner.cost.layer.activations import activation_bytes
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.training.train_call import price_train
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.layout import RECOMPUTES, SOURCES, IntArray, Layouts
from automap.planner.spec import LoraSpec, WorkloadSpec
from automap.planner.validation.frameworks import Framework
from automap.planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from automap.planner.validation.rows import MemoryRow, RunRow, TrainingRow
from automap.planner.validation.subjects import (
    architecture_of,
    check_priceable,
    column,
    framework,
    layout_of,
    pool_of,
    product_precision,
    stack_of,
    whole_sequences,
)

TOKENS_DROPPED = "token dropping"
"""Lower-case part of `notes` where experts take a fixed number of tokens."""
FULLEST_STAGE = "maximum over first and last stage"
"""Lower-case part of `notes`: the memory printed is that of the fullest pipeline stage."""


@dataclass(frozen=True, slots=True)
class Run:
    """A priced training run: what it keeps, and what a step takes and adds."""

    pool: Pool
    layouts: Layouts
    resident: BytesColumns
    step: CallEstimates
    printed_activations: int | None
    """Bytes of activations on the first pipeline stage, where that stage's memory was printed."""


def predict_training(
    row: TrainingRow, assumptions: Assumptions
) -> dict[str, Estimate | CannotPredictError]:
    """Predict the seconds of one optimizer step.

    Raises:
        CannotPredictError: the row leaves out a size, or the cost model has no term for it.
    """
    step = _price(row, row.workload, assumptions).step
    seconds = step.seconds
    parts = {
        f"{part.name}_seconds": float(getattr(seconds, part.name)[0]) for part in fields(seconds)
    }
    return {
        "iteration_seconds": Estimate(float(seconds.total[0]), parts, SOURCES[int(step.source[0])])
    }


def predict_memory(
    row: MemoryRow, assumptions: Assumptions
) -> dict[str, Estimate | CannotPredictError]:
    """Predict peak bytes as `measured_by` counts them, and whether a plan would be refused.

    nvidia-smi sees the CUDA context as well; PyTorch's allocator sees neither that nor NCCL's
    channel buffers. The verdict compares with the memory that a plan may fill.

    Raises:
        CannotPredictError: the row leaves out a size, or the cost model has no term for it.
    """
    run = _price(row, row.workload, assumptions)
    transient = run.step.transient
    kinds = {
        kind.name: int(getattr(run.resident, kind.name)[0] + getattr(transient, kind.name)[0])
        for kind in fields(transient)
    }
    needed = sum(kinds.values())
    if run.printed_activations is not None:
        kinds["activations"], kinds["logits"] = run.printed_activations, 0
        assumptions.add("the memory printed is taken as that of the first pipeline stage")
    nccl = int(memory.nccl_bytes(run.layouts)[0])
    if row.measured_by == "nvidia-smi":
        allocated = sum(kinds.values()) - nccl
        share = constants.FRAGMENTATION_SHARE
        kinds["fragmentation"] = int(allocated * share / (1.0 - share))
        kinds["context"] = constants.CONTEXT_BYTES
    else:
        kinds["communication_buffers"] -= nccl
    parts = {f"{name}_bytes": float(size) for name, size in kinds.items()}
    too_much = float(needed > memory.usable_bytes(run.pool))
    return {
        "peak_memory_bytes": Estimate(sum(parts.values()), parts),
        "out_of_memory": Estimate(too_much, parts),
    }


def _price(row: RunRow, workload_kind: str, assumptions: Assumptions) -> Run:
    """Price the row's step through the planner's own functions."""
    check_priceable(row)
    if workload_kind in ("layer", "qlora"):
        raise CannotPredictError(f"workload {workload_kind} is not in the cost model")
    defaults = framework(row, assumptions)
    rank = _lora_rank(row, workload_kind, assumptions)
    architecture = _trained_architecture(row, defaults, assumptions)
    model = Model("actor", architecture, False, True, rank)
    # Bytes do not depend on the network.
    pool = pool_of(row, Assumptions() if isinstance(row, MemoryRow) else assumptions)
    layouts = layout_of(row, defaults, assumptions)
    micro_batch = row.micro_batch_size
    if micro_batch is None:
        micro_batch = 1
        assumptions.add("micro_batch_size not stated: 1")
    data_parallel = int(layouts.data_parallel_size[0])
    packed = _packed_samples(row, workload_kind, defaults, assumptions)
    workload = _workload(row, defaults, micro_batch, data_parallel, packed, assumptions)
    call = _train_call(workload)
    recompute = column(RECOMPUTES.index(_recompute(row, defaults, assumptions)))
    step = price_train(
        model,
        call,
        workload,
        pool,
        load_profile(pool.gpu),
        layouts,
        micro_batch_size=column(micro_batch * packed),
        recompute=recompute,
        adapters=defaults.adapters,
        drops_tokens=TOKENS_DROPPED in row.note.lower(),
    )
    resident = _resident_bytes(model, workload, pool, layouts, defaults, assumptions)
    printed = None
    if defaults.prints_first_stage and FULLEST_STAGE not in row.note.lower():
        printed = _first_stage_bytes(
            model, call, workload, layouts, micro_batch * packed, recompute
        )
    return Run(pool, layouts, resident, step, printed)


def _trained_architecture(
    row: RunRow, defaults: Framework, assumptions: Assumptions
) -> ModelArchitecture:
    """The row's architecture as its framework builds it."""
    architecture = architecture_of(row)
    if not architecture.tied_embeddings or defaults.ties_embeddings:
        return architecture
    assumptions.add(f"the head is a copy of the embeddings ({defaults.name}: it ties none)")
    return architecture.model_copy(update={"tied_embeddings": False})


def _resident_bytes(
    model: Model,
    workload: WorkloadSpec,
    pool: Pool,
    layouts: Layouts,
    defaults: Framework,
    assumptions: Assumptions,
) -> BytesColumns:
    """Bytes that the copy holds, without optimizer state that its recipe paged to the host."""
    resident, _ = memory.home_resident_bytes(model, workload, layouts)
    if not defaults.pages_optimizer or resident.total[0] <= pool.gpu.memory_bytes:
        return resident
    assumptions.add("the optimizer's state is paged to the host, as the GPU cannot hold it")
    return replace(resident, optimizer=np.zeros_like(resident.optimizer))


def _first_stage_bytes(
    model: Model,
    call: Call,
    workload: WorkloadSpec,
    layouts: Layouts,
    micro_batch: int,
    recompute: IntArray,
) -> int | None:
    """Bytes of activations on the first pipeline stage; None where it is the only one."""
    if layouts.pipeline_parallel_size[0] == 1:
        return None
    size = column(micro_batch)
    _, num_micro_batches = micro_batches(
        call.num_sequences,
        data_parallel_size=layouts.data_parallel_size,
        micro_batch_size=size,
    )
    activations, _ = activation_bytes(
        model,
        workload,
        sequence_lengths(workload),
        layouts,
        micro_batch_size=size,
        num_micro_batches=num_micro_batches,
        recompute=recompute,
        first_stage=True,
    )
    return int(activations[0])


def _workload(
    row: RunRow,
    defaults: Framework,
    micro_batch: int,
    data_parallel: int,
    packed: int,
    assumptions: Assumptions,
) -> WorkloadSpec:
    """The row's batch; every sequence is `packed` samples that attention keeps apart."""
    if row.sequence_length is None:
        raise CannotPredictError("sequence_length is not stated")
    batch = row.global_batch_size
    if batch is None:
        batch = micro_batch * data_parallel
        assumptions.add("global_batch_size not stated: one micro-batch per data-parallel rank")
    return whole_sequences(
        batch * packed,
        row.sequence_length // packed,
        product_precision=product_precision(row),
        training_stack=stack_of(row, defaults),
    )


def _packed_samples(
    row: RunRow, workload_kind: str, defaults: Framework, assumptions: Assumptions
) -> int:
    """Samples in one sequence; 1 where sequences are not packed."""
    tokens = defaults.packed_sample_tokens
    if tokens is None or row.sequence_length is None or workload_kind not in ("sft", "lora"):
        return 1
    assumptions.add(f"length of packed samples not stated: {tokens} tokens")
    return max(row.sequence_length // tokens, 1)


def _train_call(workload: WorkloadSpec) -> Call:
    """One optimizer step over the whole batch."""
    return Call(
        id="actor.train",
        role="actor",
        model="actor",
        kind="train",
        num_sequences=workload.num_sequences,
        num_updates=1,
    )


def _lora_rank(row: RunRow, workload_kind: str, assumptions: Assumptions) -> int | None:
    """The adapters' rank: as the notes state it ("lora32"), or the planner's default."""
    stated = re.search(r"lora ?(\d+)", row.note, re.IGNORECASE)
    if stated:
        return int(stated[1])
    if workload_kind != "lora":
        return None
    rank = LoraSpec().rank
    assumptions.add(f"adapter rank not stated: {rank}")
    return rank


def _recompute(row: RunRow, defaults: Framework, assumptions: Assumptions) -> str:
    if row.recompute is None:
        assumptions.add(
            f"recompute not stated: {defaults.recompute} ({defaults.name}: {defaults.why})"
        )
    return row.recompute or defaults.recompute
