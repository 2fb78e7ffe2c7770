"""Predict training rows: seconds of one optimizer step, and peak bytes of the fullest GPU."""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice

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
from automap.planner.spec import LoraSpec, TrainingStack, WorkloadSpec
from automap.planner.validation.frameworks import Framework
from automap.planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from automap.planner.validation.rows import MemoryRow, RunRow, TrainingRow
from automap.planner.validation.run_settings import (
    MemorySettings,
    memory_settings,
    recompute_levels,
)
from automap.planner.validation.subjects import (
    architecture_of,
    check_priceable,
    column,
    framework,
    layout_of,
    memory_stack_of,
    pool_of,
    product_precision,
    whole_sequences,
)

TOKENS_DROPPED = "token dropping"
"""Lower-case part of `notes` where experts take a fixed number of tokens."""
RESERVED = "reserved by the allocator"
"""Lower-case part of `notes`: the memory printed includes blocks of the allocator not in use."""
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

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes of a GPU at the peak, of residents and of the step together."""
        resident, transient = self.resident, self.step.transient
        return {
            kind.name: int(getattr(resident, kind.name)[0] + getattr(transient, kind.name)[0])
            for kind in fields(transient)
        }

    @property
    def peak_bytes(self) -> int:
        """Bytes of a GPU at the peak, as a plan counts them."""
        return sum(self.bytes_by_kind.values())

    @property
    def fits(self) -> bool:
        """Whether the memory that a plan may fill holds it."""
        return self.peak_bytes <= memory.usable_bytes(self.pool)


def predict_training(
    row: TrainingRow, assumptions: Assumptions
) -> dict[str, Estimate | CannotPredictError]:
    """Predict the seconds of one optimizer step.

    Raises:
        CannotPredictError: the row leaves out a size, or the cost model has no term for it.
    """
    step = price_run(row, row.workload, assumptions).step
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
    run = price_run(row, row.workload, assumptions)
    kinds = run.bytes_by_kind
    if run.printed_activations is not None:
        kinds["activations"], kinds["logits"] = run.printed_activations, 0
        assumptions.add("the memory printed is taken as that of the first pipeline stage")
    nccl = int(memory.nccl_bytes(run.layouts)[0])
    share = constants.FRAGMENTATION_SHARE
    if row.measured_by == "nvidia-smi":
        allocated = sum(kinds.values()) - nccl
        kinds["fragmentation"] = int(allocated * share / (1.0 - share))
        kinds["context"] = constants.CONTEXT_BYTES
    else:
        kinds["communication_buffers"] -= nccl
        if RESERVED in row.note.lower():
            kinds["fragmentation"] = int(sum(kinds.values()) * share / (1.0 - share))
    parts = {f"{name}_bytes": float(size) for name, size in kinds.items()}
    too_much = float(not run.fits)
    return {
        "peak_memory_bytes": Estimate(sum(parts.values()), parts),
        "out_of_memory": Estimate(too_much, parts),
    }


def price_run(
    row: RunRow,
    workload_kind: str,
    assumptions: Assumptions,
    *,
    for_memory: bool | None = None,
    infers: bool = False,
) -> Run:
    """Price the row's step through the planner's own functions.

    `for_memory`: bytes are wanted, of which some frameworks keep other ones than the stack that has
    their seconds; default: where the row measured them. `infers`: the run is known to have fitted,
    so recomputation that is not stated is the cheapest that fits (the most, where none does);
    otherwise the framework's default, and always for seconds, whose errors grew when it was
    inferred: often a few layers alone have it.

    Raises:
        CannotPredictError: the row leaves out a size, or the cost model has no term for it.
    """
    check_priceable(row)
    if workload_kind in ("layer", "qlora"):
        raise CannotPredictError(f"workload {workload_kind} is not in the cost model")
    defaults = framework(row, assumptions)
    wants_bytes = isinstance(row, MemoryRow) if for_memory is None else for_memory
    stack = memory_stack_of(defaults) if wants_bytes else defaults.training_stack
    rank = _lora_rank(row, workload_kind, assumptions)
    architecture = _trained_architecture(row, defaults, assumptions)
    model = Model("actor", architecture, False, True, rank)
    # Bytes do not depend on the network.
    pool = pool_of(row, Assumptions() if wants_bytes else assumptions)
    layouts = layout_of(row, defaults, assumptions)
    micro_batch = row.micro_batch_size
    if micro_batch is None:
        micro_batch = 1
        assumptions.add("micro_batch_size not stated: 1")
    packed = _packed_samples(row, workload_kind, defaults, assumptions)
    subject = _Subject(
        row=row,
        model=model,
        workload=_workload(
            row,
            stack,
            memory_settings(row, stack, defaults, assumptions, for_memory=wants_bytes),
            micro_batch,
            layouts,
            packed,
            assumptions,
        ),
        pool=pool,
        layouts=layouts,
        micro_batch=micro_batch * packed,
        defaults=defaults,
    )
    levels = recompute_levels(row, defaults)
    return _cheapest_that_fits(subject, levels if infers else islice(levels, 1), assumptions)


@dataclass(frozen=True, slots=True)
class _Subject:
    """A row as the cost model prices it, all but what it recomputes."""

    row: RunRow
    model: Model
    workload: WorkloadSpec
    pool: Pool
    layouts: Layouts
    micro_batch: int
    defaults: Framework


def _cheapest_that_fits(subject: _Subject, levels: Iterator[str], assumptions: Assumptions) -> Run:
    """The run with the first level of recomputation that fits; the last, where none does."""
    defaults, first = subject.defaults, next(levels)
    level, run = first, _run(subject, first)
    while not run.fits and (more := next(levels, None)) is not None:
        level, run = more, _run(subject, more)
    if level != first:
        found = "the cheapest that fits" if run.fits else "and nothing fits"
        assumptions.add(f"recompute not stated: {level} ({found})")
    elif subject.row.recompute is None:
        assumptions.add(f"recompute not stated: {level} ({defaults.name}: {defaults.why})")
    resident = run.resident
    if defaults.pages_optimizer and resident.total[0] > subject.pool.gpu.memory_bytes:
        assumptions.add("the optimizer's state is paged to the host, as the GPU cannot hold it")
        paged = replace(resident, optimizer=np.zeros_like(resident.optimizer))
        return replace(run, resident=paged)
    return run


def _run(subject: _Subject, level: str) -> Run:
    row, defaults, layouts = subject.row, subject.defaults, subject.layouts
    call, recompute = _train_call(subject.workload), column(RECOMPUTES.index(level))
    step = price_train(
        subject.model,
        call,
        subject.workload,
        subject.pool,
        load_profile(subject.pool.gpu),
        layouts,
        micro_batch_size=column(subject.micro_batch),
        recompute=recompute,
        adapters=defaults.adapters,
        drops_tokens=TOKENS_DROPPED in row.note.lower(),
    )
    resident, _ = memory.home_resident_bytes(subject.model, subject.workload, layouts)
    printed = None
    if defaults.prints_first_stage and FULLEST_STAGE not in row.note.lower():
        printed = _first_stage_bytes(
            subject.model, call, subject.workload, layouts, subject.micro_batch, recompute
        )
    return Run(subject.pool, layouts, resident, step, printed)


def _trained_architecture(
    row: RunRow, defaults: Framework, assumptions: Assumptions
) -> ModelArchitecture:
    """The row's architecture as its framework builds it."""
    architecture = architecture_of(row)
    if not architecture.tied_embeddings or defaults.ties_embeddings:
        return architecture
    assumptions.add(f"the head is a copy of the embeddings ({defaults.name}: it ties none)")
    return architecture.model_copy(update={"tied_embeddings": False})


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
    stack: TrainingStack,
    settings: MemorySettings,
    micro_batch: int,
    layouts: Layouts,
    packed: int,
    assumptions: Assumptions,
) -> WorkloadSpec:
    """The row's batch; every sequence is `packed` samples that attention keeps apart."""
    if row.sequence_length is None:
        raise CannotPredictError("sequence_length is not stated")
    batch = row.global_batch_size
    if batch is None:
        batch = micro_batch * int(layouts.data_parallel_size[0])
        assumptions.add("global_batch_size not stated: one micro-batch per data-parallel rank")
    return whole_sequences(
        batch * packed,
        row.sequence_length // packed,
        product_precision=product_precision(row),
        training_stack=stack,
        settings=asdict(settings),
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
