"""What a launch takes with some of its lines changed: read again, and priced."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from automap.planner.errors import InfeasibleError, NotImportableError, Reason, SpecError
from automap.planner.imports.importing import hazards, import_launch
from automap.planner.imports.launch import Answers, Imported, LaunchFile, LineChange
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import estimate

NEEDLESS_SHARE = 0.001
"""Share of an iteration below which a part of a change is left out, all of a role's lines."""
ROUNDING = 1e-3
"""Chance by which two may differ and be shown as the same."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A launch with some lines changed."""

    plan: Plan | None
    """What it takes; None: it does not fit, or is refused."""
    unfit: list[Reason]
    hazards: list[Reason]
    allowed_chance: float = 1.0
    """Chance of running out of memory that a plan of its job may have."""

    @property
    def seconds(self) -> float:
        """Seconds of an iteration; without end where it does not fit."""
        return float("inf") if self.plan is None else self.plan.iteration_seconds

    @property
    def chance(self) -> float | None:
        """Chance of running out of memory where it is larger than a plan's may be; None: it is not.

        What has exactly as much as is allowed counts as such a plan.
        """
        chance = None if self.plan is None else self.plan.out_of_memory_probability
        return chance if chance is not None and chance > self.allowed_chance + ROUNDING else None

    @property
    def faults(self) -> tuple[bool, int]:
        """How much is wrong with it: it does not fit, and what else there is."""
        return self.plan is None, len(self.hazards) + (self.chance is not None)

    @property
    def reasons(self) -> list[Reason]:
        """All that is wrong with it."""
        return [*self.unfit, *self.hazards]


@dataclass(slots=True)
class Pricer:
    """Reads and prices a launch as often as it is asked, each set of lines once."""

    files: Sequence[LaunchFile]
    target: str
    answers: Answers
    known: dict[frozenset[tuple[str, str]], Priced] = field(default_factory=dict)

    def with_lines(self, lines: Iterable[LineChange]) -> Priced:
        """The launch with these lines."""
        changed = frozenset((each.name, each.after) for each in lines)
        if changed not in self.known:
            self.known[changed] = self._price(dict(sorted(changed)))
        return self.known[changed]

    def _price(self, changed: dict[str, str]) -> Priced:
        answers = replace(self.answers, values={**self.answers.values, **changed})
        try:
            return priced(import_launch(self.files, self.target, answers))
        except NotImportableError as error:
            return Priced(None, error.reasons, [])


def has_memory(now: Priced, after: Priced) -> bool:
    """Whether a launch runs out of memory no more likely than a plan may, or than it does now."""
    chances = [
        0.0 if each.plan is None else each.plan.out_of_memory_probability or 0.0
        for each in (now, after)
    ]
    return chances[1] <= max(after.allowed_chance, chances[0])


def is_as_good(found: Priced, other: Priced) -> bool:
    """Whether no more is wrong with a launch than with another, and it takes next to no longer."""
    allowed = (1 + NEEDLESS_SHARE) * other.seconds
    return found.faults <= other.faults and found.seconds <= allowed and has_memory(other, found)


def priced(imported: Imported) -> Priced:
    """What a launch takes, or why it does not fit."""
    try:
        plan = estimate(imported.spec, imported.placement)
    except InfeasibleError as error:
        return Priced(None, error.reasons, [])
    except SpecError as error:
        return Priced(None, [Reason(summary=error.message, remedy=error.remedy or None)], [])
    allowed = resolve(imported.spec).max_out_of_memory_probability
    return Priced(plan, [], hazards(imported, plan), allowed)
