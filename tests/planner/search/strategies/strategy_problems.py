"""Problems for the strategies' tests, and what holds for every answer."""

import itertools
import random
from collections.abc import Sequence

import pytest

from automap.planner.search.model.problem import (
    Assignment,
    CallChoice,
    CallOption,
    CopyChoice,
    CopyOption,
    PoolSlice,
    Precedence,
    Problem,
    chosen,
    copy_range,
)
from automap.planner.search.model.solve import Limits
from automap.planner.search.strategies import STRATEGIES, DoesNotFit, Index, Placed
from tests.planner.search import oracle

MIB = 2**20
SIZES = (1, 2, 4, 8, 16)
PPO = {
    "actor": ("generate", "train"),
    "critic": ("forward", "train"),
    "reference": ("forward",),
    "reward": ("forward",),
}


def a_pool(nodes: int = 1, per_node: int = 8, *, first: int = 0, mib: int = 100) -> PoolSlice:
    return PoolSlice(
        f"p{first}", first, nodes * per_node, per_node, mib * MIB, 100 * MIB, price_per_gpu_second=1
    )


class Builder:
    """Models with calls; seconds of a call on n GPUs are given by a function."""

    def __init__(self, *pools: PoolSlice) -> None:
        self.pools = pools
        self.copies: list[CopyChoice] = []
        self.calls: dict[str, list[CallOption]] = {}
        self.fixed: dict[str, float] = {}

    def model(self, role: str, layouts, calls) -> "Builder":
        """`layouts`: (pool, count, resident MiB, host MiB); `calls`: id → seconds(count, layout)
        or a list of (seconds(count, layout), transient MiB)."""
        options = tuple(
            CopyOption(pool, count, resident * MIB, host * MIB, 0.0, row)
            for row, (pool, count, resident, host) in enumerate(layouts)
        )
        index = len(self.copies)
        self.copies.append(CopyChoice(role, role, None, options))
        for call, settings in calls.items():
            settings = settings if isinstance(settings, list) else [(settings, 0)]
            self.calls[call] = [
                CallOption(index, row, float(seconds(option.num_gpus, row)), transient * MIB, 0)
                for row, option in enumerate(options)
                for seconds, transient in settings
            ]
        return self

    def function(self, call: str, seconds: float) -> "Builder":
        self.calls[call], self.fixed[call] = [], seconds
        return self

    def problem(self, **changes) -> Problem:
        """Generation first, then everything that scores, then training."""
        ids = sorted(self.calls, key=lambda call: call_kind(call))
        calls = tuple(CallChoice(i, tuple(self.calls[i]), self.fixed.get(i, 0.0)) for i in ids)
        edges = [
            Precedence(u, v, 0)
            for u, v in itertools.combinations(range(len(ids)), 2)
            if call_kind(ids[u]) < call_kind(ids[v])
        ]
        edges += [
            Precedence(u, v, 1)
            for u, v in itertools.product(range(len(ids)), repeat=2)
            if call_kind(ids[u]) == 2 and call_kind(ids[v]) < 2
            if ids[u].split(".")[0] == ids[v].split(".")[0]
        ]
        return Problem(self.pools, tuple(self.copies), calls, tuple(edges), **changes)


def call_kind(call: str) -> int:
    return {"generate": 0, "forward": 1, "train": 2}[call.split(".")[1]]


def layouts(pool: PoolSlice, resident: int, *, number: int = 0, sizes: Sequence[int] = SIZES):
    return [(number, n, resident, 0) for n in sizes if n <= pool.num_gpus]


def ppo(seconds, pool: PoolSlice | None = None, *, resident: int = 10, **changes) -> Problem:
    """PPO whose calls all take `seconds(count)`."""
    pool = pool or a_pool()
    builder = Builder(pool)
    for role, kinds in PPO.items():
        calls = {f"{role}.{kind}": (lambda n, _: seconds(n)) for kind in kinds}
        builder.model(role, layouts(pool, resident), calls)
    return builder.problem(**changes)


def rich_problem(seed: int, *, mib: int) -> Problem:
    """Three models on one node, two layouts per size (small and slow, large and fast)."""
    draw = random.Random(seed)
    pool = a_pool(1, 4, mib=mib)
    builder = Builder(pool)
    roles = draw.sample(list(PPO), 3) if seed % 2 else ["actor", "critic", "reward"]
    for role in roles:
        shape = [
            (0, n, max(1, memory // n), draw.choice([0, 0, 40]))
            for n in (1, 2, 4)
            for memory in (draw.randint(10, 30), draw.randint(30, 80))
        ]
        speeds = {}
        for kind in PPO[role]:
            work = {row: draw.uniform(4, 40) for row in range(len(shape))}
            speeds[f"{role}.{kind}"] = [
                (lambda n, row, work=work, factor=factor: factor * work[row] / n**0.7, transient)
                for factor, transient in ((1.0, draw.randint(5, 30)), (1.5, draw.randint(0, 4)))
            ]
        builder.model(role, shape, speeds)
    return builder.problem()


def ranges(problem: Problem, placed: Placed) -> dict[str, tuple[int, int]]:
    found = {}
    for index, copy in enumerate(problem.copies):
        span = copy_range(problem, placed.assignment, index)
        if span is not None:
            found[copy.role] = (span.first, span.count)
    return found


def sets(problem: Problem, placed: Placed) -> set[frozenset[str]]:
    found: dict[tuple[int, int], set[str]] = {}
    for role, span in ranges(problem, placed).items():
        found.setdefault(span, set()).add(role)
    return {frozenset(roles) for roles in found.values()}


def stage_cost(problem: Problem, assignment: Assignment) -> float:
    """d_cost from its definition, without the code under test (stages by the calls' names)."""
    per_stage: list[dict[object, float]] = [{}, {}, {}]
    for call, choice in enumerate(problem.calls):
        option, stage = chosen(problem, assignment, call), per_stage[call_kind(choice.id)]
        if option is None:
            stage[choice.id] = choice.fixed_seconds
            continue
        key = copy_range(problem, assignment, option.copy)
        stage[key] = stage.get(key, 0.0) + option.seconds
    return sum(max(stage.values(), default=0.0) for stage in per_stage)


def placed_by(problem: Problem, name: str, limits: Limits | None = None) -> Placed:
    return STRATEGIES[name].place(Index(problem), limits or Limits())


def outcome(problem: Problem, name: str, limits: Limits | None = None) -> Placed | DoesNotFit:
    try:
        return placed_by(problem, name, limits)
    except DoesNotFit as reason:
        return reason


def reason_of(problem: Problem, name: str) -> str:
    with pytest.raises(DoesNotFit) as caught:
        placed_by(problem, name)
    return caught.value.reason


def check_valid(problem: Problem, placed: Placed) -> None:
    """Everything that holds for an assignment, by the oracle's own enumeration."""
    assignment = placed.assignment
    for index, copy in enumerate(problem.copies):
        choice = (assignment.copy_options[index], assignment.first_gpus[index])
        assert choice in set(oracle._copy_choices(problem, index)), copy.id
    for call, choice in enumerate(problem.calls):
        option = chosen(problem, assignment, call)
        assert (option is None) == (not choice.options)
        if option is not None:
            assert assignment.copy_options[option.copy] == option.copy_option
    assert oracle._shadows_used(problem, assignment)
    assert oracle._pairs_hold(problem, assignment)
    assert oracle.fits(problem, assignment)
