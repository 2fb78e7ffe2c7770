"""APP: where interleaving and separation beat flattening, and how large the gain can get."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from automap.planner.cost.communication import collective_seconds
from automap.planner.cost.pricing import Pricing
from automap.planner.cost.transition import model_bytes
from automap.planner.job.resolution import resolve
from benchmarks.reproduction.cases import Case, Outcome
from benchmarks.reproduction.jobs import ROLES, job, llama_1
from benchmarks.reproduction.pictures import lines
from benchmarks.reproduction.published import published
from benchmarks.reproduction.study import (
    TOLERANCE,
    Claim,
    Key,
    Outcomes,
    Report,
    Study,
    percent,
    table,
    times,
)

SMALL = "7B"
MODELS = ("7B", "13B", "33B", "65B")
SIZES = (8, 16, 32, 64, 128)
FLATTENING, INTERLEAVING, SEPARATION = "deepspeed_chat", "app_interleaving", "app_separation"
RESPONSE_TOKENS = 256
LENGTH = {"mean": RESPONSE_TOKENS, "max": RESPONSE_TOKENS}
WORKLOAD = {
    "prompts_per_iteration": 512,
    "prompt_length": LENGTH,
    "response_length": LENGTH,
    "old_log_probs": "rollout",
    "kl": "reward",
    "training_stack": "fsdp-eager",
}
FACTS = published().app


def cases(models: Sequence[str] = MODELS, sizes: Sequence[int] = SIZES) -> dict[Key, Case]:
    """The strategies on policy, separation with overlapping iterations, and a small critic."""
    found: dict[Key, Case] = {}
    for model in models:
        for num_gpus in sizes:
            roles = dict.fromkeys(ROLES["ppo"], llama_1(model))
            spec = job("ppo", roles, num_gpus, workload=WORKLOAD, hardware=FACTS.hardware)
            found["on policy", model, num_gpus] = Case(spec, (FLATTENING, INTERLEAVING, SEPARATION))
            late = spec.search.model_copy(update={"staleness": 1})
            found["overlapped", model, num_gpus] = Case(
                spec.model_copy(update={"search": late}), (SEPARATION,)
            )
            unequal = roles | dict.fromkeys(("critic", "reward"), llama_1(SMALL))
            found["small critic", model, num_gpus] = Case(
                job("ppo", unequal, num_gpus, workload=WORKLOAD, hardware=FACTS.hardware),
                (FLATTENING, INTERLEAVING),
            )
    return found


@dataclass(frozen=True)
class Point:
    """One model on one cluster: seconds of an iteration by strategy."""

    model: str
    num_gpus: int
    flattening: float
    interleaving: float | None
    separation: float | None
    overlapped: float | None
    small_critic: float | None
    """Interleaving's gain where critic and reward model are small."""
    gathering: float
    """What flattening adds where it generates on fully sharded weights as they are."""

    def gain(self, seconds: float | None, *, gathering: bool = False) -> float | None:
        """Over flattening, with an engine for generation or without."""
        if seconds is None:
            return None
        return (self.flattening + gathering * self.gathering) / seconds


def _gathering_seconds(case: Case) -> float:
    """A gather of the whole actor in every decode step: no hybrid engine."""
    work = resolve(case.spec)
    pool = work.pools[0]
    whole = sum(model_bytes(work.models["actor"], work.spec.workload.precision))
    group = np.array([work.num_gpus], dtype=np.int64)
    gathered = collective_seconds(
        pool,
        Pricing(work).profile(pool),
        "all_gather",
        np.array([float(whole)]),
        group_size=group,
        stride=np.ones_like(group),
    )
    return RESPONSE_TOKENS * float(gathered.seconds[0])


def _points(found: Outcomes, all_cases: Mapping[Key, Case]) -> list[Point]:
    placed = []
    for key, outcome in found.items():
        flattening = outcome[FLATTENING].seconds if key[0] == "on policy" else None
        if flattening is not None:
            placed.append(
                Point(
                    str(key[1]),
                    int(key[2]),
                    flattening,
                    outcome[INTERLEAVING].seconds,
                    outcome[SEPARATION].seconds,
                    _seconds(found["overlapped", key[1], key[2]]),
                    _small_critic_gain(found["small critic", key[1], key[2]]),
                    _gathering_seconds(all_cases[key]),
                )
            )
    return placed


def _small_critic_gain(outcome: Mapping[str, Outcome]) -> float | None:
    flattening, interleaving = outcome[FLATTENING].seconds, outcome[INTERLEAVING].seconds
    return None if flattening is None or interleaving is None else flattening / interleaving


