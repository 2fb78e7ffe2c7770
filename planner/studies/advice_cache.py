"""Caches of engines in advice: one that is too large becomes the largest that fits.

A plan counts on the cache that its lengths need. A launch whose cache does not fit is not to lose
the memory beyond that: with the rest of the launch as advised, its engines get what is free, up to
the chance of running out of memory that a plan of its job may have, and no more than it says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from automap.planner.exports.memory_share import FILLED_WITH_A_CHANCE_OF
from automap.planner.frameworks.description import framework
from automap.planner.imports.launch import Imported, LineChange
from automap.planner.studies.advice_offers import CACHE, decisions_of, settings_for
from automap.planner.studies.advice_pricing import Priced, Pricer, is_as_good

LEAST_SHARE = "0.01"
"""A share of the memory that leaves no cache: priced is then one longest sequence."""


@dataclass(frozen=True, slots=True)
class Caches:
    """Lines of a launch about caches, as the rest of its lines leaves room for them."""

    pricer: Pricer
    launch: Imported

    def fitted(self, lines: Sequence[LineChange]) -> tuple[LineChange, ...]:
        """The lines with the largest caches that fit; a cache that fits as it is needs none."""
        others = [line for line in lines if not self.has(line)]
        given = [line for line in lines if self.has(line)]
        if not any(self._lowers(line) for line in given):
            return tuple(lines)
        # Told as a share of the memory, a launch is told another share, and no bytes beside it.
        kept = [line for line in given if line.before is not None or self._is_share(line)] or given
        planned, sized = self.pricer.with_lines(lines), self._sized(others, kept)
        if sized is None:
            return tuple(lines)
        for chance in (sized.allowed_chance, FILLED_WITH_A_CHANCE_OF):
            found = (*others, *self._largest(sized, kept, chance))
            if is_as_good(self.pricer.with_lines(found), planned):
                return found
        return tuple(lines)

    def agreed(self, prefixes: Sequence[Sequence[LineChange]]) -> dict[str, LineChange]:
        """Key → its line with a cache that fits whichever of these sets of lines is taken."""
        found = dict[str, LineChange]()
        for lines in prefixes:
            for line in filter(self.has, self.fitted(lines)):
                smallest = found.setdefault(line.name, line)
                if float(line.after) < float(smallest.after):
                    found[line.name] = line
        return found

    def has(self, line: LineChange) -> bool:
        """Whether a line is about the cache of an engine that generates."""
        return self._decision(line) in CACHE

    def _decision(self, line: LineChange) -> str:
        decided = decisions_of(framework(self.launch.target))
        found = {key.lstrip("+"): each for key, each in decided.items()}
        decision, role = found[line.name]
        return "" if role == "reward" else decision

    def _is_share(self, line: LineChange) -> bool:
        return self._decision(line) == "memory_share"

    def _lowers(self, line: LineChange) -> bool:
        """Whether a line leaves an engine less than the launch does."""
        now = self.launch.values.get(line.name)
        return isinstance(now, int | float) and float(line.after) < now

    def _sized(self, others: list[LineChange], given: list[LineChange]) -> Priced | None:
        """The launch with some cache that fits, which tells what is free; None: none does."""
        least = [
            line.model_copy(update={"after": LEAST_SHARE}) if self._is_share(line) else line
            for line in given
        ]
        priced = (self.pricer.with_lines([*others, *each]) for each in (given, least))
        return next((each for each in priced if each.plan is not None), None)

    def _largest(
        self, sized: Priced, given: list[LineChange], chance: float
    ) -> Iterator[LineChange]:
        """Lines of the largest caches, where these are smaller than the launch's own."""
        assert sized.plan is not None, "it fits"
        settings = settings_for(self.launch, sized.plan, spare_chance=chance)
        values = {each.key.lstrip("+"): each.value for each in settings}
        for line in given:
            found = line.model_copy(update={"after": values.get(line.name, line.after)})
            if self._lowers(found):
                yield found
