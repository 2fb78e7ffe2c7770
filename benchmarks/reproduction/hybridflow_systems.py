"""HybridFlow against three systems: speed-ups by model size and algorithm, and strong scaling."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.reproduction import deepspeed_chat
from benchmarks.reproduction.cases import Case, Outcome
from benchmarks.reproduction.jobs import LLAMA, ROLES, hybridflow_workload
from benchmarks.reproduction.pictures import bars
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
    seconds,
    table,
    times,
)
from benchmarks.reproduction.systems import BASELINES, SYSTEMS

SIZES = {
    "7B": (8, 16, 32, 64, 128),
    "13B": (16, 32, 64, 128),
    "34B": (32, 64, 128),
    "70B": (64, 128),
}
"""GPUs by model: from the least on which training all models fits to the paper's cluster."""
ALGORITHMS = {"ppo": "PPO", "remax": "ReMax", "safe_rlhf": "Safe-RLHF"}
FACTS = published().hybridflow
UNSUPPORTED = {("remax", "nemo_aligner")}
NEMO_SHARE = FACTS.systems.nemo_generation_share


def cases() -> dict[Key, Case]:
    """Every system on every cluster, and DeepSpeed-Chat's own jobs."""
    found: dict[Key, Case] = {}
    for algorithm in ALGORITHMS:
        workload = hybridflow_workload(algorithm)
        for model, sizes in SIZES.items():
            models = dict.fromkeys(ROLES[algorithm], LLAMA[model])
            for num_gpus in sizes:
                for name, system in SYSTEMS.items():
                    if (algorithm, name) not in UNSUPPORTED:
                        case = system.case(algorithm, models, num_gpus, workload=workload)
                        found[algorithm, model, num_gpus, name] = case
    return found | deepspeed_chat.OWN_CASES


@dataclass(frozen=True)
class Point:
    """One algorithm, model and cluster: seconds of an iteration by system."""

    algorithm: str
    model: str
    num_gpus: int
    placed: Mapping[str, Outcome]
    chat_factor: float
    """DeepSpeed-Chat's own iterations over what we price them at."""

    def speed_up(self, system: str, *, software: bool = False) -> float | None:
        """HybridFlow over that system: by placement alone, or by its software as well."""
        if system not in self.placed:
            return None
        ours, theirs = self.placed["hybridflow"].seconds, self.placed[system]
        if ours is None or theirs.seconds is None:
            return None
        return (self._with_software(system, theirs) if software else theirs.seconds) / ours

    def _with_software(self, system: str, one: Outcome) -> float:
        """Seconds with the generation of the system's time, as far as something says so."""
        took = one.seconds or 0.0
        if system == "deepspeed_chat":
            return self.chat_factor * took
        if system == "nemo_aligner":
            return (took - one.calls["actor.generate"].seconds) / (1 - NEMO_SHARE)
        return took

    def speed_ups(self, *, software: bool) -> list[float]:
        """Over all systems that have a placement."""
        ratios = (self.speed_up(name, software=software) for name in BASELINES)
        return [ratio for ratio in ratios if ratio is not None]


def _points(found: Outcomes) -> list[Point]:
    factor = deepspeed_chat.factor_within(found)
    return [
        Point(
            algorithm,
            model,
            num_gpus,
            {
                name: found[algorithm, model, num_gpus, name][SYSTEMS[name].strategy]
                for name in SYSTEMS
                if (algorithm, name) not in UNSUPPORTED
            },
            factor,
        )
        for algorithm in ALGORITHMS
        for model, sizes in SIZES.items()
        for num_gpus in sizes
    ]


def _of(points: Sequence[Point], algorithm: str, model: str) -> list[Point]:
    return [p for p in points if p.algorithm == algorithm and p.model == model]


def _ranges(
    points: Sequence[Point], *, software: bool
) -> dict[tuple[str, str], tuple[float, float]]:
    """Least and most speed-up by algorithm and model."""
    ranges = {}
    for fact in FACTS.systems.speed_up:
        ratios = [
            ratio
            for point in _of(points, fact.algorithm, fact.model)
            for ratio in point.speed_ups(software=software)
        ]
        ranges[fact.algorithm, fact.model] = min(ratios), max(ratios)
    return ranges


def _over(points: Sequence[Point], system: str, *, software: bool) -> list[float]:
    """Speed-ups of PPO."""
    found = (p.speed_up(system, software=software) for p in points if p.algorithm == "ppo")
    return [ratio for ratio in found if ratio is not None]


def _efficiencies(points: Sequence[Point]) -> dict[tuple[str, str], float]:
    """Throughput on the most GPUs over that on the fewest, over the ratio of GPUs."""
    found = {}
    for algorithm in ALGORITHMS:
        for model in SIZES:
            placed = _of(points, algorithm, model)
            first, last = placed[0], placed[-1]
            gained = (first.placed["hybridflow"].seconds or 0.0) / (
                last.placed["hybridflow"].seconds or 1.0
            )
            found[algorithm, model] = gained / (last.num_gpus / first.num_gpus)
    return found


