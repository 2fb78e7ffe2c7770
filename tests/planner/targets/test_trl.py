"""Plans inside TRL: what search and check hold them to."""

from contextlib import suppress
from itertools import product
from random import Random
from typing import Any

import pytest

from automap.planner import Plan, export
from automap.planner.check.check import violations
from automap.planner.errors import InfeasibleError, SpecError
from automap.planner.job.resolution import resolve
from automap.planner.plan.runs_with import refusals
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.planner.studies.conversion import inside_another
from automap.planner.studies.target_cost import target_cost
from automap.planner.targets.tables import inside
from automap.planner.targets.trl import TRL
from tests.helpers.framework_plans import Wanted, spec_of
from tests.helpers.trl_plans import NO_DIVERGENCE, SAMPLE, SMALL, Laid, job, placement_of, plan_of


def quick(wanted: Wanted, *, seconds: float = 10.0) -> JobSpec:
    spec = job(wanted)
    search = spec.search.model_copy(update={"time_limit_seconds": seconds})
    return spec.model_copy(update={"search": search})


@pytest.fixture(
    scope="module",
    params=[
        SMALL.but(num_nodes=1),
        SMALL.but(algorithm="rloo", num_nodes=2),
        Wanted(model="qwen3-30b-a3b", num_nodes=2),
    ],
    ids=["grpo", "rloo", "mixture"],
)
def plan(request: pytest.FixtureRequest) -> Plan:
    return make_plan(quick(request.param))


def test_the_best_plan_is_sound_proven_and_exported(plan: Plan) -> None:
    assert plan.search.target == TRL.name
    assert plan.search.status == "optimal"
    assert violations(resolve(plan.spec), plan) == []
    assert TRL.name in plan.runs_with
    assert export(plan, TRL.name).target == TRL.name
    homes = [copy for copy in plan.copies if copy.kind == "home"]
    assert {copy.engine for copy in homes} == {"zero"}
    assert len({(copy.first_gpu, copy.num_gpus) for copy in homes}) == 1
    assert len({call.micro_batch_size for call in plan.calls if call.micro_batch_size}) == 1


@pytest.mark.slow
def test_no_placement_is_below_the_bound() -> None:
    wanted = SMALL.but(num_nodes=1)
    best = make_plan(quick(wanted))
    for sharding, tensor, micro in product(("optimizer", "full"), (1, 2), (4, 8)):
        for trainer, server in ((8, 0), (4, 4)):
            laid = Laid(SMALL, trainer, server, sharding, tensor, micro)
            other = plan_of(laid)
            assert TRL.name in other.runs_with
            assert best.lower_bound_seconds <= other.iteration_seconds


@pytest.mark.parametrize("name", SAMPLE)
def test_every_form_runs_with_it(name: str) -> None:
    assert TRL.name in plan_of(SAMPLE[name]).runs_with


@pytest.mark.parametrize(
    ("name", "copies", "calls", "words"),
    [
        ("grpo", {"actor": {"offload": "optimizer"}}, {}, "offload is none"),
        ("grpo", {"reference": {"offload": "weights"}}, {}, "offload is none"),
        ("server on the node", {"reference": {"first_gpu": 4}}, {}, "lie on GPUs"),
        ("grpo", {}, {"reference.forward": {"micro_batch_size": 8}}, "has one micro_batch_size"),
        ("grpo", {}, {"actor.train": {"recompute": "selective"}}, "has no recompute selective"),
    ],
)
def test_the_check_refuses_other_ways(
    name: str, copies: dict[str, Any], calls: dict[str, Any], words: str
) -> None:
    plan = plan_of(SAMPLE[name])
    placement = plan.placement()
    assert refusals(resolve(plan.spec), placement, TRL) == []
    changed = placement.model_copy(
        update={
            "copies": [c.model_copy(update=copies.get(c.id, {})) for c in placement.copies],
            "calls": [c.model_copy(update=calls.get(c.id, {})) for c in placement.calls],
        }
    )
    found = refusals(resolve(plan.spec), changed, TRL)
    assert any(words in line for line in found), found


