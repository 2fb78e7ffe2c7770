"""ReaL: the searched plan against a heuristic and two systems, and longer responses."""

from collections.abc import Sequence
from statistics import fmean

from benchmarks.reproduction import deepspeed_chat
from benchmarks.reproduction.cases import SEARCH
from benchmarks.reproduction.pictures import lines
from benchmarks.reproduction.real_points import (
    FACTS,
    GPUS,
    LONG_MODELS,
    MCMC,
    MCMC_SECONDS,
    OTHERS,
    PUBLISHED_LENGTHS,
    Point,
    cases,
    compared_with,
    published_of,
    real_points,
)
from benchmarks.reproduction.software import REAL as ENGINE
from benchmarks.reproduction.study import (
    TOLERANCE,
    Claim,
    Outcomes,
    Report,
    Study,
    counted_claim,
    number_claim,
    percent,
    table,
    times,
)
from benchmarks.reproduction.systems import SYSTEMS


def report(found: Outcomes) -> Report:
    """The panel Scale Actor of the authors' figure."""
    points = real_points(found)
    compared = compared_with(points, MCMC)
    claims = [
        counted_claim(
            "the searched plan beats the heuristic",
            "at every point",
            [ratio > 1 for *_, ratio in compared],
            "points",
        ),
        number_claim(
            "throughput over the heuristic, mean",
            fmean(known for _, known, _ in compared),
            fmean(ratio for *_, ratio in compared),
            times,
        ),
        *(_each_claim(points, system) for system in (MCMC, *OTHERS)),
        _trend_claim(compared),
        *_whole_run_claims(found),
    ]
    values = {
        "setting": FACTS.setting,
        "table": _gain_table(points),
        "others": _others_table(points),
        "longer": _longer_table(points),
        **_why(points, compared),
    }
    return Report(values, claims, {"real.svg": _picture(points)})


def _each_claim(points: Sequence[Point], system: str) -> Claim:
    title = "the searched plan" if system == MCMC else SYSTEMS[system].title
    return counted_claim(
        f"throughput of {title} over the heuristic",
        f"within {percent(TOLERANCE)}",
        [abs(ours / known - 1) <= TOLERANCE for _, known, ours in compared_with(points, system)],
        "points",
    )


def _trend_claim(compared: Sequence[tuple[Point, float, float]]) -> Claim:
    """Does the gain grow with the responses, for the smallest model?"""
    first, *_, last = (each for each in compared if each[0].model == "7B")
    grows = last[1] > first[1], last[2] > first[2]
    return Claim(
        f"the gain at 7B from {first[0].length} to {last[0].length} tokens",
        f"{times(first[1])} → {times(last[1])}",
        f"{times(first[2])} → {times(last[2])}",
        grows[0] == grows[1],
    )


def _whole_run_claims(found: Outcomes) -> list[Claim]:
    """Four models of 70B: only hours of whole runs are published, so ratios are compared."""
    hours = FACTS.whole_run.hours
    factors = {"deepspeed_chat": deepspeed_chat.factor_within(found)}
    claims = []
    for name in OTHERS:
        ratios = []
        for length in PUBLISHED_LENGTHS:
            ours = found["search", "4 × 70B", length][SEARCH].seconds
            theirs = found[name, "4 × 70B", length][SYSTEMS[name].strategy].seconds
            if ours is not None and theirs is not None:
                ratios.append(factors.get(name, 1.0) * theirs / ours)
        wanted = hours[name] / hours["search"]
        claims.append(
            Claim(
                f"four 70B models, {SYSTEMS[name].title} over the searched plan",
                times(wanted),
                f"{times(min(ratios))} to {times(max(ratios))} by length",
                min(ratios) * (1 - TOLERANCE) <= wanted <= max(ratios) * (1 + TOLERANCE),
            )
        )
    return claims


