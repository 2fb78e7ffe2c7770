"""Why a run drifts from its plan, and what to do about it, from made-up iterations."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from automap.planner.plan.types import Placement, Plan
from automap.planner.planning import estimate, make_plan
from automap.planner.runs.iterations import Iteration, ObservedLengths, SlowRank, Window
from automap.planner.runs.suggestion import (
    RunWindow,
    Suggestion,
    drift_of_window,
    planned_seconds,
    suggest,
)
from automap.planner.spec import JobSpec
from automap.planner.spec.lengths import LengthSpec
from automap.service.runs.drift_report import suggestion_lines as in_words
from tests.service.support.samples import tiny_spec

ASYNCHRONOUS = Path("examples/grpo-async-qwen2.5-7b-32xh100.yaml")


@cache
def plan() -> Plan:
    spec = tiny_spec()
    spec["workload"] |= {"startup_seconds": 60.0, "checkpoint_seconds": 10.0}
    spec["workload"]["response_length"] = {"mean": 500, "max": 2000}
    return make_plan(JobSpec.model_validate(spec))


def spec_lengths() -> LengthSpec:
    return plan().spec.workload.response_length


def iteration(
    number: int, ratio: float = 1.0, *, of: Plan | None = None, tokens: float = 1.0, **calls: float
) -> Iteration:
    """One that takes this many times what a plan says; single calls by their own ratio."""
    priced = of or plan()
    names = {name.replace(".", "_"): name for name in planned_seconds(priced)}
    ratios = {names[name]: value for name, value in calls.items()}
    return Iteration(
        number=number,
        seconds=ratio * priced.iteration_seconds,
        calls={n: ratios.get(n, ratio) * s for n, s in planned_seconds(priced).items()},
        lengths=ObservedLengths(mean=tokens * spec_lengths().mean_tokens),
    )


def run_window(latest: Window, first: Window | None = None, **changes: Any) -> RunWindow:
    return RunWindow.model_validate(
        {"window": latest, "first": first, "iterations_left": 400, "threshold": 0.15, **changes}
    )


def window(start: int, ratio: float = 1.0, **how: Any) -> Window:
    return Window.of([iteration(start + step, ratio, **how) for step in range(5)])


def kinds(found: Suggestion) -> dict[str, list[str]]:
    return {cause.kind: cause.calls for cause in found.causes}


def test_one_bad_iteration_is_no_drift_and_three_of_five_are() -> None:
    ratios = (1.0, 4.0, 1.1, 0.9, 5.0)
    few = Window.of([iteration(each, ratio) for each, ratio in enumerate(ratios, start=2)])
    assert not drift_of_window(plan(), few, 0.15).replan
    ratios = (1.0, 1.3, 1.3, 0.9, 1.3)
    most = Window.of([iteration(each, ratio) for each, ratio in enumerate(ratios, start=2)])
    assert drift_of_window(plan(), most, 0.15).replan
    assert not drift_of_window(plan(), most, 0.5).replan


def test_what_was_slower_from_the_start_is_an_estimates_error_and_what_was_not_a_slowdown() -> None:
    always = suggest(plan(), run_window(window(30, 1.4), window(2, 1.35)))
    assert set(kinds(always)) == {"estimate"}
    since = suggest(plan(), run_window(window(30, 1.4), window(2, 1.0)))
    assert set(kinds(since)) == {"slowdown"}
    assert "actor.train" in kinds(since)["slowdown"]
    at_first = suggest(plan(), run_window(window(2, 1.4)))
    assert set(kinds(at_first)) == {"estimate"}
    both = suggest(plan(), run_window(window(30, 1.4, actor_train=2.0), window(2, 1.4)))
    assert kinds(both)["slowdown"] == ["actor.train"]
    assert "actor.generate" in kinds(both)["estimate"]
    assert [cause.ratio for cause in both.causes] == pytest.approx([2.0, 1.4])


def test_calls_that_become_faster_have_not_slowed_down() -> None:
    faster = suggest(plan(), run_window(window(30, 0.7), window(2, 1.0)))
    assert set(kinds(faster)) == {"estimate"}
    assert any("0.70 times the estimate without a slowdown" in each for each in in_words(faster))
    nearer = suggest(plan(), run_window(window(30, 1.3), window(2, 1.8)))
    assert set(kinds(nearer)) == {"estimate"}
    past_it = suggest(plan(), run_window(window(30, 1.2), window(2, 0.8)))
    assert set(kinds(past_it)) == {"slowdown"}


def test_seconds_of_a_function_are_corrected_in_the_spec() -> None:
    spec = plan().spec.model_dump(mode="json", exclude_none=True)
    spec["models"]["reward"] = {"function": True, "seconds_per_response": 0.5}
    priced = make_plan(JobSpec.model_validate(spec))
    (name,) = (call.id for call in priced.calls if call.copy_id is None)
    slow = window(30, of=priced, **{name.replace(".", "_"): 3.0})
    found = suggest(priced, run_window(slow, window(2, 3.0, of=priced)))
    assert kinds(found) == {"estimate": [name]}
    assert any("seconds_per_response" in line for line in in_words(found))


def test_longer_responses_explain_what_the_cost_model_makes_of_them() -> None:
    longer = ObservedLengths(mean=1.6 * spec_lengths().mean_tokens).spec(spec_lengths())
    workload = plan().spec.workload.model_copy(update={"response_length": longer})
    spec = plan().spec.model_copy(update={"workload": workload})
    priced = estimate(spec, plan().placement())
    assert priced.iteration_seconds > 1.15 * plan().iteration_seconds
    found = suggest(plan(), run_window(window(30, of=priced, tokens=1.6), window(2)))
    assert set(kinds(found)) == {"lengths"}
    assert found.response_length == longer
    assert found.replan is not None
    # No price is corrected: with the measured lengths all is as estimated.
    assert [each.ratio for each in found.replan.corrections] == pytest.approx(
        [1.0] * len(found.replan.corrections)
    )
    assert found.replan.keep_seconds == pytest.approx(priced.iteration_seconds, rel=1e-3)
    # Training slowed down besides.
    slower = window(30, of=priced, tokens=1.6, actor_train=1.5)
    found = suggest(plan(), run_window(slower, window(2)))
    assert kinds(found)["slowdown"] == ["actor.train"]
    assert "actor.train" in kinds(found)["lengths"]


def test_a_longer_tail_is_seen_although_the_mean_is_as_planned() -> None:
    mean = spec_lengths().mean_tokens
    tail = ObservedLengths(mean=mean, p50=0.5 * mean, p90=2.2 * mean, p99=4 * mean)
    workload = plan().spec.workload
    longer = workload.model_copy(update={"response_length": tail.spec(spec_lengths())})
    priced = estimate(plan().spec.model_copy(update={"workload": longer}), plan().placement())
    latest = window(30, of=priced, actor_train=1.5).model_copy(update={"lengths": tail})
    found = suggest(plan(), run_window(latest, window(2)))
    assert found.response_length == tail.spec(spec_lengths())
    assert kinds(found)["slowdown"] == ["actor.train"]
    as_planned = suggest(plan(), run_window(window(30, actor_train=1.5), window(2)))
    assert as_planned.response_length is None


def test_a_device_that_is_always_the_slowest_is_named_and_its_node_weighed() -> None:
    def slow(number: int, device: str) -> Iteration:
        rank = SlowRank(device=device, seconds=3.0, others_seconds=2.0)
        one = iteration(number, 1.5)
        return one.model_copy(update={"slowest": dict.fromkeys(one.calls, rank)})

    always = Window.of([slow(number, "a100[3]") for number in range(30, 35)])
    found = suggest(plan(), run_window(always, window(2)))
    (cause,) = found.causes
    assert (cause.kind, cause.device) == ("slow_device", "a100[3]")
    without = found.without_node
    assert without is not None
    assert (without.pool, without.node, without.cost_seconds) == ("a100", 1, 70.0)
    assert without.gain_seconds == pytest.approx(always.seconds - without.iteration_seconds)
    if without.gain_seconds > 0:
        assert without.break_even_iterations is not None
        assert without.break_even_iterations * without.gain_seconds >= 70.0
    changing = Window.of([slow(number, f"a100[{number % 4}]") for number in range(30, 35)])
    assert set(kinds(suggest(plan(), run_window(changing, window(2))))) == {"slowdown"}


def test_time_between_calls_is_told_apart() -> None:
    same = iteration(30)
    longer = same.model_copy(update={"seconds": 1.5 * same.seconds})
    found = suggest(plan(), run_window(Window.of([longer] * 5), window(2)))
    (cause,) = found.causes
    assert (cause.kind, cause.calls) == ("between_calls", [])
    assert cause.ratio == pytest.approx(1.5)


def test_observed_lengths_become_a_spec_below_its_maximum() -> None:
    before = LengthSpec(mean=100.0, max=400)
    seen = [
        ObservedLengths(mean=90.0 + each, p50=80.0, p90=300.0, p99=500.0, max=600.0 + each)
        for each in (0, 20)
    ]
    over = ObservedLengths.over(seen)
    assert over is not None
    assert (over.mean, over.max, over.iterations) == (100.0, 620.0, 2)
    assert over.spec(before) == LengthSpec(p50=80.0, p90=300.0, p99=400.0, max=400)
    means = ObservedLengths.over([ObservedLengths(mean=900.0), ObservedLengths()])
    assert means is not None
    assert means.spec(before) == LengthSpec(mean=400.0, max=400)
    assert ObservedLengths.over([ObservedLengths()]) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "search", [{}, {"continuous_rollouts": True, "staleness": 4}], ids=["by batches", "continuous"]
)
def test_a_rollout_pool_at_half_its_speed_is_told_and_gets_gpus_of_the_trainer(
    search: dict[str, Any],
) -> None:
    document = yaml.safe_load(ASYNCHRONOUS.read_text())
    document["cluster"]["pools"][0]["num_nodes"] = 8
    document["search"] |= search
    planned = make_plan(JobSpec.model_validate(document))
    calls = planned_seconds(planned)
    calls["actor.generate"] *= 2
    slow = Window(first=6, last=10, seconds=calls["actor.generate"], calls=calls)
    found = suggest(planned, run_window(slow))
    assert kinds(found) == {"estimate": ["actor.generate"]}
    assert found.replan is not None
    assert found.replan.verdict == "move"
    assert found.replan.placement is not None
    before, after = (_rollout_gpus(each) for each in (planned.placement(), found.replan.placement))
    assert after > before, found.replan.changes


def _rollout_gpus(placement: Placement) -> int:
    """GPUs of the copy that generates apart from the trainer."""
    (shadow,) = (copy for copy in placement.copies if copy.id == "actor.shadow")
    return shadow.num_gpus
