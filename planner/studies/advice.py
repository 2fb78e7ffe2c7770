"""Advice on a launch of another framework: the few changes of it that are worth most.

Advice is an import, a plan and the difference of their exports. The launch is read and priced; its
job is planned inside its framework, on the same GPUs, with the same training engine; where the plan
decides a group of things otherwise, the lines that say so are an offer. Every offer is priced by
reading the launch again with its lines changed, so that what is promised is what an import of the
changed launch will say. The best one is taken, then the best given that one, and so on.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from automap.planner.assembly.intervals import difference_bounds
from automap.planner.errors import InfeasibleError, PlanningError
from automap.planner.frameworks.description import ENGINES
from automap.planner.imports.importing import import_launch
from automap.planner.imports.launch import Answers, Imported, LaunchFile, LineChange
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import end_of_pricing, make_plan_of
from automap.planner.search import price_candidates
from automap.planner.spec import JobSpec, ParallelismConstraint
from automap.planner.studies.advice_offers import (
    NOTHING,
    Group,
    Offer,
    learning_offers,
    offers_of,
)
from automap.planner.studies.advice_pricing import Priced, Pricer, priced
from automap.planner.studies.advice_result import Advice, AdvisedChange, GainInterval

MOST_CHANGES = 3
PINS = "constraints.parallelism"
"""The field that holds the launch's ranges while its job is planned."""
LEAST_SHARE = 0.01
"""Share of an iteration that a change must save: less is lost among what no estimate knows."""
NEEDLESS_SHARE = 0.001
"""Share of an iteration below which a part of a change is left out, all of a role's lines."""


@dataclass(frozen=True, slots=True)
class Step:
    """Offers that are taken together, with the lines of them that matter."""

    offers: tuple[Offer, ...]
    lines: tuple[LineChange, ...]
    after: Priced


def advise(
    files: Sequence[LaunchFile],
    target: str,
    answers: Answers,
    *,
    learning: bool = False,
    least_share: float = LEAST_SHARE,
    time_limit_seconds: float | None = None,
) -> Advice:
    """What is wrong with a launch, and at most three changes that are worth most.

    Args:
        files: The launch; they are read as text, and no other is opened.
        target: Its framework, `name@version`.
        answers: What no launch says.
        learning: Also offer what changes what is learned.
        least_share: Share of an iteration that a change must save.
        time_limit_seconds: Limit of the search; None: the spec's default.

    Raises:
        NotImportableError: something of the launch is missing, wrong or not read.
        SpecError: no such framework is described, or the catalogue has no such GPU.
    """
    started = time.perf_counter()
    imported = import_launch(files, target, answers)
    now, pricer = priced(imported), Pricer(files, target, answers)
    plan, unplanned = _best(imported, time_limit_seconds)
    offers = [] if plan is None else offers_of(imported, plan)
    if learning:
        offers += learning_offers(imported)
    least_seconds = 0.0 if learning or plan is None else plan.lower_bound_seconds
    steps = _steps(pricer, now, offers, least_share, least_seconds)
    last = steps[-1].after if steps else now
    return Advice(
        target=imported.target,
        file=imported.file,
        line=imported.line,
        iteration_seconds=now.plan.iteration_seconds if now.plan else None,
        iteration_seconds_interval=now.plan.iteration_seconds_interval if now.plan else None,
        unfit=now.unfit,
        hazards=now.hazards,
        out_of_memory_probability=now.chance,
        remarks=imported.remarks,
        changes=_changes(pricer, now, steps),
        together_seconds=last.plan.iteration_seconds if last.plan else None,
        left=last.reasons,
        left_out_of_memory_probability=last.chance,
        together_gain_interval=_gain_interval(now, last) if steps else None,
        least_share=least_share,
        best_seconds=None if plan is None else min(_best_seconds(plan), last.seconds),
        proven=plan is not None and _is_complete(plan),
        unplanned=unplanned,
        seconds=time.perf_counter() - started,
    )


def _best_seconds(plan: Plan) -> float:
    """What the best plan takes at least; a simple one is within a tolerance of it."""
    simple = plan.search.within_tolerance is not None
    return plan.lower_bound_seconds if simple else plan.iteration_seconds


def _is_complete(plan: Plan) -> bool:
    """Whether the search for it ended by itself."""
    return plan.search.status == "optimal" or plan.search.within_tolerance is not None