def test_a_server_is_in_one_node_and_one_replica_of_a_mixture() -> None:
    two = Laid(SMALL, trainer=8, server=16)
    spec = job(SMALL.but(num_nodes=3))
    found = refusals(resolve(spec), placement_of(two, spec), TRL)
    assert any("one node of 8 GPUs" in line for line in found), found
    mixture = Wanted(model="qwen3-30b-a3b")
    laid = Laid(mixture, trainer=8, server=8, tensor=4)
    spec = job(mixture.but(num_nodes=2))
    found = refusals(resolve(spec), placement_of(laid, spec), TRL)
    assert any("data_parallel_size is 1" in line for line in found), found


def drawn(seed: int) -> JobSpec:
    """A job that TRL has all of."""
    draw = Random(seed)
    responses = draw.choice((2, 4, 6, 8))
    longest = draw.choice((700, 2048, 6000))
    wanted = Wanted(
        algorithm=draw.choice(("grpo", "rloo")),
        model=draw.choice(("qwen2.5-0.5b", "qwen2.5-7b", "qwen3-30b-a3b")),
        num_nodes=draw.choice((1, 2, 3)),
        workload=(
            ("prompts_per_iteration", draw.choice((48, 64, 120, 512))),
            ("responses_per_prompt", responses),
            ("response_length", {"mean": longest / 3, "max": longest}),
            ("updates_per_epoch", draw.choice((1, 2, 4))),
            ("epochs", draw.choice((1, 2))),
            ("kl", "none") if draw.random() < 0.4 else ("turns", 1),
        ),
    )
    return quick(wanted, seconds=3.0)


@pytest.mark.slow
def test_whatever_is_planned_there_is_exported() -> None:
    found = 0
    for seed in range(12):
        with suppress(InfeasibleError):
            plan = make_plan(drawn(seed))
            assert set(export(plan, TRL.name).files) == {"accelerate.yaml", "trainer.yaml"}
            found += 1
    # The others fit on no such cluster.
    assert found >= 6


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (SMALL.but(algorithm="ppo"), "algorithm"),
        (SMALL.but(algorithm="dapo"), "algorithm"),
        (SMALL.but(reward_model=True), "models.reward"),
        (SMALL.but(staleness=1), "search.staleness"),
        (SMALL.but(workload=(("packed_sequences", True),)), "workload.packed_sequences"),
        (SMALL.but(workload=(("kl", "reward"),)), "workload.kl"),
        (SMALL.but(algorithm="rloo", workload=(("kl", "loss"),)), "workload.kl"),
        (SMALL.but(workload=(("turns", 2),)), "workload.turns"),
        (SMALL.but(workload=(("optimizer", "sgd"),)), "workload.optimizer"),
        (SMALL.but(workload=(("rollout_engine", "sglang"),)), "workload.rollout_engine"),
        (SMALL.but(engine="fsdp", lora=8), "models.actor"),
    ],
)
def test_a_job_that_trl_cannot_run_is_refused_by_its_field(wanted: Wanted, field: str) -> None:
    with pytest.raises(SpecError, match="cannot run this job") as error:
        resolve(job(wanted))
    assert f"cannot run this job: {field}:" in error.value.message


@pytest.mark.slow
def test_what_padding_costs_is_a_limit_by_itself() -> None:
    found = target_cost(spec_of(SMALL.but(num_nodes=1)), TRL.name)
    assert found.share is not None
    padded = next(each for each in found.limits if each.limit == "sequences that are padded")
    assert 0.1 < padded.share <= found.share
    assert found.limits[0] == padded


def test_what_a_spec_leaves_open_is_as_trl_has_it() -> None:
    for algorithm, place in (("grpo", "loss"), ("rloo", "reward")):
        workload = inside(spec_of(SMALL.but(algorithm=algorithm)), TRL.name).workload
        assert (workload.kl, workload.packed_sequences) == (place, False)
    none = inside(spec_of(NO_DIVERGENCE), TRL.name).workload
    assert none.kl == "none"
    packed = spec_of(SMALL.but(workload=(("packed_sequences", True), ("kl", "reward"))))
    converted = inside_another(packed, TRL.name).workload
    assert (converted.kl, converted.packed_sequences) == ("loss", False)
    other = inside(spec_of(SMALL), "openrlhf@0.11.2").workload
    assert (other.kl, other.packed_sequences) == ("reward", True)