def _seconds(outcome: Mapping[str, Outcome]) -> float | None:
    return outcome[SEPARATION].seconds


GAINS: dict[str, Callable[[Point], float | None]] = {
    "interleaving": lambda p: p.gain(p.interleaving),
    "interleaving, small critic": lambda p: p.small_critic,
    "separation": lambda p: p.gain(p.separation),
    "separation, overlapped": lambda p: p.gain(p.overlapped),
    "separation, flattening without an engine": lambda p: p.gain(p.separation, gathering=True),
}


def _best(points: Sequence[Point], gain: str) -> tuple[float, Point]:
    """The largest gain, and where."""
    return max(
        ((ratio, point) for point in points if (ratio := GAINS[gain](point)) is not None),
        key=lambda each: each[0],
    )


def _range_of(points: Sequence[Point], gain: str) -> str:
    """From the least gain to the largest, where models differ in size."""
    ratios = [r for p in points if p.model != SMALL and (r := GAINS[gain](p)) is not None]
    return f"{times(min(ratios))} to {times(max(ratios))}"


def _where(points: Sequence[Point], gain: str) -> str:
    """The points at which a strategy is faster by what a table shows."""
    faster = [p for p in points if round(GAINS[gain](p) or 0.0, 2) > 1.0]
    return ", ".join(f"{p.model} on {p.num_gpus}" for p in faster) or "nowhere"


def report(found: Outcomes) -> Report:
    """The abstract's claims."""
    points = _points(found, CASES)
    best = {name: _best(points, name) for name in GAINS}
    largest = max(ratio for ratio, _ in best.values())
    claims = [
        Claim(
            "some strategy beats flattening",
            "interleaving and separation both do",
            f"interleaving at {_count(points, 'interleaving')}, separation on policy at "
            f"{_count(points, 'separation')}, overlapped at "
            f"{_count(points, 'separation, overlapped')} of {len(points)} points",
            all(best[name][0] > 1 for name in ("interleaving", "separation")),
        ),
        Claim(
            "the largest gain over other systems",
            times(FACTS.largest_gain),
            f"{times(largest)} ({percent(largest / FACTS.largest_gain - 1, sign=True)})",
            abs(largest / FACTS.largest_gain - 1) <= TOLERANCE,
        ),
    ]
    values = {
        "setting": FACTS.setting,
        "table": _gain_table(points),
        "interleaving_best": times(best["interleaving"][0]),
        "small": SMALL,
        "small_range": _range_of(points, "interleaving, small critic"),
        "interleaving_where": _where(points, "interleaving"),
        "separation_best": times(best["separation"][0]),
        "separation_where": _where(points, "separation"),
        "overlapped_best": times(best["separation, overlapped"][0]),
        "overlapped_where": _where(points, "separation, overlapped"),
        "engine_best": times(best["separation, flattening without an engine"][0]),
        "engine_model": best["separation, flattening without an engine"][1].model,
        "engine_gpus": str(best["separation, flattening without an engine"][1].num_gpus),
        "engine_count": _count(points, "separation, flattening without an engine"),
        "num_points": str(len(points)),
        "published_best": times(FACTS.largest_gain),
    }
    return Report(values, claims, {"app.svg": _picture(points)})


def _count(points: Sequence[Point], gain: str) -> str:
    return str(sum(round(GAINS[gain](p) or 0.0, 2) > 1 for p in points))


def _gain_table(points: Sequence[Point]) -> str:
    rows = []
    for point in points:
        ratios = [gain(point) for gain in GAINS.values()]
        shown = ["–" if ratio is None else times(ratio) for ratio in ratios]
        rows.append([point.model, str(point.num_gpus), f"{point.flattening:.1f} s", *shown])
    return table(["models", "GPUs", "flattening", *GAINS], rows)


def _picture(points: Sequence[Point]) -> str:
    at = {(point.model, point.num_gpus): point for point in points}
    gain = GAINS["separation, flattening without an engine"]
    series = {
        model: [gain(at[model, size]) if (model, size) in at else None for size in SIZES]
        for model in MODELS
    }
    names = [f"{size} GPUs" for size in SIZES]
    title = "Separation over flattening without an inference engine"
    return lines(title, names, series, "times")


CASES = cases()
APP = Study(
    "app",
    "Flattening, interleaving, separation",
    f"{FACTS.paper}, {FACTS.source}",
    CASES,
    report,
    FACTS.hardware,
)
