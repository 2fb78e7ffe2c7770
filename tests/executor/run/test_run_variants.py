"""Whole runs of what the tiny examples do not have: LoRA, a shadow, tensor-parallel generation."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from automap.executor.tiny.tasks import write_prompts
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from tests.executor.run.run_process import RunProcess
from tests.executor.small_plans import Place, small_plan

pytestmark = pytest.mark.many_processes

TOLERANCE = 1e-5
RANK = 4
MODEL = {"architecture": "tiny-llama"}
LORA = {"architecture": "tiny-llama", "lora": {"rank": RANK}}
FUNCTION: dict[str, Any] = {"function": True}
Start = Callable[..., RunProcess]


def plan_of(
    algorithm: str,
    models: dict[str, Any],
    parallelism: dict[str, Any],
    *,
    constraints: dict[str, Any] | None = None,
    **workload: Any,
) -> Plan:
    spec = {
        "name": "variant",
        "algorithm": algorithm,
        "models": models,
        "workload": {
            "prompts_per_iteration": 8,
            "prompt_length": {"mean": 3, "max": 4},
            "response_length": {"mean": 8, "max": 8},
            "precision": "fp32",
            "iterations": 3,
            **workload,
        },
        "cluster": {"pools": [{"name": "cpu", "gpu": "cpu", "num_nodes": 1, "gpus_per_node": 2}]},
        "constraints": {"parallelism": parallelism, "allow_offload": False, **(constraints or {})},
    }
    return make_plan(JobSpec.model_validate(spec))


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    write_prompts(path, task="count_token", num_prompts=32)
    return path


@pytest.fixture
def start(prompts: Path, tmp_path: Path) -> Iterator[Start]:
    started: list[RunProcess] = []

    def make(plan: Plan, *, engine: str = "fsdp", data: Any = None, **given: Any) -> RunProcess:
        training = {
            "engine": engine,
            "optimizer": {"learning_rate": 1e-2},
            "micro_batch_tokens": 256,
        }
        settings = {
            "functions": {"reward": {"path": "automap.executor.tiny.tasks:count_token"}},
            "data": {"path": str(prompts), **(data or {})},
            "training": {"default": training},
            "metrics": {"loggers": ["jsonl"]},
            "seed": 3,
            **given,
        }
        run = RunProcess(plan, settings, tmp_path / f"run{len(started)}")
        started.append(run)
        assert run.end() == 0, run.log()
        return run

    yield make
    for run in started:
        run.kill_all()


def bytes_of(run: RunProcess, call: str, what: str) -> list[int]:
    """Received by the rank that received most, in every iteration."""
    lines = (run.folder / "records.jsonl").read_text().splitlines()
    records = [each for each in map(json.loads, lines) if each["call_id"] == call]
    kinds = {"reshard_received": "reshard", "weight_sync_received": "weight_sync"}
    return [each["bytes"].get(what, 0) for each in records if each["kind"] == kinds[what]]


def assert_same_log_probs(run: RunProcess) -> None:
    metrics = run.metrics()
    assert len(metrics) == 3
    for each in metrics:
        assert each["training/rollout_log_probs_diff_max"] < TOLERANCE
    assert metrics[0]["actor/grad_norm"] > 0


def adapter_bytes(plan: Plan) -> int:
    """fp32 factors of every linear layer."""
    return 4 * resolve(plan.spec).models["actor"].architecture.lora_parameters(RANK)


@pytest.mark.slow
def test_remax_with_lora_reshards_the_adapter_once_an_iteration(start: Start) -> None:
    """Two data ranks; each receives the other's half of the base, then of the adapter alone."""
    plan = plan_of(
        "remax",
        {"actor": LORA, "reference": MODEL, "reward": FUNCTION},
        {
            "actor": {"data_parallel_size": 2, "generation_tensor_parallel_size": 1},
            "reference": {"num_gpus": 2},
        },
        constraints={"allow_shadow_copies": False},
        training_stack="fsdp",
    )
    run = start(plan)
    assert_same_log_probs(run)
    received = {
        call: bytes_of(run, call, "reshard_received")
        for call in ("actor.generate", "actor.generate.greedy")
    }
    first, second = sorted(received, key=lambda call: -received[call][0])
    assert received[second] == [0, 0, 0]
    assert received[first][0] > 2 * received[first][1]
    assert received[first][1:] == [adapter_bytes(plan) / 2] * 2


@pytest.mark.slow
def test_grpo_with_lora_sends_the_adapter_to_the_shadow(start: Start) -> None:
    plan = small_plan(
        "grpo",
        {"actor": Place(0, 1), "reward": None},
        shadow=Place(1, 1),
        lora_rank=RANK,
        kl="none",
        prompts_per_iteration=8,
        prompt_length={"mean": 3, "max": 4},
        response_length={"mean": 8, "max": 8},
        iterations=3,
    )
    run = start(plan)
    assert_same_log_probs(run)
    first, *others = bytes_of(run, "actor.sync", "weight_sync_received")
    assert others == [adapter_bytes(plan)] * 2
    assert first > 3 * others[0]


