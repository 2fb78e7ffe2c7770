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
CHAT = "chat"


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
    return found | {(CHAT, *key): case for key, case in deepspeed_chat.CASES.items()}


@dataclass(frozen=True)
class Point:
    """One algorithm, model and cluster: seconds of an iteration by system."""

    algorithm: str
    model: str
    num_gpus: int
    placed: Mapping[str, Outcome]

    def speed_up(self, system: str) -> float | None:
        """HybridFlow over that system."""
        if system not in self.placed:
            return None
        ours, theirs = self.placed["hybridflow"].seconds, self.placed[system].seconds
        return None if ours is None or theirs is None else theirs / ours

    @property
    def speed_ups(self) -> list[float]:
        """Over all systems that have a placement."""
        return [ratio for name in BASELINES if (ratio := self.speed_up(name)) is not None]


def _points(found: Outcomes) -> list[Point]:
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
        )
        for algorithm in ALGORITHMS
        for model, sizes in SIZES.items()
        for num_gpus in sizes
    ]


def _of(points: Sequence[Point], algorithm: str, model: str) -> list[Point]:
    return [p for p in points if p.algorithm == algorithm and p.model == model]


def _ranges(points: Sequence[Point]) -> dict[tuple[str, str], tuple[float, float]]:
    """Least and most speed-up by algorithm and model."""
    ranges = {}
    for fact in FACTS.systems.speed_up:
        ratios = [r for p in _of(points, fact.algorithm, fact.model) for r in p.speed_ups]
        ranges[fact.algorithm, fact.model] = min(ratios), max(ratios)
    return ranges


def _over(points: Sequence[Point], system: str, algorithm: str = "ppo") -> list[float]:
    found = (p.speed_up(system) for p in points if p.algorithm == algorithm)
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
    ranges = _ranges(points)
    claims = [
        counted_claim(
            "HybridFlow is the fastest",
            f"{times(min(f.least for f in facts.speed_up))} to "
            f"{times(max(f.most for f in facts.speed_up))}",
            [ratio > 1 for p in points for ratio in p.speed_ups],
            "comparisons",
        ),
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
        "ranges": _range_table(points, ranges),
        "efficiencies": _efficiency_table(points),
        "unplaced": _unplaced(points),
        **_chat_values(points, found),
        **_nemo_values(points),
        **_openrlhf_values(points),
    }
    return Report(values, claims, {"systems.svg": _picture(points)})


def _over_claims(points: Sequence[Point]) -> list[Claim]:
    claims = []
    for fact in FACTS.systems.over:
        ratios, title = _over(points, fact.system), SYSTEMS[fact.system].title
        claims.append(number_claim(f"PPO over {title}, mean", fact.mean, fmean(ratios), times))
        claims.append(number_claim(f"PPO over {title}, most", fact.most, max(ratios), times))
    return claims


def _largest_claim(points: Sequence[Point]) -> Claim:
    """The model with the largest mean speed-up of PPO."""
    means = {
        model: fmean(r for p in _of(points, "ppo", model) for r in p.speed_ups) for model in SIZES
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


def _range_table(
    points: Sequence[Point], ranges: Mapping[tuple[str, str], tuple[float, float]]
) -> str:
    rows = []
    for fact in FACTS.systems.speed_up:
        least, most = ranges[fact.algorithm, fact.model]
        means = [
            [r for p in _of(points, fact.algorithm, fact.model) if (r := p.speed_up(name))]
            for name in BASELINES
        ]
        rows.append(
            [
                ALGORITHMS[fact.algorithm],
                fact.model,
                f"{times(fact.least)} to {times(fact.most)}",
                f"{times(least)} to {times(most)}",
                *(times(fmean(ratios)) if ratios else "–" for ratios in means),
            ]
        )
    header = ["algorithm", "models", "published", "predicted"]
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


def _chat_values(points: Sequence[Point], found: Outcomes) -> dict[str, str]:
    """DeepSpeed-Chat, placement and software."""
    own = {key[1:]: placed for key, placed in found.items() if key[0] == CHAT}
    factor = deepspeed_chat.software_factor(own)
    mean = fmean(_over(points, "deepspeed_chat"))
    (fact,) = (f for f in FACTS.systems.over if f.system == "deepspeed_chat")
    return {
        "chat_mean": times(mean),
        "chat_factor": times(factor),
        "chat_both": times(mean * factor),
        "chat_published": times(fact.mean),
        "chat_off": percent(mean * factor / fact.mean - 1, sign=True),
    }


def _nemo_values(points: Sequence[Point]) -> dict[str, str]:
    """What NeMo-Aligner's generation would have to take for its published share."""
    placed = _placed(points, "nemo_aligner")
    share = _share(placed, "actor.generate")
    wanted = FACTS.systems.nemo_generation_share
    slower, both = [], []
    for point in points:
        one = point.placed.get("nemo_aligner")
        ours = point.placed["hybridflow"].seconds
        if one is None or one.seconds is None or ours is None or point.algorithm != "ppo":
            continue
        took = one.calls["actor.generate"].seconds
        implied = wanted / (1 - wanted) * (one.seconds - took)
        slower.append(implied / took)
        both.append((one.seconds - took + implied) / ours)
    recomputed = [_without_cache(one) / one.calls["actor.generate"].seconds for one in placed]
    return {
        "nemo_share": percent(share),
        "nemo_published_share": percent(wanted),
        "nemo_slower": f"{min(slower):.1f} to {max(slower):.1f}",
        "nemo_both": f"{times(min(both))} to {times(max(both))}",
        "nemo_mean": times(fmean(_over(points, "nemo_aligner"))),
        "nemo_recomputed": f"{min(recomputed):.0f} to {max(recomputed):.0f}",
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
    """The weight sync in OpenRLHF's iterations."""
    large = [
        p.placed["openrlhf"]
        for p in points
        if p.model == "70B" and p.placed["openrlhf"].seconds is not None
    ]
    share = max((one.sync_seconds / (one.seconds or 1.0) for one in large), default=0.0)
    return {
        "sync_share": percent(share),
        "sync_published": percent(FACTS.transition.largest_share),
        "sync_seconds": seconds(max((one.sync_seconds for one in large), default=0.0)),
    }


def _picture(points: Sequence[Point]) -> str:
    groups, series = [], {SYSTEMS[name].title: list[float | None]() for name in BASELINES}
    for model in SIZES:
        for fact in FACTS.systems.speed_up:
            if fact.model == model and fact.algorithm == "ppo":
                groups.append(model)
        for name in BASELINES:
            ratios = [r for p in _of(points, "ppo", model) if (r := p.speed_up(name))]
            series[SYSTEMS[name].title].append(fmean(ratios) if ratios else None)
    published_range = {
        f"published, {end}": [
            getattr(fact, end) for fact in FACTS.systems.speed_up if fact.algorithm == "ppo"
        ]
        for end in ("least", "most")
    }
    return bars("HybridFlow over others, PPO", groups, {**series, **published_range}, "times")


SYSTEMS_STUDY = Study(
    "systems",
    "Against three systems",
    f"{FACTS.paper}, {FACTS.systems.source}",
    cases(),
    report,
)
