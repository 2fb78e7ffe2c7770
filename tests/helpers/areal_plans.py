"""Plans for AReaL, made of a placement each, in ways in which its models share GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from automap.planner import Launch
from automap.planner.exports.areal.settings import launch_of
from automap.planner.exports.subject import subject_of
from automap.planner.frameworks import framework
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Parallelism, Placement, Plan
from automap.planner.planning import estimate
from automap.planner.spec import JobSpec
from automap.planner.targets.tables import inside
from tests.helpers.framework_plans import Wanted, home, placed, spec_of

AREAL = framework("areal@1.0.4")
EACH = 8
FORMS: dict[str, dict[str, int]] = {
    "together": {"actor": 0, "reference": 0, "critic": 0, "rollout": 1},
    "critic apart": {"actor": 0, "reference": 0, "critic": 1, "rollout": 2},
    "reference beside the critic": {"actor": 0, "reference": 1, "critic": 1, "rollout": 2},
    "each apart": {"actor": 0, "critic": 1, "reference": 2, "rollout": 3},
}
"""Form → role → number of its group of GPUs, a node each."""
FILLED = {
    "KL_COEFFICIENT": "0.01",
    "LEARNING_RATE": "1e-6",
    "CRITIC_LEARNING_RATE": "1e-5",
    "PASSES": "10",
}
"""Placeholders that are numbers → one."""


@dataclass(frozen=True, slots=True)
class Laid:
    """A job, and how it is placed."""

    wanted: Wanted
    form: str = "together"
    engines: tuple[str, str, str] = ("megatron", "megatron", "megatron")
    """Of actor, reference and critic."""
    tensor: int = 2
    pipeline: int = 1
    virtual: int = 1
    context: int = 1
    expert: int = 1
    generation_tensor: int = 2
    micro: int = 4
    """Of the actor; the others have as many."""
    recompute: str = "none"
    reference: str = "none"
    """Its offload."""
    nodes: int = 1
    """Of each group."""

    @property
    def each(self) -> int:
        """GPUs of each group."""
        return EACH * self.nodes

    def but(self, **changes: Any) -> "Laid":
        return replace(self, **changes)

    def engine(self, role: str) -> str:
        return dict(zip(("actor", "reference", "critic"), self.engines, strict=True))[role]


def job(wanted: Wanted) -> JobSpec:
    return inside(spec_of(wanted), AREAL.target)  # type: ignore[arg-type]


def plan_of(laid: Laid) -> Plan:
    """The plan, priced and checked."""
    used = laid.nodes * (1 + max(FORMS[laid.form].values()))
    spec = job(laid.wanted.but(num_nodes=used))
    return estimate(spec, placement_of(laid, spec))


def placement_of(laid: Laid, spec: JobSpec) -> Placement:
    groups, models = FORMS[laid.form], resolve(spec).models
    copies = [
        home(
            role,
            groups[role] * laid.each,
            laid.each,
            layout_of(laid, laid.engine(role), trains=model.trainable),
            offload=laid.reference if role == "reference" else "none",
        )
        for role, model in models.items()
    ]
    tensor = laid.generation_tensor
    return placed(
        spec,
        copies,
        Parallelism(tensor_parallel_size=tensor, data_parallel_size=laid.each // tensor),
        apart_from=groups["rollout"] * laid.each,
        train=laid.micro,
        score=laid.micro,
        recompute=laid.recompute,
    )


def layout_of(laid: Laid, engine: str, *, trains: bool) -> Parallelism:
    if engine == "fsdp":
        tensor, context = laid.tensor, laid.context
        sizes: dict[str, Any] = {"tensor_parallel_size": tensor, "context_parallel_size": context}
        sizes |= {"data_parallel_size": laid.each // (tensor * context)}
        return Parallelism.model_validate(sizes | {"sharding": "full"})
    whole = {
        "tensor_parallel_size": laid.tensor,
        "pipeline_parallel_size": laid.pipeline,
        "virtual_pipeline_parallel_size": laid.virtual if trains else 1,
        "context_parallel_size": laid.context,
        "expert_parallel_size": laid.expert,
        "data_parallel_size": laid.each // (laid.tensor * laid.pipeline * laid.context),
    }
    return Parallelism.model_validate(whole | {"sharding": "optimizer" if trains else "none"})


SMALL = Wanted(model="qwen2.5-1.5b")
PPO = SMALL.but(algorithm="ppo")
FSDP = ("fsdp", "fsdp", "fsdp")
MIXED = ("megatron", "fsdp", "fsdp")
SAMPLE = {
    "grpo": Laid(SMALL),
    "grpo, fsdp": Laid(SMALL, engines=FSDP, recompute="full"),
    "ppo": Laid(PPO, recompute="selective"),
    "ppo, each apart": Laid(PPO, "each apart", FSDP, context=2),
    "ppo, critic apart": Laid(PPO, "critic apart", MIXED, recompute="full"),
    "ppo, reference beside the critic": Laid(PPO, "reference beside the critic"),
    "ahead": Laid(SMALL.but(staleness=2), pipeline=2, virtual=2),
    "rloo": Laid(SMALL.but(algorithm="rloo"), generation_tensor=1),
    "reinforce++ without divergence": Laid(
        SMALL.but(algorithm="reinforce_plus_plus", workload=(("kl", "none"),)), context=2
    ),
    "log-probabilities of the rollout": Laid(
        SMALL.but(staleness=1, workload=(("old_log_probs", "rollout"),))
    ),
    "reference on the host": Laid(SMALL, reference="weights"),
    "sglang": Laid(SMALL.but(workload=(("rollout_engine", "sglang"),))),
    "mixture": Laid(
        SMALL.but(model="qwen3-30b-a3b"),
        expert=8,
        recompute="full",
        nodes=2,
        reference="weights",
    ),
    "checkpoints": Laid(
        SMALL.but(workload=(("checkpoint_every_iterations", 10), ("checkpoint_seconds", 5.0)))
    ),
}
"""Plans of every form that AReaL can be told."""


def varied(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """The plans with engines, sequences and pipelines split in every way.

    They are not priced anew, so hundreds take no time.
    """
    found = {}
    sizes = product(plans.items(), (1, 2, 4, 8), (1, 2, 4), (1, 2))
    for number, ((name, plan), tensor, pipeline, context) in enumerate(sizes):
        generated = (1, 2, 4)[number % 3]
        expert, nodes = plan.copies[0].layout.expert_parallel_size, plan.copies[0].num_gpus // EACH
        laid = Laid(SMALL, tensor=tensor, pipeline=pipeline, context=context, expert=expert)
        laid = laid.but(nodes=nodes, expert=min(expert, EACH * nodes // pipeline))
        if tensor * pipeline * context > laid.each:
            continue
        trained = {call.role for call in plan.calls if call.kind == "train"}
        engine = Parallelism(
            tensor_parallel_size=generated, data_parallel_size=laid.each // generated
        )
        layouts = {
            copy.id: engine
            if copy.kind == "shadow"
            else layout_of(laid, copy.engine or "megatron", trains=copy.role in trained)
            for copy in plan.copies
        }
        update = {
            "copies": [c.model_copy(update={"layout": layouts[c.id]}) for c in plan.copies],
            "calls": [
                call.model_copy(update={"parallelism": layouts.get(call.copy_id or "")})
                for call in plan.calls
            ],
        }
        found[f"{name} {tensor} {pipeline} {context}"] = plan.model_copy(update=update)
    return found


def launch(plan: Plan) -> Launch:
    """The launch of a plan, whatever is refused of it."""
    return launch_of(subject_of(resolve(plan.spec), plan, AREAL))


def given(launch: Launch) -> dict[str, str]:
    """Key → value, of a placeholder its variable."""
    return {each.key: each.value for each in launch.settings}


def environment(launch: Launch, folder: str) -> dict[str, str]:
    """What the configuration reads of the environment."""
    found = {each.variable: "x" for each in launch.placeholders} | FILLED
    return found | {"RUN_FOLDER": f"{folder}/run", "MEETING_FOLDER": f"{folder}/meeting"}


def differences(plan: Plan, verdict: Mapping[str, Any]) -> list[str]:
    """Where what AReaL would run is not what the plan says."""
    if "error" in verdict:
        return [str(verdict["error"])]
    homes = {copy.role: copy for copy in plan.copies if copy.kind == "home"}
    names = {"actor": "actor", "reference": "ref", "critic": "critic"}
    shadow = next(copy for copy in plan.copies if copy.kind == "shadow")
    found, models = [], verdict["models"]
    if set(models) != {names[role] for role in homes} | {"rollout"}:
        return [f"models {sorted(models)}"]
    for role, copy in homes.items():
        expected = sizes_of(plan, role) | {"backend": copy.engine}
        told = models[names[role]]
        found += [f"{role} {k} is {told[k]}, not {v}" for k, v in expected.items() if told[k] != v]
        sharers = [r for r in ("actor", "critic", "reference") if r in homes]
        first = next(r for r in sharers if homes[r].first_gpu == copy.first_gpu)
        if told["with"] != (None if first == role else names[first]):
            found.append(f"{role} shares GPUs with {told['with']}, not {first}")
    engine, workload = models["rollout"], plan.spec.workload
    if (engine["d"], engine["t"]) != (
        shadow.layout.data_parallel_size,
        shadow.layout.tensor_parallel_size,
    ):
        found.append(f"rollout is {engine}")
    expected = {
        "train_dataset.batch_size": workload.prompts_per_iteration,
        "rollout.consumer_batch_size": workload.prompts_per_iteration,
        "rollout.max_head_offpolicyness": plan.spec.search.staleness,
        "gconfig.n_samples": workload.responses_per_prompt,
        "gconfig.max_new_tokens": workload.response_length.max_tokens,
        "actor.ppo_n_minibatches": workload.updates_per_epoch,
        "total_train_steps": workload.iterations,
        "cluster.n_nodes": max(c.first_gpu + c.num_gpus for c in plan.copies) // EACH,
        "computes log-probabilities": workload.old_log_probs == "recompute",
        "has a reference": "reference" in homes,
        "engine": workload.rollout_engine,
    }
    values = verdict["values"]
    found += [f"{k} is {values[k]!r}, not {v!r}" for k, v in expected.items() if values[k] != v]
    return found


def sizes_of(plan: Plan, role: str) -> dict[str, int]:
    """The sizes that AReaL is to read: those of experts by what the attention's come to."""
    copy = next(c for c in plan.copies if c.role == role and c.kind == "home")
    layout = copy.layout
    found = {
        "d": layout.data_parallel_size,
        "t": layout.tensor_parallel_size,
        "p": layout.pipeline_parallel_size,
        "c": layout.context_parallel_size,
        "v": layout.virtual_pipeline_parallel_size,
    }
    if resolve(plan.spec).models[role].architecture.num_experts:
        found["e"] = layout.expert_parallel_size
        found["et"] = max(layout.tensor_parallel_size // layout.expert_parallel_size, 1)
    return found
