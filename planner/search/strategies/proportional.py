"""ReaL's heuristic (arXiv 2406.14088): the plan that its search keeps finding, as a rule.

Generation and the reference on all GPUs; each model that trains on nodes of its own, in proportion
to its size, so that they train side by side; the models that only score on equal parts.

ReaL moves weights before any call, so that a model may lie elsewhere for each of its calls. Here a
model has a home and, for rollouts, a shadow: values are computed where the critic trains.
"""

import math
from collections.abc import Sequence

from automap.planner.search.model.problem import PoolSlice, Problem, Range
from automap.planner.search.model.solve import Limits
from automap.planner.search.strategies.auto_mapping import trains
from automap.planner.search.strategies.index import Index
from automap.planner.search.strategies.placing import DoesNotFit, Placed, check_served
from automap.planner.search.strategies.ranges import fastest_on
from automap.planner.search.strategies.shadows import shadows_of
from automap.planner.search.strategies.stages import GENERATION

NAME = "real_heuristic"


def real_heuristic(index: Index, limits: Limits) -> Placed:
    """The heuristic's ranges on the largest pool, with the fastest layouts that it may use."""
    check_served(index)
    problem = index.problem
    pool = max(problem.pools, key=lambda pool: pool.num_gpus)
    places = _homes(index, pool)
    whole = Range(pool.first_gpu, pool.num_gpus)
    # A model on all GPUs generates where it trains.
    moved = {home: shadow for shadow, home in shadows_of(problem).items() if places[home] != whole}
    places |= dict.fromkeys(moved.values(), whole)
    stuck = [
        home
        for home in index.homes
        if places[home] != whole
        and home not in moved
        and any(index.stages[call] == GENERATION for call in index.calls_of[home])
    ]
    if stuck:
        raise DoesNotFit(
            f"{NAME} generates on all {pool.num_gpus} GPUs and trains {index.name(stuck)} on "
            f"{places[stuck[0]].count}, which takes a shadow copy, and the job has none"
        )
    fitted = {copy: _with_layouts(problem, copy, span) for copy, span in places.items()}
    return fastest_on(problem, fitted, strategy=NAME, limits=limits)


def _with_layouts(problem: Problem, copy: int, span: Range) -> Range:
    """The longest part of a range, from its start, that the copy has layouts for."""
    counts = [
        option.num_gpus
        for option in problem.copies[copy].options
        if option.num_gpus <= span.count
        and problem.pools[option.pool].first_gpu <= span.first
        and span.first < problem.pools[option.pool].first_gpu + problem.pools[option.pool].num_gpus
    ]
    return Range(span.first, max(counts, default=span.count))


def _homes(index: Index, pool: PoolSlice) -> dict[int, Range]:
    training = [home for home in index.homes if trains(index, (home,))]
    scoring = [home for home in index.homes if home not in training]
    references = [home for home in scoring if index.problem.copies[home].role == "reference"]
    others = [home for home in scoring if home not in references]
    places = {home: Range(pool.first_gpu, pool.num_gpus) for home in references}
    sizes = [_weight(index, home) for home in training]
    places |= _side_by_side(training, _shares(sizes, pool), pool)
    return places | _side_by_side(others, _shares([1.0] * len(others), pool), pool)


def _weight(index: Index, home: int) -> float:
    """Least bytes of all GPUs and hosts: in proportion to the parameters of models that train."""
    options = index.problem.copies[home].options
    return float(min((o.resident_bytes + o.host_bytes) * o.num_gpus for o in options))


def _shares(sizes: Sequence[float], pool: PoolSlice) -> list[int]:
    """GPUs per model: whole nodes in order; a power of two within a node.

    min(n a / (a + c), n − 1) nodes for the actor and the rest for the critic, and so on for more
    than two. Rounded to the nearest, where ReaL rounds up: a critic has no output layer, so that
    with exact sizes an actor of the same architecture would always take a node from it.
    """
    nodes = pool.num_gpus // pool.gpus_per_node
    if pool.num_gpus < len(sizes):
        raise DoesNotFit(f"{NAME}: {len(sizes)} models side by side on {pool.num_gpus} GPUs")
    if nodes < len(sizes):
        return [2 ** int(math.log2(pool.num_gpus // len(sizes)))] * len(sizes)
    shares, left = [], nodes
    for number, size in enumerate(sizes):
        later = len(sizes) - number - 1
        share = left if later == 0 else round(left * size / sum(sizes[number:]))
        shares.append(max(min(share, left - later), 1) * pool.gpus_per_node)
        left -= shares[-1] // pool.gpus_per_node
    return shares


def _side_by_side(homes: Sequence[int], counts: Sequence[int], pool: PoolSlice) -> dict[int, Range]:
    """One range after another from the first GPU."""
    places, first = {}, pool.first_gpu
    for home, count in zip(homes, counts, strict=True):
        places[home] = Range(first, count)
        first += count
    return places
