"""Explanations on small jobs, each against searches that know nothing of how they were found."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

from automap.planner.assembly import plan as assembly
from automap.planner.assembly.proof import why_stopped
from automap.planner.cost.intervals import SPREADS
from automap.planner.explanation import sensitivity, solving
from automap.planner.explanation.alternatives import Alternatives, bill
from automap.planner.explanation.contenders import contender
from automap.planner.explanation.explain import explain, open_plan
from automap.planner.explanation.factors import Factors, scaled
from automap.planner.explanation.locating import locate, timing_of
from automap.planner.explanation.question import with_setting
from automap.planner.explanation.questions import questions
from automap.planner.explanation.regret import corners, factors_of, groups_of
from automap.planner.explanation.result import Alternative, ExplainOptions, Explanation
from automap.planner.explanation.sensitivity import subjects, threshold
from automap.planner.explanation.solving import Contenders
from automap.planner.explanation.study import TableCache, study
from automap.planner.plan.types import Plan
from automap.planner.planning import estimate, make_plan
from automap.planner.replanning.replan import replan
from automap.planner.replanning.result import ReplanOptions
from automap.planner.search import Limits, Proven, Selected
from automap.planner.search.model.timing import exact_timing
from automap.planner.search.search import best_placement
from automap.planner.search.strategies import STARTS
from automap.planner.spec import JobSpec
from automap.planner.units import GIB
from tests.helpers.small_jobs import pool, small_job

pytestmark = pytest.mark.thorough


PROMPTS = {"ppo": 32, "grpo": 64}
"""So few that PPO's models are best apart."""


@cache
def job(algorithm: str = "grpo", staleness: int = 0) -> JobSpec:
    return small_job(
        algorithm,
        num_nodes=2,
        search__staleness=staleness,
        workload__prompts_per_iteration=PROMPTS[algorithm],
    )


@cache
def plan(algorithm: str = "grpo", staleness: int = 0) -> Plan:
    return make_plan(job(algorithm, staleness))


@cache
def explained() -> Explanation:
    return explain(plan(), ExplainOptions(scenarios=4, fewer_gpus=4))


@cache
def alternatives(algorithm: str = "grpo") -> list[Alternative]:
    """Of a whole explanation the part that takes the fewest searches."""
    options = ExplainOptions(parts=["alternatives"], fewer_gpus=4)
    return explain(plan(algorithm), options).alternatives


def least_period(spec: JobSpec, factors: Factors | None = None) -> float:
    """The optimum by the ordinary search, from its ordinary starts."""
    given = study(spec)
    if factors is not None:
        given = scaled(given, factors)
    best = best_placement(given.job, given.space, STARTS)
    assert best.is_proven
    assert best.solution is not None
    return best.solution.timing.period


def answer(question: str, algorithm: str = "grpo") -> Alternative:
    return next(each for each in alternatives(algorithm) if each.question == question)


@pytest.mark.parametrize(("algorithm", "staleness"), [("ppo", 0), ("grpo", 1)])
def test_contenders_are_timed_as_the_search_times_them(algorithm: str, staleness: int) -> None:
    given, selected = open_plan(plan(algorithm, staleness), TableCache())
    each = contender(given, selected)
    draw = np.random.default_rng(3)
    groups = groups_of(given)
    scenarios = [
        factors_of(given, groups, logs) for logs in draw.normal(size=(5, len(groups))) * 0.3
    ]
    timing = selected.timing
    starts = [*timing.call_starts, *(start or 0.0 for start in timing.sync_starts)]
    stages = [*timing.call_stages, *timing.sync_stages]
    for factors, found in zip(scenarios, each.periods(scenarios), strict=True):
        problem, assignment = scaled(given, factors).space.alone(selected)
        expected = exact_timing(problem, assignment, starts, stages).period
        assert found == pytest.approx(expected, abs=2e-5)
    assert each.periods([Factors.ones(given)])[0] == pytest.approx(
        plan(algorithm, staleness).iteration_seconds, abs=1e-6
    )


def test_a_plan_of_the_callers_own_is_found_although_its_settings_are_not_listed() -> None:
    placement = plan().placement()
    calls = [
        call.model_copy(update={"kv_cache_bytes": call.kv_cache_bytes + 12_345})
        if call.kv_cache_bytes
        else call
        for call in placement.calls
    ]
    own = estimate(job(), placement.model_copy(update={"calls": calls}))
    given, selected = open_plan(own, TableCache())
    assert len(given.tables.calls[0]) == len(study(job()).tables.calls[0]) + 1
    back = given.placement(selected)
    assert {c.id: c for c in back.calls} == {c.id: c for c in own.placement().calls}


