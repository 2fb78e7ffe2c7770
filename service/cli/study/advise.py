"""`automap advise`: which lines of a launch to change, and what that is worth."""

from dataclasses import replace

import typer
from rich.console import Console
from rich.text import Text

from automap.planner import Advice, advise, rewrite
from automap.planner.errors import Reason
from automap.planner.frameworks import framework
from automap.planner.imports import (
    Answers,
    LaunchFile,
    LineChange,
    Remark,
    is_argument,
    is_left_out,
    unpriced_savings,
)
from automap.planner.studies import AdvisedChange, GainInterval
from automap.service.cli.inputs.launches import read_launch
from automap.service.cli.options.plans import AdviseArguments
from automap.service.cli.plan.inputs import working
from automap.service.cli.study.import_launch import answers_of, reporting_launch
from automap.service.cli.study.rewriting import need_output, show_rewritten, write_launch
from automap.service.cli.study.verdicts import FAILS, OTHERWISE, SAVES, in_words, show_remarks
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import EXIT_NO_PLAN

SHOWN = {
    "priced otherwise": OTHERWISE,
    "saves memory": SAVES,
    "not priced": "not priced",
    "contradiction": "contradicts itself",
    "without effect": "without effect",
    "replaced": "of an earlier version",
    "unknown key": "unknown keys",
}
"""Kind of remark → its heading; what else there is to know of a launch, automap import says."""
WITHOUT = ("priced otherwise", "saves memory", "not priced")
"""Kinds of remarks on settings without which seconds are, and what is proven."""


NO_SECONDS = 5e-4
"""Seconds below which an interval's end is none."""


def run_advise(given: AdviseArguments) -> None:
    """Read a launch, plan its job, and show what is worth changing."""
    files = read_launch(given.files)
    if given.write is not None:
        need_output("--write", given.write)
    source, answers = answers_of(given.said, files)
    with (
        reporting_launch(given.files),
        working("Planning it inside its framework", given.show),
    ):
        advice = advise(
            files,
            source,
            answers,
            learning=given.allow_learning_changes,
            least_share=given.at_least,
            time_limit_seconds=given.search_seconds,
        )
    if given.show.json:
        console.write_json(advice.model_dump_json(indent=2, by_alias=True))
    else:
        _show(advice, given)
    if given.write is not None:  # after the advice, which also helps where nothing can be written
        _write(advice, files, answers, given)
    if advice.left:
        raise typer.Exit(EXIT_NO_PLAN)


def _show(advice: Advice, given: AdviseArguments) -> None:
    out = console.stdout_console()
    if not given.show.quiet:
        _show_launch(advice, given, out)
        for number, change in enumerate(advice.changes, 1):
            _show_change(number, change, advice.target, out)
        out.print()
    out.print(Text(_summary(advice), style="bold"), soft_wrap=True)


def _write(
    advice: Advice, files: list[LaunchFile], answers: Answers, given: AdviseArguments
) -> None:
    """The launch with all changes, as a file."""
    lines = [line for change in advice.changes for line in change.lines]
    answers = replace(answers, respelt={each.key: each.meant for each in advice.misspelt})
    with reporting_launch(given.files, refused="cannot be written"):
        written = rewrite(files, advice.target, answers, lines)
    output = given.write or ""
    write_launch(written, output)
    show_rewritten(written, output, files)


def _show_launch(advice: Advice, given: AdviseArguments, out: Console) -> None:
    """The launch as it is: what is wrong with it first, then its seconds."""
    where = f"{formats.printable(advice.file)} line {advice.line}"
    if advice.unfit:
        heading = (
            "does not fit by its price" if unpriced_savings(advice.remarks) else "does not fit"
        )
        _show_reasons(f"{where}: {heading}", advice.unfit, out)
    if advice.hazards:
        _show_reasons(f"{where}: {FAILS}", advice.hazards, out)
    if advice.out_of_memory_probability is not None:
        chance = formats.chance(advice.out_of_memory_probability)
        out.print(Text(f"{where}: may run out of memory ({chance})", style="bold yellow"))
    _show_misspelt(advice, given, out)
    told = [each for each in advice.remarks if each.kind != "not priced" or _is_of_setting(each)]
    for kind, heading in SHOWN.items():
        show_remarks([each for each in told if each.kind == kind], heading, out)
    if advice.iteration_seconds is not None:
        took = formats.interval(advice.iteration_seconds, advice.iteration_seconds_interval)
        if advice.hazards:
            took = f"were it to run as it says, {took}"
        out.print(Text(f"{where}: {took} per iteration"), soft_wrap=True)


def _show_misspelt(advice: Advice, given: AdviseArguments, out: Console) -> None:
    """Keys that no one reads as they are written, and what they are read as here."""
    if not advice.misspelt:
        return
    done = "and put right in what is written" if given.write else "and put right with --write"
    heading = f"misspelt, read here as they are meant, {done}"
    out.print(Text(f"\n{heading}", style="bold"), soft_wrap=True)
    for each in advice.misspelt:
        where = f"{each.file}:{each.line}" if each.line else each.file
        told = f"{where}: {each.key} is no key of {advice.target}: {each.meant}"
        out.print(Text(f"  {formats.printable(told)}"), soft_wrap=True)


