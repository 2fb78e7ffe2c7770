"""Jobs that plan in a fraction of a second: small models on a node or two."""

from typing import Any

from automap.planner.spec import JobSpec
from tests.helpers.specs import REMOVE, ROLES, job_spec


def small_job(algorithm: str | None = "grpo", *, num_nodes: int = 1, **changes: Any) -> JobSpec:
    """GRPO (or another algorithm) with 0.5B models on nodes of four A100."""
    model = {"architecture": "qwen2.5-0.5b"}
    values: dict[str, Any] = {
        "models": dict.fromkeys(ROLES[algorithm or "ppo"], model),
        "workload__prompts_per_iteration": 64,
        "workload__prompt_length": {"mean": 512, "max": 512},
        "workload__response_length": {"mean": 512, "max": 1024},
        "cluster__pools": [pool(num_nodes)],
        "search__num_workers": 1,
    }
    return job_spec(algorithm, **(values | changes))


__all__ = ["REMOVE", "pool", "small_job"]


def pool(num_nodes: int = 1, *, name: str = "a100", **changes: Any) -> dict[str, Any]:
    """A pool of nodes of four A100 at 2 units an hour."""
    sizes = {"num_nodes": num_nodes, "gpus_per_node": 4, "price_per_gpu_hour": 2.0}
    return {"name": name, "gpu": "a100-80gb-sxm", **sizes, **changes}
