"""What a checkpoint says of itself, and what the controller keeps in it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from automap.executor.checkpoints.random_state import RandomState
from automap.executor.data.shuffled import DataPosition
from automap.planner.documented import Documented
from automap.planner.plan import Parallelism


class CheckpointModel(Documented, BaseModel):
    """Frozen; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(CheckpointModel):
    """One file of a checkpoint."""

    path: str
    """Within the checkpoint's folder."""
    num_bytes: Annotated[int, Field(ge=0)]


class Manifest(CheckpointModel):
    """Written last: a checkpoint is whole if all of this is there."""

    schema_version: Literal[1] = 1
    iteration: Annotated[int, Field(ge=0)]
    """Iterations that were complete."""
    roles: dict[str, Parallelism]
    """Role → the layout that wrote it; another may read it."""
    code_version: str
    files: list[FileEntry]


class ControllerState(CheckpointModel):
    """What the controller goes on from, besides the models.

    Metrics and records need no position of their own: their files keep what is not above
    `iteration`.
    """

    schema_version: Literal[1] = 1
    iteration: Annotated[int, Field(ge=0)]
    data: dict[str, DataPosition] = {}
    """Stream (prompts, pretrain) → how far it was read."""
    random: RandomState | None = None
    """Generators of the controller's process."""
    lagrange_multiplier: float | None = None
    """Safe-RLHF's."""
