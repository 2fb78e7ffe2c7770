"""HybridFlow's placement studies: which of three placements is the fastest on how many GPUs."""

from collections.abc import Mapping, Sequence

from benchmarks.reproduction.cases import Outcome
from benchmarks.reproduction.pictures import lines
from benchmarks.reproduction.placement_points import (
    EQUAL,
    FACTS,
    OTHERS,
    SIZES,
    UNEQUAL,
    WAYS,
    Point,
    fastest,
    points,
    study_cases,
)
from benchmarks.reproduction.published import Best, best_at
from benchmarks.reproduction.study import (
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


def _winners(all_points: Sequence[Point], best: list[Best]) -> list[tuple[Point, str, bool]]:
    """Each size of which something is published and where a placement fits."""
    compared = []
    for point in all_points:
        wanted = best_at(best, point.model, point.num_gpus)
        if point.best is not None and wanted is not None:
            compared.append((point, wanted, point.best == wanted))
    return compared


def _seconds_table(all_points: Sequence[Point], best: list[Best]) -> str:
    rows = []
    for point in all_points:
        cells = [point.model, f"{point.num_gpus:,}"]
        for way in WAYS:
            value = point.placed[way].seconds
            shown = "–" if value is None else seconds(value)
            cells.append(f"**{shown}**" if way == point.best else shown)
        plan = point.plan
        cells.append("–" if plan.seconds is None else seconds(plan.seconds))
        rows.append([*cells, best_at(best, point.model, point.num_gpus) or "–"])
    header = ["models", "GPUs", *WAYS, "plan, whole space", "fastest as published"]
    return table(header, rows)


def _shown_range(best: Best) -> str:
    ends = sorted({best.from_gpus, best.to_gpus})
    return "–".join(str(end) for end in ends)


def _optimal_choice(point: Point) -> bool:
    """HybridFlow's algorithm is as fast as the fastest placement."""
    chosen, best = point.placed["hybridflow"].seconds, point.best
    if chosen is None or best is None:
        return chosen is None and best is None
    return chosen <= (point.placed[best].seconds or 0.0) * (1 + 1e-6)


def _picture(title: str, all_points: Sequence[Point]) -> str:
    sizes = sorted({point.num_gpus for point in all_points})
    at = {(point.model, point.num_gpus): point for point in all_points}
    models = list(dict.fromkeys(point.model for point in all_points))
    series: dict[str, list[float | None]] = {
        f"{way}, {model}": [
            at[model, size].over_colocated(way) if (model, size) in at else None for size in sizes
        ]
        for model in models
        for way in OTHERS
    }
    names = [f"{size} GPUs" for size in sizes]
    return lines(title, names, series, "seconds over those of colocate_all")


def _claims(all_points: Sequence[Point], best: list[Best]) -> list[Claim]:
    compared = _winners(all_points, best)
    words = ", ".join(f"{each.model} on {_shown_range(each)}: {each.way}" for each in best)
    return [
        counted_claim(
            "the fastest placement, by model and GPUs",
            words,
            [same for *_, same in compared],
            "sizes",
        ),
        counted_claim(
            "Algorithm 1 chooses the fastest of the placements",
            "at every size",
            [_optimal_choice(point) for point in all_points if point.best is not None],
            "sizes",
        ),
    ]


def _trend(all_points: Sequence[Point]) -> tuple[float, float]:
    """Seconds of split over colocation, mean over models: on the fewest GPUs and on the most."""
    by_model: dict[str, list[float]] = {}
    for point in all_points:
        ratio = point.over_colocated("split")
        if ratio is not None:
            by_model.setdefault(point.model, []).append(ratio)
    firsts = [ratios[0] for ratios in by_model.values()]
    lasts = [ratios[-1] for ratios in by_model.values()]
    return sum(firsts) / len(firsts), sum(lasts) / len(lasts)


def _apart(plan: Outcome) -> bool:
    """The plan trains actor and critic on different GPUs."""
    first, count = plan.ranges["actor"]
    other, other_count = plan.ranges["critic"]
    return first + count <= other or other + other_count <= first


def _generates_everywhere(point: Point) -> bool:
    """The plan's rollouts use all GPUs, on a shadow or at home."""
    ranges = point.plan.ranges
    return ranges.get("actor.shadow", ranges["actor"])[1] == point.num_gpus


def _stalled(all_points: Sequence[Point], last: Point) -> dict[str, str]:
    """What the largest cluster loses: gradients on the network, and calls on few GPUs."""
    first = next(p for p in all_points if p.model == last.model)
    alone, halves = (last.placed[way].calls["reference.forward"] for way in ("standalone", "split"))
    return {
        "first_moved": percent(_moved_share(first)),
        "last_moved": percent(_moved_share(last)),
        "reference_alone": seconds(alone.seconds),
        "reference_split": seconds(halves.seconds),
        "reference_gpus": str(last.placed["standalone"].ranges["reference"][1]),
    }


def _moved_share(point: Point) -> float:
    """Communication's share of training the actor, all models colocated."""
    train = point.placed["colocate_all"].calls["actor.train"]
    return train.communication_seconds / train.seconds


def _free(all_points: Sequence[Point], best: list[Best]) -> str:
    """How many sizes have the published placement as the fastest in any of Megatron's layouts."""
    compared = [
        fastest(point.free) == wanted
        for point, wanted, _ in _winners(all_points, best)
        if fastest(point.free) is not None
    ]
    return f"{sum(compared)} of {len(compared)}"


def _sizes(outcome: Outcome) -> dict[str, int]:
    return {copy: gpus for copy, (_, gpus) in outcome.ranges.items()}


def _shown_sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{role} {gpus}" for role, gpus in sizes.items())


def report_equal(found: Outcomes) -> Report:
    """Figure 12."""
    facts = FACTS.placement
    all_points = points(found)
    claims = _claims(all_points, facts.best)
    wanted = facts.standalone_13b_128
    last = next(p for p in all_points if p.model == "13B" and p.num_gpus == SIZES[-1])
    sizes = {role: _sizes(last.placed["standalone"]).get(role, 0) for role in wanted}
    claims.append(
        Claim(
            f"sizes of standalone, 13B on {SIZES[-1]} GPUs",
            _shown_sizes(wanted),
            _shown_sizes(sizes),
            sizes == wanted,
        )
    )
    first, final = _trend(all_points)
    claims.append(
        Claim(
            "split overtakes colocation on larger clusters",
            "overtakes it",
            f"{times(first)} its seconds on the fewest GPUs, {times(final)} on the most",
            final < 1.0,
        )
    )
    values = {
        "table": _seconds_table(all_points, facts.best),
        "differing": _differing(all_points, facts.best),
        "last_gpus": str(SIZES[-1]),
        "trend_first": times(first),
        "trend_last": times(final),
        "free": _free(all_points, facts.best),
        **_stalled(all_points, last),
        **_scaling(all_points, last),
        **_plans(all_points),
    }
    picture = _picture("Split and standalone over colocation", all_points)
    return Report(values, claims, {"placement.svg": picture})


def _differing(all_points: Sequence[Point], best: list[Best]) -> str:
    """The sizes at which another placement was published as the fastest, and how far it is off."""
    words = [
        f"{point.model} on {point.num_gpus} GPUs ({way} published, "
        f"{times(point.over_colocated(way) or 0.0)} the seconds of colocation here)"
        for point, way, same in _winners(all_points, best)
        if not same
    ]
    return "; ".join(words) or "none"


def _scaling(all_points: Sequence[Point], last: Point) -> dict[str, str]:
    """Colocation at the mean strong-scaling efficiency that the paper reports."""
    first = next(p for p in all_points if p.model == last.model)
    start, end = first.placed["colocate_all"].seconds, last.placed["colocate_all"].seconds
    assert start is not None
    assert end is not None
    ideal = start * first.num_gpus / last.num_gpus
    return {
        "first_gpus": str(first.num_gpus),
        "our_efficiency": percent(ideal / end),
        "their_efficiency": percent(FACTS.systems.scaling_efficiency),
    }


def _plans(all_points: Sequence[Point]) -> dict[str, str]:
    """Where the plan trains actor and critic apart, and what that gains."""
    apart = [p for p in all_points if p.plan.seconds is not None and _apart(p.plan)]
    gains = [(p.whole["colocate_all"].seconds or 0.0) / (p.plan.seconds or 1.0) - 1 for p in apart]
    where = ", ".join(f"{p.model} on {p.num_gpus}" for p in apart)
    return {
        "plans_apart": where or "none",
        "plans_apart_gain": percent(max(gains, default=0.0)),
        "plans_spread": f"{sum(_generates_everywhere(p) for p in apart)} of {len(apart)}",
        "proven": f"{sum(p.plan.proven for p in all_points)} of {len(all_points)}",
    }


def report_unequal(found: Outcomes) -> Report:
    """Figure 13."""
    facts = FACTS.unequal
    all_points = points(found)
    small = [p for p in all_points if best_at(facts.best, p.model, p.num_gpus) == "colocate_all"]
    gains = [
        ratio - 1
        for point in small
        for way in OTHERS
        if (ratio := point.over_colocated(way)) is not None
    ]
    gain = sum(gains) / len(gains)
    last = all_points[-1]
    sets = _sets(last.placed["hybridflow"])
    wanted = [(sorted(members), facts.set_gpus_128) for members in facts.sets_128]
    claims = [
        *_claims(all_points, facts.best),
        number_claim(
            "colocation ahead of the others, mean over the smaller clusters",
            facts.colocate_gain,
            gain,
            percent,
        ),
        Claim(
            f"what Algorithm 1 chooses on {last.num_gpus} GPUs",
            _shown_sets(wanted),
            _shown_sets(sets),
            sorted(sets) == sorted(wanted),
        ),
    ]
    values = {
        "table": _seconds_table(all_points, facts.best),
        "last_gpus": str(last.num_gpus),
        "published_sets": _shown_sets(wanted),
        "chosen_sets": _shown_sets(sets),
        "behind_share": percent((last.over_colocated("split") or 0.0) - 1),
        "differing": _differing(all_points, facts.best),
        "critic_slower": times(_critic_slower(last)),
        "actor_part": percent(_actor_part(last.placed["colocate_all"])),
        "plans_apart": _plans(all_points)["plans_apart"],
    }
    picture = _picture("Split and standalone over colocation, unequal models", all_points)
    return Report(values, claims, {"unequal.svg": picture})


def _critic_slower(point: Point) -> float:
    """Training the critic in a half over training it on all GPUs."""
    halves, whole = (point.placed[way].calls["critic.train"] for way in ("split", "colocate_all"))
    return halves.seconds / whole.seconds


def _actor_part(outcome: Outcome) -> float:
    """Training the actor over training the critic: what could be hidden behind it."""
    return outcome.calls["actor.train"].seconds / outcome.calls["critic.train"].seconds


def _sets(outcome: Outcome) -> list[tuple[list[str], int]]:
    """Models that share a range, and its GPUs."""
    by_range: dict[tuple[int, int], list[str]] = {}
    for copy, span in outcome.ranges.items():
        by_range.setdefault(span, []).append(copy)
    return [(sorted(members), gpus) for (_, gpus), members in by_range.items()]


def _shown_sets(sets: Sequence[tuple[Sequence[str], int]]) -> str:
    return "; ".join(f"{', '.join(members)} on {gpus}" for members, gpus in sets)


PLACEMENT = Study(
    "placement",
    "Colocate, split, or standalone",
    f"{FACTS.paper}, {FACTS.placement.source}",
    study_cases(EQUAL, SIZES),
    report_equal,
    FACTS.hardware,
)
UNEQUAL_PLACEMENT = Study(
    "unequal",
    "A small actor with a large critic",
    f"{FACTS.paper}, {FACTS.unequal.source}",
    study_cases(UNEQUAL, SIZES[1:]),
    report_unequal,
    FACTS.hardware,
)
