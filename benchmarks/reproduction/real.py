"""ReaL: the searched plan against a heuristic and two systems, and longer responses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.reproduction import deepspeed_chat
from benchmarks.reproduction.cases import SEARCH, Case, Outcome
from benchmarks.reproduction.jobs import LLAMA, ROLES, job
from benchmarks.reproduction.layouts import symmetric, three_d
from benchmarks.reproduction.pictures import lines
from benchmarks.reproduction.published import published
from benchmarks.reproduction.study import (
    TOLERANCE,
    Claim,
    Key,
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

FACTS = published().real
GPUS = {"7B": 8, "13B": 16, "34B": 32, "70B": 64}
PUBLISHED_LENGTHS = (128, 384, 896)
LONGER = (1920, 3968, 8064)
LONG_MODELS = ("7B", "70B")
PROMPT_TOKENS = 128
BATCH_TOKENS = 2**17
WHOLE_RUN_GPUS = 128
GPU = "h100-80gb-sxm"
OTHERS = ("deepspeed_chat", "openrlhf")
HEURISTIC = "colocate_all"
SHIPPED = "real_heuristic"
MCMC = "real_mcmc"
MCMC_SECONDS = 5.0
"""Of ReaL's search, in steps that take about so long; it finds little in more."""


def workload(response_tokens: int) -> dict[str, object]:
    """A batch of the same tokens, however long its responses."""
    return {
        "prompts_per_iteration": BATCH_TOKENS // (PROMPT_TOKENS + response_tokens),
        "prompt_length": {"mean": PROMPT_TOKENS, "max": PROMPT_TOKENS},
        "response_length": {"mean": response_tokens, "max": response_tokens},
        "updates_per_epoch": 4,
        "old_log_probs": "rollout",
        "kl": "reward",
    }


def _models(actor: str, critic: str) -> dict[str, str]:
    return {role: LLAMA[critic if role in ("critic", "reward") else actor] for role in ROLES["ppo"]}


def cases() -> dict[Key, Case]:
    """The figure's panel, longer responses for the smallest and the largest, and four times 70B."""
    found: dict[Key, Case] = {}
    for model, num_gpus in GPUS.items():
        for length in PUBLISHED_LENGTHS + (LONGER if model in LONG_MODELS else ()):
            models, work = _models(model, "7B"), workload(length)
            spec = job("ppo", models, num_gpus, workload=work, gpu=GPU)
            found["search", model, length] = Case(spec, (SEARCH, SHIPPED))
            found["heuristic", model, length] = Case(spec, (HEURISTIC,), symmetric)
            for name in OTHERS:
                if length in PUBLISHED_LENGTHS:
                    chain = job(
                        "ppo",
                        models,
                        num_gpus,
                        workload=work,
                        gpu=GPU,
                        time_limit_seconds=MCMC_SECONDS,
                    )
                    found["chain", model, length] = Case(chain, (MCMC,), three_d)
                    found[name, model, length] = SYSTEMS[name].case(
                        "ppo", models, num_gpus, workload=work, gpu=GPU
                    )
    models = _models("70B", "70B")
    for length in PUBLISHED_LENGTHS:
        work = workload(length)
        spec = job("ppo", models, WHOLE_RUN_GPUS, workload=work, gpu=GPU)
        found["search", "4 × 70B", length] = Case(spec, (SEARCH,))
        for name in OTHERS:
            found[name, "4 × 70B", length] = SYSTEMS[name].case(
                "ppo", models, WHOLE_RUN_GPUS, workload=work, gpu=GPU
            )
    return found | deepspeed_chat.OWN_CASES


