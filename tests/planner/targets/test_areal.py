"""Plans inside AReaL: what search and check hold them to."""

import itertools
from typing import Any

import pytest

from automap.planner import Plan, export
from automap.planner.check.check import violations
from automap.planner.dataflow.graph import Call, Dataflow, Edge, in_turns
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.plan.runs_with import refusals
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.planner.targets.areal import AREAL
from benchmarks.exports import job_for, outcome
from benchmarks.population_jobs import drawn
from tests.helpers.areal_plans import FSDP, PPO, SAMPLE, SMALL, Laid, job, plan_of
from tests.helpers.broken_exports import changed, relaid
from tests.helpers.framework_plans import Wanted


def quick(wanted: Wanted) -> JobSpec:
    spec = job(wanted)
    search = spec.search.model_copy(update={"time_limit_seconds": 10.0})
    return spec.model_copy(update={"search": search})


@pytest.fixture(scope="module", params=["grpo", "ppo", "ahead", "without scores"])
def plan(request: pytest.FixtureRequest) -> Plan:
    wanted = {
        "grpo": SMALL.but(num_nodes=1),
        "ppo": PPO.but(num_nodes=2),
        "ahead": SMALL.but(num_nodes=1, staleness=1),
        "without scores": SMALL.but(
            num_nodes=1, workload=(("kl", "none"), ("old_log_probs", "rollout"))
        ),
    }
    return make_plan(quick(wanted[request.param]))


@pytest.mark.slow
def test_the_best_plan_is_sound_and_exported(plan: Plan) -> None:
    assert plan.search.target == AREAL.name
    gap = plan.iteration_seconds / plan.lower_bound_seconds - 1
    assert plan.search.status == "optimal" or gap <= AREAL.simplicity_tolerance
    assert violations(resolve(plan.spec), plan) == []
    assert AREAL.name in plan.runs_with
    assert export(plan, AREAL.name).files["areal.yaml"]


def test_rollouts_are_apart_and_models_keep_one_micro_batch(plan: Plan) -> None:
    kinds = {copy.id: copy.kind for copy in plan.copies}
    sizes: dict[str, set[int | None]] = {}
    for call in plan.calls:
        if call.kind == "generate":
            assert kinds[call.copy_id or ""] == "shadow"
        elif call.copy_id:
            sizes.setdefault(call.copy_id, set()).add(call.micro_batch_size)
    assert {len(each) for each in sizes.values()} == {1}


def test_what_trains_and_scores_never_runs_side_by_side() -> None:
    plan = plan_of(SAMPLE["ppo, each apart"])
    calls = [call for call in plan.calls if call.kind != "generate" and call.copy_id]
    calls.sort(key=lambda call: call.start_seconds)
    named = [f"{call.role}.{call.kind}" for call in calls]
    assert named == [
        "critic.forward",
        "reference.forward",
        "actor.forward",
        "actor.train",
        "critic.train",
    ]
    assert all(
        one.end_seconds <= other.start_seconds + 1e-5 for one, other in itertools.pairwise(calls)
    )


def test_turns_order_calls_and_close_the_iteration() -> None:
    def call(role: str, kind: str) -> Call:
        return Call.model_validate(
            {"id": f"{role}.{kind}", "role": role, "model": role, "kind": kind, "num_sequences": 1}
        )

    calls = (call("a", "generate"), call("a", "forward"), call("b", "forward"), call("a", "train"))
    edges = tuple(
        Edge(source=one, target=other)
        for one, other in (
            ("a.generate", "a.forward"),
            ("a.generate", "b.forward"),
            ("a.forward", "a.train"),
            ("b.forward", "a.train"),
        )
    )
    flow = Dataflow(calls=calls, edges=edges)
    found = in_turns(flow, (("b", "forward"), ("a", "forward"), ("a", "train")))
    assert [each.id for each in found.calls] == ["a.generate", "b.forward", "a.forward", "a.train"]
    new = [(e.source, e.target, e.distance) for e in found.edges if e not in edges]
    assert new == [("b.forward", "a.forward", 0), ("a.train", "b.forward", 1)]
    assert in_turns(flow, ()) == flow


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_every_form_runs_with_it(name: str) -> None:
    assert AREAL.name in plan_of(SAMPLE[name]).runs_with


