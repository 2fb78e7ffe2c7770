"""Plans for SkyRL, made of a placement each, in every way in which its models share GPUs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from automap.planner import Launch
from automap.planner.exports.skyrl.program import PROGRAM
from automap.planner.exports.skyrl.settings import launch_of
from automap.planner.exports.subject import subject_of
from automap.planner.frameworks import framework
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Parallelism, Placement, Plan
from automap.planner.planning import estimate
from automap.planner.spec import JobSpec
from automap.planner.targets.tables import inside
from tests.helpers.framework_plans import (
    Wanted,
    home,
    misplaced,
    placed,
    spec_of,
    told_of_optimizer,
)

SKYRL = framework("skyrl@0.3.0")
EACH = 8
FORMS: dict[str, dict[str, int]] = {
    "together": {"actor": 0, "reference": 0, "critic": 0, "rollout": 0},
    "apart": {"actor": 0, "reference": 0, "critic": 1, "rollout": 2},
    "each apart": {"actor": 0, "reference": 1, "critic": 2, "rollout": 3},
}
"""Form → role → number of its group of GPUs, a node each."""


@dataclass(frozen=True, slots=True)
class Laid:
    """A job, and how it is placed."""

    wanted: Wanted
    form: str = "together"
    sharding: str = "full"
    """Of what trains; `optimizer` is Megatron."""
    context: int = 1
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    reference_tensor: int = 0
    """Of the reference; 0: the actor's."""
    engine: int = 1
    """Tensor size of an engine."""
    engine_expert: int = 1
    train: int = 4
    score: int = 4
    recompute: str = "none"

    def but(self, **changes: Any) -> "Laid":
        return replace(self, **changes)


def job(wanted: Wanted) -> JobSpec:
    return inside(spec_of(wanted), SKYRL.target)  # type: ignore[arg-type]


def plan_of(laid: Laid) -> Plan:
    """The plan, priced and checked."""
    used = _groups_of(laid)
    spec = job(laid.wanted.but(num_nodes=len(used)))
    return estimate(spec, placement_of(laid, spec))


def _groups_of(laid: Laid) -> dict[int, int]:
    """Number of a group that the job has → that of its node."""
    spec = spec_of(laid.wanted)
    roles = {*(role for role, model in spec.models.items() if model.needs_gpus), "rollout"}
    used = {group for role, group in FORMS[laid.form].items() if role in roles}
    return {group: node for node, group in enumerate(sorted(used))}


def placement_of(laid: Laid, spec: JobSpec) -> Placement:
    nodes, groups, models = _groups_of(laid), FORMS[laid.form], resolve(spec).models
    shared = [groups[role] for role in (*models, "rollout")]
    copies = [
        home(
            role,
            nodes[groups[role]] * EACH,
            EACH,
            _layout(laid, role),
            offload="weights" if shared.count(groups[role]) > 1 else "none",
        )
        for role in models
    ]
    apart = groups["rollout"] != groups["actor"]
    return placed(
        spec,
        copies,
        _engine(laid.engine, laid.engine_expert),
        apart_from=nodes[groups["rollout"]] * EACH if apart else None,
        train=laid.train,
        score=laid.score,
        recompute=laid.recompute,
    )


def _engine(tensor: int, expert: int = 1) -> Parallelism:
    return Parallelism(
        tensor_parallel_size=tensor,
        expert_parallel_size=expert,
        data_parallel_size=EACH // tensor,
    )


def _layout(laid: Laid, role: str) -> Parallelism:
    scores = role == "reference"
    if laid.sharding != "optimizer":
        sharding = "full" if scores else laid.sharding
        ranks = EACH // laid.context
        layout = {"context_parallel_size": laid.context, "data_parallel_size": ranks}
        return Parallelism.model_validate(layout | {"sharding": sharding})
    tensor = laid.reference_tensor if scores and laid.reference_tensor else laid.tensor
    return Parallelism(
        tensor_parallel_size=tensor,
        pipeline_parallel_size=laid.pipeline,
        context_parallel_size=laid.context,
        expert_parallel_size=laid.expert,
        data_parallel_size=EACH // (tensor * laid.pipeline * laid.context),
        sharding="none" if scores else "optimizer",
    )


