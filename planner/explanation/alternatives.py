"""The plan against its alternatives: each solved under its constraint, and told in numbers."""

from dataclasses import dataclass, replace
from math import inf

from automap.planner.assembly.comparison import simpler_in_words
from automap.planner.assembly.proof import bound_is_proven
from automap.planner.explanation.checked import checked
from automap.planner.explanation.locating import locate
from automap.planner.explanation.question import Question
from automap.planner.explanation.questions import same_sizes
from automap.planner.explanation.result import Alternative, CallDifference, Outcome
from automap.planner.explanation.solving import best_within, limits_of
from automap.planner.explanation.study import Study, TableCache
from automap.planner.explanation.text import sizes
from automap.planner.plan.price import objective_value
from automap.planner.plan.types import Placement, Plan
from automap.planner.search import (
    TICK_SECONDS,
    Budget,
    Limits,
    Proven,
    Selected,
    attempted,
    least_excess,
    solve,
    solve_ascending,
)
from automap.planner.units import GIB

WORTH_TRYING = 1.1
"""Times the plan's period: where nothing known is as good, the strategies are tried too."""
TRIED = ("colocate_all", "split")
NEAR_SHARE = 0.25
"""The share of a question's time limit that finding a placement close to the best may take."""
FURTHEST = 4.0
"""Times the plan's period: where nothing is known, slower alternatives are not looked for soon."""
SHOWN_SECONDS = 5e-4
"""Half of the last digit shown: what is closer counts as equally fast."""


@dataclass(frozen=True, slots=True)
class Bill:
    """A placement's seconds and what they are of."""

    period: float
    seconds: dict[str, float]
    num_gpus: dict[str, int]
    paid: int
    price: float
    idle_share: float
    value: float


