"""The loop's results as Markdown and as a scatter plot."""

import json
import statistics
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from automap.executor.telemetry.run_report import Comparison
from automap.planner.units import MIB
from benchmarks.loop.learning import Gain, error
from benchmarks.loop.runs import Outcome

TARGETS = {"error": 0.20, "tau": 0.8, "chosen": 1.10}


def kendall_tau(pairs: Sequence[tuple[float, float]]) -> float:
    """Concordant less discordant pairs, over all that are not tied (tau-b without ties)."""
    score = count = 0
    for (a, x), (b, y) in combinations(pairs, 2):
        product = (a - b) * (x - y)
        score += (product > 0) - (product < 0)
        count += product != 0
    return score / count if count else 1.0


def chosen(outcomes: Sequence[Outcome]) -> Outcome:
    """What Automap would run: the plan of the shortest iteration that it predicts."""
    return min(outcomes, key=lambda each: each.plan.iteration_seconds)


def summary(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The three figures that have targets."""
    best = min(each.measured for each in outcomes)
    return {
        "error": statistics.fmean(
            error(each.plan.iteration_seconds, each.measured) for each in outcomes
        ),
        "tau": kendall_tau([(each.plan.iteration_seconds, each.measured) for each in outcomes]),
        "chosen": chosen(outcomes).measured / best,
    }


def markdown(
    outcomes: Sequence[Outcome],
    from_one: Sequence[Gain],
    left_out: Sequence[Gain],
    *,
    conditions: str,
    command: str,
) -> str:
    """The whole page."""
    lines = [
        "# The loop: profile, plan, run, compare",
        "",
        f"Written by `{command}`: {conditions}",
        "",
        *_summary_lines(summary(outcomes)),
        "",
        "![predicted against measured](loop.svg)",
        "",
        "## Iterations",
        "",
        *_iterations(outcomes),
        "",
        "## Calls",
        "",
        "Seconds, predicted / measured (median); a dash: the plan knows of no such call.",
        "",
        *_calls(outcomes),
        "",
        "## Peak memory",
        "",
        "MiB on the worst device, predicted / measured. On a CPU the measured bytes are those "
        "resident in the worker process, its libraries and all that other calls have left there "
        "included, and the predicted ones are of models and their data alone.",
        "",
        *_memory(outcomes),
        "",
        "## Learning",
        "",
        "`automap calibrate` with the run of one plan: mean error of the iterations of all other "
        "plans; and with the runs of all other plans: the error of the one that was left out.",
        "",
        *_learning(from_one, left_out),
        "",
    ]
    return "\n".join(lines)


def _summary_lines(found: dict[str, float]) -> Iterator[str]:
    yield "| | found | target |"
    yield "|---|---|---|"
    yield f"| mean error of the iteration | {found['error']:.1%} | ≤ {TARGETS['error']:.0%} |"
    yield f"| Kendall's tau over the plans | {found['tau']:.2f} | ≥ {TARGETS['tau']} |"
    yield (
        f"| the plan that is chosen, over the best measured | {found['chosen']:.3f} | "
        f"≤ {TARGETS['chosen']:.2f} |"
    )


def _iterations(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "| plan | stack | actor | predicted s | measured s (min to max) | error |"
    yield "|---|---|---|---|---|---|"
    first = chosen(outcomes)
    for each in sorted(outcomes, key=lambda one: one.plan.iteration_seconds):
        spread = each.report.iteration_seconds.measured
        assert spread is not None
        predicted = each.plan.iteration_seconds
        mark = " ←" if each is first else ""
        yield (
            f"| {each.variant.name}{mark} | {each.variant.stack} | {_placement(each)} | "
            f"{predicted:.3f} | {spread.median:.3f} ({spread.min:.3f} to {spread.max:.3f}) | "
            f"{predicted / spread.median - 1:+.1%} |"
        )


def _placement(outcome: Outcome) -> str:
    home = next(
        copy for copy in outcome.plan.copies if copy.role == "actor" and copy.kind == "home"
    )
    sizes = {
        "t": home.layout.tensor_parallel_size,
        "p": home.layout.pipeline_parallel_size,
        "d": home.layout.data_parallel_size,
    }
    told = " ".join(f"{name}{size}" for name, size in sizes.items() if size > 1) or "1 device"
    return told if home.layout.sharding == "none" else f"{told}, {home.layout.sharding}"


def _calls(outcomes: Sequence[Outcome]) -> Iterator[str]:
    names = list(
        dict.fromkeys(
            call.id for each in outcomes for call in each.report.calls if call.kind != "checkpoint"
        )
    )
    yield "| plan | " + " | ".join(_short(name) for name in names) + " | reshard |"
    yield "|---|" + "---|" * (len(names) + 1)
    for each in outcomes:
        cells = [_seconds(each, name) for name in names]
        yield f"| {each.variant.name} | " + " | ".join([*cells, _reshard(each)]) + " |"


def _short(name: str) -> str:
    return name.removeprefix("numerics.")


def _seconds(outcome: Outcome, name: str) -> str:
    found = next((call for call in outcome.report.calls if call.id == name), None)
    return "" if found is None else _pair(outcome.predicted(name), found.seconds)


def _reshard(outcome: Outcome) -> str:
    """The part of generation that brings its weights."""
    planned = [call for call in outcome.plan.calls if call.kind == "generate"]
    found = next(call for call in outcome.report.calls if call.id == planned[0].id)
    return _pair(planned[0].seconds_by_part.transition, found.transition_seconds)


def _pair(predicted: float | None, compared: Comparison | None) -> str:
    measured = compared.measured.median if compared and compared.measured else None
    return " / ".join("-" if value is None else f"{value:.3f}" for value in (predicted, measured))


def _memory(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "| plan | generate | forward | train |"
    yield "|---|---|---|---|"
    for each in outcomes:
        cells = []
        for kind in ("generate", "forward", "train"):
            peaks = [
                call.bytes["peak_memory"]
                for call in each.report.calls
                if call.kind == kind and "peak_memory" in call.bytes
            ]
            most = [max((value or 0 for value in values), default=0) for values in (
                [peak.predicted for peak in peaks], [peak.measured for peak in peaks]
            )]  # fmt: skip
            cells.append(" / ".join(f"{value / MIB:,.0f}" for value in most))
        yield f"| {each.variant.name} | " + " | ".join(cells) + " |"


def _learning(from_one: Sequence[Gain], left_out: Sequence[Gain]) -> Iterator[str]:
    headers = ("the others before", "after learning from it", "itself before")
    yield f"| plan | {' | '.join(headers)} | after learning from the others |"
    yield "|---|---|---|---|---|"
    for one, out in zip(from_one, left_out, strict=True):
        yield (
            f"| {one.name} | {one.before:.1%} | {one.after:.1%} | {out.before:.1%} | "
            f"{out.after:.1%} |"
        )
    means = [
        statistics.fmean(getattr(gain, name) for gain in gains)
        for gains in (from_one, left_out)
        for name in ("before", "after")
    ]
    yield "| **mean** | " + " | ".join(f"{value:.1%}" for value in means) + " |"


def write_json(path: Path, outcomes: Sequence[Outcome], gains: dict[str, Sequence[Gain]]) -> None:
    """The figures by themselves."""
    document = {
        **summary(outcomes),
        "plans": [
            {
                "name": each.variant.name,
                "stack": each.variant.stack,
                "predicted": each.plan.iteration_seconds,
                "measured": each.measured,
            }
            for each in outcomes
        ],
        "learning": {
            name: [{"plan": gain.name, "before": gain.before, "after": gain.after} for gain in each]
            for name, each in gains.items()
        },
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
