"""Predictions of a row: one for each of its measured quantities, or why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log

from automap.planner.validation.rows import Row


class CannotPredictError(Exception):
    """A row that the cost model cannot price; the message says why, and is counted by kind."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted value with its parts (seconds by part, bytes by kind)."""

    value: float
    breakdown: Mapping[str, float] = field(default_factory=dict)
    provenance: str = "analytical"
    """Origin of the value, one of layout.SOURCES; `measured` is a point of the profile's own tables
    and so no prediction."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One quantity of one row. `predicted` is None exactly where `skipped_because` says why."""

    row: Row
    quantity: str
    subset: str
    """Subset of its kind that the row belongs to, as dense or mixture of experts."""
    measured: float
    predicted: float | None = None
    skipped_because: str | None = None
    breakdown: Mapping[str, float] = field(default_factory=dict)
    provenance: str | None = None
    assumptions: tuple[str, ...] = ()
    """Assumptions, in words, where the row states nothing or the cost model cannot follow it."""

    @property
    def relative_error(self) -> float | None:
        """Predicted ÷ measured − 1; None where nothing was predicted, or for a yes or no."""
        if self.predicted is None or self.is_verdict:
            return None
        return self.predicted / self.measured - 1.0

    @property
    def log_error(self) -> float | None:
        """ln(predicted ÷ measured); None where nothing was predicted, or for a yes or no."""
        if not self.predicted or self.is_verdict:
            return None
        return log(self.predicted / self.measured)

    @property
    def is_verdict(self) -> bool:
        """True for `out_of_memory`, which is 0 or 1 and has no percentage."""
        return self.quantity == "out_of_memory"


@dataclass(slots=True)
class Assumptions:
    """Assumptions that are collected while a row is read; each is reported once."""

    texts: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Add an assumption, unless it is there already."""
        if text not in self.texts:
            self.texts.append(text)
