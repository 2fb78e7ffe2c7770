"""Strategies on problems solved by hand: who wins, what is kept, and why something fails."""

import itertools
import math
from dataclasses import replace

import pytest

from automap.planner.search.model.problem import CallChoice, CopyChoice, Precedence, Problem
from automap.planner.search.strategies import STARTS, Index
from automap.planner.search.strategies.auto_mapping import _partitions
from automap.planner.search.strategies.placing import packed
from automap.planner.search.strategies.stages import GENERATION, PREPARATION, TRAINING, stages_of
from tests.planner.search.strategies.strategy_problems import (
    MIB,
    PPO,
    Builder,
    a_pool,
    check_valid,
    layouts,
    placed_by,
    ppo,
    ranges,
    reason_of,
    sets,
    stage_cost,
)


def test_colocate_wins_where_calls_scale_perfectly() -> None:
    """Six calls of 8 GPU-seconds on 8 GPUs, one after another: 6 s; nothing can be faster."""
    problem = ppo(lambda n: 8 / n)
    results = {name: placed_by(problem, name) for name in STARTS}
    costs = {name: result.claimed_seconds for name, result in results.items()}
    assert costs["colocate_all"] == pytest.approx(6)
    # generate 2, then max(reference 2, critic 2 + reward 2), then max(2, 2)
    assert costs["split"] == pytest.approx(8)
    # every model 2 GPUs: 4 + 4 + 4
    assert costs["standalone"] == pytest.approx(12)
    assert costs["hybridflow"] == pytest.approx(6)
    assert ranges(problem, results["hybridflow"]) == dict.fromkeys(PPO, (0, 8))


def test_standalone_wins_where_calls_do_not_scale() -> None:
    """Every call 5 s on any number of GPUs: three stages of 5 s when no model waits for another."""
    problem = ppo(lambda n: 5.0)
    results = {name: placed_by(problem, name) for name in STARTS}
    costs = {name: result.claimed_seconds for name, result in results.items()}
    assert costs == {"colocate_all": 30, "split": 20, "standalone": 15, "hybridflow": 15}
    assert len({first for first, _ in ranges(problem, results["standalone"]).values()}) == 4


def test_split_wins_where_the_large_models_train_side_by_side() -> None:
    """Training does not scale beyond half of the GPUs, and the small models need nothing."""
    pool = a_pool()
    builder = Builder(pool)

    def heavy(n, _):
        return 10 * max(1, 4 / n)

    def light(n, _):
        return 0.1

    builder.model("actor", layouts(pool, 60), {"actor.generate": heavy, "actor.train": heavy})
    builder.model("critic", layouts(pool, 60), {"critic.forward": light, "critic.train": heavy})
    builder.model("reference", layouts(pool, 10), {"reference.forward": light})
    builder.model("reward", layouts(pool, 10), {"reward.forward": light})
    # two large models do not fit on one GPU together, so colocate_all fails
    problem = builder.problem()
    assert f"{(140 - 100) * MIB} bytes more" in reason_of(problem, "colocate_all")
    split = placed_by(problem, "split")
    assert split.claimed_seconds == pytest.approx(10 + 0.2 + 10)
    assert sets(problem, split) == {
        frozenset({"actor", "reference"}),
        frozenset({"critic", "reward"}),
    }
    assert placed_by(problem, "standalone").claimed_seconds > split.claimed_seconds
    hybridflow = placed_by(problem, "hybridflow")
    assert hybridflow.claimed_seconds == pytest.approx(split.claimed_seconds)


def test_stage_cost_by_hand() -> None:
    """Sum inside a set, maximum over sets, sum over stages, a host function beside them all."""
    pool = a_pool(1, 2)
    times = {
        "actor": {"actor.generate": 7, "actor.train": 5},
        "reference": {"reference.forward": 3},
        "critic": {"critic.forward": 2, "critic.train": 6},
    }
    builder = Builder(pool)
    for role, calls in times.items():
        builder.model(
            role,
            [(0, 1, 10, 0)],
            {call: (lambda n, _, s=s: s) for call, s in calls.items()},
        )
    builder.function("judge.forward", 4.5)
    problem = builder.problem()
    placed = placed_by(problem, "split")
    # generation 7; preparation max(reference 3, critic 2, function 4.5); training max(5, 6)
    assert placed.claimed_seconds == pytest.approx(7 + 4.5 + 6)
    assert placed.claimed_seconds == pytest.approx(stage_cost(problem, placed.assignment))
    colocated = placed_by(problem, "colocate_all")
    assert colocated.claimed_seconds == pytest.approx(7 + max(3 + 2, 4.5) + 5 + 6)