def _best(imported: Imported, time_limit_seconds: float | None) -> tuple[Plan | None, str]:
    """The best plan of the job on the launch's GPUs with its engine; or why there is none."""
    if imported.spec.search.target != imported.target:
        return None, f"nothing is planned inside {imported.target} for this job"
    began = time.perf_counter()
    try:
        job = _in_place(imported, time_limit_seconds)
        tables = price_candidates(job, deadline=end_of_pricing(job, began))
        plan = make_plan_of(job, tables, pricing_seconds=time.perf_counter() - began)
    except InfeasibleError as error:
        # The ranges are the launch's: leaving them out is nothing that it could do.
        told = [each.summary for each in error.reasons if PINS not in each.summary]
        return None, "; ".join(told)
    except PlanningError as error:
        return None, str(error)
    return plan, ""


def _in_place(imported: Imported, time_limit_seconds: float | None) -> Job:
    """The launch's job, with every copy on as many GPUs as the launch gives it."""
    spec, copies = imported.spec, imported.placement.copies
    apart = any(copy.kind == "shadow" for copy in copies)
    sizes = {copy.id: ParallelismConstraint(num_gpus=copy.num_gpus) for copy in copies}
    constraints = spec.constraints.model_copy(
        update={"parallelism": sizes, "allow_shadow_copies": apart}
    )
    limit = {} if time_limit_seconds is None else {"time_limit_seconds": time_limit_seconds}
    search = spec.search.model_copy(update=limit)
    updated = {"constraints": constraints, "search": search}
    job = resolve(JobSpec.model_validate(spec.model_copy(update=updated).model_dump()))
    actor = next(copy for copy in copies if copy.id == "actor")
    engine = "fsdp" if actor.layout.sharding in ("gradient", "full") else "megatron"
    known = tuple(
        each for each in job.target.training if each.name == engine or each.name not in ENGINES
    )
    return replace(job, target=replace(job.target, training=known))


def _steps(
    pricer: Pricer, now: Priced, offers: list[Offer], least_share: float, least_seconds: float
) -> list[Step]:
    """What to take, the best first, each given those before it; none is below `least_seconds`."""
    steps: list[Step] = []
    rest = list(offers)
    while rest and len(steps) < MOST_CHANGES:
        mended = now.faults == (False, 0)
        if mended and (1 - least_share) * now.seconds < least_seconds:
            break
        lines = [line for step in steps for line in step.lines]
        step = _best_step(pricer, lines, now, rest, least_share)
        if step is None:
            break
        steps.append(step)
        now = step.after
        left = [each.without(step.lines) for each in step.offers]
        rest = [each for each in [*rest, *left] if each.lines and each not in step.offers]
    return steps


def _best_step(
    pricer: Pricer,
    taken: list[LineChange],
    now: Priced,
    rest: list[Offer],
    least_share: float,
) -> Step | None:
    """The offer that is worth most; of what does not fit by itself, with another one.

    Two offers count for half of what they save each. Where nothing is found all twos are tried, and
    all offers at once.
    """
    singles = [_tried(pricer, taken, each) for each in combinations(rest, 1)]
    blocked = [each.offers[0] for each in singles if each.after.faults > now.faults]
    pairs = [two for two in combinations(rest, 2) if any(each in blocked for each in two)]
    others = [two for two in combinations(rest, 2) if two not in pairs]
    paired = [_tried(pricer, taken, each) for each in pairs]
    steps = _worth(now, [*singles, *paired], least_share)
    if not steps:
        more = [_tried(pricer, taken, each) for each in [*others, tuple(rest)]]
        steps = _worth(now, more, least_share)
    if not steps:
        return None
    return _without_needless(pricer, taken, min(steps, key=lambda step: _score(now, step)))


def _worth(now: Priced, steps: list[Step], least_share: float) -> list[Step]:
    return [step for step in steps if _is_worth(now, step.after, least_share)]


def _tried(pricer: Pricer, taken: list[LineChange], offers: tuple[Offer, ...]) -> Step:
    added = tuple(line for offer in offers for line in offer.lines)
    return Step(offers, added, pricer.with_lines([*taken, *added]))


