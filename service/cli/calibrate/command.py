"""`automap calibrate`: what runs measured becomes a new version of a profile, or of a spec."""

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError

from automap.planner import Plan, catalogue, estimate
from automap.planner.errors import PlanningError
from automap.planner.profiles import (
    SHIPPED,
    BetweenCalls,
    Evidence,
    device_type,
    read_corrections,
)
from automap.planner.runs import (
    QUANTILES,
    Base,
    ObservedLengths,
    bases_of,
    between_calls,
    calibrate,
    check_output,
    evidence_of,
    pools_of,
    with_profiles,
)
from automap.planner.spec import LengthSpec
from automap.service.cli.backends.client import Service
from automap.service.cli.calibrate.measured_runs import (
    AUTOMAP,
    LENGTH,
    MeasuredRun,
    is_id,
    read_foreign,
    read_job,
    read_run,
)
from automap.service.cli.calibrate.view import Calibration, Iteration, Learnt, show
from automap.service.cli.inputs.files import read_document
from automap.service.cli.options.runs import CalibrateArguments
from automap.service.cli.terminal.failures import BadInputError, naming_options
from automap.service.schemas.documents import MAX_DOCUMENT_BYTES


def run_calibrate(given: CalibrateArguments) -> None:
    """Write the calibrated profiles, the spec, or both, and show what was learnt."""
    _check(given)
    runs = [_read(each, given) for each in given.runs]
    warnings = [f"{run.source}: {each}" for run in runs for each in run.warnings]
    learnt: list[Learnt] = []
    if given.output is not None:
        learnt = _learn(runs, given.profile, Path(given.output).expanduser().absolute())
        warnings += _of_other_types(runs, learnt)
    lengths = None
    if given.spec is not None:
        assert given.output_spec is not None
        lengths = _write_spec(given.spec, given.output_spec, runs)
    view = Calibration(
        learnt=learnt,
        iterations=_iterations(runs, learnt),
        spec=given.output_spec,
        lengths=lengths,
        warnings=warnings,
    )
    show(view, as_json=given.show.json, quiet=given.show.quiet)


def _check(given: CalibrateArguments) -> None:
    if given.profile is not None and given.output is None:
        raise BadInputError("--profile needs --output")
    if (given.spec is None) != (given.output_spec is None):
        there, lacking = ("--spec", "--output-spec")[:: 1 if given.spec is not None else -1]
        raise BadInputError(f"{there} needs {lacking}")
    if given.output is None and given.spec is None:
        raise BadInputError(
            "nothing to calibrate: give a profile, a spec or both",
            [
                "--output FOLDER corrects the profile that priced the plan, or that of --profile",
                "--spec SPEC --output-spec SPEC2 takes over the lengths of the responses",
            ],
        )


def _read(source: str, given: CalibrateArguments) -> MeasuredRun:
    if given.format == AUTOMAP and given.server is not None and is_id(source):
        return read_job(source, Service(given.server, given.api_key))
    if given.format == AUTOMAP:
        return read_run(source, plan=given.plan)
    if given.plan is None:
        raise BadInputError(f"--format {given.format} needs --plan PLAN: what was run")
    return read_foreign(source, given.format, plan=given.plan)


def _learn(runs: Sequence[MeasuredRun], given: str | None, output: Path) -> list[Learnt]:
    """The new versions, written: of one GPU type to `output`, of several to folders in there."""
    check_output(output)
    with tempfile.TemporaryDirectory(prefix="automap-shipped-") as scratch:
        taught = []
        for base in _bases(runs, given):
            folder = base.materialised(Path(scratch))
            if evidence := _evidence(runs, base, folder, is_given=given not in (None, SHIPPED)):
                taught.append((base, folder, evidence))
        if not taught:
            raise BadInputError(
                "these runs say nothing of this profile",
                ["a run needs an iteration after its warm-up, and a call that it times"],
            )
        learnt = []
        for base, folder, evidence in taught:
            written = output if len(taught) == 1 else output / base.gpu.name
            before = read_corrections(folder)
            after = calibrate(folder, written, evidence, _between(runs, evidence))
            learnt.append(Learnt(base, written, evidence, before, after))
    return learnt


