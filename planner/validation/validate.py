"""Predict the rows of a table: the one way in."""

from collections.abc import Collection, Iterable, Iterator

from automap.planner.validation.generation import may_draft, predict_generation
from automap.planner.validation.operators import collective_subset, predict_collective, predict_gemm
from automap.planner.validation.predictions import (
    Assumptions,
    CannotPredictError,
    Estimate,
    Prediction,
)
from automap.planner.validation.rlhf import predict_rlhf
from automap.planner.validation.rows import (
    CollectiveRow,
    GemmRow,
    GenerationRow,
    MemoryRow,
    RlhfRow,
    Row,
    RunRow,
    TrainingRow,
)
from automap.planner.validation.training import predict_memory, predict_training

DEFAULT_QUALITIES = ("A", "B")
PRODUCT_BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "nvfp4": 4, "mxfp4": 4, "fp4": 4, "int4": 4}
"""Bits of an element by format of a matrix product; every other format has 8."""


def validate(
    rows: Iterable[Row], *, qualities: Collection[str] = DEFAULT_QUALITIES
) -> Iterator[Prediction]:
    """One prediction for each measured quantity of each row, in the order of the rows.

    Rows of another quality, and rows that the cost model cannot price, say so in
    `skipped_because`. The same rows give the same predictions.
    """
    for row in rows:
        assumptions = Assumptions()
        estimates = (
            _estimates(row, assumptions)
            if row.quality in qualities
            else CannotPredictError(f"quality {row.quality}")
        )
        for quantity in row.quantities:
            measured = getattr(row, quantity)
            if measured is None:
                continue
            found = estimates if isinstance(estimates, CannotPredictError) else estimates[quantity]
            yield _prediction(row, quantity, float(measured), found, assumptions)


def _prediction(
    row: Row,
    quantity: str,
    measured: float,
    found: Estimate | CannotPredictError,
    assumptions: Assumptions,
) -> Prediction:
    subset = subset_of(row)
    if isinstance(found, CannotPredictError):
        return Prediction(row, quantity, subset, measured, skipped_because=str(found))
    return Prediction(
        row,
        quantity,
        subset,
        measured,
        predicted=found.value,
        breakdown=found.breakdown,
        provenance=found.provenance,
        assumptions=tuple(assumptions.texts),
    )


def _estimates(
    row: Row, assumptions: Assumptions
) -> dict[str, Estimate | CannotPredictError] | CannotPredictError:
    try:
        match row:
            case TrainingRow():
                return predict_training(row, assumptions)
            case MemoryRow():
                return predict_memory(row, assumptions)
            case GenerationRow():
                return predict_generation(row, assumptions)
            case RlhfRow():
                return predict_rlhf(row, assumptions)
            case CollectiveRow():
                return predict_collective(row, assumptions)
            case GemmRow():
                return predict_gemm(row, assumptions)
            case _:
                raise TypeError(f"no prediction for {type(row).__name__}")
    except CannotPredictError as reason:
        return reason


def subset_of(row: Row) -> str:
    """Subset of its kind that a row belongs to; statistics never mix subsets."""
    match row:
        case CollectiveRow():
            return collective_subset(row)
        case GenerationRow():
            kind = "experts that may draft" if may_draft(row) else _mixture(row)
            bits = ", 4-bit" if PRODUCT_BITS.get(row.precision or "", 8) == 4 else ""
            return f"{kind}, {row.engine or 'engine not stated'}{bits}"
        case TrainingRow():
            return f"{_mixture(row)}, {PRODUCT_BITS.get(row.precision or '', 8)}-bit"
        case RunRow():
            return _mixture(row)
        case _:
            return ""


def _mixture(row: RunRow) -> str:
    return "experts" if row.num_experts else "dense"
