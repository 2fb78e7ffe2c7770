"""Job specs of the published studies."""

from collections.abc import Mapping
from typing import Any

from automap.planner.spec import JobSpec
from benchmarks.reproduction.published import Hardware

LLAMA = {
    "7B": "llama-2-7b",
    "13B": "llama-2-13b",
    "34B": "llama-2-34b",
    "70B": "llama-2-70b",
}
OPT_SIZES = {
    "OPT-350M": (24, 1024, 16),
    "OPT-1.3B": (24, 2048, 32),
    "OPT-6.7B": (32, 4096, 32),
    "OPT-13B": (40, 5120, 40),
    "OPT-30B": (48, 7168, 56),
    "OPT-66B": (64, 9216, 72),
}
"""Layers, width, heads (Zhang et al. 2022, arXiv:2205.01068, Table 1)."""
LLAMA_1_SIZES = {"33B": (60, 6656, 17_920, 52), "65B": (80, 8192, 22_016, 64)}
"""Layers, width, width of the MLP, heads (Touvron et al. 2023, arXiv:2302.13971, Table 2)."""
ROLES = {
    "ppo": ("actor", "critic", "reference", "reward"),
    "remax": ("actor", "reference", "reward"),
    "safe_rlhf": ("actor", "critic", "reference", "reward", "cost"),
}
GPUS_PER_NODE = 8


def job(
    algorithm: str,
    models: Mapping[str, Any],
    num_gpus: int,
    *,
    workload: Mapping[str, Any],
    hardware: Hardware,
    constraints: Mapping[str, Any] | None = None,
    time_limit_seconds: float = 20.0,
) -> JobSpec:
    """A job on a study's nodes of eight GPUs; below eight on a part of one."""
    return JobSpec.model_validate(
        {
            "name": f"{algorithm} on {num_gpus} GPUs",
            "algorithm": algorithm,
            "models": {role: {"architecture": model} for role, model in models.items()},
            "workload": dict(workload),
            "cluster": {
                "pools": [
                    {
                        "name": "gpus",
                        "gpu": hardware.gpu,
                        "num_nodes": -(-num_gpus // GPUS_PER_NODE),
                        "gpus_per_node": min(num_gpus, GPUS_PER_NODE),
                        "inter_node_bytes_per_second": hardware.inter_node_bytes_per_second,
                    }
                ]
            },
            # Published plans kept no margin of memory and were not simplified. Counted by work, a
            # search finds the same on a busy machine.
            "search": {
                "num_workers": 1,
                "limit_by": "work",
                "time_limit_seconds": time_limit_seconds,
                "target": "any",
            },
            "constraints": dict(constraints or {}),
        }
    )


def hybridflow_workload(algorithm: str = "ppo", **changes: Any) -> dict[str, Any]:
    """HybridFlow, section 8.1: 1,024 prompts of 1,024 tokens, as many in the response."""
    length = {"mean": 1024, "max": 1024}
    return {
        "prompts_per_iteration": 1024,
        "prompt_length": length,
        "response_length": length,
        "updates_per_epoch": 8,
        "old_log_probs": "rollout",
        "kl": "reward",
        "training_stack": "verl-megatron",
        "pretrain_loss": algorithm == "safe_rlhf",
    } | changes


def opt(name: str) -> dict[str, Any]:
    """An OPT model, by its sizes."""
    layers, width, heads = OPT_SIZES[name]
    return {
        "num_layers": layers,
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": width // heads,
        "vocab_size": 50_272,
        "max_position_embeddings": 2048,
        "gated_mlp": False,
        "tied_embeddings": True,
        "learned_position_embeddings": True,
        "linear_bias": True,
        "norm_bias": True,
    }


def llama_1(name: str) -> dict[str, Any] | str:
    """A model of the first LLaMA; the small ones have the sizes of the second."""
    if name in LLAMA:
        return LLAMA[name]
    layers, width, inner, heads = LLAMA_1_SIZES[name]
    return {
        "num_layers": layers,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": width // heads,
        "vocab_size": 32_000,
        "max_position_embeddings": 2048,
    }
