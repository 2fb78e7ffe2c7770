"""Rows that contradict physics, or one another: named by `automap validate`, left out of fits.

A fit follows a bad row as gladly as a good one. Each check allows more than any machine does, so
what it names was misread, printed wrong, or measured something else (prompts from a cache).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from automap.planner import catalogue
from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.weight_formats import BLOCK_FORMATS
from automap.planner.validation.predictions import CannotPredictError
from automap.planner.validation.rows import GenerationRow, MemoryRow, Row, TrainingRow
from automap.planner.validation.subjects import architecture_of

PEAK_SHARE = 0.75
"""Most of the peak rate that a prefill reaches."""
BANDWIDTH_SHARE = 0.9
"""Most of the memory's bandwidth that a decode step reaches."""
SHORTER = 0.5
"""A step of more requests that is shorter than this part of one of fewer is another mode."""
NOISE = 0.15
"""Difference between equal runs from which on one of them is something else."""
SLOWER = 0.05
"""Time by which more GPUs may take longer for the same batch."""
WEIGHT_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp32": 4.0}
MEASURED = frozenset(
    {
        "row_id",
        "quality",
        "iteration_seconds",
        "decode_step_seconds",
        "prefill_seconds",
        "output_tokens_per_second",
        "peak_memory_bytes",
        "out_of_memory",
        "tokens_per_second_per_gpu",
        "model_flops_per_gpu_per_second",
        "basis",
        "measured_by",
    }
)
"""Columns in which twins may differ; all others say what was run."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A row that cannot be what it says."""

    row_id: str
    message: str


def contradictions(rows: Iterable[Row]) -> list[Contradiction]:
    """Every row that fails a check, each once, in the order of the rows."""
    every = list(rows)
    found = dict[str, str]()
    for row_id, message in (*_single(every), *_compared(every)):
        found.setdefault(row_id, message)
    return [Contradiction(row.row_id, found[row.row_id]) for row in every if row.row_id in found]