SMALL = Wanted(model="qwen2.5-1.5b", workload=(("updates_per_epoch", 1),))
SAMPLE = {
    "grpo": Laid(SMALL.but(workload=())),
    "grpo, megatron": Laid(SMALL, sharding="optimizer", tensor=2, pipeline=2, recompute="full"),
    "megatron, two layouts": Laid(
        SMALL.but(staleness=1),
        "apart",
        sharding="optimizer",
        tensor=2,
        reference_tensor=1,
        recompute="selective",
    ),
    "optimizer on the host": Laid(
        SMALL.but(workload=(("updates_per_epoch", 1), ("optimizer_cpu_offload", True))),
        sharding="optimizer",
        tensor=2,
    ),
    "mixture": Laid(
        Wanted(model="deepseek-v2-lite"),
        sharding="optimizer",
        tensor=2,
        expert=4,
        engine=2,
        engine_expert=8,
        train=1,
        score=1,
        recompute="full",
    ),
    "ppo": Laid(SMALL.but(algorithm="ppo"), recompute="full"),
    "ppo, the critic apart": Laid(SMALL.but(algorithm="ppo"), "apart", sharding="gradient"),
    "ppo, each apart": Laid(SMALL.but(algorithm="ppo"), "each apart", context=2),
    "ppo, stale": Laid(SMALL.but(algorithm="ppo", staleness=2), "apart", engine=2),
    "stale, in the loss": Laid(
        SMALL.but(staleness=1, workload=(("updates_per_epoch", 1), ("kl", "loss"))), "each apart"
    ),
    "stale, log-probabilities of the rollout": Laid(
        SMALL.but(
            staleness=3,
            workload=(("updates_per_epoch", 1), ("old_log_probs", "rollout"), ("kl", "loss")),
        ),
        "apart",
    ),
    "reinforce++, log-probabilities of the rollout": Laid(
        SMALL.but(
            algorithm="reinforce_plus_plus",
            workload=(("old_log_probs", "rollout"), ("kl", "loss")),
        ),
        context=2,
    ),
    "rloo": Laid(SMALL.but(algorithm="rloo"), engine=2, train=2, score=2),
    "dapo": Laid(SMALL.but(algorithm="dapo", workload=(("expected_acceptance", 0.5),))),
    "dapo, stale": Laid(SMALL.but(algorithm="dapo", staleness=1), "apart"),
    "tokens": Laid(SMALL, train=3, score=3),
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
"""Plans of every form that SkyRL can be told."""


def varied(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """The plans in every sharding, with sequences whole or split, and with engines of any size.

    They are not priced anew, so hundreds take no time.
    """
    found = {}
    for (name, plan), sharding, context, engine in product(
        plans.items(), ("optimizer", "gradient", "full"), (1, 2), (1, 2, 4)
    ):
        if context > 1 and not plan.spec.workload.packed_sequences:
            continue
        if sharding == "optimizer" and "critic" in plan.spec.models:
            continue
        laid = Laid(SMALL, sharding=sharding, context=context, tensor=2)
        found[f"{name} {sharding} {context} {engine}"] = _relaid(plan, laid, engine)
    return found


def _relaid(plan: Plan, laid: Laid, tensor: int) -> Plan:
    engine = _engine(tensor)
    name = "megatron" if laid.sharding == "optimizer" else "fsdp"
    copies = [
        copy.model_copy(update={"layout": engine})
        if copy.kind == "shadow"
        else copy.model_copy(update={"layout": _layout(laid, copy.role), "engine": name})
        for copy in plan.copies
    ]
    layouts = {copy.id: copy.layout for copy in copies}
    calls = []
    for call in plan.calls:
        if call.kind == "generate":
            calls.append(call.model_copy(update={"parallelism": engine}))
            continue
        recompute = None if call.kind != "train" else "full" if tensor == 1 else "none"
        update = {"parallelism": layouts.get(call.copy_id or ""), "recompute": recompute}
        calls.append(call.model_copy(update=update))
    return plan.model_copy(update={"copies": copies, "calls": calls})


def launch(plan: Plan) -> Launch:
    """The launch of a plan, whatever is refused of it."""
    return launch_of(subject_of(resolve(plan.spec), plan, SKYRL))


def given(launch: Launch) -> dict[str, str]:
    """Key → value, as it is written."""
    return {each.key: each.value for each in launch.settings}


def overrides_of(launch: Launch) -> list[str]:
    """The overrides as the settings have them, without a shell between."""
    lists = {key for s in SKYRL.settings if s.type == "list" for key in s.keys.values()}
    values = {e.key: "[x]" if e.key in lists else "x" for e in launch.settings if e.placeholder}
    return [f"{each.key}={values.get(each.key, each.value)}" for each in launch.settings]


def case_of(name: str, launch: Launch) -> dict[str, Any]:
    """A launch as tests/exports/accept_skyrl.py takes it."""
    program = launch.files.get(PROGRAM, "")
    return {"id": name, "overrides": overrides_of(launch), "program": program}


def differences(plan: Plan, verdict: Mapping[str, Any]) -> list[str]:
    """Where what SkyRL would run is not what the plan says."""
    if "error" in verdict:
        return [str(verdict["error"])]
    found = misplaced(plan, verdict["members"])
    stale = plan.spec.search.staleness > 0
    if (verdict["trainer"] == "FullyAsyncRayPPOTrainer") != stale:
        found.append(f"the trainer is {verdict['trainer']}")
    values, expected = verdict["values"], dict(_expected(plan))
    return [
        *found,
        *(
            f"{k} is {values.get(k)!r}, not {v!r}"
            for k, v in expected.items()
            if values.get(k) != v
        ),
    ]


def _expected(plan: Plan) -> Iterator[tuple[str, Any]]:
    """Key → what SkyRL is to read."""
    workload, spec = plan.spec.workload, plan.spec
    homes = {copy.role: copy for copy in plan.copies if copy.kind == "home"}
    call = next(call for call in plan.calls if call.kind == "generate")
    assert call.parallelism is not None
    apart = any(copy.kind == "shadow" for copy in plan.copies)
    yield "trainer.placement.colocate_all", not apart
    yield "trainer.fully_async.enabled", spec.search.staleness > 0
    yield "trainer.train_batch_size", workload.prompts_per_iteration
    updates = workload.prompts_per_iteration // workload.updates_per_epoch
    yield "trainer.policy_mini_batch_size", updates
    yield "generator.n_samples_per_prompt", workload.responses_per_prompt
    yield "trainer.update_epochs_per_batch", workload.epochs
    yield "trainer.remove_microbatch_padding", workload.packed_sequences
    yield "trainer.algorithm.use_kl_in_reward", workload.kl == "reward"
    yield "trainer.algorithm.use_kl_loss", workload.kl == "loss"
    yield "trainer.max_training_steps", workload.iterations
    engine = "generator.inference_engine."
    yield f"{engine}tensor_parallel_size", call.parallelism.tensor_parallel_size
    yield f"{engine}expert_parallel_size", call.parallelism.expert_parallel_size
    yield f"{engine}engine_init_kwargs.kv_cache_memory_bytes", call.kv_cache_bytes
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    yield f"{engine}engine_init_kwargs.max_model_len", longest
    for role, copy in homes.items():
        yield from _expected_of(role, copy.layout)
    train = next(c for c in plan.calls if c.role == "actor" and c.kind == "train")
    recompute = train.recompute or "none"
    yield "trainer.gradient_checkpointing", recompute != "none"
    if homes["actor"].layout.sharding != "optimizer":
        return
    for name, value in told_of_optimizer(plan).items():
        yield f"trainer.policy.megatron_config.optimizer_config_kwargs.{name}", value
    if recompute == "selective":
        key = "trainer.policy.megatron_config.transformer_config_kwargs."
        yield f"{key}recompute_granularity", "selective"
        yield f"{key}recompute_method", None


def _expected_of(role: str, layout: Parallelism) -> Iterator[tuple[str, Any]]:
    name = {"actor": "policy", "reference": "ref", "critic": "critic"}[role]
    if layout.sharding in ("full", "gradient"):
        yield "trainer.strategy", "fsdp"
        yield f"trainer.{name}.sequence_parallel_size", layout.context_parallel_size
        whole = layout.sharding == "full"
        yield f"trainer.{name}.fsdp_config.reshard_after_forward", whole
        return
    yield "trainer.strategy", "megatron"
    key = f"trainer.{name}.megatron_config."
    yield f"{key}tensor_model_parallel_size", layout.tensor_parallel_size
    yield f"{key}pipeline_model_parallel_size", layout.pipeline_parallel_size
    yield f"{key}context_parallel_size", layout.context_parallel_size
    yield f"{key}expert_model_parallel_size", layout.expert_parallel_size
