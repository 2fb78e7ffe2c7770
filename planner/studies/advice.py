"""Advice on a launch of another framework: the few changes of it that are worth most.

Advice is an import, a plan and the difference of their exports. The launch is read and priced; its
job is planned inside its framework, on the same GPUs, with the same training engine; where the plan
decides a group of things otherwise, the lines that say so are an offer. Every offer is priced by
reading the launch again with its lines changed, so that what is promised is what an import of the
changed launch will say. The best one is taken, then the best given that one, and so on.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from automap.planner.assembly.intervals import difference_bounds
from automap.planner.errors import InfeasibleError, NotImportableError, PlanningError
from automap.planner.frameworks.description import ENGINES
from automap.planner.imports.importing import import_launch
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import end_of_pricing, make_plan_of
from automap.planner.search import price_candidates
from automap.planner.spec import JobSpec, ParallelismConstraint
from automap.planner.studies.advice_cache import Caches
from automap.planner.studies.advice_offers import (
    NOTHING,
    Group,
    learning_offers,
    offers_of,
)
from automap.planner.studies.advice_pricing import Priced, Pricer, priced
from automap.planner.studies.advice_result import Advice, AdvisedChange, GainInterval, Misspelt
from automap.planner.studies.advice_steps import Step, lines_of, steps_of, with_agreed_caches

PINS = "constraints.parallelism"
"""The field that holds the launch's ranges while its job is planned."""
LEAST_SHARE = 0.01
"""Share of an iteration that a change must save: less is lost among what no estimate knows."""


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
    imported, answers = _as_meant(files, target, answers)
    now, pricer = priced(imported), Pricer(files, target, answers)
    plan, unplanned = _best(imported, time_limit_seconds)
    offers = [] if plan is None else offers_of(imported, plan)
    if learning:
        offers += learning_offers(imported)
    least_seconds = 0.0 if learning or plan is None else plan.lower_bound_seconds
    caches = Caches(pricer, imported)
    steps = steps_of(caches, now, offers, least_share, least_seconds)
    steps = with_agreed_caches(caches, steps)
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
        misspelt=list(_misspelt(imported, answers)),
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


def _as_meant(
    files: Sequence[LaunchFile], target: str, answers: Answers
) -> tuple[Imported, Answers]:
    """The launch with the keys that its misspelt ones are meant to be, if it is read so.

    Raises:
        NotImportableError: it is not read as it is, and no key is misspelt.
    """
    misspelt: Mapping[str, str]
    try:
        imported = import_launch(files, target, answers)
        misspelt = imported.misspelt
    except NotImportableError as error:
        if not error.misspelt:
            raise
        respelt = replace(answers, respelt=error.misspelt)
        return import_launch(files, target, respelt), respelt
    if misspelt:
        respelt = replace(answers, respelt=misspelt)
        with suppress(NotImportableError):
            return import_launch(files, target, respelt), respelt
    return imported, answers


def _misspelt(imported: Imported, answers: Answers) -> Iterator[Misspelt]:
    """The keys that are read as others, and where they stand."""
    settings = {each.key: each for each in imported.settings}
    for key, meant in answers.respelt.items():
        if meant in settings:
            at = settings[meant]
            yield Misspelt(key=key, meant=meant, file=at.file, line=at.line)


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
        if pricer.with_lines([*lines_of(others), *step.lines]).plan is not None:
            needed = others
    return [offer.group.name for each in needed for offer in each.offers]


def _memory_left(plan: Plan) -> int:
    """Bytes that are free on the fullest GPU."""
    placed = [call for call in plan.calls if call.copy_id is not None]
    return max(min(call.capacity_bytes - call.peak_bytes for call in placed), 0)


def _gain_interval(before: Priced, after: Priced) -> GainInterval | None:
    if before.plan is None or after.plan is None:
        return None
    low, high = difference_bounds(before.plan, after.plan)
    return GainInterval(low=low, high=high)
