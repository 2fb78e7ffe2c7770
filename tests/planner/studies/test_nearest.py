"""The nearest plan inside another framework: what is kept of a launch, and what goes first."""

from collections.abc import Callable

import pytest

from automap.planner import Imported, Placement, Plan, make_plan
from automap.planner.errors import InfeasibleError
from automap.planner.planning import estimate
from automap.planner.spec import JobSpec
from automap.planner.studies import EVERYTHING, inside_another, most_kept, nearest, put_back
from benchmarks.imports import imported
from benchmarks.launch_corpus import corpus

SOURCE, TARGET = "openrlhf@0.11.2", "verl@0.9.1"


def launch(name: str) -> Imported:
    [written] = [each for each in corpus("openrlhf") if each.name == name]
    found = imported(written, written.help, SOURCE)
    assert isinstance(found, Imported)
    return found


@pytest.mark.parametrize(
    ("name", "let_go"),
    [
        ("hybrid-grpo", set()),
        ("ahead-apart", set()),
        # Tensor parallelism is Megatron's there, whose optimizer alone is sharded.
        ("tensor", {nearest.SHARDING}),
        ("reinforce-baseline", {nearest.SETTINGS}),
        # Its engines had GPUs to themselves, and so a larger cache.
        ("pairs", {nearest.LAYOUTS, nearest.SHARDING, nearest.CACHE}),
    ],
)
def test_as_little_as_possible_is_let_go(name: str, let_go: set[str]) -> None:
    found = launch(name)
    kept = most_kept(inside_another(found.spec, TARGET), found.placement, TARGET)
    plan, _, beside = put_back(make_plan(kept.spec), found.placement, TARGET, estimate)
    assert set(EVERYTHING) - {*kept.what, *beside} == let_go
    calls = {call.id: call for call in found.placement.calls}
    for call in plan.calls:
        before = calls[call.id]
        if nearest.SETTINGS not in let_go:
            assert (call.micro_batch_size, call.recompute) == (
                before.micro_batch_size,
                before.recompute,
            )
        if call.kind == "generate" and let_go.isdisjoint({nearest.CACHE, nearest.LAYOUTS}):
            assert (call.parallelism, call.kv_cache_bytes) == (
                before.parallelism,
                before.kv_cache_bytes,
            )
    if nearest.LAYOUTS not in let_go:
        ranges = [
            {copy.id: (copy.num_gpus, copy.layout.in_short()) for copy in each.copies}
            for each in (plan, found.placement)
        ]
        assert ranges[0] == ranges[1]


def test_sharding_is_let_go_of_those_roles_alone_that_cannot_have_it() -> None:
    """A reward model is served there, and so not sharded; what trains keeps its own."""
    found = launch("hybrid-ppo")
    kept = most_kept(inside_another(found.spec, TARGET), found.placement, TARGET)
    assert f"{nearest.SHARDING_OF}actor, reference, critic" in kept.what
    shardings = {copy.id: copy.layout.sharding for copy in make_plan(kept.spec).copies}
    assert shardings == dict.fromkeys(("actor", "reference", "critic"), "full") | {"reward": "none"}


def test_where_no_step_has_a_plan_nothing_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[JobSpec] = []

    def none(spec: JobSpec, *, explain: Callable[..., object]) -> Plan:
        tried.append(spec)
        raise InfeasibleError([])

    monkeypatch.setattr(nearest, "make_plan", none)
    found = launch("hybrid-grpo")
    spec = inside_another(found.spec, TARGET)
    assert most_kept(spec, found.placement, TARGET) == nearest.Kept(spec, ())
    pins = [each.constraints.parallelism for each in tried]
    assert len(pins) == len(nearest.STEPS)
    assert pins[0]["actor"].sharding == "full"
    assert pins[0]["actor.train"].micro_batch_size == 4
    assert pins[1].keys() == {"actor", "reference", "actor.generate"}
    assert pins[2]["actor"].sharding is None
    assert pins[-1]["actor.generate"].model_dump(exclude_none=True) == {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "expert_parallel_size": 1,
    }
    assert pins[-1].keys() == {"actor.generate"}


def test_what_does_not_fit_is_not_put_back() -> None:
    found = launch("hybrid-grpo")
    kept = most_kept(inside_another(found.spec, TARGET), found.placement, TARGET)
    plan = make_plan(kept.spec)
    prices: list[Placement] = []

    def full(spec: JobSpec, placement: Placement) -> Plan:
        prices.append(placement)
        raise InfeasibleError([])

    assert put_back(plan, found.placement, TARGET, full)[0::2] == (plan, ())
    assert len(prices) == len(nearest.BESIDE)
