"""Priced candidates as columns: the seconds by part and the transient bytes by kind of one call."""

from dataclasses import dataclass, fields

from automap.planner.layout import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class SecondsColumns:
    """One row per candidate; names as in result.SecondsByPart."""

    compute: FloatArray
    communication: FloatArray
    bubble: FloatArray
    optimizer: FloatArray
    transition: FloatArray
    overhead: FloatArray

    @property
    def total(self) -> FloatArray:
        """Duration of the call."""
        return (
            self.compute
            + self.communication
            + self.bubble
            + self.optimizer
            + self.transition
            + self.overhead
        )

    def times(self, factor: float) -> "SecondsColumns":
        """All parts so many times as long."""
        return SecondsColumns(*(factor * getattr(self, field.name) for field in fields(self)))


def summed(one: SecondsColumns, other: SecondsColumns) -> SecondsColumns:
    """Part by part."""
    names = [field.name for field in fields(SecondsColumns)]
    return SecondsColumns(**{name: getattr(one, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True)
class BytesColumns:
    """Per GPU on the worst pipeline stage, rounded up to whole bytes; names as in BytesByKind."""

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
        """All kinds together."""
        return sum((getattr(self, field.name) for field in fields(self)[1:]), start=self.weights)


@dataclass(frozen=True, slots=True)
class CallEstimates:
    """What a call takes beyond what its copy already holds."""

    seconds: SecondsColumns
    transient: BytesColumns
    source: IntArray
    """Weakest provenance per row, index into layout.SOURCES."""
