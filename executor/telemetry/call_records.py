"""What is measured of every call: the source of timing metrics, run report and timeline."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from automap.executor.telemetry.json_lines import JsonLines, read_lines
from automap.planner.documented import Documented

RecordKind = Literal[
    "generate",
    "forward",
    "train",
    "reshard",
    "weight_sync",
    "operation",
    "checkpoint",
    "iteration",
]
"""The plan's calls; a reshard, under the id of the generate call that it serves; a weight sync;
a numeric operation of the program; a checkpoint; and one record per completed iteration."""
WeightsKind = Literal["generation_weights", "peak_weights", "packed_weights"]
"""Each on the worst rank: all of a copy's weights on the device while it generates, those that
train among them; the most since they began to come, with what was in transit; and what of them
kernels keep in a format of their own."""
BytesKind = (
    WeightsKind
    | Literal["peak_memory", "reshard_received", "weight_sync_received", "fetched", "put"]
)
"""Each on the worst rank: weights held, the largest memory in use during the call, weights
received, and rows that came out of and went into the object store."""


class CallRecord(Documented, BaseModel):
    """One call of one iteration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    iteration: Annotated[int, Field(ge=1)]
    call_id: str
    """The call's id in the plan, if it is one of the plan's calls."""
    role: str
    """Empty for what belongs to no model."""
    kind: RecordKind
    method: str
    start_seconds: float
    """Unix time."""
    end_seconds: float
    ranks: tuple[int, ...]
    """Devices of the run, counted over all pools in the plan's order; none: the controller."""
    bytes: dict[BytesKind, Annotated[int, Field(ge=0)]] = {}

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> "CallRecord":
        if self.end_seconds < self.start_seconds:
            raise ValueError(
                f"call {self.call_id} ends at {self.end_seconds}, before its start at "
                f"{self.start_seconds}"
            )
        return self

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.end_seconds - self.start_seconds


class RecordFile:
    """All records of a run on disk, so that they outlive its processes."""

    def __init__(self, path: Path, *, resumed_iteration: int = 0) -> None:
        """Keep what an earlier attempt wrote up to the iteration it resumes after; 0: nothing."""
        self._lines = JsonLines(path, key="iteration", keep_up_to=resumed_iteration)

    def append(self, records: Iterable[CallRecord]) -> None:
        """Write at once."""
        for record in records:
            self._lines.append(record.model_dump(mode="json"))

    def close(self) -> None:
        """No more records."""
        self._lines.close()


def read_records(path: Path) -> list[CallRecord]:
    """In the order in which they were written; none if there is no such file."""
    return [CallRecord.model_validate(line) for line in read_lines(path)]
