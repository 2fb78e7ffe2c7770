"""ReaL's search (arXiv 2406.14088; github.com/openpsi-project/ReaLHF): Metropolis moves.

One move gives one call another option, drawn evenly from all of its others: a layout and a range.
A move is accepted with probability min(1, exp(−Δ / temperature)), where the cost is that of the
simulated seconds of several iterations (simulation.py), three times as many where memory does not
suffice. The chain starts from each call's fastest option.

Repaired, as the published code has defects that make it a random walk: tensor and pipeline sizes
are not swapped; weight syncs cost what they cost; the temperature is relative, the cost being the
logarithm of the seconds, where as published a plan that is 10 s slower is accepted nine times in
ten; all options are kept, not the first 1,000 per call before sorting; several chains with falling
temperatures share the steps; and a seed repeats the search.

ReaL moves a model's weights before any call. Here a model's calls run on its home, and rollouts on
a shadow if that is faster, so the option of a call is that of its copy.
"""

import math
import random
import time
from dataclasses import dataclass

from automap.planner.search.model.problem import Problem
from automap.planner.search.model.solve import DETERMINISTIC_PER_SECOND, Limits
from automap.planner.search.strategies.index import Index
from automap.planner.search.strategies.placements import Placements, State, Valued
from automap.planner.search.strategies.placing import DoesNotFit, Placed, check_served

STEPS_PER_SECOND = 10_000
"""Moves per second of a time limit, about what a 2020s core does: a budget of steps repeats."""
MOST_CLOCK_SECONDS = 2.0
"""Wall seconds per second of a time limit, for a machine so slow that the steps take longer."""
GRACE_SECONDS = 30.0
"""Wall seconds on top of those: less than a service waits, so it answers with what was found."""
TEMPERATURES = (0.1, 0.03, 0.01, 0.003)
"""One chain each, for the logarithm of the seconds: at 0.01, 1 % more is accepted with 1/e."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The result of a run of the chains."""

    start: Valued
    best: Valued | None
    """The fastest placement met that fits."""
    state: State | None
    steps: int
    cut: bool
    """True where the clock ended the run, not its number of steps."""


def real_mcmc(index: Index, limits: Limits) -> Placed:
    """The fastest placement that the chains meet within the limits' steps."""
    check_served(index)
    seconds = limits.deterministic_seconds / DETERMINISTIC_PER_SECOND
    placements = Placements(index.problem)
    steps = round(STEPS_PER_SECOND * seconds)
    longest = MOST_CLOCK_SECONDS * seconds + GRACE_SECONDS
    found = walk(placements, steps=steps, seed=limits.seed, seconds=longest)
    if found.best is None or found.state is None:
        raise DoesNotFit(f"real_mcmc: none of the {found.steps} placements that it met fits")
    return Placed(
        placements.assignment(found.state, found.best),
        found.best.seconds,
        f"cut by the clock after {found.steps} of {steps} steps" if found.cut else "",
    )


def walk(placements: Placements, *, steps: int, seed: int, seconds: float = math.inf) -> Walk:
    """Run the chains; the clock, where it is to count, ends them too (and then nothing repeats)."""
    draw = random.Random(seed)  # nosec B311  # a search that is to be the same each time
    moves = _moves(placements.problem)
    start = fastest_alone(placements)
    first = placements.valued(start)
    assert first is not None, "options that serve every call of their copy"
    best, best_state = (first, start) if first.fits else (None, None)
    began, done, cut = time.monotonic(), 0, False
    for number, temperature in enumerate(TEMPERATURES, start=1):
        deadline = began + seconds * number / len(TEMPERATURES)
        state, value = start, first
        for _ in range(steps // len(TEMPERATURES)):
            if done % 256 == 0 and time.monotonic() > deadline:
                cut = True
                break
            done += 1
            proposal = _moved(placements, state, moves, draw)
            found = placements.valued(proposal)
            if found is None:
                continue
            slower = found.seconds > value.seconds
            if slower and draw.random() >= (value.seconds / found.seconds) ** (1 / temperature):
                continue
            state, value = proposal, found
            if value.fits and (best is None or value.seconds < best.seconds):
                best, best_state = value, state
    return Walk(first, best, best_state, done, cut)


def _moves(problem: Problem) -> list[tuple[int, list[tuple[int, int]]]]:
    """Per call on GPUs all of its (copy, option)."""
    return [
        (number, list(dict.fromkeys((o.copy, o.copy_option) for o in call.options)))
        for number, call in enumerate(problem.calls)
        if call.options
    ]


def _moved(
    placements: Placements,
    state: State,
    moves: list[tuple[int, list[tuple[int, int]]]],
    draw: random.Random,
) -> State:
    """Another option for one call; a shadow that no call uses any more is gone."""
    call, options = moves[draw.randrange(len(moves))]
    copy, option = options[draw.randrange(len(options))]
    starts = placements.starts(copy, option)
    moved = state.copy()
    moved.options[copy], moved.firsts[copy] = option, starts[draw.randrange(len(starts))]
    before, moved.runs_on[call] = moved.runs_on[call], copy
    if (
        before is not None
        and placements.problem.copies[before].shadow_of is not None
        and before not in moved.runs_on
    ):
        moved.options[before] = None
    return moved


def fastest_alone(placements: Placements) -> State:
    """The start: each copy's fastest option by itself, rollouts on the faster of home and shadow.

    Every copy lies as far left as it can.
    """
    problem = placements.problem
    runs_on = [_fastest_copy(placements, call) for call in range(len(problem.calls))]
    options: list[int | None] = []
    for copy, choice in enumerate(problem.copies):
        calls = [call for call, on in enumerate(runs_on) if on == copy]
        if not calls and choice.shadow_of is not None:
            options.append(None)
            continue
        options.append(
            min(
                range(len(choice.options)),
                key=lambda option: _seconds_alone(placements, calls, copy, option),
            )
        )
    firsts = [
        0 if option is None else placements.starts(copy, option)[0]
        for copy, option in enumerate(options)
    ]
    return State(options, firsts, runs_on)


def _fastest_copy(placements: Placements, call: int) -> int | None:
    """The copy with the call's fastest setting; of equal ones the first, which is the home."""
    least: dict[int, float] = {}
    for (copy, _), settings in placements.settings[call].items():
        least[copy] = min(least.get(copy, math.inf), settings[0].seconds)
    return min(sorted(least), key=lambda copy: least[copy], default=None)


def _seconds_alone(
    placements: Placements, calls: list[int], copy: int, option: int
) -> tuple[int, float]:
    """(calls that cannot run, seconds of the others) with the GPU to itself, fastest first."""
    settings = [placements.settings[call].get((copy, option)) for call in calls]
    there = [each[0].seconds for each in settings if each is not None]
    return len(settings) - len(there), sum(there)