def sound_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows without those that fail a check."""
    wrong = {one.row_id for one in contradictions(rows)}
    return [row for row in rows if row.row_id not in wrong]


def _single(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    for row in rows:
        if isinstance(row, GenerationRow):
            message = _impossible_service(row)
        elif isinstance(row, (TrainingRow, MemoryRow)):
            message = _impossible_peak(row)
        else:
            message = None
        if message:
            yield row.row_id, message


def _impossible_peak(row: TrainingRow | MemoryRow) -> str | None:
    gpu = catalogue.gpu_type(row.gpu_type)
    if row.peak_memory_bytes is not None and row.peak_memory_bytes > gpu.memory_bytes:
        return f"peak of {row.peak_memory_bytes:.3g} bytes on a GPU of {gpu.memory_bytes:.3g}"
    return None


def _impossible_service(row: GenerationRow) -> str | None:
    """Weights that do not fit, or a closed loop that is faster than its products and reads."""
    try:
        architecture = architecture_of(row)
    except CannotPredictError:
        return None
    gpu = catalogue.gpu_type(row.gpu_type)
    each = 0.5 if row.precision in (*BLOCK_FORMATS, "fp4") else WEIGHT_BYTES.get(str(row.precision))
    weights = architecture.num_parameters() * (each or 1.0)
    inner = (row.tensor_parallel_size or 1) * (row.pipeline_parallel_size or 1)
    gpus = row.num_gpus if (row.expert_parallel_size or 1) > 1 else inner
    if weights > gpus * gpu.memory_bytes:
        return f"weights of {weights:.3g} bytes on {gpus} GPUs of {gpu.memory_bytes:.3g}"
    return _impossible_loop(row, architecture, each or 1.0)


def _impossible_loop(
    row: GenerationRow, architecture: ModelArchitecture, each: float
) -> str | None:
    step, first = row.decode_step_seconds, row.prefill_seconds
    if row.load != "serving" or not row.concurrency or step is None or first is None:
        return None
    if not row.prompt_length or not row.response_length:
        return None
    gpu = catalogue.gpu_type(row.gpu_type)
    peak = {1.0: gpu.fp8_flops_per_second, 0.5: gpu.fp4_flops_per_second}.get(each)
    rate = (peak or gpu.fp8_flops_per_second or gpu.bf16_flops_per_second) if each < 2.0 else None
    rate = rate or gpu.bf16_flops_per_second
    active = architecture.active_parameters()
    prompts = 2.0 * active * row.prompt_length * row.concurrency / row.num_gpus
    context = row.prompt_length + row.response_length / 2.0
    cached = row.concurrency * context * _least_cache_bytes(architecture)
    reads = row.response_length * (active * each * _replicas(row) + cached) / row.num_gpus
    least = prompts / (PEAK_SHARE * rate) + reads / (BANDWIDTH_SHARE * gpu.memory_bytes_per_second)
    taken = first + row.response_length * step
    if least > taken:
        return (
            f"a request takes {taken:.3g} s, but prefill at {PEAK_SHARE:.0%} of the peak rate and "
            f"decode at {BANDWIDTH_SHARE:.0%} of the bandwidth take {least:.3g} s"
        )
    return None


def _least_cache_bytes(architecture: ModelArchitecture) -> int:
    """Bytes per token of a cache in 8 bits; 0 where windows or latents make it less."""
    windows = architecture.sliding_window or architecture.attention_chunk_size
    if windows or architecture.layer_kinds or architecture.latent_attention is not None:
        return 0
    heads = architecture.num_key_value_heads * architecture.head_dim
    return 2 * architecture.num_layers * heads


def _replicas(row: GenerationRow) -> int:
    inner = (row.tensor_parallel_size or 1) * (row.pipeline_parallel_size or 1)
    return row.data_parallel_size or max(row.num_gpus // inner, 1)


def _compared(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    steps = [one for one in rows if isinstance(one, GenerationRow) and one.decode_step_seconds]
    for runs in _alike(steps, {"concurrency", "notes"}):
        yield from _shorter_with_more(runs)
    for quantity in ("iteration_seconds", "decode_step_seconds"):
        timed = [row for row in rows if getattr(row, quantity, None) is not None]
        for twins in _alike(timed, set()):
            yield from _twins(twins, quantity)
    trained = [row for row in rows if isinstance(row, TrainingRow) and row.iteration_seconds]
    for runs in _alike(trained, {"num_gpus", "data_parallel_size"}):
        yield from _slower_with_more(runs)


def _alike(rows: Sequence[Row], but: set[str]) -> Iterator[list[Row]]:
    """Rows that differ in nothing but these columns and what was measured."""
    same: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        names = (name for name in type(row).model_fields if name not in MEASURED | but)
        same[type(row), *(getattr(row, name) for name in names)].append(row)
    yield from (group for group in same.values() if len(group) > 1)


def _shorter_with_more(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    longest = 0.0
    for row in sorted(rows, key=lambda row: getattr(row, "concurrency", None) or 0):
        step = float(getattr(row, "decode_step_seconds", 0.0))
        if step < SHORTER * longest:
            yield (
                row.row_id,
                f"a step of {step:.3g} s with more requests than one of {longest:.3g} s",
            )
        longest = max(longest, step)


def _twins(rows: Sequence[Row], quantity: str) -> Iterator[tuple[str, str]]:
    seconds = [float(getattr(row, quantity)) for row in rows]
    if max(seconds) > (1.0 + NOISE) * min(seconds):
        for row in rows:
            yield (
                row.row_id,
                f"{quantity} of equal runs from {min(seconds):.4g} to {max(seconds):.4g}",
            )


def _slower_with_more(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    best = float("inf")
    for row in sorted(rows, key=lambda row: getattr(row, "num_gpus", 0)):
        seconds = float(getattr(row, "iteration_seconds", 0.0))
        if seconds > (1.0 + SLOWER) * best:
            yield row.row_id, f"{seconds:.4g} s, but {best:.4g} s on fewer GPUs with the same batch"
        best = min(best, seconds)