@pytest.mark.slow
def test_ppo_with_pretrain_rows_and_tensor_parallel_generation(
    start: Start, tmp_path: Path
) -> None:
    """Megatron on two tensor ranks, vLLM on the same; and two processes score."""
    texts = tmp_path / "texts.jsonl"
    rows = [{"text": [30 + number % 9] * (2 + number % 20)} for number in range(11)]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = plan_of(
        "ppo",
        {"actor": MODEL, "critic": MODEL, "reference": MODEL, "reward": FUNCTION},
        {
            "actor": {"tensor_parallel_size": 2, "generation_tensor_parallel_size": 2},
            "critic": {"num_gpus": 2},
            "reference": {"num_gpus": 2},
        },
        constraints={"allow_shadow_copies": False},
        pretrain_loss=True,
        updates_per_epoch=2,
    )
    plan = with_concurrency(plan, 2)
    run = start(
        plan,
        engine="megatron",
        data={"pretrain": {"path": str(texts)}},
        checkpoint={"every_iterations": 1, "keep_last": 1},
    )
    assert_same_log_probs(run)
    for metrics in run.metrics():
        assert metrics["actor/pretrain_loss"] > 0
    (state,) = run.folder.glob("checkpoints/*/controller.json")
    position = json.loads(state.read_text())["data"]["pretrain"]
    assert position["epoch"] * len(rows) + position["position"] == 3 * 8


def with_concurrency(plan: Plan, concurrency: int) -> Plan:
    document = plan.model_dump(mode="json", by_alias=True)
    document["spec"]["models"]["reward"]["concurrency"] = concurrency
    return Plan.model_validate_json(json.dumps(document))


@pytest.mark.slow
def test_data_parallel_training_with_tensor_parallel_generation(start: Start) -> None:
    plan = plan_of(
        "grpo",
        {"actor": MODEL, "reward": FUNCTION},
        {"actor": {"data_parallel_size": 2, "generation_tensor_parallel_size": 2}},
        constraints={"allow_shadow_copies": False},
        kl="none",
        responses_per_prompt=4,
    )
    (generation,) = [call for call in plan.calls if call.kind == "generate"]
    assert generation.parallelism is not None
    assert generation.parallelism.tensor_parallel_size == 2
    for engine in ("fsdp", "megatron"):
        run = start(plan, engine=engine)
        assert_same_log_probs(run)
        received = bytes_of(run, "actor.generate", "reshard_received")
        assert (max(received) > 0) == (engine == "fsdp")  # Megatron's data ranks hold all


@pytest.mark.slow
def test_context_parallel_training_is_that_of_data_parallel_ranks(start: Start) -> None:
    """Two context ranks train and score the rows of two data ranks; both generate alike."""
    runs = []
    for context in (1, 2):
        place = Place(0, 2, context=context, sharding="full")
        plan = small_plan("grpo", {"actor": place, "reference": place, "reward": None})
        assert "automap" in plan.runs_with
        runs.append(start(plan))
        whole = 4 * resolve(plan.spec).models["actor"].architecture.num_parameters()
        assert bytes_of(runs[-1], "actor.generate", "reshard_received") == [whole / 2] * 2
    ours, expected = (run.metrics() for run in reversed(runs))
    for mine, theirs in zip(ours, expected, strict=True):
        assert mine["training/rollout_log_probs_diff_max"] < TOLERANCE
        learned = {name: value for name, value in theirs.items() if name.startswith("actor/")}
        assert learned["actor/grad_norm"] > 0
        assert {name: mine[name] for name in learned} == pytest.approx(learned, rel=1e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actor", "lora_rank"),
    [
        pytest.param(Place(0, 1), None, id="one process"),
        pytest.param(Place(0, 2, generation_pipeline=2), None, id="two stages"),
        pytest.param(Place(0, 1), RANK, id="an adapter"),
    ],
)
def test_a_reference_scores_responses_while_others_are_generated(
    start: Start, actor: Place, lora_rank: int | None
) -> None:
    """What it comes to is what it is without streams; another process works meanwhile."""
    rollout = {"steps_per_turn": 1, "max_running_sequences": 8}  # of 32: they end at four times
    runs, plans = [], []
    for chunks in (4, 0):
        plans.append(
            small_plan(
                "grpo",
                {"actor": actor, "reference": Place(actor.count, 1), "reward": None},
                lora_rank=lora_rank,
                stream_chunks=chunks,
                prompts_per_iteration=8,
                responses_per_prompt=4,
                prompt_length={"mean": 3, "max": 4},
                response_length={"mean": 8, "max": 16},
                iterations=3,
            )
        )
        runs.append(start(plans[-1], rollout=rollout))
    assert [call.id for call in plans[0].calls if call.streamed_from] == ["reference.forward"]
    assert_same_log_probs(runs[0])
    ours, expected = (run.metrics() for run in runs)
    for mine, theirs in zip(ours, expected, strict=True):
        for name in ("critic/score/mean", "critic/rewards/mean", "actor/grad_norm"):
            assert mine[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-6), name
    lines = (runs[0].folder / "records.jsonl").read_text().splitlines()
    records = [each for each in map(json.loads, lines) if each["kind"] in ("generate", "forward")]
    for iteration in (1, 2, 3):
        mine = [each for each in records if each["iteration"] == iteration]
        (generation,) = [each for each in mine if each["call_id"] == "actor.generate"]
        scored = [each for each in mine if each["call_id"] == "reference.forward"]
        assert len(scored) == 4
        assert scored[0]["start_seconds"] < generation["end_seconds"], "others were not there yet"
