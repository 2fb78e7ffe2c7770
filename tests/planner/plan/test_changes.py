"""What differs between two plans."""

import pytest

from automap.planner.plan.changes import differences, plan_difference
from automap.planner.planning import make_plan
from tests.helpers.small_jobs import pool, small_job

PPO = small_job("ppo", cluster__pools=[pool(2, gpu="h100-80gb-sxm")])


def test_a_plan_does_not_differ_from_itself() -> None:
    plan = make_plan(PPO)
    assert differences(plan, plan) == []


@pytest.mark.slow
def test_every_copy_and_call_that_is_otherwise_is_told_with_seconds_and_bytes() -> None:
    plan = make_plan(PPO)
    verl = PPO.search.model_copy(update={"target": "verl@0.9.1"})
    other = make_plan(PPO.model_copy(update={"search": verl}))
    found = {each.of: each for each in differences(plan, other)}
    assert found
    calls = {call.id: call for call in plan.calls}
    for call in other.calls:
        own = calls[call.id]
        settings = ("copy_id", "parallelism", "micro_batch_size", "recompute", "kv_cache_bytes")
        changed = any(getattr(call, name) != getattr(own, name) for name in settings)
        each = found.get(f"call {call.id}")
        assert (each is not None) >= changed
        if each is not None:
            seconds = (call.end_seconds - call.start_seconds) - (
                own.end_seconds - own.start_seconds
            )
            assert each.more_seconds == seconds
            assert each.more_bytes == call.peak_bytes - own.peak_bytes
    copies = {copy.id for copy in (*plan.copies, *other.copies)}
    assert {name.removeprefix("copy ") for name in found if name.startswith("copy ")} <= copies


def test_a_copy_that_is_only_in_one_plan_is_told() -> None:
    plan = make_plan(small_job(search__staleness=1, num_nodes=2))
    without = plan.model_copy(update={"copies": plan.copies[:-1]})
    (gone,) = differences(plan, without)
    assert (gone.of, gone.after) == (f"copy {plan.copies[-1].id}", "none")
    assert gone.more_bytes == -plan.copies[-1].resident_bytes


@pytest.mark.slow
def test_two_plans_stand_beside_each_other_even_of_two_jobs() -> None:
    one = make_plan(PPO)
    other = make_plan(small_job("grpo", cluster__pools=[pool(4, gpu="h100-80gb-sxm")]))
    found = plan_difference(one, other)
    figures = {each.of: (each.before, each.after) for each in found.figures}
    assert figures["iteration_seconds"] == (one.iteration_seconds, other.iteration_seconds)
    assert figures["gpus_used"] == (one.gpus_used, other.gpus_used)
    seconds = {each.of: (each.before, each.after) for each in found.seconds}
    bytes_of = {each.of: (each.before, each.after) for each in found.peak_bytes}
    for call in one.calls:
        assert seconds[call.id][0] == call.end_seconds - call.start_seconds
        assert bytes_of[call.id][0] == call.peak_bytes
    assert seconds["critic.train"][1] is None
    fields = {each.field: (each.before, each.after) for each in found.spec}
    assert fields["algorithm"] == ("ppo", "grpo")
    assert any(field.startswith("cluster.pools.0.") for field in fields)
    assert fields["models.critic.architecture"][1] is None


def test_a_plan_beside_itself_differs_in_nothing() -> None:
    plan = make_plan(PPO)
    found = plan_difference(plan, plan)
    assert (found.placement, found.spec) == ([], [])
    assert all(each.before == each.after for each in [*found.figures, *found.seconds])