def test_a_call_of_the_callers_own_joins_those_that_share_a_process() -> None:
    spec = small_job(
        models={role: {"architecture": "qwen2.5-1.5b"} for role in ("actor", "reference")}
        | {"reward": {"function": True}},
        num_nodes=1,
        search__target="slime@0.3.1",
    )
    placement = make_plan(spec).placement()
    calls = [
        call.model_copy(update={"micro_batch_size": call.micro_batch_size + 1})
        if call.kind == "train" and call.micro_batch_size
        else call
        for call in placement.calls
    ]
    own = estimate(spec, placement.model_copy(update={"calls": calls}))
    given, selected = open_plan(own, TableCache())
    assert given.tables.has_processes
    back = given.placement(selected)
    assert {c.id: c for c in back.calls} == {c.id: c for c in own.placement().calls}


def test_tables_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = TableCache()
    first = tables.study(job())
    monkeypatch.setattr("automap.planner.explanation.study.price_candidates", None)
    other = job().model_copy(update={"name": "of another name"})
    assert tables.study(other).tables is first.tables


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "constraint"),
    [
        ("tensor_parallel_size:actor:2", {"actor": {"tensor_parallel_size": 2}}),
        ("recompute:actor.train:full", {"actor": {"recompute": "full"}}),
    ],
)
def test_an_alternative_is_the_optimum_under_its_constraint(
    question: str, constraint: dict[str, dict[str, object]]
) -> None:
    constrained = small_job("grpo", num_nodes=2, constraints__parallelism=constraint)
    found = answer(question)
    assert found.iteration_seconds == pytest.approx(make_plan(constrained).iteration_seconds)
    assert found.lower_bound_seconds == pytest.approx(found.iteration_seconds)


def test_fewer_gpus_are_those_of_a_smaller_cluster() -> None:
    found = answer("fewer_gpus:a100:4")
    assert found.iteration_seconds == pytest.approx(least_period(small_job("grpo", num_nodes=1)))
    assert found.gpus_used == 4


def test_colocation_is_that_of_the_constraint() -> None:
    found = answer("all_together", "ppo")
    pairs = [["actor", "reference"], ["actor", "reward"], ["actor", "critic"]]
    spec = small_job(
        "ppo",
        num_nodes=2,
        workload__prompts_per_iteration=PROMPTS["ppo"],
        constraints__colocate=pairs,
        constraints__allow_shadow_copies=False,
    )
    assert found.iteration_seconds == pytest.approx(least_period(spec))
    assert found.placement is not None
    assert len({(c.first_gpu, c.num_gpus) for c in found.placement.copies}) == 1
    asked = [each.question for each in alternatives("grpo")]
    assert "all_together" not in asked, "they are together in the plan"


def test_what_does_not_fit_says_by_how_many_bytes_and_where() -> None:
    # The optimizer state of a 1.5B model fills three GPUs of 24 GB and does not fit on one.
    model = {"architecture": "qwen2.5-1.5b"}
    spec = small_job(
        "grpo",
        models={"actor": model, "reference": model, "reward": {"function": True}},
        cluster__pools=[pool(1, name="small", gpu="a10g")],
        constraints__allow_offload=False,
        constraints__allow_shadow_copies=False,
    )
    made = make_plan(spec)
    given, selected = open_plan(made, TableCache())
    (question,) = (
        q for q in questions(given, selected, fewer_gpus=3) if q.name.startswith("fewer_gpus")
    )
    refused = Alternatives(given, made, selected, seconds=1.0, tables=TableCache()).answer(question)
    assert refused.outcome == "does_not_fit"
    assert refused.over_bytes is not None
    assert refused.required_bytes == refused.capacity_bytes + refused.over_bytes  # type: ignore[operator]
    assert refused.phase in ("actor.generate", "actor.train")
    assert f"{refused.over_bytes / GIB:.1f} GiB too many" in refused.answer