def _score(now: Priced, step: Step) -> tuple[tuple[bool, int], float, float]:
    """What is least of the best step: faults, then seconds over offers, or their number."""
    if now.plan is None:
        return step.after.faults, len(step.offers), step.after.seconds
    return step.after.faults, (step.after.seconds - now.seconds) / len(step.offers), 0.0


def _is_worth(now: Priced, after: Priced, least_share: float) -> bool:
    """Whether a launch is better by enough: it fits, less is wrong with it, or it is faster."""
    if now.plan is not None and not _has_memory(now, after):
        return False
    if after.faults != now.faults:
        return after.faults < now.faults
    if after.plan is None or now.plan is None:
        return False
    return after.seconds <= (1 - least_share) * now.seconds


def _has_memory(now: Priced, after: Priced) -> bool:
    """Whether a launch runs out of memory no more likely than a plan may, or than it does now."""
    chances = [
        0.0 if each.plan is None else each.plan.out_of_memory_probability or 0.0
        for each in (now, after)
    ]
    return chances[1] <= max(after.allowed_chance, chances[0])


def _without_needless(pricer: Pricer, taken: list[LineChange], step: Step) -> Step:
    """The step without the parts that save next to nothing."""
    parts = {
        line.name: (offer.group.name, part)
        for offer in step.offers
        for line, part in zip(offer.lines, offer.parts, strict=True)
    }
    allowed = (1 + NEEDLESS_SHARE) * step.after.seconds
    for part in dict.fromkeys(parts.values()):
        kept = tuple(line for line in step.lines if parts[line.name] != part)
        without = pricer.with_lines([*taken, *kept])
        is_as_good = without.faults <= step.after.faults and without.seconds <= allowed
        if kept and is_as_good and _has_memory(step.after, without):
            step = replace(step, lines=kept, after=without)
    return step


def _changes(pricer: Pricer, launch: Priced, steps: list[Step]) -> list[AdvisedChange]:
    found: list[AdvisedChange] = []
    before = launch
    for number, step in enumerate(steps):
        after, alone = step.after, pricer.with_lines(step.lines)
        assert after.plan is not None, "what does not fit is no step"
        gain = None if before.plan is None else before.seconds - after.seconds
        has_both = launch.plan is not None and alone.plan is not None
        groups = [offer.group for offer in step.offers]
        found.append(
            AdvisedChange(
                what=[group.name for group in groups],
                lines=list(step.lines),
                gain_seconds=gain,
                gain_share=None if gain is None else gain / before.seconds,
                gain_seconds_interval=_gain_interval(before, after),
                iteration_seconds=after.seconds,
                alone_gain_seconds=launch.seconds - alone.seconds if has_both else None,
                alone_reasons=[each for each in alone.reasons if each not in launch.reasons],
                needs=_needs(pricer, steps[:number], step),
                memory_left_bytes=_memory_left(after.plan),
                out_of_memory_probability=after.plan.out_of_memory_probability,
                numerics=_numerics(groups),
                changes_learning=any(group.learning for group in groups),
            )
        )
        before = after
    return found


def _numerics(groups: Iterable[Group]) -> str:
    """What groups do to results; nothing is only said where it is true of all."""
    found = dict.fromkeys(group.numerics for group in groups if group.numerics != NOTHING)
    return "; ".join(found) or NOTHING


def _needs(pricer: Pricer, earlier: Sequence[Step], step: Step) -> list[str]:
    """Names of the steps before it without which it does not fit; empty: it does alone."""
    if pricer.with_lines(step.lines).plan is not None:
        return []
    needed = list(earlier)
    for each in earlier:
        others = [other for other in needed if other is not each]
        if pricer.with_lines([*_lines(others), *step.lines]).plan is not None:
            needed = others
    return [offer.group.name for each in needed for offer in each.offers]


def _lines(steps: Iterable[Step]) -> list[LineChange]:
    return [line for step in steps for line in step.lines]


def _memory_left(plan: Plan) -> int:
    """Bytes that are free on the fullest GPU."""
    placed = [call for call in plan.calls if call.copy_id is not None]
    return max(min(call.capacity_bytes - call.peak_bytes for call in placed), 0)


def _gain_interval(before: Priced, after: Priced) -> GainInterval | None:
    if before.plan is None or after.plan is None:
        return None
    low, high = difference_bounds(before.plan, after.plan)
    return GainInterval(low=low, high=high)