@dataclass(frozen=True)
class Point:
    """One model and length: the plan, ReaL's search, both heuristics, and the other systems."""

    model: str
    length: int
    plan: Outcome
    searched: Outcome | None
    """ReaL's own search, in its layouts."""
    heuristic: Outcome
    shipped: Outcome
    others: Mapping[str, Outcome]
    chat_factor: float
    """DeepSpeed-Chat's own iterations over what we price them at."""

    def relative(self, system: str) -> float | None:
        """Throughput over that of the heuristic."""
        by_name = {SEARCH: self.plan, MCMC: self.searched, **self.others}
        one = by_name.get(system)
        if one is None or one.seconds is None or self.heuristic.seconds is None:
            return None
        software = self.chat_factor if system == "deepspeed_chat" else 1.0
        return self.heuristic.seconds / (software * one.seconds)

    def implied_slowdown(self, gain: float) -> float | None:
        """By how much the heuristic's generation would have to be slower for this gain."""
        took, ours = self.heuristic.seconds, self.searched
        if took is None or ours is None or ours.seconds is None:
            return None
        generation = self.heuristic.kind_seconds("generate")
        return (gain * ours.seconds - (took - generation)) / generation


def _points(found: Outcomes) -> list[Point]:
    factor = deepspeed_chat.factor_within(found)
    return [
        Point(
            str(model),
            int(length),
            placed[SEARCH],
            found.get(("chain", model, length), {}).get(MCMC),
            found["heuristic", model, length][HEURISTIC],
            placed[SHIPPED],
            {
                name: found[name, model, length][SYSTEMS[name].strategy]
                for name in OTHERS
                if (name, model, length) in found
            },
            factor,
        )
        for (kind, model, length), placed in found.items()
        if kind == "search" and model in GPUS
    ]


def _published(system: str) -> dict[tuple[str, int], float]:
    return {
        (row.model, row.response_tokens): row.relative
        for row in FACTS.rows
        if row.system == {MCMC: "search"}.get(system, system)
    }


def _compared(points: Sequence[Point], system: str) -> list[tuple[Point, float, float]]:
    """(point, published, predicted) throughput over the heuristic's."""
    known = _published(system)
    return [
        (point, known[point.model, point.length], ratio)
        for point in points
        if (point.model, point.length) in known and (ratio := point.relative(system)) is not None
    ]


def report(found: Outcomes) -> Report:
    """The panel Scale Actor of the authors' figure."""
    points = _points(found)
    compared = _compared(points, MCMC)
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
        [abs(ours / known - 1) <= TOLERANCE for _, known, ours in _compared(points, system)],
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
        for point, known, ratio in _compared(points, MCMC)
    ]
    header = ["actor", "GPUs", "response", "published", "predicted", "off"]
    header += ["proven plan", "proven plan over the shipped rule"]
    return table(header, rows)


def _others_table(points: Sequence[Point]) -> str:
    rows = []
    for system in OTHERS:
        for point, known, ratio in _compared(points, system):
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
        name: fmean(ratio / known for _, known, ratio in _compared(points, name)) for name in OTHERS
    }
    first, *_, last = (each for each in compared if each[0].model == "7B")
    return {
        "mean": times(fmean(ratio for *_, ratio in compared)),
        "published_mean": times(fmean(known for _, known, _ in compared)),
        "published_course": f"{times(first[1])} to {times(last[1])}",
        "course": f"{times(first[2])} to {times(last[2])}",
        "implied": f"{min(longest):.1f} to {max(longest):.1f}",
        "longest": str(PUBLISHED_LENGTHS[-1]),
        "steps_seconds": f"{MCMC_SECONDS:g}",
        "mcmc_behind": times(fmean(behind)),
        "shipped_mean": times(fmean(shipped)),
        "chat_slower": times(slower["deepspeed_chat"]),
        "openrlhf_slower": times(slower["openrlhf"]),
        "proven": f"{sum(p.plan.proven for p in points)} of {len(points)}",
    }


def _picture(points: Sequence[Point]) -> str:
    known, at = _published(MCMC), {(p.model, p.length): p for p in points}
    series: dict[str, list[float | None]] = {}
    for model in GPUS:
        series[model] = [at[model, length].relative(MCMC) for length in PUBLISHED_LENGTHS]
    for model in LONG_MODELS:
        series[f"{model}, published"] = [known[model, length] for length in PUBLISHED_LENGTHS]
    names = [f"{length} tokens" for length in PUBLISHED_LENGTHS]
    return lines("Searched plan over the heuristic", names, series, "times")


REAL = Study(
    "real",
    "Searched plan and heuristic",
    f"{FACTS.paper}, {FACTS.source}",
    cases(),
    report,
)
