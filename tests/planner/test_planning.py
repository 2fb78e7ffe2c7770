"""A job spec in, a plan out: end to end on clusters of a few GPUs, the check included."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from automap.planner import (
    ReplanOptions,
    explain,
    export,
    levers,
    make_plan_or_explain,
    pareto,
    replan,
    simulate,
    target_cost,
    what_if,
)
from automap.planner.check.check import violations
from automap.planner.cost.transition import sync_bytes
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CopyPlacement, CopyPlan, Placement, Plan
from automap.planner.planning import compare, estimate, make_plan
from automap.planner.search.strategies import STARTS
from automap.planner.spec import JobSpec
from tests.helpers.small_jobs import pool, small_job

ALGORITHMS = ("ppo", "grpo", "remax", "rloo", "reinforce_plus_plus", "dapo", "safe_rlhf")
MOE = {
    "num_layers": 8,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 32000,
}
SEARCH = {"search_seconds", "search", "alternatives"}
TIMES = {"search_seconds": True, "search": {"pricing_seconds", "solving_seconds"}}


@cache
def plan_of(algorithm: str = "grpo", num_nodes: int = 1) -> Plan:
    return make_plan(small_job(algorithm, num_nodes=num_nodes))


def home(plan: Plan, role: str) -> CopyPlan:
    return next(copy for copy in plan.copies if copy.role == role and copy.kind == "home")


def gpus(copy: CopyPlan) -> set[tuple[str, int]]:
    span = range(copy.first_gpu, copy.first_gpu + copy.num_gpus)
    return {(copy.pool, gpu) for gpu in span}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_has_a_proven_plan_that_no_baseline_beats(algorithm: str) -> None:
    plan = plan_of(algorithm)
    assert plan.search.status == "optimal"
    assert plan.relative_gap == 0
    assert list(violations(resolve(plan.spec), plan)) == []
    assert {each.name for each in plan.alternatives} == set(STARTS)
    feasible = [each for each in plan.alternatives if each.feasible]
    assert feasible
    for each in feasible:
        assert each.iteration_seconds is not None
        assert each.iteration_seconds >= plan.iteration_seconds - 1e-6
        assert each.times_slower == pytest.approx(each.iteration_seconds / plan.iteration_seconds)


def test_every_strategy_says_how_it_differs_from_the_plan() -> None:
    plan = plan_of("grpo", 2)
    order = ("copies", "calls")

    def parts(placement: Placement) -> list[list[str]]:
        return [sorted(str(part) for part in getattr(placement, name)) for name in order]

    told = set()
    for each in plan.alternatives:
        assert each.reason
        if each.placement is None or each.iteration_seconds is None:
            continue
        same = parts(each.placement) == parts(plan.placement())
        slower = each.iteration_seconds - plan.iteration_seconds
        assert (each.reason == "same placement") == same
        if not same:
            expected = f"{slower:.3f} s slower" if slower >= 5e-4 else "as fast, placed otherwise"
            assert each.reason == expected
        told.add(each.reason)
    assert len(told) > 1


def test_a_strategy_of_the_plans_own_placement_says_so() -> None:
    """On one GPU with one model there is nothing to place otherwise."""
    models = {"actor": {"architecture": "qwen2.5-0.5b"}, "reward": {"function": True}}
    one = pool(gpus_per_node=1)
    plan = make_plan(small_job(models=models, workload__kl="none", cluster__pools=[one]))
    assert "same placement" in {each.reason for each in plan.alternatives}


def test_under_other_objectives_strategies_differ_in_what_is_asked_for() -> None:
    target = 2 * plan_of("grpo", 2).iteration_seconds
    fewest = make_plan(
        small_job(
            num_nodes=2,
            search__objective="fewest_gpus",
            search__target_iteration_seconds=target,
        )
    )
    assert fewest.gpus_used == 4
    larger = [each for each in fewest.alternatives if "on 8 GPUs instead of 4" in each.reason]
    assert larger
    assert all("faster" in each.reason or "slower" in each.reason for each in larger)
    cheapest = make_plan(small_job(num_nodes=2, search__objective="price"))
    for each in cheapest.alternatives:
        if each.price_per_iteration is not None:
            dearer = each.price_per_iteration > 1.001 * cheapest.price_per_iteration
            assert ("% dearer" in each.reason) == dearer


def test_a_plan_names_the_gpu_whose_operator_times_it_uses() -> None:
    assert plan_of().provenance.operator_tables == {"a100-80gb-sxm": "a100-80gb-sxm"}
    derived = make_plan(small_job(cluster__pools=[pool(gpu="a800")]))
    assert derived.provenance.operator_tables == {"a800-80gb-sxm": "a100-80gb-sxm"}
    tiny = {role: {"architecture": MOE} for role in ("actor", "reference", "reward")}
    bare = make_plan(small_job(models=tiny, cluster__pools=[pool(gpu="cpu")]))
    assert bare.provenance.operator_tables == {"cpu": None}


@pytest.mark.parametrize(("algorithm", "num_nodes"), [("ppo", 1), ("ppo", 2), ("grpo", 2)])
def test_estimate_of_a_plans_placement_gives_its_seconds(algorithm: str, num_nodes: int) -> None:
    plan = plan_of(algorithm, num_nodes)
    again = estimate(plan.spec, plan.placement())
    assert again.iteration_seconds == pytest.approx(plan.iteration_seconds, abs=1e-6)
    assert again.search.status == "given"
    assert again.copies == plan.copies
    assert again.price_per_iteration == pytest.approx(plan.price_per_iteration)


def test_estimate_takes_a_whole_plan() -> None:
    plan = plan_of("ppo")
    again = estimate(plan.spec, plan)
    assert again.placement() == plan.placement()
    assert again.iteration_seconds == pytest.approx(plan.iteration_seconds, abs=1e-6)


@pytest.mark.parametrize(
    "asked",
    [
        make_plan,
        make_plan_or_explain,
        pareto,
        what_if,
        lambda spec: estimate(spec, plan_of("ppo")),
        lambda spec: levers(spec, "automap"),
        lambda spec: target_cost(spec, "automap"),
    ],
)
def test_a_document_is_no_spec(asked: Callable[[Any], object]) -> None:
    document = small_job("ppo").model_dump(mode="json")
    with pytest.raises(TypeError, match=r"is a dict, not a JobSpec: JobSpec\.model_validate"):
        asked(document)


@pytest.mark.parametrize(
    "asked",
    [
        explain,
        simulate,
        lambda plan: export(plan, "verl@0.9.1"),
        lambda plan: replan(plan, ReplanOptions()),
    ],
)
def test_a_document_is_no_plan(asked: Callable[[Any], object]) -> None:
    document = plan_of("ppo").model_dump(mode="json")
    with pytest.raises(TypeError, match=r"is a dict, not a Plan: Plan\.model_validate"):
        asked(document)


def test_estimate_of_a_baseline_gives_the_seconds_that_the_plan_shows() -> None:
    plan = plan_of("ppo")
    for each in plan.alternatives:
        if each.placement is not None:
            again = estimate(plan.spec, each.placement)
            assert again.iteration_seconds == pytest.approx(each.iteration_seconds, abs=1e-6)
            assert again.price_per_iteration == pytest.approx(each.price_per_iteration)


@pytest.mark.parametrize("objective", ["throughput", "price", "fewest_gpus"])
def test_estimates_state_their_objective_in_its_unit(objective: str) -> None:
    spec = small_job("ppo", num_nodes=2, search__objective=objective)
    given = estimate(spec, plan_of("ppo", 2).placement())
    wanted = {
        "throughput": given.iteration_seconds,
        "price": given.price_per_iteration,
        "fewest_gpus": given.gpus_used,
    }
    assert given.search.objective_value == pytest.approx(wanted[objective])
    assert given.search.lower_bound == given.search.objective_value


@pytest.mark.parametrize("changes", [{}, {"search__objective": "price"}])
def test_the_same_spec_gives_the_same_plan(changes: dict[str, Any]) -> None:
    first, second = (make_plan(small_job("ppo", num_nodes=2, **changes)) for _ in range(2))
    assert first.model_dump(exclude=TIMES) == second.model_dump(exclude=TIMES)


def test_the_order_of_models_does_not_matter() -> None:
    spec = small_job("ppo")
    backwards = spec.model_copy(update={"models": dict(reversed(spec.models.items()))})
    assert list(backwards.models) != list(spec.models)
    excluded = SEARCH | {"spec"}
    assert make_plan(backwards).model_dump(exclude=excluded) == plan_of("ppo").model_dump(
        exclude=excluded
    )


def test_names_of_pools_do_not_matter() -> None:
    """And neither does the order of two equal pools."""
    named = make_plan(small_job(num_nodes=2, cluster__pools=[pool(2, name="other")]))
    assert named.iteration_seconds == plan_of("grpo", 2).iteration_seconds
    h100 = pool(1, name="fast", gpu="h100")
    one = make_plan(small_job(cluster__pools=[pool(1), h100]))
    two = make_plan(small_job(cluster__pools=[h100, pool(1)]))
    assert one.iteration_seconds == pytest.approx(two.iteration_seconds, abs=1e-6)


def test_more_gpus_never_make_the_optimum_worse() -> None:
    """From two nodes on: syncs of a one-node cluster are priced inside the node."""
    seconds = [plan_of("ppo", nodes).iteration_seconds for nodes in (2, 3, 4)]
    assert seconds == sorted(seconds, reverse=True)
    both = make_plan(small_job("ppo", cluster__pools=[pool(2), pool(1, name="more", gpu="h100")]))
    assert both.iteration_seconds <= seconds[0] + 1e-6


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_the_cheapest_plan_is_the_cheapest_over_all_node_numbers(algorithm: str) -> None:
    """Shadows are left out: their syncs cost less on a cluster of one node."""
    alone = {"constraints": {"allow_shadow_copies": False}}
    fastest = [make_plan(small_job(algorithm, num_nodes=n, **alone)) for n in (1, 2, 3, 4)]
    plan = make_plan(small_job(algorithm, num_nodes=4, search__objective="price", **alone))
    expected = min(each.price_per_iteration for each in fastest)
    assert plan.price_per_iteration == pytest.approx(expected, rel=1e-9)
    assert plan.search.objective_value == pytest.approx(plan.price_per_iteration)
    assert plan.search.status == "optimal"
    assert plan.relative_gap == 0


def test_uneven_nodes_are_pools_of_one_gpu_type() -> None:
    """Both sizes of node are used at once; make_plan has its plan checked."""
    pools = [pool(name="fours"), pool(name="twos", gpus_per_node=2)]
    apart = {"separate": [["actor", "reference"], ["actor", "reward"]]}
    plan = make_plan(small_job(cluster__pools=pools, constraints=apart))
    assert {copy.pool for copy in plan.copies} == {"fours", "twos"}
    assert all(copy.num_gpus <= {"fours": 4, "twos": 2}[copy.pool] for copy in plan.copies)
    alone = make_plan(small_job(cluster__pools=pools[:1], constraints=apart))
    assert plan.iteration_seconds < alone.iteration_seconds


def test_between_two_pools_the_price_decides() -> None:
    dear = pool(1, name="dear", price_per_gpu_hour=100.0)
    plan = make_plan(small_job(cluster__pools=[dear, pool(1)], search__objective="price"))
    assert {copy.pool for copy in plan.copies} == {"a100"}
    assert plan.price_per_iteration == pytest.approx(plan_of().price_per_iteration)


def test_without_prices_the_fastest_plan_is_the_cheapest() -> None:
    free = [pool(2, price_per_gpu_hour=0.0)]
    plan = make_plan(small_job(cluster__pools=free, search__objective="price"))
    assert plan.search.objective_value == 0
    assert plan.iteration_seconds == plan_of("grpo", 2).iteration_seconds


@pytest.mark.parametrize("slower", [1.0, 1.15, 2.5])
def test_fewest_gpus_are_the_fewest_whose_fastest_plan_meets_the_target(slower: float) -> None:
    seconds = {4 * n: plan_of("grpo", n).iteration_seconds for n in (1, 2, 3, 4)}
    target = seconds[16] * slower + 1e-3
    plan = make_plan(
        small_job(
            num_nodes=4, search__objective="fewest_gpus", search__target_iteration_seconds=target
        )
    )
    assert plan.gpus_used == min(gpus for gpus, each in seconds.items() if each <= target)
    assert plan.iteration_seconds == pytest.approx(seconds[plan.gpus_used])
    assert plan.search.objective_value == plan.search.lower_bound == plan.gpus_used


def test_fewest_gpus_without_a_target_are_one_node() -> None:
    plan = make_plan(small_job(num_nodes=3, search__objective="fewest_gpus"))
    assert plan.gpus_used == 4


def constrained(algorithm: str = "ppo", num_nodes: int = 2, **constraints: Any) -> Plan:
    return make_plan(small_job(algorithm, num_nodes=num_nodes, constraints=constraints))


def test_roles_stay_in_their_pools() -> None:
    pools = [pool(1), pool(1, name="other")]
    spec = small_job(cluster__pools=pools, constraints__pools={"actor": "other", "reward": "a100"})
    plan = make_plan(spec)
    assert {copy.pool for copy in plan.copies if copy.role == "actor"} == {"other"}
    assert home(plan, "reward").pool == "a100"


def test_colocated_and_separate_roles() -> None:
    plan = constrained(colocate=[("actor", "critic")], separate=[("actor", "reward")])
    assert gpus(home(plan, "actor")) == gpus(home(plan, "critic"))
    copies = [copy for copy in plan.copies if copy.role == "actor"]
    assert all(not gpus(copy) & gpus(home(plan, "reward")) for copy in copies)
    assert plan.iteration_seconds >= plan_of("ppo", 2).iteration_seconds


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_gpus": 2},
        {"num_gpus": 4, "tensor_parallel_size": 2},
        {"data_parallel_size": 4},
        {"pipeline_parallel_size": 2},
        {"sharding": "full", "micro_batch_size": 2, "recompute": "full"},
    ],
)
def test_fixed_sizes_of_a_role(sizes: dict[str, Any]) -> None:
    plan = constrained(parallelism={"critic": sizes})
    copy = home(plan, "critic")
    train = next(call for call in plan.calls if call.id == "critic.train")
    found = copy.layout.model_dump() | {"num_gpus": copy.num_gpus}
    found |= {"micro_batch_size": train.micro_batch_size, "recompute": train.recompute}
    assert {name: found[name] for name in sizes} == sizes


def test_a_fixed_size_of_the_engine() -> None:
    plan = constrained(parallelism={"actor": {"generation_tensor_parallel_size": 2}})
    generate = next(call for call in plan.calls if call.kind == "generate")
    assert generate.parallelism is not None
    assert generate.parallelism.tensor_parallel_size == 2


def test_gpus_that_are_kept_free_stay_free() -> None:
    plan = constrained("grpo", keep_free_gpus={"a100": 5})
    assert max(max(gpus(copy)) for copy in plan.copies) < ("a100", 3)


def test_even_batches_where_they_are_asked_for() -> None:
    odd = {"workload__prompts_per_iteration": 3, "workload__responses_per_prompt": 2}
    odd |= {"workload__updates_per_epoch": 1}
    plan = make_plan(small_job(**odd, constraints__require_even_batch=True))
    for call in plan.calls:
        if call.kind != "generate":
            assert call.parallelism is not None
            assert call.micro_batch_size is not None
            assert 6 % (call.parallelism.data_parallel_size * call.micro_batch_size) == 0


def test_what_is_not_allowed_is_not_used() -> None:
    plan = constrained(allow_offload=False, allow_recompute=False, allow_shadow_copies=False)
    assert all(copy.offload == "none" and copy.kind == "home" for copy in plan.copies)
    assert all(call.recompute in (None, "none") for call in plan.calls)


def pipelined(staleness: int) -> Plan:
    """Rollout and training of about a second, and three stages of 100 s between them."""
    stages = ("one", "two", "three")
    order = ["actor.generate", *(f"{stage}.forward" for stage in stages), "actor.train"]
    calls = [dict(zip(("role", "kind"), call.split("."), strict=True)) for call in order]
    graph = {
        "calls": [call | {"id": name} for call, name in zip(calls, order, strict=True)],
        "edges": [{"source": a, "target": b} for a, b in pairwise(order)],
    }
    function = {"function": True, "seconds_per_response": 100.0, "concurrency": 10_000}
    spec = small_job(
        None,
        dataflow=graph,
        models={"actor": {"architecture": "qwen2.5-0.5b"}} | dict.fromkeys(stages, function),
        search={"staleness": staleness, "iteration_barrier": False, "num_workers": 1},
    )
    return make_plan(spec)


def test_staleness_shortens_three_stages_of_100_s_to_150_and_to_100() -> None:
    plans = [pipelined(staleness) for staleness in (0, 1, 2)]
    whole = plans[0].iteration_seconds
    assert 300 < whole < 315
    assert plans[1].iteration_seconds == pytest.approx(whole / 2, rel=1e-3)
    assert plans[2].iteration_seconds == pytest.approx(whole / 3, rel=1e-3)
    assert [plan.staleness for plan in plans] == [0, 1, 2]


def test_a_lora_reference_is_the_actors_base() -> None:
    models = {
        "actor": {"architecture": "qwen2.5-0.5b", "lora": {"rank": 8}},
        "reward": {"architecture": "qwen2.5-0.5b"},
    }
    plan = make_plan(small_job(models=models))
    assert {copy.role for copy in plan.copies} == {"actor", "reward"}
    reference = next(call for call in plan.calls if call.role == "reference")
    assert reference.copy_id == "actor"


def test_a_reward_function_takes_time_and_no_gpu() -> None:
    function = {"function": True, "seconds_per_response": 0.5, "concurrency": 64}
    plan = make_plan(small_job(models__reward=function))
    reward = next(call for call in plan.calls if call.role == "reward")
    assert reward.copy_id is None
    assert reward.end_seconds - reward.start_seconds == pytest.approx(256 / 64 * 0.5)
    assert "reward" not in {copy.role for copy in plan.copies}


def test_the_weight_sync_of_a_mixture_of_experts_passes_the_check() -> None:
    """Its experts are split over another group than the rest."""
    sizes = MOE | {"moe_intermediate_size": 512, "num_experts": 8, "num_experts_per_token": 2}
    roles = ("actor", "reference", "reward")
    spec = small_job("grpo", models={role: {"architecture": sizes} for role in roles})
    expert = {"tensor_parallel_size": 1, "data_parallel_size": 4, "expert_parallel_size": 4}
    plan = make_plan(spec)
    data = plan.placement().model_dump(by_alias=True)
    shadow = home(plan, "actor").model_dump(include=set(CopyPlacement.model_fields))
    shadow |= {"id": "actor.shadow", "kind": "shadow", "offload": "none"}
    shadow |= {"first_gpu": 0, "num_gpus": 4, "layout": expert}
    data["copies"] = [c for c in data["copies"] if c["kind"] == "home"] + [shadow]
    for call in data["calls"]:
        if call["kind"] == "generate":
            call |= {"copy": "actor.shadow", "parallelism": expert}
    given = estimate(spec, Placement.model_validate(data))
    (sync,) = given.transitions
    dense, experts = sync_bytes(resolve(spec).models["actor"], spec.workload)
    assert sync.bytes_per_receiver == dense + experts // 4


def test_compare_prices_the_named_strategies_beside_the_plan() -> None:
    plan = plan_of()
    (found,) = compare(plan.spec, plan, ["colocate_all"])
    assert found.name == "colocate_all"
    assert found.placement is not None
    shown = next(each for each in plan.alternatives if each.name == "colocate_all")
    assert found == shown


def test_compare_refuses_unknown_strategies_before_it_works() -> None:
    with pytest.raises(SpecError, match="no strategy is called 'magic'"):
        compare(plan_of().spec, plan_of(), ["colocate_all", "magic"])


def test_a_spec_that_contradicts_itself_is_refused() -> None:
    spec: JobSpec = small_job(constraints__pools={"actor": "nowhere"})
    with pytest.raises(SpecError):
        make_plan(spec)


def test_a_cache_far_below_the_full_budget_is_tried() -> None:
    """With many sequences per GPU no sequence-never-waits budget fits; a smaller one does."""
    plan = make_plan(
        small_job(
            algorithm="grpo",
            models={
                "actor": {"architecture": "qwen2.5-7b", "lora": {"rank": 16}},
                "reward": {"function": True, "seconds_per_response": 0.01},
            },
            workload__kl="none",
            workload__prompts_per_iteration=4096,
            workload__responses_per_prompt=16,
            workload__response_length={"mean": 4096, "max": 8192},
        )
    )
    assert plan.search.status == "optimal"
