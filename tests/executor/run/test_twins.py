"""Each shape of the examples' plans runs for real, scaled down to tiny models on CPU cores."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from automap.executor.tiny.tasks import write_prompts
from tests.executor.run.run_process import RunProcess
from tests.executor.run.twins import (
    MIXTURE,
    MOST_PROCESSES,
    GenerationShape,
    PlanShape,
    Twin,
    shape_of,
    twin_of,
)
from tests.executor.small_plans import Place, small_plan
from tests.planner.test_golden_plans import EXAMPLES, example_plan

pytestmark = pytest.mark.many_processes

TOLERANCE = 1e-5
SEEN: dict[PlanShape, str] = {}
"""Shape → the first example that has it: others need not run it again."""


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    write_prompts(path, task="count_token", num_prompts=32)
    return path


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny Qwen3 mixture: its random weights cannot be had from sizes."""
    sizes = dict(MIXTURE)
    for ours, theirs in (
        ("num_layers", "num_hidden_layers"),
        ("num_experts_per_token", "num_experts_per_tok"),
    ):
        sizes[theirs] = sizes.pop(ours)
    sizes.pop("query_key_norm")
    config = Qwen3MoeConfig(**sizes, norm_topk_prob=True, tie_word_embeddings=False)
    folder = tmp_path_factory.mktemp("mixture")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Qwen3MoeForCausalLM(config).save_pretrained(folder)
    return folder


def settings(twin: Twin, shape: PlanShape, prompts: Path, mixture: Path) -> dict[str, Any]:
    functions = [role for role, model in twin.plan.spec.models.items() if model.function]
    found: dict[str, Any] = {
        "models": {role: str(mixture) for role in sorted(shape.mixtures)},
        "functions": {
            role: {"path": "tests.executor.run.twin_program:share_of_even_tokens"}
            for role in functions
        },
        "data": {"path": str(prompts)},
        "training": {"default": {"optimizer": {"learning_rate": 1e-3}}},
        "metrics": {"loggers": ["jsonl"]},
        "seed": 3,
    }
    if twin.plan.spec.workload.pretrain_loss:
        texts = prompts.with_name("texts.jsonl")
        write_prompts(texts, task="copy", num_prompts=32)
        found["data"]["pretrain"] = {"path": str(texts), "column": "prompt"}
    if twin.plan.staleness:
        found["algorithm"] = {"off_policy_correction": "decoupled_ppo"}
    if twin.plan.algorithm is None:
        found["program"] = "tests.executor.run.twin_program:PROGRAM"
    return found


@pytest.fixture
def run_of(tmp_path: Path) -> Iterator[Any]:
    started: list[RunProcess] = []

    def start(twin: Twin, given: dict[str, Any]) -> RunProcess:
        started.append(RunProcess(twin.plan, given, tmp_path))
        return started[-1]

    yield start
    for run in started:
        run.kill_all()


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_twin_of_an_example_runs(name: str, prompts: Path, mixture: Path, run_of: Any) -> None:
    plan = example_plan(name)
    shape = shape_of(plan)
    assert_a_twin(twin := twin_of(plan), shape)
    if SEEN.setdefault(shape, name) != name:
        return
    run = run_of(twin, settings(twin, shape, prompts, mixture))
    assert run.end(seconds=600) == 0, run.log()
    metrics = run.metrics()
    assert len(metrics) == 2
    for each in metrics:
        assert all(math.isfinite(value) for value in each.values()), each
        # What vLLM generates with are the weights that the engine trains; seen where it scores too
        # before it has trained them further.
        newest = each.get("rollout/staleness_max", 0.0) == 0
        if newest and "actor.forward" in {call.id for call in plan.calls}:
            assert each["training/rollout_log_probs_diff_max"] < TOLERANCE
    assert metrics[0]["actor/grad_norm"] > 0


def assert_a_twin(twin: Twin, shape: PlanShape) -> None:
    """Automap runs it in few processes; its shape is the plan's but for what it says."""
    assert "automap" in twin.plan.runs_with
    assert twin.processes <= MOST_PROCESSES
    ours = shape_of(twin.plan)
    if not twin.dropped:
        assert ours == shape
    assert without_sizes(ours) == without_sizes(shape)


def without_sizes(shape: PlanShape) -> PlanShape:
    copies = [
        replace(copy, above_one=frozenset(), sharding="", generation=None) for copy in shape.copies
    ]
    return replace(shape, copies=tuple(copies))


@pytest.mark.parametrize(
    "name",
    [
        "grpo-lora-llama-3.1-70b-16xh100",
        "grpo-qwen3-235b-a22b-128xh200",
        "grpo-two-pools-h100-l40s",
    ],
)
def test_a_twin_has_its_plan_s_shape(name: str) -> None:
    plan = example_plan(name)
    assert "automap" in plan.runs_with
    twin = twin_of(plan)
    assert twin.dropped == ()
    assert_a_twin(twin, shape_of(plan))


def test_a_shape_says_what_is_split_and_where_it_lies() -> None:
    plan = small_plan(
        "ppo",
        {
            "actor": Place(0, 8, tensor=2, generation_tensor=1),
            "critic": Place(0, 4, tensor=4),
            "reference": Place(4, 4),
            "reward": None,
        },
    )
    shape = shape_of(plan)
    actor, critic, reference = shape.copies
    assert [copy.segments for copy in shape.copies] == [(0, 1), (0,), (1,)]
    assert actor.above_one == {"tensor", "data"}
    assert critic.above_one == {"tensor"}
    assert reference.above_one == {"data"}
    assert actor.generation == GenerationShape("smaller", pipeline=False)
    assert (actor.engine, actor.recompute, reference.recompute) == ("megatron", "none", None)
    twin = twin_of(plan)
    assert twin.dropped == ()
    assert twin.processes == 8
    assert shape_of(twin.plan) == shape


def test_a_twin_of_context_parallelism_has_it() -> None:
    roles = {"actor": Place(0, 8, tensor=2, context=2, sharding="full"), "reward": None}
    plan = small_plan("grpo", roles, kl="none")
    shape = shape_of(plan)
    assert shape.copies[0].above_one == {"tensor", "context", "data"}
    assert (shape.copies[0].engine, shape.copies[0].sharding) == ("fsdp", "full")
    twin = twin_of(plan)
    assert (twin.dropped, twin.processes) == ((), 8)
    assert_a_twin(twin, shape)


def test_a_twin_says_what_does_not_fit_in_eight_processes() -> None:
    """With four cores in each half of the devices there would be sixteen processes."""
    roles = {
        "actor": Place(0, 8, tensor=2),
        "critic": Place(0, 4, tensor=2),
        "reference": Place(4, 4, tensor=2),
    }
    twin = twin_of(small_plan("ppo", {**roles, "reward": None}))
    assert twin.processes == 8
    assert twin.dropped == (
        "critic: tensor",
        "reference: tensor",
    )
