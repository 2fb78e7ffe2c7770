"""The instances on which planning is measured: built from the examples, 8 prompts per GPU."""

from pathlib import Path
from typing import Any

import yaml

from automap.planner.spec import JobSpec

EXAMPLES = Path(__file__).parent.parent / "examples"
PROMPTS_PER_GPU = 8
GPUS_PER_NODE = 8
THREE_TYPES = ("a100-80gb-sxm", "h100", "h200")


def ppo(num_gpus: int) -> JobSpec:
    """PPO with four 70B models on one pool of A100."""
    return _scaled("hybridflow-ppo-70b-128xa100", num_gpus, ["a100-80gb-sxm"])


def ppo_on_three_types(num_gpus_each: int) -> JobSpec:
    """The same on three pools of different GPU types."""
    return _scaled("hybridflow-ppo-70b-128xa100", num_gpus_each, list(THREE_TYPES))


def safe_rlhf(num_gpus: int) -> JobSpec:
    """Safe-RLHF: five models and nine calls, actor and reference a mixture of experts of 235B."""
    job = _scaled_document("safe-rlhf-70b-128xa100", num_gpus, ["h200"])
    for role in ("actor", "reference"):
        job["models"][role] = {"architecture": "qwen3-235b-a22b"}
    job["workload"]["old_log_probs"] = "recompute"
    return JobSpec.model_validate(job)


def agents() -> JobSpec:
    """Twelve models, twenty calls: the example as it is."""
    return JobSpec.model_validate(_document("agents-12-models-512xh100"))


def _document(example: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())
    return document


def _scaled(example: str, num_gpus: int, gpus: list[str]) -> JobSpec:
    return JobSpec.model_validate(_scaled_document(example, num_gpus, gpus))


def _scaled_document(example: str, num_gpus: int, gpus: list[str]) -> dict[str, Any]:
    """An example on `num_gpus` of each of the GPU types, with as many prompts per GPU."""
    job = _document(example)
    job["name"] = f"{job['name']}-{'x'.join(str(num_gpus) for _ in gpus)}"
    job["workload"]["prompts_per_iteration"] = PROMPTS_PER_GPU * num_gpus * len(gpus)
    job["cluster"]["pools"] = [
        {"name": gpu, "gpu": gpu, "num_nodes": num_gpus // GPUS_PER_NODE, "gpus_per_node": 8}
        for gpu in gpus
    ]
    return job
