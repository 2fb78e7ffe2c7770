"""Whether a plan can be run with these settings, before anything is started."""

from collections.abc import Iterator, Sequence

from automap.executor.errors import RunError
from automap.executor.folders import opened_code
from automap.executor.runtime.placement import DeviceRange
from automap.executor.settings import RunSettings
from automap.executor.workers.model_setup import ModelSetup, model_setups
from automap.planner import Plan
from automap.planner.dataflow import PROGRAMS, Program, check_program, load_program
from automap.planner.job import Job, resolve
from automap.planner.plan import refusals
from automap.planner.targets import AUTOMAP


def check_run(plan: Plan, settings: RunSettings) -> dict[str, ModelSetup]:
    """Every copy's set-up, before anything is started.

    Raises:
        RunError: the plan or the settings cannot be run.
    """
    program = program_of(plan, settings)
    check_plan(plan, settings, program)
    return model_setups(
        resolve(plan.spec, program=program, with_profiles=False), plan.placement(), settings
    )


def check_plan(plan: Plan, settings: RunSettings, program: Program) -> None:
    """Refuse what can be planned, but not run.

    Also functions that nobody says or asks for, and old rollouts that no loss makes up for.

    Raises:
        RunError: names the field.
    """
    _check_functions(plan, settings)
    _check_target(plan)
    _check_continuous(plan, settings)
    _check_correction(plan, settings, program)


def program_of(plan: Plan, settings: RunSettings) -> Program:
    """The algorithm's, or the user's own for a dataflow that a spec wrote out."""
    if plan.algorithm is not None:
        if settings.program is not None:
            raise RunError(
                f"program: {settings.program} is given, but the plan is of {plan.algorithm}; leave "
                "it out, or plan with `algorithm: file.py:NAME`"
            )
        return PROGRAMS[plan.algorithm]
    if settings.program is None:
        raise RunError(
            "program: the plan is of an explicit dataflow; say which program runs it, as "
            "module:NAME or file.py:NAME"
        )
    program = load_program(opened_code(settings.program, field="program"), field="program")
    check_program(program, plan.spec)
    return program


def _check_target(plan: Plan) -> None:
    """Refuse what can be planned, but not run: more than the capabilities of the executor."""
    refused = AUTOMAP.refuses_job(plan.spec)
    if refused is not None:
        lacks = [f"{refused[0]}: {refused[1]}"]
    else:
        job = resolve(plan.spec, with_profiles=False)
        lacks = [*refusals(job, plan.placement(), AUTOMAP), *_other_stages(job, plan)]
    if lacks:
        raise RunError(
            f"the plan is one that can be priced, but not run: {'; '.join(lacks)}; plan with "
            "search.target: automap"
        )


def _check_correction(plan: Plan, settings: RunSettings, program: Program) -> None:
    """Refuse staleness without a correction, and corrections of what needs none."""
    wrong = settings.algorithm.wrong_correction(
        staleness=plan.staleness,
        old_log_probs=plan.spec.workload.old_log_probs,
        has_importance_ratio=program.has_importance_ratio,
    )
    if wrong is not None:
        raise RunError(f"{wrong.field}: {wrong.message}; {wrong.remedy}")


def _check_continuous(plan: Plan, settings: RunSettings) -> None:
    """Refuse continuous rollouts that share devices, or would read an old cache."""
    search, field = plan.spec.search, "search.continuous_rollouts"
    if not search.continuous_rollouts:
        return
    ranges = {copy.id: DeviceRange.of(copy) for copy in plan.copies}
    for call in plan.calls:
        if call.kind != "generate" or call.copy_id is None:
            continue
        own = set(ranges[call.copy_id].devices)
        shared = [
            copy_id
            for copy_id, where in ranges.items()
            if copy_id != call.copy_id and not own.isdisjoint(where.devices)
        ]
        if shared:
            raise RunError(
                f"{field}: {call.id} lies on devices of {', '.join(shared)}, but what generates "
                "all the time has devices of its own; place it apart"
            )
    if settings.rollout.prefix_caching and search.keep_cache_at_sync:
        raise RunError(
            "rollout.prefix_caching: with search.keep_cache_at_sync new responses would begin with "
            "what older weights computed; set one of the two to false"
        )


def _other_stages(job: Job, plan: Plan) -> Iterator[str]:
    """Pipeline stages that the plan states and the engines would cut otherwise."""
    roles = {copy.id: copy.role for copy in plan.copies}
    stated = [
        (f"copy {copy.id}", copy.id, copy.layout, copy.layers_per_stage) for copy in plan.copies
    ]
    for call in plan.calls:
        if call.copy_id is not None and call.parallelism is not None:
            stated.append(
                (f"call {call.id}", call.copy_id, call.parallelism, call.layers_per_stage)
            )
    for name, copy_id, layout, layers in stated:
        cut = layout.uneven_stages(job.models[roles[copy_id]].architecture.num_layers)
        if layers is not None and layers != cut:
            ours = cut or "equal stages"
            yield f"{name}: layers_per_stage is {layers}, but the engines cut {ours}"


def _check_functions(plan: Plan, settings: RunSettings) -> None:
    """Refuse functions and remote services without a setting, and settings without a function."""
    declared = {role for role, model in plan.spec.models.items() if not model.needs_gpus}
    missing: Sequence[str] = sorted(declared - settings.functions.keys())
    if missing:
        what = "function" if plan.spec.models[missing[0]].function else "remote service"
        raise RunError(
            f"functions.{missing[0]}: the spec declares this role as a {what}; say which function "
            f"{'computes' if what == 'function' else 'asks it for'} the scores, as module:function "
            "or file.py:function"
        )
    superfluous = sorted(settings.functions.keys() - declared)
    if superfluous:
        raise RunError(
            f"functions.{superfluous[0]}: the spec has no such function; it has {sorted(declared)}"
        )
