"""Each shape of the examples' plans runs for real, scaled down to tiny models on CPU cores."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from automap.executor.tiny.tasks import write_prompts
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from tests.executor.run.run_process import RunProcess
from tests.executor.run.twins import MIXTURE, MOST_PROCESSES, PlanShape, Twin, shape_of, twin_of
from tests.planner.test_golden_plans import EXAMPLES, example_plan

pytestmark = pytest.mark.many_processes

TOLERANCE = 1e-5
SEEN: dict[PlanShape, str] = {}
"""Shape → the first example that has it: others need not run it again."""


def shape_of_example(plan: Plan) -> PlanShape:
    models = resolve(plan.spec, with_profiles=False).models
    return shape_of(plan, [role for role, each in models.items() if each.architecture.num_experts])


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
            role: {"path": "automap.executor.tiny.tasks:count_token"} for role in functions
        },
        "data": {"path": str(prompts)},
        "training": {"default": {"optimizer": {"learning_rate": 1e-3}}},
        "metrics": {"loggers": ["jsonl"]},
        "seed": 3,
    }
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
    assert plan.runs_with == ["automap"]
    shape = shape_of_example(plan)
    if SEEN.setdefault(shape, name) != name:
        return
    twin = twin_of(plan, shape)
    assert twin.plan.runs_with == ["automap"]
    assert twin.processes <= MOST_PROCESSES
    assert engines(twin.plan) == engines(plan)
    run = run_of(twin, settings(twin, shape, prompts, mixture))
    assert run.end(seconds=600) == 0, run.log()
    metrics = run.metrics()
    assert len(metrics) == 2
    for each in metrics:
        assert all(math.isfinite(value) for value in each.values()), each
        assert each["training/rollout_log_probs_diff_max"] < TOLERANCE
    assert metrics[0]["actor/grad_norm"] > 0


def engines(plan: Plan) -> dict[str, str | None]:
    return {copy.id: copy.engine for copy in plan.copies}
