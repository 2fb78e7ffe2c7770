"""The order of calls that share devices: as the plan has it, else as they are made."""

from collections.abc import Sequence
from dataclasses import dataclass

from automap.executor.runtime.placement import Device

Place = tuple[int, float, int]
"""Period, seconds since its start, and the place among the iteration's calls."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that the plan expects in every iteration."""

    id: str
    devices: frozenset[Device]
    stage: int = 0
    """How many periods after its iteration's first calls it is made."""
    start_seconds: float = 0.0
    """From the start of that period."""


class PlanOrder:
    """Gives each call its place among those of all iterations that are under way."""

    def __init__(self) -> None:
        self.iteration = 0
        """Whose program makes calls."""
        self._awaited: dict[tuple[int, str], tuple[Place, frozenset[Device]]] = {}
        """What no program has made yet, by iteration and call."""
        self._places: dict[tuple[int, str], Place] = {}
        self._latest: Place = (0, 0.0, 0)

    def expect(self, calls: Sequence[PlannedCall], iteration: int) -> None:
        """What an iteration will make, in place of what it was said to."""
        for key in [key for key in self._awaited if key[0] == iteration]:
            del self._awaited[key]
        for number, call in enumerate(calls):
            place = (iteration + call.stage, call.start_seconds, number)
            self._places[iteration, call.id] = place
            self._awaited[iteration, call.id] = (place, call.devices)

    def enter(self, iteration: int) -> None:
        """Calls that follow are this iteration's."""
        self.iteration = iteration
        self._latest = max(self._latest, (iteration, 0.0, 0))

    def leave(self, iteration: int) -> None:
        """Forget it and all before it."""
        self._places = {key: at for key, at in self._places.items() if key[0] > iteration}

    def take(self, call: str, *, goes_first: bool) -> Place:
        """The place of a call that is made now; one that no plan names follows the latest."""
        key = (self.iteration, call)
        place = (-1, 0.0, 0) if goes_first else self._places.get(key, self._latest)
        self._latest = max(self._latest, place)
        self._awaited.pop(key, None)
        return place

    def holds_up(self, place: Place, devices: frozenset[Device]) -> bool:
        """Whether a planned call that was not made yet comes before, on one of the devices."""
        return any(
            before < place and not those.isdisjoint(devices)
            for before, those in self._awaited.values()
        )