def test_a_size_that_is_not_there_says_why() -> None:
    found = answer("tensor_parallel_size:actor:2")
    assert found.outcome == "slower"
    given, selected = open_plan(plan(), TableCache())
    (question,) = (
        q
        for q in questions(given, selected, fewer_gpus=1)
        if q.name == "tensor_parallel_size:actor.generate:2"
    )
    odd = partial(with_setting, key="actor.generate", fixed={"tensor_parallel_size": 3})
    never = replace(question, respec=odd, missing="3 is odd")
    refused = Alternatives(given, plan(), selected, seconds=1.0, tables=TableCache()).answer(never)
    assert (refused.outcome, refused.answer) == ("no_layout", "3 is odd")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "end"), [("reference.forward", 4.0), ("critic.train", 0.25)])
def test_another_plan_wins_at_the_threshold_and_none_before(name: str, end: float) -> None:
    made, margin = plan("ppo"), 0.001
    given, selected = open_plan(made, TableCache())
    (subject,) = (each for each in subjects(given, selected, made) if each.name == name)
    found = threshold(Contenders(given, selected), made, subject, end, margin, 2.0)
    assert found.proven
    assert found.error is not None
    for closer, wins in ((0.97, False), (1.03, True)):
        factors = subject.factors((1 + found.error) ** closer)
        own = Contenders(given, selected)
        own.refit(factors)
        value = float(own.plan_values([factors])[0])
        best = least_period(job("ppo"), factors)
        assert (best < (1 - margin) * value - 1e-4) is wins
        if not wins:
            assert best >= (1 - found.excluded_share) * value - 1e-4


@pytest.mark.slow
def test_no_plan_wins_where_none_is_named() -> None:
    given, selected = open_plan(plan(), TableCache())
    known = list(subjects(given, selected, plan()))
    assert [each.subject for each in explained().sensitivity] == [each.name for each in known]
    named = 0
    for subject, each in zip(known, explained().sensitivity, strict=True):
        if each.more.error is None and subject.seconds and subject.kind == "call":
            named += 1
            factors = subject.factors(1 + each.more.searched)
            least = (1 - explained().margin) * each.more.plan_value
            assert each.more.proven
            assert least_period(job(), factors) >= least - 1e-4
    assert named


