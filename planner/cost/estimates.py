"""Priced candidates as columns: the seconds by part and the transient bytes by kind of one call."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

import numpy as np

from automap.planner.layout import FloatArray, IntArray

Columns = TypeVar("Columns")


@dataclass(frozen=True, slots=True)
class SecondsColumns:
    """Seconds of one call by part [candidate]; names as in plan.types.SecondsByPart."""

    compute: FloatArray
    communication: FloatArray
    bubble: FloatArray
    optimizer: FloatArray
    transition: FloatArray
    overhead: FloatArray
    between: FloatArray

    @property
    def total(self) -> FloatArray:
        """Duration of the call in seconds [candidate]: the sum of the parts."""
        return (
            self.compute
            + self.communication
            + self.bubble
            + self.optimizer
            + self.transition
            + self.overhead
            + self.between
        )

    def times(self, factor: float) -> "SecondsColumns":
        """All parts multiplied by a factor."""
        return SecondsColumns(*(factor * getattr(self, field.name) for field in fields(self)))


def summed(one: SecondsColumns, other: SecondsColumns) -> SecondsColumns:
    """Seconds of two calls, or of two parts of one, added part by part."""
    names = [field.name for field in fields(SecondsColumns)]
    return SecondsColumns(**{name: getattr(one, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True)
class BytesColumns:
    """Bytes per GPU by kind [candidate], on the pipeline stage that holds most, rounded up.

    Names are those of plan.types.BytesByKind.
    """

    weights: IntArray
    gradients: IntArray
    optimizer: IntArray
    activations: IntArray
    logits: IntArray
    kv_cache: IntArray
    communication_buffers: IntArray
    workspace: IntArray

    @property
    def total(self) -> IntArray:
        """Bytes of all kinds together [candidate]."""
        return sum((getattr(self, field.name) for field in fields(self)[1:]), start=self.weights)


@dataclass(frozen=True, slots=True)
class CallEstimates:
    """Seconds of a call [candidate], and the bytes it adds to what its copy already holds."""

    seconds: SecondsColumns
    transient: BytesColumns
    source: IntArray
    """Weakest provenance of the seconds [candidate], as an index into layout.SOURCES."""


def joined(parts: Sequence[tuple[IntArray, Columns]]) -> Columns:
    """Columns of all candidates from parts of them: (numbers of the candidates, their columns).

    Columns are an array, or a dataclass of columns; together the numbers are 0, 1, …, each once.
    """
    if len(parts) == 1:
        return parts[0][1]
    first: Any = parts[0][1]
    if isinstance(first, np.ndarray):
        order = np.argsort(np.concatenate([numbers for numbers, _ in parts]))
        values: Any = np.concatenate([values for _, values in parts])[order]
    else:
        columns = (
            joined([(numbers, getattr(each, field.name)) for numbers, each in parts])
            for field in fields(first)
        )
        values = type(first)(*columns)
    return cast("Columns", values)
