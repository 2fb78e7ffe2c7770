"""What advice on a launch says: does it fit, and the few changes that are worth most."""

from typing import Literal

from pydantic import Field

from automap.planner.errors import Reason
from automap.planner.imports.launch import LineChange, Remark
from automap.planner.plan.types import Bytes, Interval, ResultModel


class GainInterval(ResultModel):
    """Seconds of an iteration that are saved, 80 %; below 0 it may take longer instead."""

    low: float
    high: float


class AdvisedChange(ResultModel):
    """Decisions of a launch that change together, as the lines that say them."""

    what: list[str]
    """Names of the groups of decisions; several where none of them helps without the others."""
    lines: list[LineChange]
    gain_seconds: float | None
    """Seconds of an iteration that it saves, given the changes before it; None: the launch does not
    fit without it."""
    gain_share: float | None
    """Share of the iteration before it that it saves; None: likewise."""
    gain_seconds_interval: GainInterval | None = None
    """80 %; an error of the estimate of a kind of call is taken to be one before and after."""
    iteration_seconds: float
    """With it and the changes before it."""
    alone_gain_seconds: float | None
    """Seconds that it saves on the launch as it is; None: one of the two does not fit."""
    alone_reasons: list[Reason] = Field(default_factory=list)
    """Why it does not fit or run alone."""
    needs: list[str] = Field(default_factory=list)
    """Names of the changes before it without which it does not fit."""
    memory_left_bytes: Bytes
    """On the fullest GPU, with it and the changes before it."""
    out_of_memory_probability: float | None
    """Likewise, the chance of running out of memory."""
    numerics: str
    """What it does to results, in words."""
    changes_learning: bool = False
    """It changes what is learned, not only how fast."""


class Misspelt(ResultModel):
    """A key that the framework lacks, and the one of its that is near."""

    key: str
    meant: str
    file: str
    line: int


class Advice(ResultModel):
    """A launch, what is wrong with it, and the changes that are worth most."""

    schema_version: Literal[1] = 1
    target: str
    file: str
    line: int
    """Where the job is started."""
    iteration_seconds: float | None
    """An iteration of the launch as it is; None: it does not fit."""
    iteration_seconds_interval: Interval | None = None
    unfit: list[Reason]
    """Why the launch as it is does not fit."""
    hazards: list[Reason]
    """Why it fails, or runs otherwise than it says, although it is accepted."""
    out_of_memory_probability: float | None = None
    """Chance of the launch as it is, where it is larger than a plan's may be."""
    remarks: list[Remark]
    misspelt: list[Misspelt] = Field(default_factory=list)
    """Keys that are read as the ones that are meant: all seconds are with these."""
    changes: list[AdvisedChange]
    """Worth most first, each given the ones before it."""
    together_seconds: float | None
    """An iteration with all of them; None: it does not fit, and no change was found."""
    left: list[Reason] = Field(default_factory=list)
    """Why it still does not fit, fails or runs otherwise than it says with all of them."""
    left_out_of_memory_probability: float | None = None
    """Chance with all changes, where it is still larger than a plan's may be."""
    together_gain_interval: GainInterval | None = None
    """Seconds that all of them save, 80 %; None: there is no change, or the launch does not fit."""
    least_share: float
    """Share of an iteration that a change must save."""
    best_seconds: float | None
    """An iteration of the best plan on the launch's GPUs with its training engine; None: there is
    none."""
    proven: bool = False
    """No plan of that space is faster under the cost model, or by no more than the tolerance within
    which a plan is simple."""
    unplanned: str = ""
    """Why there is no plan to compare with."""
    seconds: float = 0.0
    """Wall seconds of the answer."""