def _share(outcomes: Sequence[Outcome], *calls: str) -> float:
    """Mean share of calls in an iteration."""
    return fmean(
        sum(one.calls[call].seconds for call in calls) / (one.seconds or 1.0) for one in outcomes
    )


def _placed(points: Sequence[Point], system: str) -> list[Outcome]:
    """PPO's outcomes of a system that have a placement."""
    return [
        p.placed[system]
        for p in points
        if p.algorithm == "ppo" and p.placed[system].seconds is not None
    ]


def report(found: Outcomes) -> Report:
    """Figures 9 to 11."""
    facts, points = FACTS.systems, _points(found)
    ranges = _ranges(points, software=True)
    claims = [
        _fastest_claim(points),
        *(
            counted_claim(
                f"{name} speed-up, by algorithm and model",
                f"within {percent(TOLERANCE)}",
                [
                    abs(ranges[f.algorithm, f.model][end] / (f.least, f.most)[end] - 1) <= TOLERANCE
                    for f in facts.speed_up
                ],
                "ranges",
            )
            for end, name in enumerate(("least", "largest"))
        ),
        *_over_claims(points),
        _largest_claim(points),
        number_claim(
            "strong-scaling efficiency, mean",
            facts.scaling_efficiency,
            fmean(_efficiencies(points).values()),
            percent,
        ),
        number_claim(
            "the actor's generation and training in an iteration",
            facts.actor_share,
            _share(_placed(points, "hybridflow"), "actor.generate", "actor.train"),
            percent,
        ),
    ]
    values = {
        "systems": _systems_table(),
        "ranges": _range_table(points),
        "efficiencies": _efficiency_table(points),
        "unplaced": _unplaced(points),
        **_chat_values(points),
        **_nemo_values(points),
        **_openrlhf_values(points),
    }
    return Report(values, claims, {"systems.svg": _picture(points)})


def _fastest_claim(points: Sequence[Point]) -> Claim:
    """Against every system, everywhere."""
    least = min(fact.least for fact in FACTS.systems.speed_up)
    most = max(fact.most for fact in FACTS.systems.speed_up)
    with_software = [ratio > 1 for p in points for ratio in p.speed_ups(software=True)]
    alone = [ratio > 1 for p in points for ratio in p.speed_ups(software=False)]
    words = f"by placement alone at {sum(alone)}, with software at {sum(with_software)}"
    return Claim(
        "HybridFlow is the fastest",
        f"{times(least)} to {times(most)}",
        f"{words} of {len(alone)} comparisons",
        all(with_software),
    )


def _over_claims(points: Sequence[Point]) -> list[Claim]:
    claims = []
    for fact in FACTS.systems.over:
        ratios = _over(points, fact.system, software=True)
        title = SYSTEMS[fact.system].title
        claims.append(number_claim(f"PPO over {title}, mean", fact.mean, fmean(ratios), times))
        claims.append(number_claim(f"PPO over {title}, most", fact.most, max(ratios), times))
    return claims


def _largest_claim(points: Sequence[Point]) -> Claim:
    """The model with the largest mean speed-up of PPO."""
    means = {
        model: fmean(r for p in _of(points, "ppo", model) for r in p.speed_ups(software=True))
        for model in SIZES
    }
    largest, facts = max(means, key=lambda model: means[model]), FACTS.systems
    return Claim(
        "the model with the largest mean speed-up",
        f"{facts.largest_mean_model} ({times(facts.largest_mean)})",
        f"{largest} ({times(means[largest])})",
        largest == facts.largest_mean_model,
    )


def _systems_table() -> str:
    rows = [
        [system.title, f"`{system.strategy}`", f"`{system.training_stack}`", system.why]
        for system in SYSTEMS.values()
    ]
    return table(["system", "strategy", "training stack", "because"], rows)


def _range_table(points: Sequence[Point]) -> str:
    alone, both = _ranges(points, software=False), _ranges(points, software=True)
    rows = []
    for fact in FACTS.systems.speed_up:
        key = fact.algorithm, fact.model
        means = [
            [r for p in _of(points, *key) if (r := p.speed_up(name)) is not None]
            for name in BASELINES
        ]
        ranges = ((fact.least, fact.most), both[key], alone[key])
        rows.append(
            [
                ALGORITHMS[fact.algorithm],
                fact.model,
                *(f"{times(least)} to {times(most)}" for least, most in ranges),
                *(times(fmean(ratios)) if ratios else "–" for ratios in means),
            ]
        )
    header = ["algorithm", "models", "published", "with software", "placement alone"]
    return table([*header, *(f"mean over {SYSTEMS[name].title}" for name in BASELINES)], rows)


