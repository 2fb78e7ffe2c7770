"""Measurements of single iterations of a run, and medians over windows of them."""

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from automap.planner.documented import Documented
from automap.planner.spec.lengths import LengthSpec

RECENT = 32
"""Number of a run's latest iterations that are known one by one."""
QUANTILES = ("p50", "p90", "p99")
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class MeasuredModel(Documented, BaseModel):
    """A frozen measurement; an unknown field is an error.

    Docstrings under fields go into the JSON Schema.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


class ObservedLengths(MeasuredModel):
    """How long responses were, in tokens; null: the run does not say."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None
    iterations: Annotated[int, Field(ge=0)] = 1
    """Number of iterations that this is the mean of."""

    @classmethod
    def over(cls, seen: Iterable["ObservedLengths"]) -> "ObservedLengths | None":
        """The mean of several iterations, the longest of all; None: there is none."""
        known = [each for each in seen if each.mean is not None]
        if not known:
            return None
        means = {name: [getattr(each, name) for each in known] for name in ("mean", *QUANTILES)}
        return cls(
            **{name: fmean(values) for name, values in means.items() if None not in values},
            max=max((each.max for each in known if each.max is not None), default=None),
            iterations=len(known),
        )

    def spec(self, before: LengthSpec) -> LengthSpec:
        """The distribution that a spec states, moved to what was observed; its maximum stays.

        By percentiles where all three are known, else by the mean.
        """
        most = before.max_tokens
        names = QUANTILES if None not in (self.p50, self.p90, self.p99) else ("mean",)
        given = {name: float(getattr(self, name) or 1.0) for name in names}
        cut = {name: round(max(min(value, most), 1.0), 1) for name, value in given.items()}
        return LengthSpec.model_validate({**cut, "max": most})


class SlowRank(MeasuredModel):
    """The rank of a call that took longest, in one iteration."""

    device: str
    """The device as POOL[NUMBER], the number counted over the pool."""
    seconds: Seconds
    others_seconds: Seconds
    """Median seconds of all other ranks of the call."""

    @property
    def ratio(self) -> float:
        """Seconds of the slow rank over those of the others."""
        return self.seconds / self.others_seconds if self.others_seconds else 1.0


class Iteration(MeasuredModel):
    """Measurements of one iteration."""

    number: Annotated[int, Field(ge=1)]
    seconds: Seconds
    calls: dict[str, Seconds] = {}
    """Seconds by call id, or by ROLE.sync: all rounds of the call together."""
    lengths: ObservedLengths | None = None
    slowest: dict[str, SlowRank] = {}
    """The slowest rank of each call whose ranks were timed one by one."""


class Window(MeasuredModel):
    """Medians of a few iterations in a row, so that one bad iteration changes nothing."""

    first: int
    last: int
    """Number of the window's last iteration."""
    seconds: Seconds
    calls: dict[str, Seconds]
    lengths: ObservedLengths | None = None
    slow_devices: dict[str, SlowRank] = {}
    """The slow rank of each call of which one device took longest in every iteration; of these
    iterations the one with the median ratio."""

    @classmethod
    def of(cls, iterations: Sequence[Iteration]) -> Self:
        """The medians of one or more iterations."""
        names = sorted({name for each in iterations for name in each.calls})
        return cls(
            first=iterations[0].number,
            last=iterations[-1].number,
            seconds=median(each.seconds for each in iterations),
            calls={
                name: median(each.calls[name] for each in iterations if name in each.calls)
                for name in names
            },
            lengths=_median_lengths([each.lengths for each in iterations if each.lengths]),
            slow_devices={name: slow for name in names if (slow := _slow(iterations, name))},
        )


def _median_lengths(seen: Sequence[ObservedLengths]) -> ObservedLengths | None:
    if not seen:
        return None
    found = {}
    for name in ("mean", *QUANTILES, "max"):
        values = [value for each in seen if (value := getattr(each, name)) is not None]
        found[name] = median(values) if len(values) == len(seen) else None
    return ObservedLengths(**found, iterations=len(seen))


def _slow(iterations: Sequence[Iteration], call: str) -> SlowRank | None:
    """The device that took longest in all iterations, if it is always the same."""
    ranks = [each.slowest[call] for each in iterations if call in each.slowest]
    if len(ranks) < len(iterations) or len({rank.device for rank in ranks}) > 1:
        return None
    return sorted(ranks, key=lambda rank: rank.ratio)[len(ranks) // 2]