@pytest.mark.slow
def test_regret_is_what_the_best_plan_would_have_saved() -> None:
    two = [pool(1), pool(1, name="l40s", gpu="l40s")]
    spec = small_job("grpo", cluster__pools=two)
    made = make_plan(spec)
    found = explain(made, ExplainOptions(parts=["regret"], scenarios=4)).regret
    assert found is not None
    assert found.unproven == 0
    given, selected = open_plan(made, TableCache())
    groups = groups_of(given)

    def regret(errors: np.ndarray) -> float:
        truth = factors_of(given, groups, errors)
        mine = float(contender(given, selected).periods([truth])[0])
        return max(mine / least_period(spec, truth) - 1, 0.0)

    spreads = np.array([group.spread for group in groups])
    drawn = np.random.default_rng(0).normal(size=(4, len(groups))) * spreads / 1.2816
    shares = [regret(errors) for errors in drawn]
    assert found.sampled.max == pytest.approx(max(shares), abs=1.5 * found.margin)
    assert found.sampled.p50 == pytest.approx(np.median(shares), abs=1.5 * found.margin)
    every = corners(groups, seed=0)
    assert len(every) == found.corners
    for errors in every[:: len(every) // 3]:
        assert regret(errors) <= found.worst_corner + 1.5 * found.margin
    logs = np.log1p([found.worst_errors[group.name] for group in groups])
    factors = factors_of(given, groups, logs)
    own = float(contender(given, selected).periods([factors])[0])
    assert found.worst_corner == pytest.approx(
        max(own / least_period(spec, factors) - 1, 0.0), abs=1.5 * found.margin
    )


@pytest.mark.slow
def test_a_robust_plan_has_the_smaller_worst_regret() -> None:
    two = [pool(1), pool(2, name="l40s", gpu="l40s")]
    robust = make_plan(small_job("grpo", cluster__pools=two, search__robust=True))
    report = robust.search.robust
    assert report is not None
    assert report.lower_bound <= report.worst_regret <= report.nominal_regret
    nominal = make_plan(small_job("grpo", cluster__pools=two))
    loss = robust.iteration_seconds / nominal.iteration_seconds - 1
    assert loss == pytest.approx(report.nominal_loss, abs=1e-6)
    assert robust.search.lower_bound == pytest.approx(nominal.iteration_seconds)
    given = study(robust.spec)
    given, selected = locate(given, robust.placement(), timing_of(given, robust))
    groups = groups_of(given)
    corner = factors_of(given, groups, np.array([group.spread for group in groups]))
    own = float(contender(given, selected).periods([corner])[0])
    best = least_period(nominal.spec, corner)
    assert own / best - 1 <= report.worst_regret + 2 * report.margin


@pytest.mark.parametrize("objective", ["throughput", "price"])
def test_the_searches_for_regret_share_one_time_limit(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    def cut_short(_: object, limit: float, limits: Limits) -> Proven[Selected]:
        taken.append(limits.deterministic_seconds)
        return Proven(
            None, 0.5 * limit, is_proven=False, deterministic_seconds=limits.deterministic_seconds
        )

    monkeypatch.setattr(solving, "best_within", cut_short)
    spec = small_job(
        "rloo",
        search__robust=True,
        search__objective=objective,
        search__time_limit_seconds=1e-3,
        search__limit_by="work",
    )
    made = make_plan(spec)
    report = made.search.robust
    assert report is not None
    assert report.unproven == len(taken) == report.scenarios + 1
    assert 0 < sum(taken) <= Limits.within(1e-3, seed=0).deterministic_seconds * (1 + 1e-9)
    assert f"{len(taken)} of the searches for regret stopped" in made.search.stopped
    assert "the search for the best plan stopped" not in made.search.stopped
    cut = why_stopped(spec, made.search, nominal_proven=False)
    assert "the search for the best plan stopped at the time limit of 0.001 s" in cut


@pytest.mark.parametrize("objective", ["run_price", "fewest_gpus"])
def test_robust_is_for_searched_seconds_and_prices(objective: str) -> None:
    with pytest.raises(ValueError, match=rf"robust: compares .* objective is {objective}"):
        small_job("grpo", search__robust=True, search__objective=objective)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["throughput", "price", "run_price", "fewest_gpus"])
def test_every_part_knows_every_objective(objective: str) -> None:
    spec = small_job("rloo", search__objective=objective, workload__startup_seconds=600.0)
    made = make_plan(spec)
    given, selected = open_plan(made, TableCache())
    value = pytest.approx(made.search.objective_value)
    assert bill(given, selected).value == value
    assert float(Contenders(given, selected).own_values([Factors.ones(given)])[0]) == value
    found = replan(made, ReplanOptions(search_seconds=1.0))
    assert (found.verdict, found.proven) == ("keep", True)
    assert 0 <= found.relative_gap <= found.margin * (1 + 1e-6)
    assert (found.lower_bound_seconds is None) == (objective != "throughput")


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["price", "run_price"])
def test_prices_are_compared_where_the_job_is_about_price(objective: str) -> None:
    spec = small_job("grpo", num_nodes=2, search__objective=objective)
    found = explain(make_plan(spec), ExplainOptions(parts=["alternatives"]))
    for each in found.alternatives:
        if each.objective_value is not None:
            assert each.objective_value >= found.objective_value * (1 - 1e-9)
            iterations = spec.workload.iterations if objective == "run_price" else 1
            price = iterations * (each.price_per_iteration or 0.0)
            assert each.objective_value == pytest.approx(price)


def test_factors_of_nothing_change_nothing() -> None:
    given = study(job())
    same = scaled(given, Factors.ones(given))
    for one, other in zip(given.tables.calls, same.tables.calls, strict=True):
        assert one is other
    assert replace(same.problem) == given.problem


