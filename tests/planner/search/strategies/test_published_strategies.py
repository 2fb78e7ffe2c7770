"""ReaL, RLinf, APP and the asynchronous halves against hand computations and brute force."""

import itertools
import random
from dataclasses import replace
from functools import cache

import pytest

from automap.planner.search.model.problem import (
    CallOption,
    CopyChoice,
    Problem,
    WeightSyncChoice,
    copy_range,
)
from automap.planner.search.model.solve import Limits
from automap.planner.search.strategies import DoesNotFit, Index, Placed, metropolis
from automap.planner.search.strategies.metropolis import fastest_alone, walk
from automap.planner.search.strategies.placements import Placements, State
from tests.planner.search import oracle
from tests.planner.search.instances import random_problem
from tests.planner.search.strategies.strategy_problems import (
    MIB,
    PPO,
    Builder,
    a_pool,
    call_kind,
    check_valid,
    layouts,
    outcome,
    placed_by,
    ppo,
    reason_of,
)

LIMITS = Limits.within(0.2, seed=3)


def with_shadow(problem: Problem, *, sync: float = 0.5, staleness: int = 0) -> Problem:
    """The problem with a shadow actor of the same layouts, whose rollouts take as long."""
    shadow = len(problem.copies)
    homes = tuple(
        replace(copy, options=tuple(replace(o, sync_seconds=sync) for o in copy.options))
        if copy.role == "actor"
        else copy
        for copy in problem.copies
    )
    options = tuple(replace(o, sync_seconds=sync) for o in problem.copies[0].options)
    calls = list(problem.calls)
    generate = next(i for i, call in enumerate(calls) if call.id == "actor.generate")
    train = next(i for i, call in enumerate(calls) if call.id == "actor.train")
    there = tuple(
        CallOption(shadow, o.copy_option, o.seconds, o.transient_bytes, 0)
        for o in calls[generate].options
    )
    calls[generate] = replace(calls[generate], options=calls[generate].options + there)
    edges = tuple(
        replace(edge, distance=edge.distance + staleness)
        if (edge.source, edge.target) == (train, generate)
        else edge
        for edge in problem.precedences
    )
    return replace(
        problem,
        copies=(*homes, CopyChoice("actor.shadow", "actor", 0, options)),
        calls=tuple(calls),
        precedences=edges,
        syncs=(WeightSyncChoice(0, shadow, train, 1 + staleness, MIB),),
        barrier=staleness == 0,
    )


def spans(problem: Problem, placed: Placed) -> dict[str, tuple[int, int]]:
    found = {}
    for index, copy in enumerate(problem.copies):
        span = copy_range(problem, placed.assignment, index)
        if span is not None:
            found[copy.id] = (span.first, span.count)
    return found


def place(problem: Problem, name: str, limits: Limits = LIMITS) -> Placed:
    placed = placed_by(problem, name, limits)
    check_valid(problem, placed)
    return placed


def test_interleaving_puts_scoring_models_on_halves_of_what_trains() -> None:
    problem = ppo(lambda n: 8 / n, a_pool(2, 4))
    placed = place(problem, "app_interleaving")
    assert spans(problem, placed) == {
        "actor": (0, 8),
        "critic": (0, 8),
        "reference": (0, 4),
        "reward": (4, 4),
    }
    # generate 1, reference and reward side by side 2, values 1, two trainings 1 + 1
    assert oracle.least_period(whole_seconds(problem, placed), placed.assignment, limit=60) == 6
    tight = ppo(lambda n: 8 / n, a_pool(2, 4), resident=40)
    assert "beside one another" in reason_of(tight, "app_interleaving")


def whole_seconds(problem: Problem, placed: Placed) -> Problem:
    """The oracle counts whole seconds only: refuse anything else."""
    for call, option in enumerate(placed.assignment.call_options):
        if option is not None:
            assert problem.calls[call].options[option].seconds % 1 == 0
    return problem


