"""Plans made by hand: input for the rendering tests, with round numbers a reader can follow."""

from automap.planner.plan.types import (
    BytesByKind,
    CallPlan,
    CopyPlan,
    Parallelism,
    Plan,
    Provenance,
    SearchReport,
    SecondsByPart,
    Strategy,
    WeightSync,
)
from automap.planner.spec import JobSpec

GIB = 2**30


def job_spec() -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "sample-70b",
            "algorithm": "ppo",
            "models": {
                role: {"architecture": "llama-2-70b"}
                for role in ("actor", "critic", "reference", "reward")
            },
            "workload": {
                "prompts_per_iteration": 1024,
                "prompt_length": {"mean": 1024, "max": 1024},
                "response_length": {"mean": 1024, "max": 1024},
                "updates_per_epoch": 8,
                "iterations": 400,
            },
            "cluster": {
                "pools": [
                    {"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 16, "gpus_per_node": 8}
                ]
            },
        }
    )


def copy(
    role: str,
    *,
    first_gpu: int,
    layout: Parallelism,
    kind: str = "home",
    pool: str = "a100",
    trains: bool = False,
) -> CopyPlan:
    held = BytesByKind(
        weights=9 * GIB, gradients=9 * GIB if trains else 0, optimizer=7 * GIB if trains else 0
    )
    return CopyPlan(
        id=f"{role}.{kind}",
        role=role,
        kind=kind,
        pool=pool,
        first_gpu=first_gpu,
        num_gpus=layout.num_gpus,
        layout=layout,
        resident_bytes=held.total,
        host_bytes=0,
        bytes_by_kind=held,
    )


def call(
    copy: CopyPlan | None,
    call_id: str,
    *,
    start: float,
    end: float,
    parallelism: Parallelism | None = None,
    stage: int = 0,
) -> CallPlan:
    role, kind = call_id.split(".")[:2]
    duration = end - start
    return CallPlan(
        id=call_id,
        role=role,
        kind=kind,
        copy_id=copy.id if copy else None,
        parallelism=parallelism or (copy.layout if copy else None),
        micro_batch_size=4 if kind != "generate" and copy else None,
        recompute="selective" if kind == "train" else None,
        stage=stage,
        start_seconds=start,
        end_seconds=end,
        seconds_by_part=SecondsByPart(compute=0.8 * duration, communication=0.2 * duration),
        bytes_by_kind=BytesByKind(activations=20 * GIB),
        peak_bytes=66 * GIB if kind == "train" else 60 * GIB,
        capacity_bytes=76 * GIB,
        source="interpolated",
        model_flops_utilization=(0.21 if kind == "generate" else 0.45) if copy else None,
        tokens_per_second_per_gpu=(1536.0 if kind == "forward" else 409.6) if copy else None,
    )


def plan(
    copies: list[CopyPlan],
    calls: list[CallPlan],
    transitions: list[WeightSync],
    *,
    iteration_seconds: float,
    staleness: int = 0,
    alternatives: list[Strategy] | None = None,
    warnings: list[str] | None = None,
) -> Plan:
    return Plan(
        name="sample-70b",
        algorithm="ppo",
        copies=copies,
        calls=calls,
        transitions=transitions,
        iteration_seconds=iteration_seconds,
        lower_bound_seconds=iteration_seconds,
        relative_gap=0.0,
        search_seconds=0.84,
        tokens_per_second=2_097_152 / iteration_seconds,
        tokens_per_iteration=2_097_152,
        gpus_used=128,
        price_per_iteration=8.4,
        price_per_million_tokens=4.005,
        run_seconds=400 * iteration_seconds,
        run_price=3360.0,
        staleness=staleness,
        iteration_barrier=True,
        search=SearchReport(
            status="optimal",
            objective="throughput",
            objective_value=iteration_seconds,
            lower_bound=iteration_seconds,
            pricing_seconds=0.31,
            solving_seconds=0.44,
            candidates_priced=120_332,
            options=312,
            space="over the enumerated options on contiguous aligned ranges",
        ),
        alternatives=alternatives or [],
        runs_with=[] if warnings else ["automap"],
        assumptions=[*(warnings or []), "responses all end at 1,024 tokens"],
        warnings=warnings or [],
        provenance=Provenance(code_version="0.1.0", profile_versions={}, catalogue_version="1"),
        spec=job_spec(),
    )


def ppo_plan() -> Plan:
    """Actor on all GPUs, reference and reward on the two halves, a critic on all."""
    training = Parallelism(
        tensor_parallel_size=8, pipeline_parallel_size=4, data_parallel_size=4, sharding="optimizer"
    )
    half = Parallelism(tensor_parallel_size=8, data_parallel_size=8)
    actor = copy("actor", first_gpu=0, layout=training, trains=True)
    critic = copy("critic", first_gpu=0, layout=training, trains=True)
    reference = copy("reference", first_gpu=0, layout=half)
    reward = copy("reward", first_gpu=64, layout=half)
    generation = Parallelism(tensor_parallel_size=4, data_parallel_size=32)
    calls = [
        call(actor, "actor.generate", start=0, end=40, parallelism=generation),
        call(reference, "reference.forward", start=40, end=52),
        call(reward, "reward.forward", start=40, end=50),
        call(critic, "critic.forward", start=52, end=58),
        call(actor, "actor.train", start=58, end=95),
        call(critic, "critic.train", start=95, end=130),
    ]
    alternatives = [
        Strategy(
            name="split",
            feasible=True,
            iteration_seconds=182.0,
            times_slower=1.4,
            price_per_iteration=11.76,
            reason="critic.train waits on half of the GPUs",
        ),
        Strategy(
            name="standalone",
            feasible=False,
            reason="actor.train needs 4.2 GiB more than the 76.0 GiB of a GPU",
        ),
    ]
    return plan(
        [actor, critic, reference, reward],
        calls,
        [],
        iteration_seconds=130.0,
        alternatives=alternatives,
    )


def asynchronous_plan() -> Plan:
    """A shadow actor generates beside the training and on into the next period."""
    layout = Parallelism(tensor_parallel_size=8, data_parallel_size=8)
    home = copy("actor", first_gpu=0, layout=layout, trains=True)
    shadow = copy("actor", first_gpu=64, layout=layout, kind="shadow")
    calls = [
        call(shadow, "actor.generate", start=30, end=120),
        call(None, "reward.forward", start=20, end=24, stage=1),
        call(home, "actor.train", start=30, end=96, stage=1),
    ]
    sync = WeightSync(
        role="actor",
        source_copy=home.id,
        target_copy=shadow.id,
        stage=2,
        start_seconds=22,
        end_seconds=28,
        bytes_per_receiver=9 * GIB,
    )
    warning = "search.staleness: 1 is planned only: the executor runs one iteration after another"
    return plan(
        [home, shadow],
        calls,
        [sync],
        iteration_seconds=100.0,
        staleness=1,
        warnings=[warning],
    )
