"""What else happens on a device while it is measured: others at work, a clock that slows down.

Every few seconds the watch looks back at what the machine counts: the time of its cores that was
not ours, memory of a GPU that others hold, why the driver slows a clock, and how long a reference
product takes now. What was measured since the last look is marked with what it finds.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from automap.profiler.errors import ProfileError
from automap.profiler.results.journal import Entry
from automap.profiler.results.measurement import Sampler
from automap.profiler.results.profile_report import DRIFT_SHARE

LOOK_SECONDS = 5.0
LEAST_LOOK_SECONDS = 0.5
"""The kernel counts in hundredths of a second: less is too little to tell a share."""
LOOK_SHARE = 0.01
"""Share of the budget between two looks of a short profile."""
REFERENCE_SAMPLES = 3
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class State:
    """What was found between two looks, in words; nothing where all was well."""

    others: tuple[str, ...] = ()
    """Who else used the device, and how much."""
    slowed: str = ""
    """What slowed the clock down."""


class Use(Protocol):
    """What the machine counts of the use of a device."""

    def since_last(self) -> State:
        """What happened since this was asked before, or since the beginning."""
        ...


class Watch:
    """Looks now and then, and marks what was measured in between."""

    def __init__(
        self, use: Use, *, reference: Sampler, usual: float, budget_seconds: float, strict: bool
    ) -> None:
        """`usual`: seconds of the reference at the beginning. `strict`: others are an error."""
        self._use = use
        self._reference, self._usual = reference, usual
        self._strict = strict
        self._every = min(max(LOOK_SHARE * budget_seconds, LEAST_LOOK_SECONDS), LOOK_SECONDS)
        self._looked = time.monotonic()
        self._state = State()
        self._others: dict[str, str] = {}
        self._slowed: dict[str, None] = {}
        use.since_last()

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next look."""
        return time.monotonic() - self._looked >= self._every

    @property
    def others(self) -> list[str]:
        """Who was seen at work, some of them."""
        return list(self._others.values())[:MOST_NAMED]

    @property
    def slowed(self) -> list[str]:
        """What was seen to slow the clock down, some of it."""
        return list(self._slowed)[:MOST_NAMED]

    def marked(self, entries: Sequence[Entry]) -> list[Entry]:
        """Entries measured since the last look, each with what was the matter meanwhile.

        Raises:
            ProfileError: others were at work, and that is to be an error.
        """
        # What is left of a table may be too little to tell; the last look then says most.
        if time.monotonic() - self._looked >= LEAST_LOOK_SECONDS:
            self._look()
        state = self._state
        if state.others and self._strict:
            raise busy(state.others)
        if state == State():
            return list(entries)
        return [_marked(entry, state) for entry in entries]

    def skip(self) -> None:
        """Forget what has happened since the last look: other processes were measured."""
        self._use.since_last()
        self._looked = time.monotonic()

    def _look(self) -> None:
        state = self._use.since_last()
        if state == State():
            # Others make it slow, too: only where there are none it tells of the clock.
            fastest = min(self._reference.sample().seconds for _ in range(REFERENCE_SAMPLES))
            drift = fastest / self._usual - 1.0
            if drift > DRIFT_SHARE:
                state = State(slowed=f"a reference product took {drift:.0%} longer")
                self._use.since_last()
        self._state = state
        # Each with the share that it had the last time.
        self._others |= {words.rpartition(": ")[0]: words for words in state.others}
        self._slowed |= dict.fromkeys([state.slowed] if state.slowed else [])
        self._looked = time.monotonic()


def _marked(entry: Entry, state: State) -> Entry:
    if entry.measurement is None:
        return entry
    marks = {"busy": bool(state.others), "throttled": bool(state.slowed)}
    return replace(entry, measurement=replace(entry.measurement, **marks))


def busy(others: Sequence[str]) -> ProfileError:
    """A device that others use, though it must be ours alone."""
    return ProfileError(
        "--strict: others use what is to be measured; what was measured before is kept",
        [*others, "measure when it is idle, or without --strict: then what they disturb is marked"],
    )