def test_strategies_of_a_set_are_chosen_to_fit_together() -> None:
    """Alone each model takes its fast layout of 60 MiB; together one of them must take 30 MiB."""
    pool = a_pool(1, 1, mib=100)
    builder = Builder(pool)
    shape = [(0, 1, 60, 0), (0, 1, 30, 0)]
    builder.model(
        "actor",
        shape,
        {"actor.generate": lambda n, row: (10, 14)[row], "actor.train": lambda *_: 1},
    )
    builder.model("reward", shape, {"reward.forward": lambda n, row: (5, 6)[row]})
    problem = builder.problem()
    placed = placed_by(problem, "hybridflow")
    assert placed.claimed_seconds == pytest.approx(10 + 6 + 1)
    check_valid(problem, placed)


def test_next_best_allocation_when_the_cheapest_does_not_fit_together() -> None:
    """By d_cost of models alone one set is best; its host memory and GPU memory rule each other
    out, which only choosing the layouts together shows."""
    pool = a_pool(1, 4, mib=100)
    builder = Builder(pool)
    shape = [(0, n, resident, host) for n in (1, 2, 4) for resident, host in ((70, 0), (20, 80))]

    def linear(n, _):
        return 8 / n

    builder.model("actor", shape, {"actor.generate": linear, "actor.train": linear})
    builder.model("reward", shape, {"reward.forward": linear})
    problem = builder.problem()
    # one set on 4 GPUs would be 2 + 2 + 2: 70 + 20 MiB and 80 MiB of host memory fit
    assert placed_by(problem, "hybridflow").claimed_seconds == pytest.approx(6)
    tight = replace(problem, pools=(replace(pool, host_bytes=70 * MIB),))
    assert f"{40 * MIB} bytes more" in reason_of(tight, "colocate_all")
    apart = placed_by(tight, "hybridflow")
    assert apart.claimed_seconds == pytest.approx(4 + 4 + 4)  # 2 + 2 GPUs
    check_valid(tight, apart)


def test_machines_need_not_be_whole_and_sizes_need_not_divide() -> None:
    """HybridFlow's printed loops give fractions of a data-parallel size and no pipeline size below
    a machine; here only sizes with a layout count, on three nodes as well."""
    pool = a_pool(3, 8)
    sizes = (1, 2, 4, 8, 16, 24)
    builder = Builder(pool)

    def linear(work):
        return lambda n, _: work / n

    builder.model(
        "actor",
        layouts(pool, 60, sizes=sizes),
        {"actor.generate": linear(320), "actor.train": linear(320)},
    )
    builder.model(
        "critic",
        layouts(pool, 60, sizes=sizes),
        {"critic.forward": linear(10), "critic.train": linear(80)},
    )
    builder.model("reward", layouts(pool, 60, sizes=sizes), {"reward.forward": linear(8)})
    problem = builder.problem()
    placed = placed_by(problem, "standalone")
    check_valid(problem, placed)
    # 24 GPUs in three disjoint ranges of these sizes: 16 for the actor, 4 and 4 beside each other
    assert {role: count for role, (_, count) in ranges(problem, placed).items()} == {
        "actor": 16,
        "critic": 4,
        "reward": 4,
    }
    assert placed.claimed_seconds == pytest.approx(20 + 2.5 + 20)


def test_uneven_halves_of_three_nodes() -> None:
    problem = ppo(lambda n: 48 / n, a_pool(3, 8))
    builder_sizes = {count for _, count in ranges(problem, placed_by(problem, "split")).values()}
    assert builder_sizes == {8, 16}


# --- constraints, pools, what is missing ----------------------------------------------------------


def test_forced_pairs_are_kept_or_named() -> None:
    problem = ppo(lambda n: 5.0, colocate=((0, 2),))
    assert "actor, reference" in reason_of(problem, "standalone")
    assert placed_by(problem, "split").claimed_seconds == pytest.approx(20)
    hybridflow = placed_by(problem, "hybridflow")
    assert ranges(problem, hybridflow)["actor"] == ranges(problem, hybridflow)["reference"]

    problem = ppo(lambda n: 8 / n, separate=((0, 1), (2, 3)))
    assert "actor, critic" in reason_of(problem, "colocate_all")
    for name in ("split", "standalone", "hybridflow"):
        check_valid(problem, placed_by(problem, name))

    problem = ppo(lambda n: 8 / n, separate=((0, 2),))
    assert "actor, reference" in reason_of(problem, "split")

    problem = ppo(lambda n: 8 / n, colocate=((0, 1),), separate=((0, 1),))
    assert "2 constrained pairs" in reason_of(problem, "hybridflow")


