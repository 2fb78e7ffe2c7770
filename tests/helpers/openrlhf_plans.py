"""Plans for OpenRLHF, made of a placement each, in every way in which its models share GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from automap.planner import Launch
from automap.planner.exports.openrlhf.settings import launch_of
from automap.planner.exports.subject import subject_of
from automap.planner.frameworks import framework
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Parallelism, Placement, Plan
from automap.planner.planning import estimate
from automap.planner.spec import JobSpec
from automap.planner.targets.tables import inside
from tests.helpers.framework_plans import Wanted, home, misplaced, placed, spec_of

OPENRLHF = framework("openrlhf@0.11.2")
EACH = 8
FORMS: dict[str, dict[str, int]] = {
    "together": {"actor": 0, "reference": 0, "critic": 0, "reward": 0, "rollout": 0},
    "two groups": {"actor": 0, "reference": 0, "critic": 1, "reward": 1, "rollout": 0},
    "apart": {"actor": 0, "reference": 0, "critic": 1, "reward": 1, "rollout": 2},
    "each apart": {"actor": 0, "reference": 1, "critic": 2, "reward": 3, "rollout": 4},
    "ahead": {"actor": 0, "reference": 0, "critic": 0, "reward": 0, "rollout": 1},
}
"""Form → role → number of its group of GPUs, a node each."""


@dataclass(frozen=True, slots=True)
class Laid:
    """A job, and how it is placed."""

    wanted: Wanted
    form: str = "together"
    sharding: str = "full"
    context: int = 1
    tensor: int = 1
    """Of an engine."""
    train: int = 4
    score: int = 8
    recompute: str = "none"

    def but(self, **changes: Any) -> "Laid":
        return replace(self, **changes)


def job(wanted: Wanted) -> JobSpec:
    return inside(spec_of(wanted), OPENRLHF.target)  # type: ignore[arg-type]


def plan_of(laid: Laid) -> Plan:
    """The plan, priced and checked."""
    used = set(FORMS[laid.form].values())
    spec = job(laid.wanted.but(num_nodes=len(used), staleness=int(laid.form == "ahead")))
    return estimate(spec, placement_of(laid, spec))


def placement_of(laid: Laid, spec: JobSpec) -> Placement:
    groups, models = FORMS[laid.form], resolve(spec).models
    trained = [role for role, model in models.items() if model.trainable]
    joined = len({groups[role] for role in trained}) < len(trained)
    copies = [
        home(
            role,
            groups[role] * EACH,
            EACH,
            _layout(laid, trains=role in trained),
            offload="optimizer" if joined and role in trained else "none",
        )
        for role in models
    ]
    return placed(
        spec,
        copies,
        Parallelism(tensor_parallel_size=laid.tensor, data_parallel_size=EACH // laid.tensor),
        apart_from=groups["rollout"] * EACH if groups["rollout"] != groups["actor"] else None,
        train=laid.train,
        score=laid.score,
        recompute=laid.recompute,
    )


def _layout(laid: Laid, *, trains: bool) -> Parallelism:
    sharding = laid.sharding if trains or laid.sharding == "full" else "none"
    layout = {"context_parallel_size": laid.context, "data_parallel_size": EACH // laid.context}
    return Parallelism.model_validate(layout | {"sharding": sharding})


SMALL = Wanted(model="qwen2.5-1.5b")
SAMPLE = {
    "grpo": Laid(SMALL),
    "ppo": Laid(SMALL.but(algorithm="ppo"), recompute="full"),
    "ppo in two groups": Laid(SMALL.but(algorithm="ppo"), "two groups", sharding="gradient"),
    "ppo, a reward model, in two groups": Laid(
        SMALL.but(algorithm="ppo", reward_model=True), "two groups"
    ),
    "ppo, a reward model, together": Laid(SMALL.but(algorithm="ppo", reward_model=True)),
    "ppo, a reward model, apart": Laid(SMALL.but(algorithm="ppo", reward_model=True), "apart"),
    "each apart": Laid(SMALL.but(algorithm="ppo", reward_model=True), "each apart"),
    "ahead": Laid(SMALL.but(algorithm="ppo", reward_model=True), "ahead", tensor=2),
    "reward model ahead": Laid(SMALL.but(reward_model=True), "ahead", sharding="optimizer"),
    "reinforce++ without divergence": Laid(
        SMALL.but(algorithm="reinforce_plus_plus", workload=(("kl", "loss"),)), context=2
    ),
    "rloo": Laid(SMALL.but(algorithm="rloo"), tensor=2, train=2),
    "dapo": Laid(SMALL.but(algorithm="dapo", workload=(("expected_acceptance", 0.5),))),
    "tokens": Laid(SMALL, train=3),
    "padded": Laid(SMALL.but(workload=(("packed_sequences", False), ("epochs", 2)))),
    "turns": Laid(
        SMALL.but(
            workload=(
                ("turns", 3),
                ("checkpoint_every_iterations", 10),
                ("checkpoint_seconds", 5.0),
            )
        )
    ),
}
"""Plans of every form that OpenRLHF can be told."""


def varied(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """The plans in every sharding, with sequences whole or split, and with engines of any size.

    They are not priced anew, so hundreds take no time.
    """
    found = {}
    sizes = product(plans.items(), ("optimizer", "gradient", "full"), (1, 2), (1, 2, 4))
    for (name, plan), sharding, context, tensor in sizes:
        if context > 1 and not plan.spec.workload.packed_sequences:
            continue
        laid = Laid(SMALL, sharding=sharding, context=context)
        trained = {call.role for call in plan.calls if call.kind == "train"}
        generated = {"tensor_parallel_size": tensor, "data_parallel_size": EACH // tensor}
        layouts = {
            copy.id: copy.layout.model_copy(update=generated)
            if copy.kind == "shadow"
            else _layout(laid, trains=copy.role in trained)
            for copy in plan.copies
        }
        engine = Parallelism.model_validate(generated)
        update = {
            "copies": [c.model_copy(update={"layout": layouts[c.id]}) for c in plan.copies],
            "calls": [
                call.model_copy(
                    update={
                        "parallelism": engine
                        if call.kind == "generate"
                        else layouts.get(call.copy_id or "")
                    }
                )
                for call in plan.calls
            ],
        }
        found[f"{name} {sharding} {context} {tensor}"] = plan.model_copy(update=update)
    return found


def launch(plan: Plan) -> Launch:
    """The launch of a plan, whatever is refused of it."""
    return launch_of(subject_of(resolve(plan.spec), plan, OPENRLHF))


def given(launch: Launch) -> dict[str, str]:
    """Arguments that are there → value."""
    return {each.key: each.value for each in launch.settings if each.value not in ("None", "False")}


def words_of(launch: Launch, values: Mapping[str, str] | None = None) -> list[str]:
    """The arguments as the settings have them, without a shell between."""
    types = {key: s.type for s in OPENRLHF.settings for key in s.keys.values()}
    words: list[str] = []
    filled = {"KL_COEFFICIENT": "0.01", **(values or {})}
    for each in launch.settings:
        if each.value in ("None", "False"):
            continue
        if types.get(each.key, "number") == "flag":
            words.append(each.key)
        elif each.placeholder:
            words += [each.key, filled.get(each.value, "x")]
        else:
            words += [each.key, *each.value.split()]
    return words


def differences(plan: Plan, verdict: Mapping[str, Any]) -> list[str]:
    """Where what OpenRLHF would run is not what the plan says."""
    if "error" in verdict:
        return [str(verdict["error"])]
    return misplaced(plan, verdict["members"]) or _values(plan, verdict)


def _values(plan: Plan, verdict: Mapping[str, Any]) -> list[str]:
    workload, values, members = plan.spec.workload, verdict["values"], verdict["members"]
    actor = next(copy for copy in plan.copies if copy.role == "actor" and copy.kind == "home")
    call = next(call for call in plan.calls if call.kind == "generate")
    layout = actor.layout
    assert call.parallelism is not None
    stage = {"none": 0, "optimizer": 1, "gradient": 2, "full": 3}[layout.sharding]
    expected = {
        "--ds.zero_stage": stage,
        "--ds.ring_attn_size": layout.context_parallel_size,
        "--ds.tensor_parallel_size": layout.tensor_parallel_size,
        "--ds.enable_sleep": actor.offload == "optimizer",
        "--vllm.tensor_parallel_size": call.parallelism.tensor_parallel_size,
        "--rollout.batch_size": workload.prompts_per_iteration,
        "--rollout.n_samples_per_prompt": workload.responses_per_prompt,
        "--train.batch_size": workload.num_sequences // workload.updates_per_epoch,
        "--train.max_epochs": workload.epochs,
        "--ds.packing_samples": workload.packed_sequences,
        "--train.async_enable": plan.spec.search.staleness > 0,
        "--data.max_len": workload.prompt_length.max_tokens + workload.response_length.max_tokens,
    }
    found = [f"{k} is {values[k]!r}, not {v!r}" for k, v in expected.items() if values[k] != v]
    if members["rollout"]["sleeps"] != (members["rollout"]["group"] == members["actor"]["group"]):
        found.append("engines sleep where they need not")
    ranks = layout.context_parallel_size * layout.tensor_parallel_size
    if members["actor"]["duplicates"] != ranks:
        found.append(f"{members['actor']['duplicates']} ranks of a sequence, not {ranks}")
    return found