def _gain_table(points: Sequence[Point]) -> str:
    rows = [
        [
            point.model,
            str(GPUS[point.model]),
            str(point.length),
            times(known),
            times(ratio),
            percent(ratio / known - 1, sign=True),
            times(point.relative(SEARCH) or 0.0),
            "–"
            if point.shipped.seconds is None
            else times(point.shipped.seconds / (point.plan.seconds or 1.0)),
        ]
        for point, known, ratio in compared_with(points, MCMC)
    ]
    header = ["actor", "GPUs", "response", "published", "predicted", "off"]
    header += ["proven plan", "proven plan over the shipped rule"]
    return table(header, rows)


def _others_table(points: Sequence[Point]) -> str:
    rows = []
    for system in OTHERS:
        for point, known, ratio in compared_with(points, system):
            rows.append(
                [
                    SYSTEMS[system].title,
                    point.model,
                    str(point.length),
                    times(known),
                    times(ratio),
                    percent(ratio / known - 1, sign=True),
                ]
            )
    return table(["system", "actor", "response", "published", "predicted", "off"], rows)


def _longer_table(points: Sequence[Point]) -> str:
    rows = []
    for point in points:
        ratio = point.relative(SEARCH) if point.model in LONG_MODELS else None
        if ratio is None or point.plan.seconds is None:
            continue
        share = point.plan.kind_seconds("generate") / point.plan.seconds
        engine = next(call.layout for call in point.plan.calls.values() if call.kind == "generate")
        rows.append(
            [
                point.model,
                str(point.length),
                times(ratio),
                percent(share),
                "–" if engine is None else str(engine.tensor_parallel_size),
            ]
        )
    header = ["actor", "response", "plan over heuristic", "generation's share", "its tensor size"]
    return table(header, rows)


def _why(points: Sequence[Point], compared: Sequence[tuple[Point, float, float]]) -> dict[str, str]:
    longest = [
        slowdown
        for point, known, _ in compared
        if point.model in ("7B", "13B")
        and point.length == PUBLISHED_LENGTHS[-1]
        and (slowdown := point.implied_slowdown(known)) is not None
    ]
    shipped = [
        p.shipped.seconds / p.plan.seconds
        for p in points
        if p.shipped.seconds is not None and p.plan.seconds is not None
    ]
    behind = [
        p.searched.seconds / p.plan.seconds
        for p in points
        if p.searched is not None and p.searched.seconds and p.plan.seconds
    ]
    slower = {
        name: fmean(ratio / known for _, known, ratio in compared_with(points, name))
        for name in OTHERS
    }
    first, *_, last = (each for each in compared if each[0].model == "7B")
    return {
        "mean": times(fmean(ratio for *_, ratio in compared)),
        "published_mean": times(fmean(known for _, known, _ in compared)),
        "published_course": f"{times(first[1])} to {times(last[1])}",
        "course": f"{times(first[2])} to {times(last[2])}",
        "implied": f"{min(longest):.1f} to {max(longest):.1f}",
        "longest": str(PUBLISHED_LENGTHS[-1]),
        "engine": ENGINE.summary,
        "steps_seconds": f"{MCMC_SECONDS:g}",
        "mcmc_behind": times(fmean(behind)),
        "shipped_mean": times(fmean(shipped)),
        "chat_slower": times(slower["deepspeed_chat"]),
        "openrlhf_slower": times(slower["openrlhf"]),
        "proven": f"{sum(p.plan.proven for p in points)} of {len(points)}",
    }


def _picture(points: Sequence[Point]) -> str:
    known, at = published_of(MCMC), {(p.model, p.length): p for p in points}
    series: dict[str, list[float | None]] = {}
    for model in GPUS:
        series[model] = [at[model, length].relative(MCMC) for length in PUBLISHED_LENGTHS]
    for model in LONG_MODELS:
        series[f"{model}, published"] = [known[model, length] for length in PUBLISHED_LENGTHS]
    dashed = [name for name in series if name.endswith("published")]
    names = [f"{length} tokens" for length in PUBLISHED_LENGTHS]
    return lines("Searched plan over the heuristic", names, series, "times", dashed=dashed)


REAL = Study(
    "real",
    "Searched plan and heuristic",
    f"{FACTS.paper}, {FACTS.source}",
    cases(),
    report,
    FACTS.hardware,
)
