"""Plans inside OpenRLHF: what search and check hold them to, by a search of every way to share."""

from itertools import product
from typing import Any

import pytest

from automap.planner import Plan, export
from automap.planner.check.check import violations
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.plan.forms import lack_of
from automap.planner.plan.runs_with import refusals
from automap.planner.planning import estimate, make_plan
from automap.planner.spec import JobSpec
from automap.planner.targets.forms import Form
from automap.planner.targets.openrlhf import OPENRLHF
from tests.helpers.framework_plans import Wanted
from tests.helpers.openrlhf_plans import SAMPLE, Laid, job, plan_of

SMALL = Wanted(model="qwen2.5-1.5b", num_nodes=1)


def quick(wanted: Wanted, *, seconds: float = 10.0) -> JobSpec:
    spec = job(wanted)
    search = spec.search.model_copy(update={"time_limit_seconds": seconds})
    return spec.model_copy(update={"search": search})


@pytest.fixture(scope="module", params=["grpo", "ppo", "ahead"])
def plan(request: pytest.FixtureRequest) -> Plan:
    wanted = {
        "grpo": SMALL,
        "ppo": SMALL.but(algorithm="ppo", num_nodes=2, reward_model=True),
        "ahead": SMALL.but(staleness=1),
    }
    return make_plan(quick(wanted[request.param]))


@pytest.mark.slow
def test_the_best_plan_is_sound_proven_and_exported(plan: Plan) -> None:
    assert plan.search.target == OPENRLHF.name
    assert plan.search.status == "optimal"
    assert violations(resolve(plan.spec), plan) == []
    assert OPENRLHF.name in plan.runs_with
    assert export(plan, OPENRLHF.name).target == OPENRLHF.name
    homes = [copy for copy in plan.copies if copy.kind == "home"]
    assert {copy.engine for copy in homes} == {"zero"}
    full = {copy.layout.sharding == "full" for copy in homes if copy.num_gpus > 1}
    assert len(full) == 1


@pytest.mark.slow
def test_no_placement_of_any_form_is_below_the_bound() -> None:
    wanted = SMALL.but(algorithm="ppo")
    best = make_plan(quick(wanted.but(num_nodes=2), seconds=4.0))
    for sharding, tensor in product(("optimizer", "full"), (1, 2)):
        other = plan_of(Laid(wanted, "two groups", sharding, tensor=tensor, train=8, score=16))
        assert OPENRLHF.name in other.runs_with
        assert best.lower_bound_seconds <= other.iteration_seconds


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_every_form_runs_with_it(name: str) -> None:
    plan = plan_of(SAMPLE[name])
    # Micro-batches of three leave a remainder, which the export says in tokens.
    assert (OPENRLHF.name in plan.runs_with) == (name != "tokens")


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("ppo", {"critic": {"offload": "none"}}, "offload none and optimizer"),
        ("ppo", {"critic": {"offload": "none"}, "actor": {"offload": "none"}}, "not optimizer"),
        ("ppo in two groups", {"actor": {"offload": "optimizer"}}, "not none"),
        ("grpo", {"reference": {"offload": "weights"}}, "offload is none"),
        ("ppo in two groups", {"reference": {"first_gpu": 8}}, "on different GPUs"),
        ("ppo, a reward model, apart", {"critic": {"first_gpu": 0}}, "share GPUs"),
        ("ahead", {"critic": {"first_gpu": 8}}, "GPUs of their own"),
    ],
)
def test_the_check_refuses_other_ways(
    name: str, changes: dict[str, dict[str, Any]], words: str
) -> None:
    plan = plan_of(SAMPLE[name])
    copies = [copy.model_copy(update=changes.get(copy.id, {})) for copy in plan.placement().copies]
    placement = plan.placement().model_copy(update={"copies": copies})
    assert refusals(resolve(plan.spec), plan.placement(), OPENRLHF) == []
    found = refusals(resolve(plan.spec), placement, OPENRLHF)
    assert any(words in line for line in found), found


@pytest.mark.parametrize("sharding", ["optimizer", "none"])
def test_the_check_refuses_shardings_that_differ(sharding: str) -> None:
    plan = plan_of(SAMPLE["ppo"])
    other = {"sharding": sharding}
    role = "critic" if sharding == "optimizer" else "reference"
    copies = [
        copy.model_copy(update={"layout": copy.layout.model_copy(update=other)})
        if copy.id == role
        else copy
        for copy in plan.placement().copies
    ]
    placement = plan.placement().model_copy(update={"copies": copies})
    found = refusals(resolve(plan.spec), placement, OPENRLHF)
    assert any("has one for all" in line or "has all models so" in line for line in found), found


def test_an_engine_runs_as_many_sequences_as_vllm_does_by_default() -> None:
    laid = Laid(SMALL, tensor=4)
    known = plan_of(laid)
    free = known.spec.model_copy(
        update={"search": known.spec.search.model_copy(update={"target": "any"})}
    )
    seconds = {
        each.spec.search.target: call.end_seconds - call.start_seconds
        for each in (known, estimate(free, known.placement()))
        for call in each.calls
        if call.kind == "generate"
    }
    # 512 sequences on each engine: 128 at once take longer.
    assert seconds[OPENRLHF.name] > 1.5 * seconds["any"]


def test_forms_say_who_is_where() -> None:
    form = Form("", False, (frozenset("ab"), frozenset("cd")), True, None)
    assert form.together("abc") == [("a", "b")]
    assert form.separate("abc") == [("a", "c"), ("b", "c")]
    assert form.offload(["a", "b"]) == {"optimizer"}
    assert form.offload(["a", "c"]) == {"none"}
    assert form.offload(["a"]) == {"none", "optimizer"}
    needy = Form("", False, (), True, False, needs="c")
    assert not needy.suits("ab", staleness=0)
    assert not needy.suits("abc", staleness=1)
    plan = plan_of(SAMPLE["ppo"])
    [whole] = [each for each in OPENRLHF.forms if each.joined and each.stale is False][:1]
    assert lack_of(resolve(plan.spec), plan.placement(), whole) is None


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (SMALL.but(algorithm="remax"), "algorithm"),
        (SMALL.but(workload=(("optimizer", "sgd"),)), "workload.optimizer"),
        (SMALL.but(workload=(("old_log_probs", "rollout"),)), "workload.old_log_probs"),
        (SMALL.but(workload=(("rollout_engine", "sglang"),)), "workload.rollout_engine"),
        (SMALL.but(workload=(("precision", "fp16"),)), "workload.rollout_precision"),
        (SMALL.but(engine="fsdp", lora=8), "models.actor"),
    ],
)
def test_a_job_that_openrlhf_cannot_run_is_refused_by_its_field(wanted: Wanted, field: str) -> None:
    with pytest.raises(SpecError, match="cannot run this job") as error:
        resolve(job(wanted))
    assert f"cannot run this job: {field}:" in error.value.message