def test_reals_heuristic_trains_side_by_side_in_proportion_to_size() -> None:
    pool = a_pool(4, 2)
    builder = Builder(pool)
    sizes = {"actor": 48, "critic": 16, "reference": 8, "reward": 8}
    for role, kinds in PPO.items():
        shape = [(0, n, sizes[role] // n, 0) for n in (1, 2, 4, 6, 8)]
        builder.model(role, shape, {f"{role}.{kind}": lambda n, _: 48 / n for kind in kinds})
    problem = with_shadow(builder.problem())
    placed = place(problem, "real_heuristic")
    assert spans(problem, placed) == {
        "actor": (0, 6),  # 3 of 4 nodes, as 48 : 16
        "critic": (6, 2),
        "reference": (0, 8),
        "reward": (0, 8),
        "actor.shadow": (0, 8),
    }
    assert "shadow copy" in reason_of(builder.problem(), "real_heuristic")


@pytest.mark.parametrize("name", ["openrlhf", "app_separation"])
@pytest.mark.parametrize("seed", range(4))
def test_every_model_apart_against_enumeration(name: str, seed: int) -> None:
    """The sizes of five ranges: the least stage cost, and the weight sync on top."""
    draw = random.Random(seed)
    work = {f"{r}.{k}": draw.randint(4, 40) for r, kinds in PPO.items() for k in kinds}
    builder = Builder(a_pool(1, 16))
    for role, kinds in PPO.items():
        calls = {
            f"{role}.{kind}": (lambda n, _, w=work[f"{role}.{kind}"]: w / n**0.8) for kind in kinds
        }
        builder.model(role, layouts(builder.pools[0], 10), calls)
    problem = with_shadow(builder.problem())
    placed = place(problem, name)
    models = ["rollout", *PPO]
    best = min(
        apart_cost(work, dict(zip(models, sizes, strict=True)))
        for sizes in itertools.product((1, 2, 4, 8), repeat=5)
        if sum(sizes) <= 16
    )
    assert placed.claimed_seconds == pytest.approx(best + 0.5)
    assert len(spans(problem, placed)) == 5


def apart_cost(work: dict[str, int], sizes: dict[str, int]) -> float:
    per_stage: list[list[float]] = [[], [], []]
    for call, seconds in work.items():
        role = "rollout" if call == "actor.generate" else call.split(".", maxsplit=1)[0]
        per_stage[call_kind(call)].append(seconds / sizes[role] ** 0.8)
    return sum(map(max, per_stage))


@pytest.mark.parametrize("name", ["one_step_off", "fully_async"])
@pytest.mark.parametrize("power", [0.5, 0.9, 1.0])
def test_asynchronous_halves_against_enumeration(name: str, power: float) -> None:
    """The slower half on every pair of sizes, and the weight sync on top."""
    problem = with_shadow(ppo(lambda n: 24 / n**power, a_pool(1, 16)), staleness=1)
    placed = place(problem, name)
    rollout, rest = (1, 5) if name == "one_step_off" else (2, 4)
    best = min(
        max(rollout * 24 / one**power, rest * 24 / other**power)
        for one, other in itertools.product((1, 2, 4, 8, 16), repeat=2)
        if one + other <= 16
    )
    assert placed.claimed_seconds == pytest.approx(best + 0.5)
    found = spans(problem, placed)
    assert found["actor"] == found["critic"] == found["reference"]
    assert (found["reward"] == found["actor.shadow"]) == (name == "fully_async")


@pytest.mark.parametrize("name", ["one_step_off", "fully_async"])
def test_asynchronous_halves_need_staleness_and_a_shadow(name: str) -> None:
    assert "allows 0 (search.staleness)" in reason_of(with_shadow(ppo(lambda n: 8 / n)), name)
    cyclic = replace(ppo(lambda n: 8 / n), barrier=False)
    assert "second copy" in reason_of(cyclic, name)


def test_rlinf_by_hand() -> None:
    """Calls that do not scale run side by side where nothing waits; those that do, in turn."""
    stiff = with_shadow(ppo(lambda n: 5.0))
    # rollout 5; reference beside reward 5; the critic, whose training waits for both, 5 + 5; the
    # actor, which waits for the values, 5
    assert place(stiff, "rlinf").claimed_seconds == pytest.approx(25)
    scaling = with_shadow(ppo(lambda n: 8 / n))
    placed = place(scaling, "rlinf")
    assert placed.claimed_seconds == pytest.approx(6)
    # rollouts and training take turns on the same GPUs, so that no second copy is needed
    assert "actor.shadow" not in spans(scaling, placed)
    # without a shadow the actor's two calls enclose all others: one component
    assert place(ppo(lambda n: 5.0), "rlinf").claimed_seconds == pytest.approx(30)


def test_rlinf_makes_no_second_copy_where_there_is_no_memory_for_it() -> None:
    """Four models of 24 MiB lie on all GPUs of 100 MiB; a fifth that is never made does not."""
    problem = with_shadow(ppo(lambda n: 8 / n, resident=24))
    placed = place(problem, "rlinf")
    assert placed.claimed_seconds == pytest.approx(6)
    assert set(spans(problem, placed).values()) == {(0, 8)}


@pytest.mark.parametrize("name", ["rlinf", "real_heuristic"])
def test_a_shadow_without_layouts_is_as_none(name: str) -> None:
    problem = with_shadow(ppo(lambda n: 8 / n))
    *homes, shadow = problem.copies
    calls = tuple(
        replace(call, options=tuple(o for o in call.options if o.copy < len(homes)))
        for call in problem.calls
    )
    none = replace(problem, copies=(*homes, replace(shadow, options=())), calls=calls)
    if name == "rlinf":
        assert place(none, name).claimed_seconds == pytest.approx(6)
    else:
        assert "takes a shadow copy" in reason_of(none, name)


def test_rlinf_splits_between_iterations_that_overlap() -> None:
    """6 s a call on 4 GPUs or more, so on four ranges of 4: 12 s for the critic's two calls,

    beside the other four calls on three ranges, of which one takes two in turn. In turn: 36 s.
    """
    problem = with_shadow(ppo(lambda n: max(24 / n, 6.0), a_pool(1, 16)), staleness=1)
    placed = place(problem, "rlinf")
    assert placed.claimed_seconds == pytest.approx(12)


@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_rlinf_against_recursion(seed: int, staleness: int) -> None:
    """The definition, word by word: sets of components, every cut, every pair of sizes."""
    draw = random.Random(seed)
    work = {f"{r}.{k}": draw.uniform(4, 40) for r, kinds in PPO.items() for k in kinds}
    power = {call: draw.choice([0.3, 0.7, 1.0]) for call in work}
    builder = Builder(a_pool(1, 8))
    for role, kinds in PPO.items():
        calls = {
            f"{role}.{kind}": (lambda n, _, c=f"{role}.{kind}": work[c] / n ** power[c])
            for kind in kinds
        }
        builder.model(role, layouts(builder.pools[0], 5), calls)
    problem = with_shadow(builder.problem(), staleness=staleness)
    parts = {
        "rollout": ["actor.generate"],
        "actor": ["actor.train"],
        "critic": ["critic.forward", "critic.train"],
        "reference": ["reference.forward"],
        "reward": ["reward.forward"],
    }
    before = {
        "rollout": set(),
        "critic": {"rollout", "reference", "reward"},
        "reference": {"rollout"},
        "reward": {"rollout"},
        "actor": {"rollout", "critic", "reference", "reward"},
    }

    @cache
    def least(some: frozenset[str], n: int) -> float:
        if len(some) == 1:
            return sum(work[c] / n ** power[c] for c in parts[next(iter(some))])
        costs = []
        for size in range(1, len(some)):
            for first in map(frozenset, itertools.combinations(sorted(some), size)):
                second = some - first
                if any(before[part] & second for part in first):
                    continue
                costs.append(least(first, n) + least(second, n))
                waits = any(before[part] & first for part in second)
                join = sum if waits and staleness == 0 else max
                costs += [
                    join((least(first, a), least(second, b)))
                    for a, b in itertools.product((1, 2, 4, 8), repeat=2)
                    if a + b <= n
                ]
        return min(costs)

    expected = min(least(frozenset(parts), n) for n in (1, 2, 4, 8))
    assert place(problem, "rlinf").claimed_seconds == pytest.approx(expected)


@pytest.mark.parametrize("barrier", [True, False])
def test_a_state_fits_and_lasts_as_the_oracle_says(barrier: bool) -> None:
    """Random states of random problems: memory on GPU and host, pairs, no schedule beaten."""
    fitting = 0
    for seed in range(60):
        problem = random_problem(seed, barrier=barrier)
        placements, draw = Placements(problem), random.Random(seed)
        for _ in range(20):
            state = random_state(placements, draw)
            valued = placements.valued(state)
            if valued is None:
                continue
            assignment = placements.assignment(state, valued)
            holds = oracle.fits(problem, assignment) and oracle._pairs_hold(problem, assignment)
            assert not valued.fits or holds
            fitting += valued.fits
            if valued.fits and barrier:
                period = oracle.least_period(problem, assignment, limit=1000)
                assert period is not None
                assert valued.seconds >= period - 1e-9
            if not valued.fits and fastest_settings_fit(placements, state):
                assert not holds
    assert fitting >= 100


def random_state(placements: Placements, draw: random.Random) -> State:
    problem = placements.problem
    runs_on = [
        draw.choice(sorted({o.copy for o in call.options})) if call.options else None
        for call in problem.calls
    ]
    options, firsts = [], []
    for copy, choice in enumerate(problem.copies):
        there = choice.shadow_of is None or copy in runs_on
        options.append(draw.randrange(len(choice.options)) if there else None)
        starts = placements.starts(copy, options[-1]) if there else [0]
        firsts.append(draw.choice(starts))
    return State(options, firsts, runs_on)


def fastest_settings_fit(placements: Placements, state: State) -> bool:
    """One setting per call only: then a state that does not fit has no other way to."""
    return all(
        copy is None or len(placements.settings[call].get((copy, state.options[copy]), ())) == 1
        for call, copy in enumerate(state.runs_on)
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_markov_chain_repeats_and_is_never_worse_than_its_start(seed: int) -> None:
    problem = random_problem(seed, barrier=True)
    placements = Placements(problem)
    start = placements.valued(fastest_alone(placements))
    one, two = (walk(placements, steps=800, seed=seed) for _ in range(2))
    assert one == two
    assert one.steps == 800
    if one.best is not None:
        assert start is not None
        assert one.best.fits
        assert one.best.seconds <= start.seconds
    best = oracle.best_period(problem, longest=60)
    if best is None:
        assert one.best is None
    if one.best is not None:
        assert best is not None
        assert one.best.seconds >= best - 1e-9


@pytest.mark.slow
def test_the_markov_chain_finds_small_optima_and_another_seed_another_way() -> None:
    reached = 0
    for seed in range(20):
        problem = random_problem(seed, barrier=True)
        best = oracle.best_period(problem, longest=60)
        found = walk(Placements(problem), steps=2000, seed=0).best
        reached += found is not None and best is not None and found.seconds <= best + 1e-9
        reached += found is None and best is None
    assert reached >= 17
    problem = with_shadow(ppo(lambda n: 8 / n**0.8, a_pool(2, 8)))
    states = [walk(Placements(problem), steps=60, seed=seed).state for seed in range(4)]
    assert any(state != states[0] for state in states[1:])


def test_the_clock_ends_the_markov_chain() -> None:
    problem = with_shadow(ppo(lambda n: 8 / n, a_pool(2, 8)))
    found = walk(Placements(problem), steps=10**7, seed=0, seconds=0.05)
    assert found.steps < 10**6
    assert found.cut
    assert not walk(Placements(problem), steps=40, seed=0).cut


def test_a_chain_that_the_clock_cut_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = with_shadow(ppo(lambda n: 8 / n, a_pool(2, 8)))
    assert place(problem, "real_mcmc").note == ""
    monkeypatch.setattr(metropolis, "MOST_CLOCK_SECONDS", 0.0)
    monkeypatch.setattr(metropolis, "GRACE_SECONDS", 0.0)
    assert "cut by the clock after" in place(problem, "real_mcmc").note


def test_the_markov_chain_counts_overlap_across_iterations() -> None:
    """Rollouts beside training: the critic's two calls of 5 s are never idle once they began.

    Five iterations last 5 s, for the first rollout, and 5 × 10 s; without overlap 5 × 15 s.
    """
    problem = with_shadow(ppo(lambda n: 5.0, a_pool(1, 8)), sync=0.0, staleness=1)
    found = walk(Placements(problem), steps=4000, seed=0)
    assert found.best is not None
    assert found.best.seconds == pytest.approx(55 / 5)


def test_strategies_on_given_ranges_name_what_is_missing() -> None:
    pool = a_pool(2, 4)
    builder = Builder(pool)
    builder.model(
        "actor",
        layouts(pool, 10),
        {"actor.generate": lambda n, _: 1, "actor.train": lambda n, _: 1},
    )
    builder.model("reward", [(0, 8, 10, 0)], {"reward.forward": lambda n, _: 1})
    builder.model("judge", [(0, 2, 10, 0)], {"judge.forward": lambda n, _: 1})
    reason = reason_of(builder.problem(), "app_interleaving")
    assert "reward, judge" in reason
    assert "at most 4 GPUs" in reason
    heuristic = outcome(with_shadow(builder.problem()), "real_heuristic")
    assert isinstance(heuristic, DoesNotFit)
    assert "reward has no layout for GPUs 0 to 3" in heuristic.reason


@pytest.mark.parametrize("name", ["app_interleaving", "rlinf", "real_heuristic"])
def test_strategies_on_given_ranges_name_the_pair_that_they_break(name: str) -> None:
    problem = with_shadow(ppo(lambda n: 8 / n, a_pool(2, 4)))
    apart = {"app_interleaving": (0, 1), "rlinf": (0, 1), "real_heuristic": (0, 2)}[name]
    reason = reason_of(replace(problem, separate=(apart,)), name)
    assert reason.startswith(f"{name} puts actor on GPUs 0 to ")
    assert reason.endswith("which the constraints want apart")


def test_a_pair_to_be_colocated_that_scores_on_halves() -> None:
    problem = ppo(lambda n: 8 / n, a_pool(2, 4), colocate=((2, 3),))
    assert reason_of(problem, "app_interleaving") == (
        "app_interleaving puts reference on GPUs 0 to 3 and reward on GPUs 4 to 7, "
        "which the constraints want on the same GPUs"
    )


def test_stages_may_be_given() -> None:
    problem = ppo(lambda n: 8 / n)
    assert Index(problem, stages=[0] * 6).stages == [0] * 6
