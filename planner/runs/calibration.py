"""Corrections of a profile from runs: measured calls beside its prices, and a new version of it."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path

from automap.planner.assembly.parts import PricedCall, price_call, price_copy
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.pricing import Pricing, role_class
from automap.planner.errors import SpecError
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CallPlacement, Plan
from automap.planner.profiles import corrections
from automap.planner.profiles.corrections import BetweenCalls, Corrections, Evidence, TermKind
from automap.planner.profiles.folder import COLUMNS, FINGERPRINT, device_type, profile_folder

CLUSTER = "cluster.yaml"
KEPT_FILES = (FINGERPRINT, CLUSTER, "measurements.jsonl")
"""Files of a profile, beside its tables, that its new version keeps."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One call of a plan, as a run measured it."""

    call: str
    seconds: float
    """Median seconds over the iterations after the warm-up, the reshard before generation
    included."""
    iterations: int
    transition_seconds: float | None = None
    """Seconds of the reshard among these; None: not measured apart, so nothing is learnt about
    it."""


def evidence_of(
    plan: Plan, observed: Sequence[Observed], folder: Path, *, run: str
) -> list[Evidence]:
    """Compare a run's calls with what the tables in a profile's folder price them at.

    The plan itself may have been priced with any profile. Calls in pools of other GPU types,
    functions, and calls that the plan does not have are left out.

    Raises:
        SpecError: there is no such profile, or the plan is of none of the catalogue's things.
    """
    job = _priced_with(plan, folder)
    copies = {copy.id: copy for copy in plan.copies}
    flow = {call.id: call for call in job.dataflow.calls}
    pricing, calls = Pricing(job, corrected=False), {call.id: call for call in plan.calls}
    found = []
    for each in observed:
        call = calls.get(each.call)
        if call is None or call.copy_id is None or each.seconds <= 0.0:
            continue
        copy = price_copy(pricing, copies[call.copy_id])
        model = flow[call.id].model
        if copy.pool.profile is None or model is None:
            continue
        placement = CallPlacement.model_validate(
            call.model_dump(include=set(CallPlacement.model_fields))
        )
        priced = price_call(pricing, flow[call.id], placement, copy)
        parts = _parts(call.kind, priced, each)
        found += [
            Evidence(
                run=run,
                call=call.id,
                kind=kind,
                role_class=role_class(job.models[model]),
                predicted=predicted,
                measured=measured,
                iterations=each.iterations,
            )
            for kind, predicted, measured in parts
            if predicted > 0.0 and measured > 0.0
        ]
    return found


def between_calls(
    plan: Plan, observed: Sequence[Observed], iteration_seconds: float | None, *, run: str
) -> BetweenCalls | None:
    """What an iteration of a run took beside its calls and weight syncs.

    None where that is not their sum: some overlap in the plan, or were not measured.
    """
    planned = {call.id: call.end_seconds - call.start_seconds for call in plan.calls}
    planned |= {
        f"{sync.role}.sync": sync.end_seconds - sync.start_seconds for sync in plan.transitions
    }
    measured = {each.call: each.seconds for each in observed if each.call in planned}
    follow = isclose(sum(planned.values()), plan.iteration_seconds, rel_tol=1e-3)
    if iteration_seconds is None or plan.staleness or not follow or len(measured) < len(planned):
        return None
    job = resolve(plan.spec.model_copy(update={"cluster": _without_profiles(plan)}))
    calls = sum(max(call.num_updates, 1) for call in job.dataflow.calls if call.model is not None)
    return BetweenCalls(
        run=run, seconds=max(iteration_seconds - sum(measured.values()), 0.0), calls=calls
    )


def _parts(
    kind: TermKind, priced: PricedCall, measured: Observed
) -> list[tuple[TermKind, float, float]]:
    """(term, predicted, measured) seconds of a call; a generation's reshard is its own term.

    What lies between it and the next call is no part of what a run measures of it.
    """
    resharding = measured.transition_seconds
    predicted = priced.seconds - priced.seconds_by_part.between
    if kind != "generate" or resharding is None:
        return [(kind, predicted, measured.seconds)]
    transition = priced.seconds_by_part.transition
    return [
        (kind, predicted - transition, measured.seconds - resharding),
        ("transition", transition, resharding),
    ]


def _priced_with(plan: Plan, folder: Path) -> Job:
    """The plan's job, its pools of the profile's GPU type priced with the profile."""
    job = resolve(plan.spec.model_copy(update={"cluster": _without_profiles(plan)}))
    kind = device_type(folder, field="--profile")

    def priced(pool: Pool) -> Pool:
        if pool.gpu.name != kind:
            return pool
        return replace(pool, profile=profile_folder(str(folder), pool.gpu, field="--profile"))

    pools = tuple(priced(pool) for pool in job.pools)
    if all(pool.profile is None for pool in pools):
        names = ", ".join(sorted({pool.gpu.name for pool in job.pools}))
        raise SpecError(
            "--profile",
            f"{str(folder)!r} was measured on {kind}; the run was on {names}",
            remedy="give the profile of what the run was on, or leave --profile out",
        )
    return replace(job, pools=pools)


def _without_profiles(plan: Plan) -> object:
    cluster = plan.spec.cluster
    assert not isinstance(cluster, str), "a plan's spec has its cluster in it"
    pools = [pool.model_copy(update={"profile": None}) for pool in cluster.pools]
    return cluster.model_copy(update={"pools": pools})


def calibrate(
    folder: Path,
    output: Path,
    evidence: Sequence[Evidence],
    between: Sequence[BetweenCalls] = (),
) -> Corrections:
    """Write the profile with corrections, as a new version; earlier evidence counts on.

    Evidence of a run that is known already takes the place of what it said before.

    Raises:
        SpecError: `folder` is no profile, or `output` is there already.
    """
    device_type(folder, field="--profile")
    check_output(output)
    runs = {each.run for each in evidence} | {each.run for each in between}
    try:
        before = corrections.read_corrections(folder)
    except (OSError, ValueError) as error:
        raise SpecError("--profile", str(error)) from None
    kept = [each for each in before.evidence if each.run not in runs]
    earlier = [each for each in before.between if each.run not in runs]
    found = corrections.corrections_of([*kept, *evidence], [*earlier, *between])
    partial = output.with_name(f".{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    names = (*(f"{table}.parquet" for table in COLUMNS), *KEPT_FILES)
    for name in names:
        if (folder / name).exists():
            shutil.copy2(folder / name, partial / name)
    _name_itself(partial / CLUSTER, output)
    text = found.model_dump_json(indent=1) + "\n"
    (partial / corrections.FILE).write_text(text, encoding="utf-8")
    if output.exists():
        output.rmdir()
    partial.rename(output)
    return found


def check_output(output: Path, *, option: str = "--output") -> None:
    """Refuse to write a profile over anything; `option` is the one that gave the folder.

    Raises:
        SpecError: `output` is there already.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise SpecError(
            option,
            f"{str(output)!r} is there already and not an empty folder",
            remedy="give another: a profile is never written over anything",
        )


def _name_itself(cluster: Path, output: Path) -> None:
    """Make the cluster file that came with the profile name the new version."""
    if not cluster.exists():
        return
    lines = cluster.read_text(encoding="utf-8").splitlines(keepends=True)
    named = [
        f"{line[: line.index('profile:')]}profile: {json.dumps(str(output.absolute()))}\n"
        if line.lstrip(" -").startswith("profile:")
        else line
        for line in lines
    ]
    cluster.write_text("".join(named), encoding="utf-8")
