"""Plans inside SkyRL: what search and check hold them to, with pools per role and calls in turn."""

import random
from itertools import combinations, product
from typing import Any

import pytest

from automap.planner import Plan, export
from automap.planner.check.check import violations
from automap.planner.errors import SpecError
from automap.planner.imports.importing import import_launch
from automap.planner.imports.launch import Answers, LaunchFile
from automap.planner.job.resolution import resolve, with_table
from automap.planner.plan.runs_with import refusals
from automap.planner.plan.types import Parallelism
from automap.planner.planning import estimate, make_plan
from automap.planner.spec import JobSpec
from automap.planner.targets.limits import limits
from automap.planner.targets.skyrl import SKYRL
from tests.helpers.framework_plans import Wanted
from tests.helpers.skyrl_plans import SAMPLE, Laid, job, plan_of

SMALL = Wanted(model="qwen2.5-1.5b", num_nodes=1, workload=(("updates_per_epoch", 1),))


def quick(wanted: Wanted, *, seconds: float = 10.0) -> JobSpec:
    spec = job(wanted)
    search = spec.search.model_copy(update={"time_limit_seconds": seconds})
    return spec.model_copy(update={"search": search})


@pytest.fixture(scope="module", params=["grpo", "ppo", "ahead"])
def plan(request: pytest.FixtureRequest) -> Plan:
    wanted = {
        "grpo": SMALL,
        "ppo": SMALL.but(algorithm="ppo"),
        "ahead": SMALL.but(staleness=1),
    }
    return make_plan(quick(wanted[request.param], seconds=30.0))


@pytest.mark.slow
def test_the_best_plan_is_sound_proven_and_exported(plan: Plan) -> None:
    assert plan.search.target == SKYRL.name
    assert plan.search.status == "optimal"
    assert violations(resolve(plan.spec), plan) == []
    assert SKYRL.name in plan.runs_with
    assert export(plan, SKYRL.name).target == SKYRL.name
    assert len({copy.engine for copy in plan.copies if copy.kind == "home"}) == 1


def test_models_work_one_after_another_the_actor_last(plan: Plan) -> None:
    period = plan.iteration_seconds
    at_work = [call for call in plan.calls if call.kind != "generate" and call.copy_id]
    for one, other in combinations(at_work, 2):
        after = (other.start_seconds - one.start_seconds) % period
        assert after >= one.end_seconds - one.start_seconds - 1e-6 * period
        assert after + other.end_seconds - other.start_seconds <= period * (1 + 1e-6)
    order = [call.id for call in resolve(plan.spec).dataflow.calls if call.kind == "train"]
    assert order[-1] == "actor.train"


@pytest.mark.slow
def test_pools_of_their_own_are_used_where_they_gain() -> None:
    """With rollouts ahead the critic stays on GPUs of its own, and is never moved."""
    found = make_plan(quick(SMALL.but(algorithm="ppo", num_nodes=3, staleness=2)))
    copies = {copy.id: copy for copy in found.copies}
    assert copies["critic"].first_gpu != copies["actor"].first_gpu
    assert (copies["critic"].offload, copies["reference"].offload) == ("none", "weights")


@pytest.mark.slow
def test_no_placement_of_any_form_is_below_the_bound() -> None:
    wanted = SMALL.but(algorithm="ppo", staleness=1)
    best = make_plan(quick(wanted.but(num_nodes=3), seconds=6.0))
    for sharding, engine in product(("gradient", "full"), (1, 2)):
        other = plan_of(Laid(wanted, "apart", sharding, engine=engine, train=8, score=8))
        assert SKYRL.name in other.runs_with
        assert best.lower_bound_seconds <= other.iteration_seconds


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_every_form_runs_with_it(name: str) -> None:
    plan = plan_of(SAMPLE[name])
    # Micro-batches of three leave a remainder, which the export says in tokens.
    assert (SKYRL.name in plan.runs_with) == (name != "tokens")


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("ppo", {"critic": {"offload": "none"}}, "offload of critic is none, not weights"),
        ("ppo, the critic apart", {"critic": {"offload": "weights"}}, "is weights, not none"),
        ("ppo, the critic apart", {"critic": {"first_gpu": 0}}, "actor and critic share GPUs"),
        ("ppo, each apart", {"reference": {"offload": "weights"}}, "is weights, not none"),
        ("ppo, each apart", {"reference": {"first_gpu": 16}}, "critic and reference share GPUs"),
        ("grpo", {"actor": {"offload": "optimizer"}}, "offload is none or weights"),
    ],
)
def test_the_check_refuses_other_ways(
    name: str, changes: dict[str, dict[str, Any]], words: str
) -> None:
    plan = plan_of(SAMPLE[name])
    copies = [copy.model_copy(update=changes.get(copy.id, {})) for copy in plan.placement().copies]
    placement = plan.placement().model_copy(update={"copies": copies})
    assert refusals(resolve(plan.spec), plan.placement(), SKYRL) == []
    found = refusals(resolve(plan.spec), placement, SKYRL)
    assert any(words in line for line in found), found


