"""Specs that the service's tests send."""

import copy
from typing import Any

from automap.service.api.examples import PPO_SPEC

Json = dict[str, Any]


def small_spec(**changes: Any) -> Json:
    """PPO with four 7B models on eight GPUs: planned in well under a second."""
    return {**copy.deepcopy(PPO_SPEC), **changes}


def infeasible_spec(architecture: str = "llama-2-7b") -> Json:
    """Four models on two GPUs of 24 GB: a 7B model fits, but not its training; a 70B not at all."""
    spec = small_spec(name="too-large")
    spec["models"] = {role: {"architecture": architecture} for role in spec["models"]}
    spec["cluster"] = {
        "pools": [{"name": "small", "gpu": "a10g", "num_nodes": 1, "gpus_per_node": 2}]
    }
    return spec


def tiny_spec(**changes: Any) -> Json:
    """RLOO with a 0.5B model on two nodes of two GPUs: planned in a blink."""
    pool = {"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 2, "gpus_per_node": 2}
    spec = small_spec(name="tiny", algorithm="rloo", cluster={"pools": [pool]})
    spec["models"] = {"actor": {"architecture": "qwen2.5-0.5b"}, "reward": {"function": True}}
    spec["workload"] |= {"kl": "none", "old_log_probs": "rollout", "responses_per_prompt": 4}
    return {**spec, **changes}


def large_spec() -> Json:
    """Four 70B models on 256 GPUs: takes a second or more, long enough to be interrupted."""
    spec = small_spec(name="large", search={"time_limit_seconds": 5})
    spec["models"] = {role: {"architecture": "llama-2-70b"} for role in spec["models"]}
    spec["cluster"] = {"pools": [{"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 32}]}
    spec["workload"]["prompts_per_iteration"] = 8 * 256
    return spec


def changed(spec: Json, path: str, value: Any) -> Json:
    """A copy of the spec with one value replaced; `path` as in problem objects."""
    spec = copy.deepcopy(spec)
    *parents, last = path.split(".")
    place: Any = spec
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]
    place[int(last) if isinstance(place, list) else last] = value
    return spec