@pytest.mark.parametrize(
    ("laid", "changes", "words"),
    [
        (SAMPLE["grpo"], {"actor": {"offload": "weights"}}, "offload is none"),
        (SAMPLE["ppo"], {"critic": {"first_gpu": 4}}, "equal or disjoint"),
        (SAMPLE["ppo"], {"critic": {"first_gpu": 8}}, "share GPUs"),
    ],
)
def test_the_check_refuses_other_placements(
    laid: Laid, changes: dict[str, dict[str, Any]], words: str
) -> None:
    plan = plan_of(laid)
    copies = [copy.model_copy(update=changes.get(copy.id, {})) for copy in plan.placement().copies]
    placement = plan.placement().model_copy(update={"copies": copies})
    found = refusals(resolve(plan.spec), placement, AREAL)
    assert any(words in line for line in found), found


def test_the_check_refuses_layouts_and_settings_that_areal_lacks() -> None:
    grpo, mixture = plan_of(SAMPLE["grpo"]), plan_of(SAMPLE["mixture"])
    seven = relaid(
        grpo, "actor", tensor_parallel_size=1, pipeline_parallel_size=8, data_parallel_size=1
    )
    sharded = {"expert_parallel_size": 1, "sharding": "full"}
    changes = {
        "divides the 28 layers": seven,
        "one micro_batch_size": changed(grpo, "calls", "actor.train", micro_batch_size=8),
        "data ranks divide the 256": relaid(
            grpo, "actor", data_parallel_size=3, tensor_parallel_size=1
        ),
        "tensor_parallel_size is 1": relaid(mixture, "actor", **sharded),
    }
    for words, plan in changes.items():
        found = refusals(resolve(plan.spec), plan.placement(), AREAL)
        assert any(words in line for line in found), (words, found)
    together = grpo.placement()
    calls = [
        call.model_copy(update={"copy_id": "actor"}) if call.kind == "generate" else call
        for call in together.calls
    ]
    copies = [copy for copy in together.copies if copy.kind == "home"]
    placement = together.model_copy(update={"calls": calls, "copies": copies})
    found = refusals(resolve(grpo.spec), placement, AREAL)
    assert any("generates on GPUs of their own" in line for line in found), found


def test_engines_take_prompts_one_by_one() -> None:
    """Of the 64 prompts 48 ranks that train would take no whole number; engines may be as many."""
    grpo = plan_of(SAMPLE["grpo"])
    three = relaid(grpo, "actor.shadow", data_parallel_size=3, tensor_parallel_size=1)
    found = refusals(resolve(three.spec), three.placement(), AREAL)
    assert not any("prompts" in line for line in found), found


def test_engines_may_differ_from_model_to_model() -> None:
    plan = plan_of(SAMPLE["ppo, critic apart"])
    engines = {copy.role: copy.engine for copy in plan.copies if copy.kind == "home"}
    assert engines == {"actor": "megatron", "reference": "fsdp", "critic": "fsdp"}
    assert AREAL.name in plan_of(Laid(PPO, "critic apart", FSDP, tensor=1)).runs_with


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (SMALL.but(algorithm="remax"), "algorithm"),
        (SMALL.but(algorithm="dapo"), "algorithm"),
        (SMALL.but(workload=(("kl", "loss"),)), "workload.kl"),
        (SMALL.but(workload=(("epochs", 2),)), "workload.epochs"),
        (SMALL.but(workload=(("optimizer", "sgd"),)), "workload.optimizer"),
        (SMALL.but(workload=(("packed_sequences", False),)), "workload.packed_sequences"),
        (SMALL.but(workload=(("rollout_precision", "fp8"),)), "workload.rollout_precision"),
        (SMALL.but(reward_model=True), "models.reward"),
        (SMALL.but(engine="fsdp", lora=8), "models.actor"),
    ],
)
def test_a_job_that_areal_cannot_run_is_refused_by_its_field(wanted: Wanted, field: str) -> None:
    with pytest.raises(SpecError, match="cannot run this job") as error:
        resolve(job(wanted))
    assert f"cannot run this job: {field}:" in error.value.message


@pytest.mark.slow
@pytest.mark.parametrize("number", [8, 27, 43, 49, 84, 93, 98])
def test_random_jobs_that_it_can_run_are_exported(number: int) -> None:
    spec = job_for("areal@1.0.4", drawn(0, number))
    assert outcome(spec, AREAL.name)[:2] == ("exported", "")