@pytest.mark.parametrize("most", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_what_is_excluded_before_a_threshold_holds_however_few_searches_there_were(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search at a large error bounds nothing at the smaller one that its winner leads to."""
    monkeypatch.setattr(sensitivity, "MOST_SOLVES", most)
    made = plan("ppo")
    given, selected = open_plan(made, TableCache())
    for name in ("actor.train", "critic.forward"):
        (subject,) = (each for each in subjects(given, selected, made) if each.name == name)
        found = threshold(Contenders(given, selected), made, subject, 4.0, 0.001, 2.0)
        assert found.error is not None
        for part in (0.5, 0.9, 1.0):
            factors = subject.factors((1 + found.error) ** part)
            own = Contenders(given, selected)
            own.refit(factors)
            value = float(own.plan_values([factors])[0])
            best = least_period(job("ppo"), factors)
            assert best >= (1 - found.excluded_share) * value - 1e-4


@pytest.mark.slow
def test_no_bound_of_a_plan_that_is_given_is_taken_for_a_proof() -> None:
    """Its bound is its own period, which says nothing of other plans."""
    spec, best = job("ppo"), plan("ppo").iteration_seconds
    search = spec.search.model_copy(update={"strategy": "standalone"})
    given = make_plan(spec.model_copy(update={"search": search}))
    assert (given.search.proof, given.relative_gap) == (None, 0.0)
    posed, selected = open_plan(given, TableCache())
    (idle,) = (s for s in subjects(posed, selected, given) if s.name == "reward.forward")
    found = threshold(Contenders(posed, selected), given, idle, 4.0, 0.001, 2.0)
    lost = 1 - best / given.iteration_seconds
    assert lost > 0.01
    assert found.excluded_share >= lost - 1e-6


def test_more_gpus_than_the_plan_has_are_not_taken_away_in_silence() -> None:
    made = plan("ppo")
    given, selected = open_plan(made, TableCache())
    (asked,) = (
        q for q in questions(given, selected, fewer_gpus=99) if q.name.startswith("fewer_gpus")
    )
    refused = Alternatives(given, made, selected, seconds=1.0, tables=TableCache()).answer(asked)
    assert refused.outcome == "no_layout"
    assert refused.answer == (f"none are left: the plan uses only {made.gpus_used} GPUs of a100")
    alone = make_plan(small_job("grpo", num_nodes=1))
    given, selected = open_plan(alone, TableCache())
    names = [q.name for q in questions(given, selected, fewer_gpus=None)]
    assert "fewer_gpus:a100:2" in names


def test_every_answered_placement_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    given, selected = open_plan(plan(), TableCache())
    monkeypatch.setattr(assembly, "violations", lambda *_: ["a made-up violation"])
    question = next(iter(questions(given, selected, fewer_gpus=None)))
    with pytest.raises(RuntimeError, match="a made-up violation"):
        Alternatives(given, plan(), selected, seconds=1.0, tables=TableCache()).answer(question)


TRAINED_ALONE = {
    "actor": {"architecture": "qwen2.5-0.5b"},
    "reference": {"architecture": "qwen2.5-0.5b"},
    "reward": {"function": True},
}
HOSTED: dict[str, dict[str, object]] = {
    "verl": {"search__target": "verl@0.9.1"},
    "nemo-rl": {"search__target": "nemo-rl@0.7.0", "models": TRAINED_ALONE},
    "an optimizer on the host": {"workload__optimizer_cpu_offload": True},
}
"""Jobs that work on the host."""


@pytest.mark.parametrize("name", HOSTED)
def test_host_work_is_wrong_by_itself(name: str) -> None:
    """Its own spread, and a factor of it alone: not that of the call it belongs to."""
    made = make_plan(small_job("grpo", num_nodes=1, **HOSTED[name]))
    given, selected = open_plan(made, TableCache())
    groups = groups_of(given)
    (place,) = (number for number, each in enumerate(groups) if each.name == "host work")
    assert groups[place].spread == SPREADS["host work of RL frameworks"]
    [training] = [each.spread for each in groups if each.name == "training"]
    assert training < groups[place].spread
    logs = np.zeros(len(groups))
    logs[place] = np.log(2)
    factors = factors_of(given, groups, logs)
    planned = {call.id: call.seconds_by_part for call in made.calls}
    pricing, (only,) = given.pricing, given.job.pools
    hosted = 0.0
    for call in given.job.dataflow.calls:
        if call.model is not None:
            hosted += sum(pricing.driver_seconds(call, only))
            hosted += planned[call.id].optimizer if name.startswith("an optimizer") else 0.0
            hosted += planned[call.id].transition if name == "nemo-rl" else 0.0
    assert hosted > 0.01
    seconds = contender(given, selected).durations([Factors.ones(given), factors])
    assert np.diff(seconds.sum(axis=1)) == pytest.approx(hosted, abs=1e-4)
    now = scaled(given, factors).tables.calls
    for table, slower in zip(given.tables.calls, now, strict=True):
        chosen = selected.call_rows[table.call]
        if chosen is not None and chosen[0] == table.copy:
            gained = slower.seconds[chosen[1]] - table.seconds[chosen[1]]
            assert gained == pytest.approx(np.diff(seconds[:, table.call])[0], abs=2e-6)


def test_what_does_no_host_work_has_no_group_of_it() -> None:
    names = [each.name for each in groups_of(study(job("ppo")))]
    assert names == ["generation", "scoring", "training", "moving weights"]
