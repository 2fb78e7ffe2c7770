"""Plans for NeMo-RL, their recipes, and what is wrong with one."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from automap.planner import Launch
from automap.planner.frameworks import framework
from automap.planner.frameworks.description import Setting
from automap.planner.imports import LaunchFile
from automap.service.schemas.document_lines import key_lines
from tests.helpers.framework_plans import Wanted

NEMO_RL = framework("nemo-rl@0.7.0")
APART = Wanted(apart=True, offload="none")
DTENSOR = Wanted(engine="fsdp", tensor=1)
SAMPLE = {
    "grpo": Wanted(model="qwen2.5-1.5b", pipeline=2, tensor=2),
    "selective": Wanted(recompute="selective", micro_batch=4),
    "apart": APART,
    "ahead": APART.but(staleness=2, recompute="full"),
    "in flight": APART.but(staleness=3, continuous=True),
    "on the host, apart": APART.but(offload="weights"),
    "one node": Wanted(num_nodes=1, tensor=2, generation_tensor=2),
    "reinforce++": Wanted(algorithm="reinforce_plus_plus", context=2, workload=(("kl", "loss"),)),
    "dapo": Wanted(algorithm="dapo", workload=(("expected_acceptance", 0.5),)),
    "uneven stages": Wanted(num_nodes=3, tensor=4, pipeline=3),
    "mixture": Wanted(model="qwen3-30b-a3b", num_nodes=4, expert=4, generation_expert=8),
    "context": Wanted(micro_batch=3, context=2, tensor=2, workload=(("kl", "loss"),)),
    "fp8": Wanted(workload=(("rollout_precision", "fp8"),)),
    "turns": Wanted(
        workload=(
            ("turns", 3),
            ("optimizer", "sgd"),
            ("checkpoint_every_iterations", 10),
            ("checkpoint_seconds", 5.0),
        )
    ),
    "optimizer on the host": Wanted(workload=(("optimizer_cpu_offload", True),)),
    "dtensor": DTENSOR,
    "dtensor, apart": DTENSOR.but(apart=True, offload="none", recompute="full"),
}
"""Plans of every form that NeMo-RL can be told."""
SIZES: dict[str, dict[str, Any]] = {
    "qwen2.5-1.5b": {"tensor": 1, "generation_tensor": 1},
    "qwen2.5-7b": {"tensor": 4, "pipeline": 2, "micro_batch": 3},
    "qwen2.5-32b": {"tensor": 8, "generation_tensor": 8, "recompute": "full"},
    "qwen3-30b-a3b": {"tensor": 4, "expert": 4, "generation_expert": 4},
    "qwen3-8b": {"engine": "fsdp", "tensor": 1, "generation_tensor": 2},
}
ALGORITHMS = ("grpo", "reinforce_plus_plus", "dapo")


def product(algorithms: Sequence[str] = ALGORITHMS) -> dict[str, Wanted]:
    """Every combination of algorithm, model, cluster and placement, by its name."""
    found = {}
    for algorithm in algorithms:
        for model, sizes in SIZES.items():
            for nodes in (1, 2, 4, 8):
                for staleness in (None, 0, 1, 4):
                    apart = staleness is not None
                    # Dynamic sampling has no staleness.
                    if (apart and nodes == 1) or (algorithm == "dapo" and staleness):
                        continue
                    where = f"apart, {staleness} behind" if apart else "together"
                    wanted = Wanted(algorithm=algorithm, model=model, num_nodes=nodes)
                    wanted = wanted.but(apart=apart, staleness=staleness or 0)
                    wanted = wanted.but(offload="none" if apart else "weights", **sizes)
                    found[f"{algorithm} {model} on {nodes}, {where}"] = wanted
    return found


def recipe_file(launch: Launch) -> LaunchFile:
    """The recipe of a launch as the command line reads it."""
    [(name, text)] = launch.files.items()
    return LaunchFile(name, document=yaml.safe_load(text), lines=key_lines(text))


def flat(document: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Dotted key and value of everything in a YAML document."""
    if isinstance(document, dict) and document:
        for key, value in document.items():
            yield from flat(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, document


def faults(document: Mapping[str, object]) -> list[str]:
    """What NeMo-RL would not take of a recipe, or would take otherwise than it says."""
    described = {key: each for each in NEMO_RL.settings for key in each.keys.values()}
    values = dict(flat({key: value for key, value in document.items() if key != "defaults"}))
    found = []
    for key, value in values.items():
        setting = described.get(key)
        if setting is None:
            found.append(f"{key[:60]} is no key")
        elif not _is_of(setting, value):
            found.append(f"{key} {value!r} is no {setting.type}")
    if document.get("defaults") != "grpo_math_1B.yaml":
        found.append("it inherits from another configuration")
    return found or list(_contradictions(values))


def _is_of(setting: Setting, value: object) -> bool:
    if value is None:
        return setting.default == "null"
    if isinstance(value, str) and value.startswith("${oc."):
        return setting.type in ("text", "number")
    is_flag = isinstance(value, bool)
    match setting.type:
        case "flag":
            return is_flag
        case "whole":
            return isinstance(value, int) and not is_flag and value >= 0
        case "number":
            return isinstance(value, (int, float)) and not is_flag and math.isfinite(value)
        case "list":
            return isinstance(value, list)
        case _:
            return isinstance(value, str) and bool(value)


def _contradictions(values: Mapping[str, Any]) -> Iterator[str]:
    def of(end: str) -> Any:
        found = [value for key, value in values.items() if f".{key}".endswith(f".{end}")]
        return found[0] if found else None

    megatron = of("megatron_cfg.enabled")
    tensor = (
        of("tensor_model_parallel_size") if megatron else of("dtensor_cfg.tensor_parallel_size")
    )
    stages = of("pipeline_model_parallel_size") or 1
    split = tensor * stages * ((of("megatron_cfg.context_parallel_size") or 1) if megatron else 1)
    nodes, each = values["cluster.num_nodes"], values["cluster.gpus_per_node"]
    own_nodes, own_each = of("resources.num_nodes"), of("resources.gpus_per_node")
    apart = not of("colocated.enabled")
    generating = (own_nodes or 0) * (own_each or 0)
    gpus = nodes * each - generating
    batch = of("num_prompts_per_step") * of("num_generations_per_prompt")
    step = of("train_global_batch_size")
    engine = of("vllm_cfg.tensor_parallel_size")
    experts, longest = of("vllm_cfg.expert_parallel_size"), of("max_total_sequence_length")
    stale = of("async_grpo.enabled")
    yield from (
        f"not so: {rule}"
        for rule, holds in {
            "one engine trains": megatron != of("dtensor_cfg.enabled"),
            "sizes divide the GPUs": gpus > 0 and gpus % split == 0,
            "GPUs are for generation where it is apart": apart == (generating > 0),
            "generation takes whole nodes": nodes == 1 or not apart or own_each == each,
            "optimizer steps divide the batch": batch % step == 0,
            "data ranks divide an optimizer step": step % max(gpus // split, 1) == 0,
            "engines divide their GPUs": (generating or gpus) % max(engine, experts) == 0,
            "experts are whole engines": experts == 1 or experts % engine == 0,
            "budgets hold the longest sequence": min(
                of("sequence_packing.train_mb_tokens"), of("sequence_packing.logprob_mb_tokens")
            )
            >= longest,
            "batches are packed, or padded": of("sequence_packing.enabled")
            and not of("dynamic_batching.enabled"),
            "both micro-batches are one number": tensor < 4
            or of("train_micro_batch_size") == of("logprob_batch_size"),
            "what is stale is apart, one by one and corrected for": not stale
            or (apart and of("async_engine") and of("use_importance_sampling_correction")),
            "attention replicas are one by one": experts <= engine or of("async_engine"),
            "a share is one": 0 < of("gpu_memory_utilization") < 1,
            "lengths fit": of("max_input_seq_length") + of("max_new_tokens") <= longest,
        }.items()
        if not holds
    )
