"""Slopes of errors: which size an error grows with names the wrong term better than any mean."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from automap.planner.layout import FloatArray
from automap.planner.validation.groups import group_of, load_of
from automap.planner.validation.predictions import Prediction
from automap.planner.validation.rows import Row

LEAST_ROWS = 8
LEAST_VALUES = 3
LEAST_CHANGE = 0.05
"""|slope| × range of ln(predicted ÷ measured) from which on a slope is told."""
LEAST_SIGMAS = 2.0
"""Standard errors by which a slope must differ from 0."""


@dataclass(frozen=True, slots=True)
class Slope:
    """How the errors of one group change with one size of its rows."""

    quantity: str
    subset: str
    group: str
    size: str
    num_rows: int
    change: float
    """Change of ln(predicted ÷ measured) from the smallest to the largest size."""
    low: float
    high: float
    """Range of the size."""


def _number(name: str) -> Callable[[Row], float | None]:
    return lambda row: getattr(row, name, None)


def _batch(row: Row) -> float | None:
    return getattr(row, "concurrency", None) or getattr(row, "global_batch_size", None)


def _nodes(row: Row) -> float | None:
    stated = getattr(row, "num_nodes", None)
    gpus, per_node = getattr(row, "num_gpus", None), getattr(row, "gpus_per_node", None)
    return stated or (-(-gpus // per_node) if gpus and per_node else None)


SIZES: Mapping[str, Callable[[Row], float | None]] = {
    "sequence length": _number("sequence_length"),
    "prompt length": _number("prompt_length"),
    "load": load_of,
    "batch": _batch,
    "nodes": _nodes,
    "parameters": _number("num_parameters"),
    "message bytes": _number("size_bytes"),
    "year": _number("year"),
}
"""Sizes against whose logarithm errors are regressed (of years it is as good as linear)."""


def slopes(predictions: Iterable[Prediction]) -> list[Slope]:
    """The slopes that change errors by more than `LEAST_CHANGE`, the steepest first."""
    groups: dict[tuple[str, str, str], list[Prediction]] = defaultdict(list)
    for one in predictions:
        if one.predicted and not one.is_verdict and one.provenance != "measured":
            groups[one.quantity, one.subset, group_of(one.row)].append(one)
    found = [slope for names, rows in sorted(groups.items()) for slope in _of_group(names, rows)]
    return sorted(found, key=lambda slope: -abs(slope.change))


def _of_group(names: tuple[str, str, str], rows: Sequence[Prediction]) -> Iterator[Slope]:
    for size, value_of in SIZES.items():
        known = [(value, one) for one in rows if (value := value_of(one.row))]
        values = np.array([value for value, _ in known], dtype=np.float64)
        if len(known) < LEAST_ROWS or len(np.unique(values)) < LEAST_VALUES:
            continue
        errors = np.log([(one.predicted or 0.0) / one.measured for _, one in known])
        change = _change(np.log(values), errors)
        if change is not None and abs(change) > LEAST_CHANGE:
            yield Slope(*names, size, len(known), change, float(values.min()), float(values.max()))


def _change(x: FloatArray, y: FloatArray) -> float | None:
    """Slope × range by least squares; None where it is within its own uncertainty."""
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    rest = y - y.mean() - slope * centred
    uncertainty = float(np.sqrt(rest @ rest / (len(x) - 2) / (centred @ centred)))
    if abs(slope) < LEAST_SIGMAS * uncertainty:
        return None
    return slope * float(np.ptp(x))