class Alternatives:
    """Solves one question after another; what one finds starts the next where it may.

    `given` grows by the settings of alternatives that its tables lack.
    """

    def __init__(
        self, given: Study, plan: Plan, selected: Selected, *, seconds: float, tables: TableCache
    ) -> None:
        self.given, self.plan, self.selected, self.tables = given, plan, selected, tables
        self.limits = limits_of(given, seconds)
        self.bill = bill(given, selected)
        self.found: list[Selected] = [selected]
        """By rows of the given tables."""

    def answer(self, question: Question) -> Alternative:
        """One alternative beside the plan."""
        posed = question.posed(self.given)
        if posed is None:
            return self._without_placement(question)
        solved = self._solved(posed, question)
        if solved.solution is None and solved.is_proven:
            return self._without_placement(question)
        if solved.solution is None:
            bound = solved.lower_bound
            return Alternative(
                question=question.name,
                text=question.text,
                outcome="undecided",
                answer=f"not decided: no placement was found in time; none can be below {bound:g}",
            )
        placement = checked(posed, solved.solution)
        asked = posed if question.beyond else self.given
        asked, found = locate(asked, placement, solved.solution.timing)
        other = bill(asked, found)
        if not question.beyond:
            self.given = asked
            self.found.append(found)
        return _beside(self.given, self.plan, self.bill, placement, other, solved, question)

    def _solved(self, posed: Study, question: Question) -> Proven[Selected]:
        """The best placement under the constraint; first on the plan's sizes, to have a limit."""
        throughput = self.given.job.spec.search.objective == "throughput"
        if question.beyond or not throughput:  # no bound of the plan's, and no copies, hold beyond
            return best_within(posed, inf, self.limits)
        starts = self._carried(posed, question)
        enough = WORTH_TRYING * self.plan.iteration_seconds
        if not any(each.timing.period <= enough for each in starts):
            tried = attempted(posed.space, TRIED, self.limits)
            starts += [each.selected for each in tried if each.selected]
        start = min(starts, key=lambda each: each.timing.period, default=None)
        best = self._soon(posed, start)
        near = self._on_same_sizes(posed, best)
        return solve(posed.space, limits=self.limits, incumbent=near or best)

    def _part_of_limits(self) -> Limits:
        return replace(
            self.limits, deterministic_seconds=self.limits.deterministic_seconds * NEAR_SHARE
        )

    def _soon(self, posed: Study, start: Selected | None) -> Selected | None:
        """A placement close to the best, or the one that is known."""
        period = FURTHEST * self.plan.iteration_seconds if start is None else start.timing.period
        trusted = bound_is_proven(self.given.job, self.plan)
        floor = self.plan.lower_bound_seconds if trusted else 0.0
        budget = Budget(self._part_of_limits())
        found = solve_ascending(
            posed.space, cutoff_seconds=period - TICK_SECONDS, floor=floor, budget=budget
        )
        return found.solution or start

    def _on_same_sizes(self, posed: Study, start: Selected | None) -> Selected | None:
        """The best placement whose copies are as large as the plan's: few rows are left."""
        rows = same_sizes(posed, self.given, self.selected)
        near = replace(posed.space, rows=rows)
        if not near.is_complete():
            return None
        return solve(near, limits=self._part_of_limits(), incumbent=start).solution

    def _carried(self, posed: Study, question: Question) -> list[Selected]:
        """Placements found so far that obey the constraint, by the posed rows."""
        if posed.problem != self.given.problem or not question.of_rows:
            return []
        lowered = [posed.space.lowered(each) for each in self.found]
        return [each for each in lowered if each is not None]

    def _without_placement(self, question: Question) -> Alternative:
        """Why nothing satisfies the constraint: no layout, or memory, in bytes and phase."""
        loose = self.tables.study(self.given.job.spec, fits_only=False)
        posed = question.posed(loose, fits_only=False)
        if posed is None:
            reason = question.missing or "no layout satisfies it"
            return Alternative(
                question=question.name, text=question.text, outcome="no_layout", answer=reason
            )
        found = least_excess(posed.space)
        if found is None or found.over_bytes <= 0:
            answer = "no placement: the constraints or the host memory exclude it"
            return Alternative(
                question=question.name, text=question.text, outcome="does_not_fit", answer=answer
            )
        return Alternative(
            question=question.name,
            text=question.text,
            outcome="does_not_fit",
            answer=(
                f"does not fit: {found.call} needs {found.required_bytes / GIB:.1f} GiB per GPU "
                f"and {found.capacity_bytes / GIB:.1f} GiB may be filled, "
                f"{found.over_bytes / GIB:.1f} GiB too many, even in the leanest layouts"
            ),
            phase=found.call,
            required_bytes=found.required_bytes,
            capacity_bytes=found.capacity_bytes,
            over_bytes=found.over_bytes,
        )


def _beside(
    given: Study,
    plan: Plan,
    mine: Bill,
    placement: Placement,
    other: Bill,
    solved: Proven[Selected],
    question: Question,
) -> Alternative:
    lost = other.value - mine.value
    outcome: Outcome = "slower"
    if abs(lost) < SHOWN_SECONDS * (mine.value / max(mine.period, 1e-9)):
        outcome = "same" if _alike(plan.placement(), placement) else "as_fast"
    elif lost < 0:
        outcome = "faster"
    differences = _differences(mine, other, placement)
    bound = solved.lower_bound if solved.is_proven else min(solved.lower_bound, other.value)
    throughput = given.job.spec.search.objective == "throughput"
    answer = _answer(given, mine, other, differences, solved, outcome)
    simpler = simpler_in_words(plan, other.value) if outcome == "faster" else None
    return Alternative(
        question=question.name,
        text=question.text,
        outcome=outcome,
        iteration_seconds=other.period,
        lower_bound_seconds=bound if throughput else None,
        slower_seconds=other.period - mine.period,
        slower_share=other.period / mine.period - 1,
        objective_value=other.value,
        price_per_iteration=other.price,
        gpus_used=other.paid,
        idle_share=other.idle_share,
        calls=differences,
        answer=answer if simpler is None else f"{answer}; {simpler}",
        placement=placement,
    )


