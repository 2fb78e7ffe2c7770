"""Plans for slime, and what is wrong with arguments of it."""

import math
from collections.abc import Iterator, Mapping, Sequence

from automap.planner import Launch
from automap.planner.frameworks import framework
from automap.planner.frameworks.description import Setting
from tests.helpers.framework_plans import Wanted

SLIME = framework("slime@0.3.1")
SGLANG = (("rollout_engine", "sglang"),)
SAMPLE = {
    "grpo": Wanted(model="qwen2.5-1.5b", pipeline=2, virtual=2, tensor=2, workload=SGLANG),
    "ppo": Wanted(algorithm="ppo", recompute="selective", micro_batch=4, workload=SGLANG),
    "apart": Wanted(apart=True, offload="none", workload=SGLANG),
    "ahead": Wanted(apart=True, staleness=1, recompute="full", workload=SGLANG),
    "reinforce++": Wanted(
        algorithm="reinforce_plus_plus", context=2, workload=(*SGLANG, ("kl", "loss"))
    ),
    "dapo": Wanted(algorithm="dapo", workload=(*SGLANG, ("expected_acceptance", 0.5))),
    "uneven stages": Wanted(num_nodes=3, tensor=4, pipeline=3, workload=SGLANG),
    "mixture": Wanted(
        model="qwen3-30b-a3b", num_nodes=4, expert=4, generation_expert=8, workload=SGLANG
    ),
    "tokens": Wanted(micro_batch=3, context=2, tensor=2, workload=SGLANG),
    "no old log-probabilities": Wanted(workload=(*SGLANG, ("old_log_probs", "rollout"))),
    "turns": Wanted(
        workload=(
            *SGLANG,
            ("turns", 3),
            ("optimizer", "sgd"),
            ("checkpoint_every_iterations", 10),
            ("checkpoint_seconds", 5.0),
        )
    ),
    "optimizer on the host": Wanted(workload=(*SGLANG, ("optimizer_cpu_offload", True))),
    "critic, tokens": Wanted(algorithm="ppo", micro_batch=3, workload=SGLANG),
}
"""Plans of every form that slime can be told."""
SIZES = {
    "qwen2.5-1.5b": {"tensor": 1, "generation_tensor": 1},
    "qwen2.5-7b": {"tensor": 4, "pipeline": 2, "micro_batch": 3},
    "qwen2.5-32b": {"tensor": 8, "generation_tensor": 8, "recompute": "full"},
    "qwen3-30b-a3b": {"tensor": 4, "expert": 4, "generation_expert": 4},
}
ALGORITHMS = ("ppo", "grpo", "reinforce_plus_plus", "dapo")


def product(algorithms: Sequence[str] = ALGORITHMS) -> dict[str, Wanted]:
    """Every combination of algorithm, model, cluster and placement, by its name."""
    found = {}
    for algorithm in algorithms:
        for model, sizes in SIZES.items():
            for nodes in (1, 2, 4, 8):
                for staleness in (None, 0, 1):
                    apart = staleness is not None
                    if apart and nodes == 1:
                        continue
                    where = f"apart, {staleness} behind" if apart else "together"
                    wanted = Wanted(algorithm=algorithm, model=model, num_nodes=nodes)
                    wanted = wanted.but(apart=apart, staleness=staleness or 0, workload=SGLANG)
                    found[f"{algorithm} {model} on {nodes}, {where}"] = wanted.but(**sizes)
    return found


def given(launch: Launch) -> dict[str, str]:
    """Arguments that are there → value."""
    return {each.key: each.value for each in launch.settings if each.value not in ("None", "False")}


MISC = {
    "--attention-dropout": ("0.0",),
    "--hidden-dropout": ("0.0",),
    "--accumulate-allreduce-grads-in-fp32": (),
    "--attention-softmax-in-fp32": (),
    "--attention-backend": ("flash",),
    "--use-tensorboard": (),
    "--tb-project-name": ("automap",),
    "--tb-experiment-name": ("plan",),
}
"""Argument of Megatron-LM or slime that no plan decides → the words after it in every launch."""


def faults(words: Sequence[str]) -> list[str]:
    """What slime would not take of these arguments, or would take otherwise than they say."""
    described = {key: each for each in SLIME.settings for key in each.keys.values()}
    found, values, rest = [], dict[str, str](), list(words)
    while rest:
        key, equals, value = rest.pop(0).partition("=")
        setting = described.get(key)
        if key in MISC:
            # Its own defaults drop a tenth of the activations.
            if (own := tuple(rest.pop(0) for _ in MISC[key])) != MISC[key] or key in values:
                found.append(f"{key} {own} {values.get(key, '')}")
            values[key] = " ".join(own)
            continue
        if setting is None:
            found.append(f"{key[:40]} is no argument")
            continue
        if key in values:
            found.append(f"{key} comes twice")
        if setting.type == "flag":
            values[key] = "True"
            continue
        if not equals:
            value = rest.pop(0) if rest else ""
        if not _is_of(setting, value):
            found.append(f"{key} {value!r} is no {setting.type}")
        values[key] = value
    return found or list(_contradictions(values))


def _is_of(setting: Setting, value: str) -> bool:
    try:
        match setting.type:
            case "whole":
                return int(value) >= 1
            case "number":
                return math.isfinite(float(value))
            case _:
                return bool(value) and not value.startswith("--")
    except ValueError:
        return False


def _contradictions(values: Mapping[str, str]) -> Iterator[str]:
    def whole(key: str, default: int = 1) -> int:
        return int(values.get(key, default))

    gpus = whole("--actor-num-nodes") * whole("--actor-num-gpus-per-node", 8)
    ranks = ("tensor-model", "pipeline-model", "context")
    split = math.prod(whole(f"--{name}-parallel-size") for name in ranks)
    batch = whole("--rollout-batch-size") * whole("--n-samples-per-prompt")
    step, engine = whole("--global-batch-size"), whole("--rollout-num-gpus-per-engine")
    dynamic = "--use-dynamic-batch-size" in values
    budgets = [
        int(values[key]) * whole("--context-parallel-size")
        for key in ("--max-tokens-per-gpu", "--log-probs-max-tokens-per-gpu")
        if key in values
    ]
    longest = whole("--rollout-max-prompt-len") + whole("--rollout-max-response-len")
    critic = values.get("--advantage-estimator") == "ppo"
    offloaded = {"--offload-train", "--offload-rollout"} & values.keys()
    rules = {
        "sizes divide the GPUs": gpus % split == 0,
        "optimizer steps divide the batch": batch % step == 0,
        "data ranks divide an optimizer step": step % max(gpus // split, 1) == 0,
        "engines divide their GPUs": whole("--rollout-num-gpus", gpus) % engine == 0,
        "budgets are there where they count": dynamic == ("--max-tokens-per-gpu" in values),
        "sequences are there where they count": dynamic != ("--micro-batch-size" in values),
        "budgets hold the longest sequence": all(each >= longest for each in budgets),
        "what is colocated is offloaded": "--colocate" not in values or len(offloaded) == 2,
        "a critic is offloaded": not critic or "--offload-train" in values,
        "a share is one": 0 < float(values.get("--sglang-mem-fraction-static", 0)) < 1,
        "groups divide the experts": whole("--num-experts", 0)
        % whole("--expert-model-parallel-size")
        == 0,
    }
    yield from (f"not so: {rule}" for rule, holds in rules.items() if not holds)
