"""HybridFlow against three systems: speed-ups by model size and algorithm, and strong scaling."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from benchmarks.reproduction.cases import Outcome
from benchmarks.reproduction.jobs import hybridflow_workload
from benchmarks.reproduction.pictures import bars
from benchmarks.reproduction.software import NEMO_ALIGNER
from benchmarks.reproduction.study import (
    TOLERANCE,
    Claim,
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
from benchmarks.reproduction.systems_points import (
    ALGORITHMS,
    FACTS,
    SIZES,
    Point,
    cases,
    efficiencies,
    needed,
    of_model,
    over,
    placed_by,
    ranges_of,
    share_of,
    speed_up_points,
)


def report(found: Outcomes) -> Report:
    """Figures 9 to 11."""
    facts, points = FACTS.systems, speed_up_points(found)
    ranges = ranges_of(points, software=True)
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
        _best_other_claim(points),
        number_claim(
            "strong-scaling efficiency, mean",
            facts.scaling_efficiency,
            fmean(efficiencies(points).values()),
            percent,
        ),
        number_claim(
            "the actor's generation and training in an iteration",
            facts.actor_share,
            share_of(placed_by(points, "hybridflow"), "actor.generate", "actor.train"),
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
    words = f"with own engines at {sum(alone)}, with software at {sum(with_software)}"
    return Claim(
        "HybridFlow is the fastest",
        f"{times(least)} to {times(most)}",
        f"{words} of {len(alone)} comparisons",
        all(with_software),
    )


def _over_claims(points: Sequence[Point]) -> list[Claim]:
    claims = []
    for fact in FACTS.systems.over:
        ratios = over(points, fact.system, software=True)
        title = SYSTEMS[fact.system].title
        claims.append(number_claim(f"PPO over {title}, mean", fact.mean, fmean(ratios), times))
        claims.append(number_claim(f"PPO over {title}, most", fact.most, max(ratios), times))
    return claims


def _largest_claim(points: Sequence[Point]) -> Claim:
    """The model with the largest mean speed-up of PPO."""
    means = {
        model: fmean(r for p in of_model(points, "ppo", model) for r in p.speed_ups(software=True))
        for model in SIZES
    }
    largest, facts = max(means, key=lambda model: means[model]), FACTS.systems
    return Claim(
        "the model with the largest mean speed-up",
        f"{facts.largest_mean_model} ({times(facts.largest_mean)})",
        f"{largest} ({times(means[largest])})",
        largest == facts.largest_mean_model,
    )


def _best_other_claim(points: Sequence[Point]) -> Claim:
    """Which system comes nearest on the largest cluster with the smallest models."""
    fact = FACTS.systems.best_other
    nearest = {}
    for point in points:
        if (point.model, point.num_gpus) == (fact.model, fact.num_gpus):
            ratios = {name: point.speed_up(name, software=True) for name in BASELINES}
            known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
            nearest[point.algorithm] = min(known.items(), key=lambda each: each[1])
    same = [name == fact.system for name, _ in nearest.values()]
    wanted = {algorithm: (fact.system, ratio) for algorithm, ratio in fact.speed_up.items()}
    return Claim(
        f"the nearest other system, {fact.model} on {fact.num_gpus} GPUs",
        _shown_nearest(wanted),
        _shown_nearest(nearest),
        all(same),
        (sum(same), len(same)),
    )


def _shown_nearest(nearest: Mapping[str, tuple[str, float]]) -> str:
    return ", ".join(
        f"{ALGORITHMS[algorithm]}: {SYSTEMS[name].title} ({times(ratio)})"
        for algorithm, (name, ratio) in nearest.items()
    )


def _systems_table() -> str:
    rows = [
        [
            system.title,
            f"`{system.strategy}`",
            f"`{system.training_stack}`",
            system.generates_as,
            system.why,
        ]
        for system in SYSTEMS.values()
    ]
    return table(["system", "strategy", "training stack", "generates as", "because"], rows)


def _range_table(points: Sequence[Point]) -> str:
    alone, both = ranges_of(points, software=False), ranges_of(points, software=True)
    rows = []
    for fact in FACTS.systems.speed_up:
        key = fact.algorithm, fact.model
        means = [
            [r for p in of_model(points, *key) if (r := p.speed_up(name)) is not None]
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
    header = ["algorithm", "models", "published", "with software", "own engines"]
    return table([*header, *(f"mean over {SYSTEMS[name].title}" for name in BASELINES)], rows)


def _efficiency_table(points: Sequence[Point]) -> str:
    found = efficiencies(points)
    rows = [
        [title, *(percent(found[algorithm, model]) for model in SIZES)]
        for algorithm, title in ALGORITHMS.items()
    ]
    spans = [f"{model}, {sizes[0]} to {sizes[-1]} GPUs" for model, sizes in SIZES.items()]
    return table(["algorithm", *spans], rows)


def _unplaced(points: Sequence[Point]) -> str:
    """Who has no placement where, and why."""
    words = [
        f"{ALGORITHMS[p.algorithm]}, {p.model} on {p.num_gpus} GPUs: {one.reason}"
        for p in points
        for one in p.placed.values()
        if one.seconds is None
    ]
    return "; ".join(words) or "none"


def _chat_values(points: Sequence[Point]) -> dict[str, str]:
    """DeepSpeed-Chat, placement and software."""
    mean = fmean(over(points, "deepspeed_chat", software=False))
    both = fmean(over(points, "deepspeed_chat", software=True))
    (fact,) = (f for f in FACTS.systems.over if f.system == "deepspeed_chat")
    return {
        "chat_mean": times(mean),
        "chat_factor": times(both / mean),
        "chat_both": times(both),
        "chat_published": times(fact.mean),
        "chat_off": percent(both / fact.mean - 1, sign=True),
        "chat_rest": f"{fmean(needed(points, fact, generation=False)):.1f}",
    }


def _nemo_values(points: Sequence[Point]) -> dict[str, str]:
    """NeMo-Aligner's generation, with its cache and as it would be without."""
    placed = placed_by(points, "nemo_aligner")
    shares = [share_of([one], "actor.generate") for one in placed]
    ratios = over(points, "nemo_aligner", software=False)
    (fact,) = (f for f in FACTS.systems.over if f.system == "nemo_aligner")
    recomputed = [_without_cache(one) / one.calls["actor.generate"].seconds for one in placed]
    return {
        "nemo_mean": times(fmean(ratios)),
        "nemo_most": times(max(ratios)),
        "nemo_published": times(fact.mean),
        "nemo_published_most": times(fact.most),
        "nemo_off": percent(fmean(ratios) / fact.mean - 1, sign=True),
        "nemo_shares": f"{percent(min(shares))} to {percent(max(shares))}",
        "nemo_published_share": percent(FACTS.systems.nemo_generation_share),
        "nemo_slower": f"{fmean(needed(points, fact, generation=True)):.1f}",
        "nemo_launch": f"{1e6 * NEMO_ALIGNER.prefill_layer_seconds:.0f} µs",
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
    """OpenRLHF, and the weight sync in its iterations."""
    large = [
        p.placed["openrlhf"]
        for p in points
        if p.model == "70B" and p.placed["openrlhf"].seconds is not None
    ]
    mean = fmean(over(points, "openrlhf", software=True))
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
                for point in of_model(points, "ppo", model)
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
    FACTS.hardware,
)