def test_models_pinned_to_different_pools() -> None:
    first, second = a_pool(1, 4), a_pool(1, 4, first=4)
    builder = Builder(first, second)

    def linear(n, _):
        return 8 / n

    builder.model("actor", layouts(first, 10), {"actor.generate": linear, "actor.train": linear})
    builder.model("reward", layouts(second, 10, number=1), {"reward.forward": linear})
    builder.model(
        "reference",
        layouts(first, 10) + layouts(second, 10, number=1),
        {"reference.forward": linear},
    )
    problem = builder.problem()
    assert "no pool" in reason_of(problem, "colocate_all")
    for name, seconds in {"split": 6.0, "hybridflow": 6.0, "standalone": 8.0}.items():
        placed = placed_by(problem, name)
        check_valid(problem, placed)
        assert placed.claimed_seconds == pytest.approx(seconds), name
        assert ranges(problem, placed)["reward"][0] >= 4


def test_the_faster_pool_is_taken() -> None:
    slow, fast = a_pool(1, 4), a_pool(1, 4, first=4)
    builder = Builder(slow, fast)
    for role, kinds in PPO.items():
        shape = layouts(slow, 10) + layouts(fast, 10, number=1)
        speeds = [3.0 if pool == 0 else 1.0 for pool, *_ in shape]
        builder.model(
            role,
            shape,
            {f"{role}.{kind}": lambda n, row, s=speeds: s[row] / n for kind in kinds},
        )
    problem = builder.problem()
    assert set(ranges(problem, placed_by(problem, "colocate_all")).values()) == {(4, 4)}


def test_gpus_kept_free_leave_the_largest_common_size() -> None:
    pool = replace(a_pool(), num_gpus=6)
    problem = ppo(lambda n: 8 / n, pool)
    placed = placed_by(problem, "colocate_all")
    check_valid(problem, placed)
    assert set(ranges(problem, placed).values()) == {(0, 4)}
    check_valid(problem, placed_by(problem, "standalone"))


def test_split_without_critic_and_without_anything_else() -> None:
    def linear(n, _):
        return 8 / n

    pool = a_pool()
    builder = Builder(pool)
    builder.model("actor", layouts(pool, 10), {"actor.generate": linear, "actor.train": linear})
    alone = builder.problem()
    placed = placed_by(alone, "split")
    assert placed.assignment == placed_by(alone, "colocate_all").assignment
    assert "split is colocate_all" in placed.note
    builder.model("reference", layouts(pool, 10), {"reference.forward": linear})
    with_reference = builder.problem()
    assert len(sets(with_reference, placed_by(with_reference, "split"))) == 2
    builder.model("judge", layouts(pool, 10), {"judge.forward": linear})
    with_judge = builder.problem()
    assert sets(with_judge, placed_by(with_judge, "split")) == {
        frozenset({"actor", "reference"}),
        frozenset({"judge"}),
    }


def test_stages_come_from_the_edges() -> None:
    """ReMax: both rollouts generate; names play no part."""
    calls = tuple(CallChoice(name, (), 1.0) for name in ("a", "b", "c", "d", "e", "f"))
    edges = (
        Precedence(0, 2, 0),
        Precedence(1, 3, 0),
        Precedence(2, 4, 0),
        Precedence(3, 4, 0),
        Precedence(4, 5, 0),
        Precedence(4, 0, 1),
        Precedence(4, 1, 1),
    )
    problem = Problem((a_pool(),), (), calls, edges)
    assert stages_of(problem) == [
        GENERATION,
        GENERATION,
        PREPARATION,
        PREPARATION,
        TRAINING,
        TRAINING,
    ]


