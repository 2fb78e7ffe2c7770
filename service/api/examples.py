"""The examples of request bodies in the OpenAPI document; the tests post each of them."""

from typing import Any

_WORKLOAD: dict[str, Any] = {
    "prompts_per_iteration": 256,
    "responses_per_prompt": 1,
    "prompt_length": {"mean": 512, "max": 512},
    "response_length": {"mean": 512, "max": 512},
    "updates_per_epoch": 4,
}
_ONE_NODE: dict[str, Any] = {"pools": [{"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 1}]}

PPO_SPEC: dict[str, Any] = {
    "name": "ppo-7b-on-one-node",
    "algorithm": "ppo",
    "models": {
        role: {"architecture": "llama-2-7b"} for role in ("actor", "critic", "reference", "reward")
    },
    "workload": _WORKLOAD,
    "cluster": _ONE_NODE,
}
GRPO_SPEC: dict[str, Any] = {
    "name": "grpo-qwen-on-a-stored-cluster",
    "algorithm": "grpo",
    "models": {
        "actor": {"architecture": "qwen2.5-7b"},
        "reference": {"architecture": "qwen2.5-7b"},
        "reward": {"function": True, "seconds_per_response": 0.01, "concurrency": 64},
    },
    "workload": {
        **_WORKLOAD,
        "responses_per_prompt": 8,
        "response_length": {"p50": 600, "p90": 1800, "p99": 3500, "max": 4096},
        "kl": "loss",
    },
    "cluster": "team-cluster",
}

SPEC_EXAMPLES: dict[str, dict[str, Any]] = {
    "ppo": {"summary": "PPO with four 7B models on one node", "value": PPO_SPEC},
    "grpo": {"summary": "GRPO with a reward function, on a stored cluster", "value": GRPO_SPEC},
}
CLUSTER_EXAMPLES: dict[str, dict[str, Any]] = {
    "two pools": {
        "summary": "Two pools of different GPUs",
        "value": {
            "name": "team-cluster",
            "pools": [
                {"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 1},
                {"name": "h100", "gpu": "h100-80gb-sxm", "num_nodes": 1, "price_per_gpu_hour": 3.0},
            ],
        },
    }
}
PROFILE_EXAMPLES: dict[str, dict[str, Any]] = {
    "one product": {
        "summary": "A matrix product on a core",
        "value": {
            "fingerprint": {"identity": {"device_type": "cpu", "device_name": "a core"}},
            "measurements": [
                {
                    "table": "gemm",
                    "key": {
                        "precision": "fp32",
                        "collector": "torch",
                        "m": 64,
                        "n": 256,
                        "k": 256,
                    },
                    "seconds": 1.5e-4,
                }
            ],
        },
    },
    "measure": {
        "summary": "Have the workers' cluster measured for ten minutes, Qwen2.5 7B first",
        "value": {"measure": {"models": ["qwen2.5-7b"], "budget_seconds": 600}},
    },
}
COMPARE_EXAMPLES: dict[str, dict[str, Any]] = {
    "two": {
        "summary": "Everything on all GPUs, and every model on its own",
        "value": {"strategies": ["colocate_all", "standalone"]},
    }
}
SIMULATE_EXAMPLES: dict[str, dict[str, Any]] = {
    "few": {"summary": "Five iterations", "value": {"iterations": 5, "seed": 1}}
}
_SMALL: dict[str, Any] = {
    **PPO_SPEC,
    "name": "ppo-0.5b",
    "models": {role: {"architecture": "qwen2.5-0.5b"} for role in PPO_SPEC["models"]},
    "cluster": {"pools": [{"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 2}]},
}
FRONT_EXAMPLES: dict[str, dict[str, Any]] = {
    "two nodes": {
        "summary": "All plans that none beats by more than 1 % in time and price",
        "value": {"spec": _SMALL, "tolerance": 0.01},
    }
}
WHAT_IF_EXAMPLES: dict[str, dict[str, Any]] = {
    "sizes": {
        "summary": "One and two nodes of two types of GPU",
        "value": {"spec": _SMALL, "nodes": [1, 2], "gpus": ["a100", "h100"]},
    }
}
JOB_EXAMPLES: dict[str, dict[str, Any]] = {
    "spec": {
        "summary": "Plan this, then run it",
        "value": {
            "spec": PPO_SPEC,
            "settings": {
                "models": {"actor": "/models/llama-2-7b", "reward": "/models/reward-7b"},
                "data": {"path": "/data/prompts.jsonl", "tokenizer": "/models/llama-2-7b"},
                "training": {"actor": {"optimizer": {"learning_rate": 1e-6}}},
            },
        },
    },
    "plan": {
        "summary": "Run a stored plan",
        "value": {
            "plan_id": "5f0c2a53-8b4c-4c3e-9a39-1d2f7e6b8a01",
            "settings": {
                "data": {"path": "/data/prompts.parquet", "tokenizer": "/models/llama-2-7b"},
                "iterations": 100,
                "checkpoint": {"every_iterations": 20},
            },
        },
    },
}
_SHARDED: dict[str, Any] = {"data_parallel_size": 8, "sharding": "full"}
ESTIMATE_EXAMPLES: dict[str, dict[str, Any]] = {
    "colocated": {
        "summary": "Fully sharded training, generation in eight replicas, on the same GPUs",
        "value": {
            "spec": {
                **PPO_SPEC,
                "name": "rloo-1.5b",
                "algorithm": "rloo",
                "models": {
                    "actor": {"architecture": "qwen2.5-1.5b"},
                    "reward": {"function": True},
                },
                "workload": {
                    **_WORKLOAD,
                    "responses_per_prompt": 4,
                    "kl": "none",
                    "old_log_probs": "rollout",
                },
            },
            "placement": {
                "copies": [
                    {
                        "id": "actor",
                        "role": "actor",
                        "kind": "home",
                        "pool": "a100",
                        "first_gpu": 0,
                        "num_gpus": 8,
                        "layout": _SHARDED,
                    }
                ],
                "calls": [
                    {
                        "id": "actor.generate",
                        "role": "actor",
                        "kind": "generate",
                        "copy": "actor",
                        "parallelism": {"data_parallel_size": 8},
                        "kv_cache_bytes": 8_589_934_592,
                    },
                    {"id": "reward.forward", "role": "reward", "kind": "forward"},
                    {
                        "id": "actor.train",
                        "role": "actor",
                        "kind": "train",
                        "copy": "actor",
                        "parallelism": _SHARDED,
                        "micro_batch_size": 1,
                        "recompute": "full",
                    },
                ],
            },
        },
    }
}
EXPLAIN_EXAMPLES: dict[str, dict[str, Any]] = {
    "alternatives": {
        "summary": "The alternatives alone, with eight GPUs fewer",
        "value": {"parts": ["alternatives"], "fewer_gpus": 8},
    }
}
REPLAN_EXAMPLES: dict[str, dict[str, Any]] = {
    "measured": {
        "summary": "Generation turned out slower, 400 iterations are left",
        "value": {"measured": {"actor.generate": 30.0}, "iterations_left": 400},
    }
}

KEY_EXAMPLES: dict[str, dict[str, Any]] = {
    "of one of the team": {
        "summary": "A key that plans and runs, good until a day",
        "value": {
            "owner": "ada",
            "scopes": ["read", "plan", "run"],
            "note": "laptop",
            "expires_at": "2099-01-01T00:00:00Z",
        },
    },
    "of a dashboard": {
        "summary": "A key that looks, good until it is revoked",
        "value": {"owner": "wall", "scopes": ["read"]},
    },
}
BUDGET_EXAMPLES: dict[str, dict[str, Any]] = {
    "of a person": {
        "summary": "What one of the team may spend in a month, by the plans' prices",
        "value": {"of": "owner:ada", "amount": 5000},
    },
    "of a label": {
        "summary": "GPU hours of all runs with a label",
        "value": {"of": "label:team:math", "unit": "gpu_hours", "amount": 20000},
    },
}
DESCRIPTION_EXAMPLES: dict[str, dict[str, Any]] = {
    "labelled": {
        "summary": "A label more, one less, and a note",
        "value": {"labels": {"team": "math", "draft": None}, "notes": "for the paper"},
    },
    "given away": {"summary": "To another owner, by an admin", "value": {"owner": "bob"}},
}
JOB_PATCH_EXAMPLES: dict[str, dict[str, Any]] = {
    **DESCRIPTION_EXAMPLES,
    "hurried": {"summary": "Before those that were given none", "value": {"priority": 10}},
}