def _bases(runs: Sequence[MeasuredRun], given: str | None) -> list[Base]:
    """The profile that was named, or those that priced the plans."""
    plans = [run.plan for run in runs]
    if given is None or given == SHIPPED:
        with naming_options({}, otherwise=f"cannot learn from {runs[0].source}"):
            return bases_of(plans, shipped=given is not None)
    folder = Path(given).expanduser().absolute()
    gpu = catalogue.gpu_type(device_type(folder, field="--profile"), field="--profile")
    pools = dict.fromkeys(name for plan in plans for name in pools_of(plan, gpu.name))
    return [Base(gpu, folder, tuple(pools))]


def _evidence(
    runs: Sequence[MeasuredRun], base: Base, folder: Path, *, is_given: bool
) -> list[Evidence]:
    """`is_given`: a run on other GPU types is a mistake, not one that teaches another profile."""
    found = []
    for run in runs:
        if is_given or pools_of(run.plan, base.gpu.name):
            with naming_options({}, otherwise=f"cannot learn from {run.source}"):
                found += evidence_of(run.plan, run.observed, folder, run=run.source)
    return found


def _between(runs: Sequence[MeasuredRun], evidence: Sequence[Evidence]) -> list[BetweenCalls]:
    """What lies between the calls of the runs that say something of a profile."""
    taught = {each.run for each in evidence}
    found = (
        between_calls(run.plan, run.observed, run.iteration_seconds, run=run.source)
        for run in runs
        if run.source in taught
    )
    return [each for each in found if each is not None]


def _of_other_types(runs: Sequence[MeasuredRun], learnt: Sequence[Learnt]) -> Iterator[str]:
    """Which calls teach nothing, because they ran on what no calibrated profile is of."""
    for run in runs:
        known = {pool for each in learnt for pool in each.base.pools}
        pool_of = {copy.id: copy.pool for copy in run.plan.copies}
        placed = {call.id: pool_of[call.copy_id] for call in run.plan.calls if call.copy_id}
        seen = [each.call for each in run.observed if placed.get(each.call, "") not in {*known, ""}]
        if seen:
            pools = ", ".join(dict.fromkeys(placed[call] for call in seen))
            yield f"{run.source}: {', '.join(seen)} ran in {pools}: of other GPU types, not learnt"


def _iterations(runs: Sequence[MeasuredRun], learnt: Sequence[Learnt]) -> list[Iteration]:
    before = {each.base.gpu.name: str(each.base.folder or SHIPPED) for each in learnt}
    after = {each.base.gpu.name: str(each.folder) for each in learnt}
    return [
        Iteration(
            run=run.source,
            planned=run.plan.iteration_seconds,
            predicted_before=_predicted(run.plan, before),
            measured=run.iteration_seconds,
            predicted_after=_predicted(run.plan, after),
        )
        for run in runs
        if run.iteration_seconds is not None
    ]


def _predicted(plan: Plan, profiles: dict[str, str]) -> float | None:
    """Seconds of an iteration of the plan with these profiles; None: it cannot be priced here."""
    if not profiles:
        return None
    try:
        spec = plan.spec.model_copy(update={"cluster": with_profiles(plan, profiles)})
        return estimate(spec, plan.placement()).iteration_seconds
    except PlanningError:  # another profile of its is not here, say
        return None


def _write_spec(source: str, output: str, runs: Sequence[MeasuredRun]) -> dict[str, float]:
    """The spec with the lengths that the runs observed; its maximum stays."""
    document = read_document(source, max_bytes=MAX_DOCUMENT_BYTES)
    try:
        assert isinstance(document, dict)
        before = LengthSpec.model_validate(document["workload"][LENGTH])
    except (AssertionError, KeyError, TypeError, ValidationError):
        raise BadInputError(f"{source}: no job spec with a workload.{LENGTH}") from None
    known = [run.lengths for run in runs if run.lengths]
    means = {
        name: statistics.fmean(each[name] for each in known)
        for name in (*QUANTILES, "mean")
        if known and all(name in each for each in known)
    }
    if not means:
        raise BadInputError(
            "these runs do not say how long their responses were",
            [f"their reports need the metrics {LENGTH}/p50, p90 and p99, or {LENGTH}/mean"],
        )
    observed = ObservedLengths(**means).spec(before)
    document["workload"][LENGTH] = observed.model_dump(exclude_none=True)
    lengths: dict[str, float] = observed.model_dump(exclude_none=True, exclude={"max"})
    try:
        Path(output).write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"cannot write {output}: {error.strerror or error}") from None
    return lengths
