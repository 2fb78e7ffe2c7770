"""What `automap calibrate` shows: the factors, and what they change of the calls that were run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from automap.planner.profiles import Corrections, Evidence
from automap.planner.runs import Base
from automap.service.cli.calibrate.measured_runs import LENGTH
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.tables import NOTHING, plain_table


@dataclass(frozen=True, slots=True)
class Learnt:
    """A profile that was calibrated."""

    base: Base
    folder: Path
    """What the new version predicts."""
    evidence: list[Evidence]
    """Over the runs that were given."""
    before: Corrections
    after: Corrections


@dataclass(frozen=True, slots=True)
class CallChange:
    """A term of a call of a run: what it was and is predicted to take, and what it took."""

    run: str
    call: str
    kind: str
    gpu_type: str
    iterations: int
    predicted_before: float
    measured: float
    predicted_after: float


@dataclass(frozen=True, slots=True)
class Iteration:
    """A whole iteration of a run: its calls, and what lies between them."""

    run: str
    planned: float
    """What the plan says, with whatever it was priced."""
    predicted_before: float | None
    """By the profile that was calibrated; None: none was, or the plan cannot be priced here."""
    measured: float | None
    predicted_after: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that the command did."""

    learnt: Sequence[Learnt]
    iterations: Sequence[Iteration]
    spec: str | None
    lengths: Mapping[str, float] | None
    warnings: Sequence[str]


def show(done: Calibration, *, as_json: bool, quiet: bool) -> None:
    """On stdout what was done, on stderr what could not be used."""
    for warning in done.warnings:
        console.stderr_console().print(Text(f"warning: {warning}"), soft_wrap=True)
    if as_json:
        console.write_json(json.dumps(_document(done), indent=2))
        return
    out = console.stdout_console()
    for each in done.learnt:
        _show_profile(out, each, quiet=quiet)
    if done.learnt and not quiet:
        out.print(_changes_table(done))
    for each in done.learnt:
        out.print(Text(f"Written to {each.folder}"), soft_wrap=True)
    for whole in () if done.learnt else done.iterations:
        figures = f"{formats.seconds(whole.planned)} s planned, {_seconds(whole)[1]} s measured"
        out.print(Text(f"Iteration: {figures}"))
    if done.lengths is not None:
        quantiles = ", ".join(f"{name} {value:g}" for name, value in done.lengths.items())
        out.print(Text(f"Response lengths: {quantiles}; written to {done.spec}"))


def _document(done: Calibration) -> dict[str, object]:
    return {
        "profiles": [
            {
                "gpu_type": each.base.gpu.name,
                "based_on": _origin(each),
                "pools": list(each.base.pools),
                "folder": str(each.folder),
                "corrections": each.after.model_dump(mode="json"),
            }
            for each in done.learnt
        ],
        "calls": [asdict(change) for change in _changes(done.learnt)],
        "iterations": [asdict(each) for each in done.iterations],
        "spec": None if done.lengths is None else done.spec,
        LENGTH: done.lengths,
        "warnings": list(done.warnings),
    }


def _origin(learnt: Learnt) -> str:
    return "shipped" if learnt.base.folder is None else str(learnt.base.folder)


def _changes(learnt: Sequence[Learnt]) -> Iterator[CallChange]:
    for each in learnt:
        for seen in each.evidence:
            term = (seen.kind, seen.role_class)
            yield CallChange(
                run=seen.run,
                call=seen.call,
                kind=seen.kind,
                gpu_type=each.base.gpu.name,
                iterations=seen.iterations,
                predicted_before=seen.predicted * each.before.factor(*term),
                measured=seen.measured,
                predicted_after=seen.predicted * each.after.factor(*term),
            )


def _show_profile(out: Console, learnt: Learnt, *, quiet: bool) -> None:
    """The factors of one GPU type, with which of its pools taught them."""
    if quiet:
        return
    origin = "the shipped tables" if learnt.base.folder is None else str(learnt.base.folder)
    pools = ", ".join(learnt.base.pools)
    plural = "s" if len(learnt.base.pools) > 1 else ""
    line = f"{learnt.base.gpu.name}: {origin}, taught by the calls of pool{plural} {pools}"
    out.print(Text(line), soft_wrap=True)
    table = plain_table()
    for header in ("kind", "models", "factor", "observations", "measured ÷ predicted"):
        table.add_column(header, justify="left" if header in ("kind", "models") else "right")
    for each in learnt.after.corrections:
        own = [
            seen
            for seen in learnt.after.evidence
            if (seen.kind, seen.role_class) == (each.kind, each.role_class)
        ]
        cells = (each.kind, each.role_class, f"{each.factor:.3f}", str(each.observations))
        table.add_row(*cells, _ratios(own))
    out.print(table)
    if learnt.after.between:
        between = f"{1e3 * learnt.after.between_calls_seconds:.1f} ms"
        out.print(Text(f"Between a call and the next: {between}"), soft_wrap=True)


def _ratios(evidence: Sequence[Evidence]) -> str:
    ratios = sorted(each.measured / each.predicted for each in evidence)
    if not ratios:
        return NOTHING
    least, most = f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}"
    return least if least == most else f"{least} to {most}"


def _changes_table(done: Calibration) -> Table:
    """Seconds of each call and iteration of each run: predicted before, measured, and after."""
    changes = list(_changes(done.learnt))
    runs = list(dict.fromkeys([each.run for each in changes]))
    table = plain_table()
    if len(runs) > 1:
        table.add_column("run", overflow="fold")
    table.add_column("call")
    for header in ("before s", "measured s", "after s"):
        table.add_column(header, justify="right")
    for run in runs:
        named = (run,) if len(runs) > 1 else ()
        for each in (change for change in changes if change.run == run):
            label = f"{each.call}: {each.kind}" if each.kind == "transition" else each.call
            table.add_row(*named, label, *_seconds(each))
        for whole in (each for each in done.iterations if each.run == run):
            table.add_row(*named, "iteration", *_seconds(whole))
    return table


def _seconds(change: CallChange | Iteration) -> list[str]:
    values = (change.predicted_before, change.measured, change.predicted_after)
    return [NOTHING if value is None else formats.seconds(value) for value in values]