def bill(given: Study, selected: Selected) -> Bill:
    """What a placement's calls take, and what is idle."""
    period = selected.timing.period
    placed, _ = given.space.alone(selected)
    seconds, num_gpus, busy = {}, {}, 0.0
    for call in placed.calls:
        seconds[call.id], num_gpus[call.id] = call.fixed_seconds, 0
        for option in call.options:
            count = placed.copies[option.copy].options[0].num_gpus
            seconds[call.id], num_gpus[call.id] = option.seconds, count
            busy += sum(gpus * held for gpus, held in option.held(count))
    touched = given.space.touched_gpus(selected)
    paid, price_rate = sum(touched), given.space.price_per_second(touched)
    idle = max(1 - busy / (paid * period), 0.0) if paid and period else 0.0
    value = objective_value(given.job.spec, period, price_rate, paid)
    return Bill(period, seconds, num_gpus, paid, period * price_rate, idle, value)


def _alike(one: Placement, other: Placement) -> bool:
    return {c.id: c for c in one.copies} == {c.id: c for c in other.copies} and {
        c.id: c for c in one.calls
    } == {c.id: c for c in other.calls}


def _differences(mine: Bill, other: Bill, placement: Placement) -> list[CallDifference]:
    layouts = {copy.id: copy.layout for copy in placement.copies}
    found = [
        CallDifference(
            id=call.id,
            plan_seconds=mine.seconds[call.id],
            seconds=other.seconds[call.id],
            plan_num_gpus=mine.num_gpus[call.id],
            num_gpus=other.num_gpus[call.id],
            layout=sizes(call.parallelism or layouts.get(call.copy_id or "")),
        )
        for call in placement.calls
        if abs(other.seconds[call.id] - mine.seconds[call.id]) >= SHOWN_SECONDS
        or other.num_gpus[call.id] != mine.num_gpus[call.id]
    ]
    return sorted(found, key=lambda d: -abs(d.seconds - d.plan_seconds))


def _answer(
    given: Study,
    mine: Bill,
    other: Bill,
    differences: list[CallDifference],
    solved: Proven[Selected],
    outcome: Outcome,
) -> str:
    if outcome == "same":
        return "the plan already does this"
    parts = []
    seconds = other.period - mine.period
    share = 100 * (other.period / mine.period - 1)
    word = "slower" if seconds >= 0 else "faster"
    if abs(seconds) < SHOWN_SECONDS:
        parts.append("as fast")
    else:
        parts.append(f"{abs(seconds):.2f} s ({_percent(share)}) {word}")
    objective = given.job.spec.search.objective
    if objective in ("price", "run_price") and mine.value > 0:
        dearer = 100 * (other.value / mine.value - 1)
        parts[-1] += f", {_percent(dearer)} {'dearer' if dearer >= 0 else 'cheaper'}"
    if objective == "fewest_gpus" and other.paid != mine.paid:
        parts[-1] += f", on {other.paid} GPUs instead of {mine.paid}"
    if not solved.is_proven:
        lead = f"; at least {max(solved.lower_bound - mine.value, 0.0):.2f} s"
        parts[-1] += f" (the best found{lead if objective == 'throughput' else ''})"
    moved = [
        f"{d.id} {d.plan_seconds:.2f} → {d.seconds:.2f} s on {d.num_gpus} GPUs"
        for d in differences[:3]
    ]
    if moved:
        parts.append(", ".join(moved))
    parts.append(f"idle {100 * mine.idle_share:.0f} % → {100 * other.idle_share:.0f} %")
    return "; ".join(parts)


def _percent(value: float) -> str:
    """One decimal; of what that would show as nothing the first digit."""
    size = abs(value)
    return f"{size:.1f} %" if size >= 0.05 or not size else f"{size:.1g} %"
