"""Job specs for tests: a valid base, and changes to it by path."""

from typing import Any

from automap.planner.spec import JobSpec

ROLES = {
    "ppo": ("actor", "critic", "reference", "reward"),
    "grpo": ("actor", "reference", "reward"),
    "remax": ("actor", "reference", "reward"),
    "rloo": ("actor", "reference", "reward"),
    "reinforce_plus_plus": ("actor", "reference", "reward"),
    "dapo": ("actor", "reference", "reward"),
    "safe_rlhf": ("actor", "critic", "reference", "reward", "cost", "cost_critic"),
}


def job_spec(algorithm: str | None = "ppo", **changes: Any) -> JobSpec:
    """A small valid job; `workload__kl="none"` sets a nested field, `...=REMOVE` removes it.

    It asks for the best plan, not for a simpler one that is nearly as good.
    """
    data: dict[str, Any] = {
        "name": "test",
        "algorithm": algorithm,
        "models": {role: {"architecture": "llama-2-7b"} for role in ROLES[algorithm or "ppo"]},
        "workload": {
            "prompts_per_iteration": 256,
            "responses_per_prompt": 4,
            "prompt_length": {"mean": 1024, "max": 1024},
            "response_length": {"mean": 1024, "max": 1024},
            "updates_per_epoch": 8,
        },
        "cluster": {"pools": [{"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 2}]},
        "search": {"simplicity_tolerance": 0},
        "constraints": {},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        target = data
        for parent in parents:
            target = target.setdefault(parent, {})
        if value is REMOVE:
            del target[last]
        else:
            target[last] = value
    return JobSpec.model_validate(data)


REMOVE = object()


SMALL_ARCHITECTURE = {
    "num_layers": 12,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
    "vocab_size": 50257,
}
