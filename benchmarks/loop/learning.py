"""Does calibration help? Learn from some plans of a cluster, predict the others."""

import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from automap.planner.planning import estimate
from automap.planner.profiles.corrections import Evidence
from automap.planner.runs.calibration import calibrate, evidence_of
from automap.planner.spec import ClusterSpec
from automap.service.cli.calibrate.measured_runs import observed_in
from benchmarks.loop.runs import Outcome


@dataclass(frozen=True, slots=True)
class Gain:
    """Error of predicted iterations before and after learning."""

    name: str
    """Of the plan that was learnt from, or left out."""
    before: float
    after: float


def error(predicted: float, measured: float) -> float:
    """Relative."""
    return abs(predicted / measured - 1.0)


def from_one(outcomes: Sequence[Outcome], profile: Path, folder: Path) -> list[Gain]:
    """Learn from each plan in turn; mean error over all others."""
    evidence = {id(each): _evidence(each, profile) for each in outcomes}
    gains = []
    for learnt in outcomes:
        others = [each for each in outcomes if each is not learnt]
        version = _version(evidence[id(learnt)], profile, folder)
        gains.append(_gain(learnt.variant.name, others, version))
    return gains


def leaving_one_out(outcomes: Sequence[Outcome], profile: Path, folder: Path) -> list[Gain]:
    """Learn from all plans but one; the error of that one."""
    evidence = {id(each): _evidence(each, profile) for each in outcomes}
    gains = []
    for left_out in outcomes:
        known = [row for each in outcomes if each is not left_out for row in evidence[id(each)]]
        version = _version(known, profile, folder)
        gains.append(_gain(left_out.variant.name, [left_out], version))
    return gains


def _evidence(outcome: Outcome, profile: Path) -> list[Evidence]:
    observed = observed_in(outcome.report)
    return evidence_of(outcome.plan, observed, profile, run=outcome.variant.name)


def _version(evidence: Sequence[Evidence], profile: Path, folder: Path) -> Path:
    """A folder of its own each time: the planner reads one once."""
    number = sum(1 for _ in folder.glob("version-*"))
    version = folder / f"version-{number}"
    calibrate(profile, version, evidence)
    return version


def _gain(name: str, outcomes: Sequence[Outcome], version: Path) -> Gain:
    before = [error(each.plan.iteration_seconds, each.measured) for each in outcomes]
    after = [error(_predicted(each, version), each.measured) for each in outcomes]
    return Gain(name, statistics.fmean(before), statistics.fmean(after))


def _predicted(outcome: Outcome, profile: Path) -> float:
    """Seconds of an iteration of the plan that was run, by another profile."""
    spec = outcome.plan.spec
    assert isinstance(spec.cluster, ClusterSpec), "the loop's spec has its cluster in it"
    pools = [
        pool.model_copy(update={"profile": str(profile.absolute())}) for pool in spec.cluster.pools
    ]
    priced = spec.model_copy(update={"cluster": ClusterSpec(pools=pools)})
    return estimate(priced, outcome.plan.placement()).iteration_seconds


def clean(folder: Path) -> Path:
    """An empty folder for versions."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