def _efficiency_table(points: Sequence[Point]) -> str:
    found = _efficiencies(points)
    rows = [
        [title, *(percent(found[algorithm, model]) for model in SIZES)]
        for algorithm, title in ALGORITHMS.items()
    ]
    spans = [f"{model}, {sizes[0]} to {sizes[-1]} GPUs" for model, sizes in SIZES.items()]
    return table(["algorithm", *spans], rows)


def _unplaced(points: Sequence[Point]) -> str:
    words = [
        f"{SYSTEMS[name].title} ({ALGORITHMS[p.algorithm]}, {p.model} on {p.num_gpus} GPUs)"
        for p in points
        for name, one in p.placed.items()
        if one.seconds is None
    ]
    return "; ".join(words) or "none"


def _chat_values(points: Sequence[Point]) -> dict[str, str]:
    """DeepSpeed-Chat, placement and software."""
    mean = fmean(_over(points, "deepspeed_chat", software=False))
    both = fmean(_over(points, "deepspeed_chat", software=True))
    (fact,) = (f for f in FACTS.systems.over if f.system == "deepspeed_chat")
    return {
        "chat_mean": times(mean),
        "chat_factor": times(both / mean),
        "chat_both": times(both),
        "chat_published": times(fact.mean),
        "chat_off": percent(both / fact.mean - 1, sign=True),
    }


def _nemo_values(points: Sequence[Point]) -> dict[str, str]:
    """What NeMo-Aligner's generation would have to take for its published share."""
    placed = _placed(points, "nemo_aligner")
    slower = []
    for one in placed:
        took = one.calls["actor.generate"].seconds
        slower.append(NEMO_SHARE / (1 - NEMO_SHARE) * ((one.seconds or 0.0) - took) / took)
    recomputed = [_without_cache(one) / one.calls["actor.generate"].seconds for one in placed]
    return {
        "nemo_mean": times(fmean(_over(points, "nemo_aligner", software=False))),
        "nemo_both": times(fmean(_over(points, "nemo_aligner", software=True))),
        "nemo_share": percent(_share(placed, "actor.generate")),
        "nemo_published_share": percent(NEMO_SHARE),
        "nemo_slower": f"{min(slower):.1f} to {max(slower):.1f}",
        "nemo_recomputed": f"{min(recomputed):.0f} to {max(recomputed):.0f}",
        "nemo_published": times(
            next(f.mean for f in FACTS.systems.over if f.system == "nemo_aligner")
        ),
    }


def _without_cache(one: Outcome) -> float:
    """Seconds of generation if every token took a forward pass over all tokens before it.

    The reference scores whole sequences on the same GPUs: prefixes cost in proportion.
    """
    workload = hybridflow_workload()
    prompt, response = workload["prompt_length"]["mean"], workload["response_length"]["mean"]
    passes = response * (prompt + response / 2) / (prompt + response)
    return float(one.calls["reference.forward"].seconds * passes)


def _openrlhf_values(points: Sequence[Point]) -> dict[str, str]:
    """OpenRLHF, and the weight sync in its iterations."""
    large = [
        p.placed["openrlhf"]
        for p in points
        if p.model == "70B" and p.placed["openrlhf"].seconds is not None
    ]
    mean = fmean(_over(points, "openrlhf", software=True))
    (fact,) = (f for f in FACTS.systems.over if f.system == "openrlhf")
    share = max((one.sync_seconds / (one.seconds or 1.0) for one in large), default=0.0)
    return {
        "openrlhf_mean": times(mean),
        "openrlhf_published": times(fact.mean),
        "openrlhf_off": percent(mean / fact.mean - 1, sign=True),
        "sync_share": percent(share),
        "sync_published": percent(FACTS.transition.largest_share),
        "sync_seconds": seconds(max((one.sync_seconds for one in large), default=0.0)),
    }


def _picture(points: Sequence[Point]) -> str:
    means = {
        SYSTEMS[name].title: [
            fmean(
                ratio
                for point in _of(points, "ppo", model)
                if (ratio := point.speed_up(name, software=True)) is not None
            )
            for model in SIZES
        ]
        for name in BASELINES
    }
    known = {
        f"published, {end}": [
            getattr(fact, end) for fact in FACTS.systems.speed_up if fact.algorithm == "ppo"
        ]
        for end in ("least", "most")
    }
    title = "HybridFlow over others, PPO, mean over clusters"
    return bars(title, list(SIZES), {**means, **known}, "times")


SYSTEMS_STUDY = Study(
    "systems",
    "Against three systems",
    f"{FACTS.paper}, {FACTS.systems.source}",
    cases(),
    report,
)
