"""The changes of a launch that are taken: the offers worth most, each given those before it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from automap.planner.imports.launch import LineChange
from automap.planner.studies.advice_cache import Caches
from automap.planner.studies.advice_offers import Offer
from automap.planner.studies.advice_pricing import (
    NEEDLESS_SHARE,
    Priced,
    has_memory,
    is_as_good,
)

MOST_CHANGES = 3


@dataclass(frozen=True, slots=True)
class Step:
    """Offers that are taken together, with the lines of them that matter.

    Until all steps are known, a line about a cache is the plan's, and is priced as it fits then.
    """

    offers: tuple[Offer, ...]
    lines: tuple[LineChange, ...]
    after: Priced


def steps_of(
    caches: Caches, now: Priced, offers: list[Offer], least_share: float, least_seconds: float
) -> list[Step]:
    """What to take, the best first, each given those before it; none is below `least_seconds`."""
    steps: list[Step] = []
    rest = list(offers)
    while rest and len(steps) < MOST_CHANGES:
        mended = now.faults == (False, 0)
        if mended and (1 - least_share) * now.seconds < least_seconds:
            break
        step = _best_step(caches, lines_of(steps), now, rest, least_share)
        if step is None:
            break
        steps.append(step)
        now = step.after
        left = [each.without(step.lines) for each in step.offers]
        rest = [each for each in [*rest, *left] if each.lines and each not in step.offers]
    return steps


def with_agreed_caches(caches: Caches, steps: Sequence[Step]) -> list[Step]:
    """The steps with caches that fit from the step on that has them, whatever of the rest is taken.

    Where a launch with them is not as good as one with the plan's, they are the plan's.
    """
    number = range(1, len(steps) + 1)
    agreed = caches.agreed([lines_of(steps[:end]) for end in number])
    found = [replace(step, lines=tuple(_agreed(caches, step.lines, agreed))) for step in steps]
    priced = [caches.pricer.with_lines(lines_of(found[:end])) for end in number]
    planned = [caches.pricer.with_lines(lines_of(steps[:end])) for end in number]
    if not all(is_as_good(*both) for both in zip(priced, planned, strict=True)):
        found, priced = list(steps), planned
    return [replace(step, after=after) for step, after in zip(found, priced, strict=True)]


def _agreed(
    caches: Caches, lines: Iterable[LineChange], agreed: Mapping[str, LineChange]
) -> Iterator[LineChange]:
    for line in lines:
        if not caches.has(line):
            yield line
        elif line.name in agreed:
            yield agreed[line.name]


def _best_step(
    caches: Caches,
    taken: list[LineChange],
    now: Priced,
    rest: list[Offer],
    least_share: float,
) -> Step | None:
    """The offer that is worth most; of what does not fit by itself, with another one.

    Two offers count for half of what they save each. Where nothing is found all twos are tried, and
    all offers at once.
    """
    singles = [_tried(caches, taken, each) for each in combinations(rest, 1)]
    blocked = [each.offers[0] for each in singles if each.after.faults > now.faults]
    pairs = [two for two in combinations(rest, 2) if any(each in blocked for each in two)]
    others = [two for two in combinations(rest, 2) if two not in pairs]
    paired = [_tried(caches, taken, each) for each in pairs]
    steps = _worth(now, [*singles, *paired], least_share)
    if not steps:
        more = [_tried(caches, taken, each) for each in [*others, tuple(rest)]]
        steps = _worth(now, more, least_share)
    if not steps:
        return None
    return _without_needless(caches, taken, min(steps, key=lambda step: _score(now, step)))


def _worth(now: Priced, steps: list[Step], least_share: float) -> list[Step]:
    return [step for step in steps if _is_worth(now, step.after, least_share)]


def _tried(caches: Caches, taken: list[LineChange], offers: tuple[Offer, ...]) -> Step:
    added = tuple(line for offer in offers for line in offer.lines)
    return Step(offers, added, _fitted(caches, [*taken, *added]))


def _fitted(caches: Caches, lines: Sequence[LineChange]) -> Priced:
    """The launch with these lines, and caches as they leave room for them."""
    return caches.pricer.with_lines(caches.fitted(lines))


def _score(now: Priced, step: Step) -> tuple[tuple[bool, int], float, float]:
    """What is least of the best step: faults, then seconds over offers, or their number."""
    if now.plan is None:
        return step.after.faults, len(step.offers), step.after.seconds
    return step.after.faults, (step.after.seconds - now.seconds) / len(step.offers), 0.0


def _is_worth(now: Priced, after: Priced, least_share: float) -> bool:
    """Whether a launch is better by enough: it fits, less is wrong with it, or it is faster."""
    if now.plan is not None and not has_memory(now, after):
        return False
    if after.faults != now.faults:
        return after.faults < now.faults
    if after.plan is None or now.plan is None:
        return False
    return after.seconds <= (1 - least_share) * now.seconds


def _without_needless(caches: Caches, taken: list[LineChange], step: Step) -> Step:
    """The step without the parts that save next to nothing."""
    parts = {
        line.name: (offer.group.name, part)
        for offer in step.offers
        for line, part in zip(offer.lines, offer.parts, strict=True)
    }
    slowest = (1 + NEEDLESS_SHARE) * step.after.seconds
    for part in dict.fromkeys(parts.values()):
        kept = tuple(line for line in step.lines if parts[line.name] != part)
        without = _fitted(caches, [*taken, *kept])
        if kept and is_as_good(without, step.after) and without.seconds <= slowest:
            step = replace(step, lines=kept, after=without)
    return step


def lines_of(steps: Iterable[Step]) -> list[LineChange]:
    """All lines of some steps."""
    return [line for step in steps for line in step.lines]