def test_without_the_order_calls_may_overlap_again() -> None:
    laid = SAMPLE["ppo, each apart"]
    ordered = plan_of(laid)
    spec = ordered.spec.model_copy(
        update={"search": ordered.spec.search.model_copy(update={"target": "any"})}
    )
    calls = {call.id: call for call in ordered.placement().calls}
    in_program = [calls[call.id] for call in resolve(spec).dataflow.calls]
    free = estimate(spec, ordered.placement().model_copy(update={"calls": in_program}))
    assert free.iteration_seconds < ordered.iteration_seconds
    [lifted] = [table for words, table in limits(SKYRL) if words.startswith("one after another")]
    job_of_it = resolve(ordered.spec)
    assert with_table(job_of_it, lifted).dataflow == resolve(spec).dataflow
    assert with_table(job_of_it, SKYRL).dataflow == job_of_it.dataflow


ROLLOUT = (("updates_per_epoch", 1), ("old_log_probs", "rollout"))


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (SMALL.but(algorithm="remax"), "algorithm"),
        (SMALL.but(reward_model=True), "models.reward"),
        (SMALL.but(workload=(("optimizer", "sgd"),)), "workload.optimizer"),
        (SMALL.but(workload=ROLLOUT), "workload.old_log_probs"),
        (SMALL.but(staleness=1, workload=()), "workload.updates_per_epoch"),
        (SMALL.but(workload=(("rollout_engine", "sglang"),)), "workload.rollout_engine"),
        (SMALL.but(workload=(("precision", "fp16"),)), "workload.rollout_precision"),
        (SMALL.but(engine="fsdp", lora=8), "models.actor"),
    ],
)
def test_a_job_that_skyrl_cannot_run_is_refused_by_its_field(wanted: Wanted, field: str) -> None:
    with pytest.raises(SpecError, match="cannot run this job") as error:
        resolve(job(wanted))
    assert f"cannot run this job: {field}:" in error.value.message


def test_log_probabilities_of_the_rollout_are_taken_without_divergence_in_the_reward() -> None:
    resolve(job(SMALL.but(workload=(*ROLLOUT, ("kl", "loss")))))


def random_job(seed: int) -> Wanted:
    """A job that SkyRL may run, with everything that it has drawn by its number."""
    draw = random.Random(seed)
    algorithm = draw.choice(["ppo", "grpo", "rloo", "reinforce_plus_plus", "dapo"])
    staleness = 0 if algorithm == "rloo" else draw.choice([0, 0, 1, 3])
    kl = draw.choice(["none", "reward", "loss"])
    workload: list[tuple[str, Any]] = [
        ("updates_per_epoch", 1 if staleness else draw.choice([1, 2, 4])),
        ("epochs", draw.choice([1, 1, 2])),
        ("kl", kl),
        ("old_log_probs", draw.choice(["recompute", "recompute" if kl == "reward" else "rollout"])),
        ("packed_sequences", draw.random() < 0.8),
        ("turns", draw.choice([1, 1, 3])),
        ("prompts_per_iteration", draw.choice([64, 96, 256])),
    ]
    if algorithm == "dapo":
        workload.append(("expected_acceptance", draw.choice([0.4, 1.0])))
    return Wanted(
        algorithm=algorithm,
        model=draw.choice(["qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b"]),
        num_nodes=draw.choice([1, 2, 3]),
        staleness=staleness,
        workload=tuple(workload),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_every_plan_of_a_job_is_exported_and_read_back(seed: int) -> None:
    wanted = random_job(seed)
    spec = quick(wanted, seconds=5.0)
    models = {k: m for k, m in spec.models.items() if k != "reference" or wanted_kl(wanted)}
    plan = make_plan(spec.model_copy(update={"models": models}))
    launch = export(plan, SKYRL.name)
    answers = Answers(
        "h100",
        {each.variable: f"/m/{wanted.model}" for each in launch.placeholders}
        | {"NODE_RANK": "0", "HEAD_ADDRESS": "a"},
        prompt_length=spec.workload.prompt_length,
        response_length=spec.workload.response_length,
    )
    found = import_launch([LaunchFile("a.sh", launch.script)], SKYRL.name, answers)
    given, again = (
        {(c.id, as_sharded(c.layout), c.offload, c.num_gpus) for c in placement.copies}
        for placement in (plan.placement(), found.placement)
    )
    assert again == given


def as_sharded(layout: Parallelism) -> Parallelism:
    """The layout; with one data rank, of which every sharding is the same, without one."""
    ranks = layout.data_parallel_size * layout.context_parallel_size
    return layout if ranks > 1 else layout.model_copy(update={"sharding": "none"})


def wanted_kl(wanted: Wanted) -> bool:
    """Whether a job has a divergence, and so a reference."""
    return bool(dict(wanted.workload)["kl"] != "none")