def test_why_nothing_fits_in_numbers() -> None:
    problem = ppo(lambda n: 8 / n, resident=120)
    all_together, half, alone = (f"{mib * MIB} bytes more" for mib in (380, 140, 20))
    assert all_together in reason_of(problem, "colocate_all")
    assert half in reason_of(problem, "split")
    assert alone in reason_of(problem, "standalone")
    assert all_together in reason_of(problem, "hybridflow")
    assert alone in reason_of(problem, "hybridflow")
    too_many = ppo(lambda n: 8 / n, a_pool(1, 2), resident=10)
    assert "at least 4 GPUs" in reason_of(too_many, "standalone")
    assert "2 of pool p0" in reason_of(too_many, "standalone")


def test_a_call_that_only_a_shadow_can_run() -> None:
    problem = ppo(lambda n: 8 / n)
    shadow = CopyChoice("actor.shadow", "actor", 0, problem.copies[0].options)
    moved = tuple(replace(option, copy=4) for option in problem.calls[0].options)
    calls = (replace(problem.calls[0], options=moved), *problem.calls[1:])
    problem = replace(problem, copies=(*problem.copies, shadow), calls=calls)
    for name in STARTS:
        assert "actor.generate" in reason_of(problem, name)


def test_many_models_still_have_few_partitions() -> None:
    pool = a_pool(2, 8)
    builder = Builder(pool)

    def linear(n, _):
        return 8 / n

    builder.model("actor", layouts(pool, 5), {"actor.generate": linear, "actor.train": linear})
    for number in range(9):
        builder.model(f"judge{number}", layouts(pool, 5), {f"judge{number}.forward": linear})
    problem = builder.problem()
    for name in STARTS:
        check_valid(problem, placed_by(problem, name))


@pytest.mark.parametrize(("units", "bell"), [(1, 1), (2, 2), (3, 5), (4, 15), (5, 52), (6, 203)])
def test_partitions_are_all_set_partitions(units: int, bell: int) -> None:
    found = {frozenset(map(frozenset, p)) for p in _partitions([(unit,) for unit in range(units)])}
    assert len(found) == bell


def test_packing_fills_a_pool_to_the_last_gpu() -> None:
    pool = a_pool(3, 8)
    problem = Problem((pool,), (), (), ())
    index = Index(ppo(lambda n: 1.0, pool))
    by_count = {slot.count: slot for slot in index.slots}
    firsts = packed(problem, [by_count[n] for n in (1, 8, 2, 8, 1, 4)])
    assert firsts is not None
    taken = [
        gpu
        for first, n in zip(firsts, (1, 8, 2, 8, 1, 4), strict=True)
        for gpu in range(first, first + n)
    ]
    assert sorted(taken) == list(range(24))
    assert packed(problem, [by_count[n] for n in (16, 8, 1)]) is None


def test_thinning_still_finds_the_best_sizes_of_four_models() -> None:
    """Ninety sizes per model and four sets of a perfectly scaling job: known least cost."""
    sizes = [1, 2, 4, *range(8, 8 * 90, 8)]
    pool = a_pool(89, 8, mib=20)
    builder = Builder(pool)
    works = {"actor": 4000.0, "critic": 2000.0, "reference": 600.0, "reward": 300.0}
    for role, kinds in PPO.items():
        builder.model(
            role,
            layouts(pool, 11, sizes=sizes),
            {f"{role}.{kind}": lambda n, _, w=works[role]: w / n for kind in kinds},
        )
    problem = builder.problem()
    found = placed_by(problem, "standalone")
    # a + c + f + w = 712 GPUs: 4000/a + max(2000/c, 600/f, 300/w) + max(4000/a, 2000/c)
    best = math.inf
    for actor, critic, reference in itertools.product(sizes, sizes, sizes):
        rest = 712 - actor - critic - reference
        if rest < 1:
            continue
        reward = rest if rest < 8 else rest // 8 * 8
        reward = max(size for size in sizes if size <= reward)
        scoring = max(2000 / critic, 600 / reference, 300 / reward)
        best = min(best, 4000 / actor + scoring + max(4000 / actor, 2000 / critic))
    assert found.claimed_seconds <= best * 1.005
    assert found.claimed_seconds >= best - 1e-9


def test_host_memory_that_is_short_is_named() -> None:
    pool = a_pool(1, 2)
    builder = Builder(pool)
    builder.model("actor", [(0, 2, 10, 70)], {"actor.generate": lambda n, _: 1.0})
    builder.model("reward", [(0, 2, 10, 60)], {"reward.forward": lambda n, _: 1.0})
    reason = reason_of(builder.problem(), "colocate_all")
    assert f"{30 * MIB} bytes more" in reason
    assert "host memory" in reason