def _show_reasons(heading: str, reasons: list[Reason], out: Console) -> None:
    out.print(Text(heading, style="bold yellow"), soft_wrap=True)
    for line in in_words(reasons):
        out.print(Text(f"  {formats.printable(line)}"), soft_wrap=True)


def _show_change(number: int, change: AdvisedChange, target: str, out: Console) -> None:
    heading = f"\n{number}. {', with '.join(change.what)}: {_gain(change)}"
    out.print(Text(heading, style="bold"), soft_wrap=True)
    for line in change.lines:
        out.print(Text(f"  {formats.printable(_line(line, target))}"), soft_wrap=True)
    out.print(Text(f"  {_alone(change)}", style="dim"), soft_wrap=True)
    out.print(Text(f"  {_risk(change)}", style="dim"), soft_wrap=True)


def _gain(change: AdvisedChange) -> str:
    if change.gain_seconds is None or change.gain_share is None:
        return f"with it it fits, {formats.seconds(change.iteration_seconds)} s per iteration"
    verb = "saves" if change.gain_seconds >= 0 else "costs"
    gain = abs(change.gain_seconds)
    share = f"{100 * abs(change.gain_share):.1f} %"
    bounds = change.gain_seconds_interval
    if change.gain_seconds < 0:
        return f"{verb} {formats.seconds(gain)} s, {share}, and sets right what fails or may fail"
    return f"{verb} {_seconds(gain, bounds)}, {share}"


def _seconds(gain: float, bounds: GainInterval | None) -> str:
    """Seconds that are saved, with their interval."""
    if bounds is None:
        return f"{formats.seconds(gain)} s"
    low, high = formats.seconds(abs(bounds.low)), formats.seconds(bounds.high)
    less = "-" if bounds.low <= -NO_SECONDS else ""
    low = "0" if abs(bounds.low) < NO_SECONDS else low
    return f"{formats.seconds(gain)} s ({less}{low} to {high})"


def _line(line: LineChange, target: str) -> str:
    """The line to change, or to add, as it is written."""
    before = None if line.before is None else _setting(line.key, line.before, target)
    after = _setting(line.key, line.after, target)
    if before is None:
        return f"add: {after}"
    where = f"{line.file}:{line.line}" if line.line else line.file
    return f"{where}: {before} -> {after or 'left out'}"


def _setting(key: str, value: str, target: str) -> str:
    """A setting as its framework reads it; empty: it is left out."""
    if is_left_out(key, value, framework(target)):
        return ""
    if not is_argument(key):
        return f"{key}={value}"
    return key if value == "True" else f"{key} {value}"


def _alone(change: AdvisedChange) -> str:
    if change.needs:
        return f"does not fit alone: it needs {' and '.join(change.needs)}"
    if change.alone_reasons:
        return f"alone: {formats.printable('; '.join(in_words(change.alone_reasons)))}"
    if change.alone_gain_seconds is None:
        return "alone it is enough"
    return f"alone {change.alone_gain_seconds:+.3g} s saved"


def _risk(change: AdvisedChange) -> str:
    parts = [f"{formats.gib(change.memory_left_bytes)} GiB left on the fullest GPU"]
    if change.out_of_memory_probability is not None:
        chance = formats.chance(change.out_of_memory_probability)
        parts.append(f"chance of running out of memory {chance}")
    changed = "changes what is learned" if change.changes_learning else "changes of results"
    return f"{', '.join(parts)}; {changed}: {change.numerics}"


def _is_of_setting(remark: Remark) -> bool:
    """Whether it is on a setting of the launch, rather than on all of it."""
    return bool(remark.file or remark.line)


def _summary(advice: Advice) -> str:
    """All changes together, or that none is worth it, beside the best that there is."""
    best = ""
    if advice.best_seconds is not None:
        proven = "proven" if advice.proven else "not proven"
        if any(each.kind in WITHOUT and _is_of_setting(each) for each in advice.remarks):
            proven = f"{proven}, all without what is not priced"
        best = (
            f"; the best plan on these GPUs with its training engine takes "
            f"{formats.seconds(advice.best_seconds)} s, {proven}"
        )
    if advice.unplanned:
        best = f"; no plan to compare with: {advice.unplanned}"
    if advice.left_out_of_memory_probability is not None:
        chance = formats.chance(advice.left_out_of_memory_probability)
        best += f"; it may run out of memory ({chance}), and no change was found that mends it"
    now, then = advice.iteration_seconds, advice.together_seconds
    if then is None:
        beside = ", by its price" if unpriced_savings(advice.remarks) else ""
        return f"no change was found with which it fits{beside}{best}"
    if advice.left:
        left = formats.printable("; ".join(each.summary for each in advice.left))
        return f"left to you, as no change was found that mends it: {left}{best}"
    if not advice.changes or now is None:
        least = f"{100 * advice.least_share:g} %"
        told = f"nothing is worth it: no change saves {least} of {formats.seconds(then)} s"
        return f"{told}{best}" if now is not None else f"together {formats.seconds(then)} s{best}"
    gain = _seconds(now - then, advice.together_gain_interval)
    share = f"{100 * (1 - then / now):.1f} %"
    return f"together {formats.seconds(then)} s: {gain} less, {share}{best}"
