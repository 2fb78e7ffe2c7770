"""What to measure, for how long, where to. No torch here: the command line reads this too."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from automap.planner.catalogue import ModelArchitecture
from automap.planner.profiles import COLUMNS

DeviceKind = Literal["cpu", "cuda"]
MAX_RANKS = 64


def _known_table(name: str) -> str:
    if name not in COLUMNS:
        raise ValueError(f"no such table; there are {', '.join(COLUMNS)}")
    return name


TableName = Annotated[str, AfterValidator(_known_table)]


class MeasureSettings(BaseModel):
    """What to measure and for how long, wherever that is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: dict[str, ModelArchitecture] = {}
    """Whose shapes are measured first; the grid follows."""
    budget_seconds: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 300.0
    device: DeviceKind | None = None
    """What to measure; None: CUDA where there is a device, else the CPU."""
    ranks: Annotated[int, Field(ge=1, le=MAX_RANKS)] | None = None
    """Most processes of a collective; None: one per device here (a core is a device)."""
    strict: bool = False
    """Refuse a device that others use, and end when others come; else what they disturb is marked.
    """


class ProfileSettings(MeasureSettings):
    """One request for a profile of this machine, or of the nodes of a Ray cluster."""

    output: Path
    tables: tuple[TableName, ...] = ()
    """Only these, in this order; empty: all that the budget is long enough for."""
    ray_address: str | None = None
    """Ray cluster to profile: one node of each kind, each into a folder in `output`."""
    wait_seconds: Annotated[float, Field(ge=0, le=3600)] = 0.0
    """For another profile on the device, or in the folder, to end, before this one is refused."""
