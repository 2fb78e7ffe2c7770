"""What it costs not to know the true seconds: scenarios inside the estimates' own intervals.

Errors of one kind go together (`assembly.intervals`): a group is a kind of call, dense or with
experts, on one GPU type; all that moves weights; or all that a framework does on the host. In a
scenario every group has one factor.
Regret = (the plan's objective − the best objective) ÷ the best, under the scenario's seconds; the
plan keeps its placement, its settings and the order of its calls, as a run does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import exp
from typing import Literal

import numpy as np

from automap.planner.cost.intervals import HOST_WORK, NORMAL_SIGMAS, SPREADS, Kind
from automap.planner.explanation.factors import Factors
from automap.planner.explanation.result import ErrorGroup, Regret, RegretShare
from automap.planner.explanation.solving import Contenders, limits_of
from automap.planner.explanation.study import Study
from automap.planner.layout import FloatArray
from automap.planner.search import Limits

MOST_CORNERS = 32
NOUNS = {"generate": "generation", "forward": "scoring", "train": "training"}


@dataclass(frozen=True, slots=True)
class Group:
    """Estimates that are wrong together: the work of some calls, or parts of all of them."""

    name: str
    kind: Kind
    members: frozenset[tuple[int, int]] = frozenset()
    """(call, pool) whose work it is."""
    parts: tuple[Literal["transition", "host", "sync"], ...] = ()
    """Factors that it has of all calls and copies."""

    @property
    def spread(self) -> float:
        """|ln(true ÷ estimate)| of the interval's ends."""
        return SPREADS[self.kind]


def groups_of(study: Study) -> list[Group]:
    """The groups of a job, training first; those that its plans have no use for are left out."""
    members: dict[tuple[str, Kind], set[tuple[int, int]]] = {}
    gpus = sorted({pool.gpu.name for pool in study.job.pools})
    for index, call in enumerate(study.job.dataflow.calls):
        if call.model is None:
            continue
        whole = study.job.models[call.model]
        model = whole.architecture
        noun = NOUNS[call.kind] + (" with experts" if model.num_experts else "")
        for number, pool in enumerate(study.job.pools):
            where = f" on {pool.gpu.name}" if len(gpus) > 1 else ""
            kind = study.pricing.interval_kind(call, whole, pool)
            members.setdefault((noun + where, kind), set()).add((index, number))
    groups = [Group(name, kind, frozenset(m)) for (name, kind), m in members.items()]
    return [*groups, *_groups_of_parts(study)]


def _groups_of_parts(study: Study) -> Iterator[Group]:
    """What moves weights, and what is done on the host: there are copies that are both."""
    moving, syncing = study.pricing.transition_kind, study.pricing.transfer_kind
    if moving == HOST_WORK:
        yield Group("host work", HOST_WORK, parts=("host", "transition"))
        if study.problem.syncs:
            yield Group("moving weights", syncing, parts=("sync",))
        return
    if any(parts.host.any() for parts in study.parts):
        yield Group("host work", HOST_WORK, parts=("host",))
    yield Group("moving weights", moving, parts=("transition", "sync"))


def factors_of(study: Study, groups: list[Group], logs: FloatArray) -> Factors:
    """The factors of a scenario: per group ln(true ÷ estimate)."""
    factors = Factors.ones(study)
    for group, log in zip(groups, logs, strict=True):
        for call, pool in group.members:
            factors.work[call, pool] = exp(log)
        for part in group.parts:
            getattr(factors, part)[:] = exp(log)
    return factors


def corners(groups: list[Group], *, seed: int) -> FloatArray:
    """[corners, groups] every group at an end of its interval; of many corners some."""
    spreads = np.array([group.spread for group in groups])
    if 2 ** len(groups) <= MOST_CORNERS:
        ends = np.array(list(product((-1.0, 1.0), repeat=len(groups))))
        return np.asarray(ends * spreads)
    draw = np.random.default_rng(seed)
    some = draw.choice((-1.0, 1.0), size=(MOST_CORNERS, len(groups)))
    return np.asarray(some * spreads)


def regret_of(
    contenders: Contenders, *, scenarios: int, margin: float, search_seconds: float
) -> Regret:
    """The plan's regret over drawn scenarios and over the corners of the intervals."""
    study = contenders.study
    groups = groups_of(study)
    seed = study.job.spec.search.seed
    spreads = np.array([group.spread for group in groups])
    draw = np.random.default_rng(seed)
    drawn = draw.normal(size=(scenarios, len(groups))) * spreads / NORMAL_SIGMAS
    ends = corners(groups, seed=seed)
    every = [factors_of(study, groups, logs) for logs in np.concatenate([drawn, ends])]
    before = contenders.unproven
    best = best_values(contenders, every, margin=margin, search_seconds=search_seconds)
    own = contenders.own_values(every)
    shares = np.maximum(_over(own, best), 0.0)
    sampled, at_corners = shares[:scenarios], shares[scenarios:]
    worst = int(np.argmax(at_corners))
    quantiles = np.quantile(sampled, [0.5, 0.95]) if scenarios else [0.0, 0.0]
    return Regret(
        groups=[ErrorGroup(name=group.name, spread=group.spread) for group in groups],
        scenarios=scenarios,
        sampled=RegretShare(
            p50=float(quantiles[0]), p95=float(quantiles[1]), max=float(sampled.max(initial=0.0))
        ),
        corners=len(ends),
        worst_corner=float(at_corners[worst]),
        worst_errors={
            group.name: exp(log) - 1 for group, log in zip(groups, ends[worst], strict=True)
        },
        margin=margin,
        unproven=contenders.unproven - before,
    )


def _over(own: FloatArray, best: FloatArray) -> FloatArray:
    """How far the plan's objective is above the best one, as a share of the best.

    Where the best costs nothing it is a share of the plan's own objective (at least 1): on GPUs
    without a price every plan costs nothing, and none is regretted.
    """
    base = np.where(best > 0, best, np.maximum(own, 1.0))
    return np.asarray((own - best) / base)


def best_values(
    contenders: Contenders, scenarios: list[Factors], *, margin: float, search_seconds: float
) -> FloatArray:
    """[scenarios] the best objective, each to within the margin; what wins joins the contenders."""
    limits = limits_of(contenders.study, search_seconds)
    for number, factors in enumerate(scenarios):
        with contenders.share(1.0 / (len(scenarios) - number)):
            _solve(contenders, factors, margin=margin, limits=limits)
    return contenders.least_values(scenarios)


def _solve(contenders: Contenders, factors: Factors, *, margin: float, limits: Limits) -> None:
    """Add what is better by more than the margin until nothing is, or nothing is found."""
    while True:
        known = float(contenders.least_values([factors])[0])
        solved = contenders.challenge(factors, known * (1 - margin), limits)
        if solved.solution is None or solved.is_proven:
            return
        if float(contenders.least_values([factors])[0]) >= known:
            return
