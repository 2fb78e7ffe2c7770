"""80 % intervals of predicted rows: those of plans, wider for every setting that was assumed."""

from math import exp, hypot

from automap.planner import catalogue
from automap.planner.cost.intervals import SPREADS, Kind, is_seen, kind_named
from automap.planner.validation.predictions import Prediction
from automap.planner.validation.rows import GenerationRow, RunRow, TrainingRow
from automap.planner.validation.subjects import framework_of_row

ASSUMED: tuple[tuple[str, float], ...] = (
    ("recompute not stated", 0.08),
    ("sharding not stated", 0.03),
    ("virtual_pipeline_parallel_size not stated", 0.08),
    ("micro_batch_size not stated", 0.05),
    ("network between nodes", 0.03),
    ("length of packed samples not stated", 0.05),
    ("adapter rank not stated", 0.02),
    ("sequence parallelism is priced", 0.03),
    ("engine ", 0.2),
    ("key-value cache in fp8", 0.05),
    ("concurrency not stated", 0.2),
    ("fewer requests than stated fit", 0.15),
    ("split of generation and training GPUs", 0.2),
    ("spread of response lengths", 0.05),
    ("prompt_length not stated", 0.03),
)
"""Beginning of an assumption → |ln| by which it may be wrong, at 80 %. Chosen: selective
recomputation repeats a twelfth of a step, an interleaved schedule saves as much where micro-batches
are few, an fp8 cache halves a tenth of what a step reads."""


def kind_of(one: Prediction) -> Kind | None:
    """Kind of quantity of a prediction; None: it has no interval.

    Whole iterations of RL frameworks have none: those of their parts are of different kinds.
    """
    row, mixture = one.row, "experts" if one.subset.startswith("experts") else "dense"
    if isinstance(row, TrainingRow) and one.quantity == "iteration_seconds":
        bits = "16-bit" if "16-bit" in one.subset else "8-bit"
        stack = framework_of_row(row).training_stack
        return kind_named(f"training, {mixture}, {bits}" + _unseen(row, stack))
    if isinstance(row, GenerationRow) and one.quantity == "decode_step_seconds":
        bits = ", 4-bit" if one.subset.endswith("4-bit") else ""
        return kind_named(f"generation, {mixture}{bits}" + _unseen(row, row.engine or ""))
    if one.quantity == "peak_memory_bytes":
        return "memory"
    if row.kind == "collectives" and "from 1 MB" in one.subset:
        return "transfer in a node" if "in a node" in one.subset else "transfer across nodes"
    return None


def _unseen(row: RunRow, software: str) -> str:
    generation = catalogue.gpu_type(row.gpu_type).generation
    return "" if is_seen(software, generation, experts=bool(row.num_experts)) else ", unseen"


def assumed_width(one: Prediction) -> float:
    """|ln| by which the settings that a row does not state may move its prediction."""
    widths = [
        width for text in one.assumptions for start, width in ASSUMED if text.startswith(start)
    ]
    return hypot(*widths)


def spread_of(one: Prediction) -> float | None:
    """|ln(measured ÷ predicted)| at the ends of a row's interval; None: it has none.

    Points of the profile's own tables are no predictions.
    """
    kind = kind_of(one)
    if kind is None or not one.predicted or one.provenance == "measured":
        return None
    return hypot(SPREADS[kind], assumed_width(one))


def interval_of(one: Prediction) -> tuple[float, float] | None:
    """(low, high) of a row's 80 % interval; None: it has none."""
    spread = spread_of(one)
    if spread is None or one.predicted is None:
        return None
    return one.predicted * exp(-spread), one.predicted * exp(spread)
