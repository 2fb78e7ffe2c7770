"""The realistic RL post-training jobs of benchmarks.population, drawn from a seed.

A job is a spec document, as a user would write it, and depends on the seed and its index alone:
neither on how many jobs are drawn, nor on the machine or the version of Python (`Draw`), nor on the
planner. Who changes this module or population.toml draws another population: its specs have other
hashes, and its results are not compared with those of before.
"""

import hashlib
import json
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

Item = TypeVar("Item")
Document = dict[str, Any]

TABLES = tomllib.loads(Path(__file__).with_name("population.toml").read_text())
ARCHITECTURES: dict[str, Document] = TABLES["architectures"]
GPUS: dict[str, Document] = TABLES["gpus"]
ALGORITHMS: dict[str, Document] = TABLES["algorithms"]
JUDGES = ("qwen2.5-7b", "llama-3.1-8b", "qwen2.5-32b", "llama-3.1-70b", "qwen2.5-72b")
"""What is taken for a reward model, smallest first."""
NODE_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096)
GPU_COUNTS = tuple(8 * count for count in NODE_COUNTS)
MOST_GPUS = ((9, 512), (15, 1024), (47, 4096), (75, 16384), (1000, 32768))
"""(billions of parameters up to, the largest cluster on which somebody would train them)."""
LONGEST = {4096: 15, 8192: 25, 16384: 30, 20480: 10, 32768: 20}
"""Tokens after which a reasoner's response is cut: how often."""
STACKS = {"megatron-core": 55, "verl": 15, "fsdp": 15, "nemo-rl": 15}

TRAINERS = ("actor", "critic", "cost_critic", "solver", "verifier")
TRAINED_BYTES, HELD_BYTES = 18, 2
"""Per parameter of a model that trains, and of one that does not (bf16, Adam)."""
LEAST_BYTES = 3
"""Per trained parameter: bf16 weights and gradients, less what may be offloaded of them."""
FILLED_SHARE = 0.6
"""Of the cluster's memory: what the models' own bytes take at most in a job that is to fit."""
NODE_BILLIONS = 500
"""Parameters above which most nodes cannot hold a copy that generates: its experts are spread over
several, and its weights are often in 8 bits. Some users forget that."""
LARGEST_SHARE = 0.08
"""Of the jobs, which have the largest cluster that is for them: few would by the draw."""
HARD_SHARE = 0.14
"""Of the jobs, which ask for what is likely to be impossible, in the ways in which people do."""
FEW, TIGHT, UNSHARDED, HURRIED = "few GPUs", "tight", "unsharded", "hurried"
"""Fewer GPUs than weights and gradients need; as few as may do, and nothing that saves memory; a
model that trains whole on every GPU; a target that no cluster of the size meets."""


def digest(document: object) -> str:
    """Of a JSON document, whatever the order of its keys."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Draw:
    """Choices from `Random.random` alone, which Python promises not to change."""

    def __init__(self, name: str) -> None:
        self._random = random.Random(name)

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def one(self, items: Sequence[Item]) -> Item:
        return items[int(self._random.random() * len(items))]

    def weighted(self, weights: Mapping[Item, int]) -> Item:
        """A key, as often as its weight says."""
        left = self._random.random() * sum(weights.values())
        for item, weight in weights.items():
            left -= weight
            if left < 0:
                return item
        raise AssertionError("random() is below 1")


@dataclass(slots=True)
class Choices:
    """What the parts of a document depend on."""

    algorithm: str
    task: str
    actor: str
    kl: str
    hard: str = ""
    """In which way it is likely to be impossible; empty: it is meant to have a plan."""
    gpu: str = ""
    num_gpus: int = 0
    """Of the first pool."""

    @property
    def billions(self) -> float:
        return float(ARCHITECTURES[self.actor]["billions"])

    @property
    def active_billions(self) -> float:
        return float(ARCHITECTURES[self.actor]["active"])

    @property
    def trainer(self) -> str:
        """The role that the constraints are about."""
        return "solver" if self.algorithm == "own-agents" else "actor"


def drawn(seed: int, index: int) -> Document:
    """The spec document of job `index`."""
    draw = Draw(f"population/{seed}/{index}")
    algorithm = draw.weighted({name: row["weight"] for name, row in ALGORITHMS.items()})
    task = draw.weighted(ALGORITHMS[algorithm]["tasks"])
    prompt, response = _lengths(draw, task)
    actor = _actor(draw, algorithm, response["max"])
    job = Choices(algorithm, task, actor, kl=draw.weighted(ALGORITHMS[algorithm]["kl"]))
    models = _models(draw, job)
    job.hard = _hard(draw, job, models) if draw.chance(HARD_SHARE) else ""
    pools = _pools(draw, job, models)
    workload = _workload(draw, job) | {"prompt_length": prompt, "response_length": response}
    _add_rewards(draw, job, models, workload)
    return {
        "name": f"population-{seed}-{index}-{algorithm}-{actor}",
        **_algorithm(algorithm, models),
        "models": models,
        "workload": workload,
        "cluster": {"pools": pools},
        "search": _search(draw, job, workload),
        "constraints": _constraints(draw, job, models, pools),
    }


def _lengths(draw: Draw, task: str) -> tuple[Document, Document]:
    """Prompt and response lengths in tokens: those of reasoners and agents have a long tail."""
    if task == "chat":
        prompt, response = draw.one((128, 256, 512, 1024)), draw.one((256, 512, 1024, 2048))
        if draw.chance(0.3):  # as published measurements have it
            return {"mean": prompt, "max": prompt}, {"mean": response, "max": response}
        longest = response * draw.one((2, 2, 4))
        return {"mean": prompt, "max": 2 * prompt}, {"mean": response, "max": longest}
    prompt = draw.one((200, 300, 500)) if task == "reasoning" else draw.one((1024, 2048, 4096))
    longest = draw.weighted(LONGEST)
    p50 = longest // draw.one((4, 6, 8, 12))
    p90 = p50 * draw.one((2, 3))
    tailed = {"p50": p50, "p90": p90, "max": longest}
    if draw.chance(0.6):
        tailed["p99"] = min(p90 * draw.one((2, 3)), longest)
    return {"mean": prompt, "max": 4 * prompt}, tailed


def _actor(draw: Draw, algorithm: str, longest: int) -> str:
    """A model that has the positions and, where there is a critic, a family to take it from."""
    return draw.weighted(
        {
            name: row["weight"]
            for name, row in ARCHITECTURES.items()
            if row["positions"] >= longest
            and not (algorithm in ("ppo", "safe_rlhf") and row["family"] == "deepseek")
        }
    )


def _models(draw: Draw, job: Choices) -> Document:
    """Every model but those that score, by role."""
    if job.algorithm == "own-agents":
        pair = {"solver": job.actor, "verifier": draw.one(_smaller(job))}
        pair |= {f"{role}_ref": name for role, name in pair.items()}
        return {role: {"architecture": name} for role, name in pair.items()}
    models: Document = {"actor": {"architecture": job.actor}}
    lora = draw.chance(0.12)
    if lora:
        models["actor"]["lora"] = {"rank": draw.one((8, 16, 32, 64))}
    if job.kl != "none" and not (lora and draw.chance(0.7)):
        models["reference"] = {"architecture": job.actor}
    if job.algorithm in ("ppo", "safe_rlhf"):
        same = job.billions < 100 and draw.chance(0.6)
        models["critic"] = {"architecture": job.actor if same else draw.one(_smaller(job))}
    if job.algorithm == "safe_rlhf" and draw.chance(0.3):
        models["cost_critic"] = dict(models["critic"])
    return models


def _smaller(job: Choices) -> list[str]:
    """Models of the actor's family that are not larger, and none beyond 100B."""
    family, most = ARCHITECTURES[job.actor]["family"], min(job.billions, 100)
    named = [
        name
        for name, row in ARCHITECTURES.items()
        if row["family"] == family and row["billions"] <= most
    ]
    return named or ["qwen2.5-7b"]


def _gigabytes(models: Document) -> tuple[float, float]:
    """What the models' own bytes come to, and what training cannot do without."""
    held = trained = 0.0
    for role, model in models.items():
        billions = ARCHITECTURES[model["architecture"]]["billions"]
        if role in TRAINERS and "lora" not in model:
            trained += billions
        else:
            held += billions
    return TRAINED_BYTES * trained + HELD_BYTES * held, LEAST_BYTES * trained


def _hard(draw: Draw, job: Choices, models: Document) -> str:
    """A way to be impossible that is open to these models."""
    _, least = _gigabytes(models)
    kinds = {HURRIED: 15, TIGHT: 20}
    if least > 8 * max(gpu["gigabytes"] for gpu in GPUS.values()):
        kinds[FEW] = 60
    if job.billions > 13 and "lora" not in models[job.trainer]:
        kinds[UNSHARDED] = 40
    return draw.weighted(kinds)


def _pools(draw: Draw, job: Choices, models: Document) -> list[Document]:
    """One pool that has room for all models (FEW: that has not), or a second beside it."""
    needed, least = _gigabytes(models)

    def counts(gpu: Document) -> list[int]:
        gigabytes = gpu["gigabytes"]
        if job.hard == FEW:
            return [count for count in GPU_COUNTS if count * gigabytes < least][-2:]
        most = next(gpus for billions, gpus in MOST_GPUS if job.billions <= billions)
        allowed = [count for count in GPU_COUNTS if count <= min(most, gpu["most_gpus"])]
        fitting = [count for count in allowed if needed <= FILLED_SHARE * gigabytes * count]
        return fitting[:1] if job.hard == TIGHT else fitting

    job.gpu = draw.weighted({name: gpu["weight"] for name, gpu in GPUS.items() if counts(gpu)})
    possible = counts(GPUS[job.gpu])
    job.num_gpus = possible[-1] if draw.chance(LARGEST_SHARE) else draw.one(possible)
    pools = [_pool(draw, job.gpu, job.num_gpus)]
    if job.hard in (FEW, TIGHT) or job.num_gpus > 8192 or not draw.chance(0.26):
        return pools
    second = draw.weighted(
        {name: gpu["second_weight"] for name, gpu in GPUS.items() if name != job.gpu}
    )
    most = GPUS[second]["most_gpus"]
    most_beside = min(2 * job.num_gpus, most)
    beside = [n for n in GPU_COUNTS if job.num_gpus / 4 <= n <= most_beside]
    return [*pools, _pool(draw, second, draw.one(beside) if beside else most)]


def _pool(draw: Draw, gpu: str, num_gpus: int) -> Document:
    pool = {"name": gpu, "gpu": gpu, "num_nodes": num_gpus // GPUS[gpu]["per_node"]}
    if draw.chance(0.25):
        pool["price_per_gpu_hour"] = draw.one((1.2, 1.8, 2.5, 3.2, 4.0))
    return pool


def _workload(draw: Draw, job: Choices) -> Document:
    """A batch in proportion to the cluster, as large clusters are bought for large batches."""
    responses = draw.one(ALGORITHMS[job.algorithm]["responses"])
    sequences = min(max(job.num_gpus * draw.one((1, 2, 4, 8, 16)), 256), 262144)
    workload: Document = {
        "prompts_per_iteration": max(sequences // responses, 32),
        "responses_per_prompt": responses,
        "updates_per_epoch": draw.weighted({1: 30, 2: 15, 4: 30, 8: 15, 16: 10}),
        "training_stack": draw.weighted(STACKS),
        "old_log_probs": draw.one(("recompute", "recompute", "rollout")),
        "kl": job.kl,
        "iterations": draw.one((100, 300, 500, 1000)),
    }
    if job.algorithm == "ppo" and draw.chance(0.3):
        workload["epochs"] = draw.one((2, 4))
    if job.algorithm in ("ppo", "safe_rlhf") and draw.chance(0.2):
        workload["pretrain_loss"] = True
    if job.algorithm == "dapo":
        workload["expected_acceptance"] = draw.one((0.3, 0.5, 0.8))
    if GPUS[job.gpu]["fp8"] and draw.chance(0.5 if job.billions > NODE_BILLIONS else 0.1):
        workload["rollout_precision"] = "fp8"
    if draw.chance(0.1):
        workload["rollout_engine"] = "sglang"
    if job.task == "agents":
        workload["turns"] = draw.one((2, 4, 8, 16))
        workload["environment_seconds_per_turn"] = draw.one((0.2, 1.0, 5.0))
    return workload


def _add_rewards(draw: Draw, job: Choices, models: Document, workload: Document) -> None:
    """What scores: functions, models and remote services."""
    sequences = workload["prompts_per_iteration"] * workload["responses_per_prompt"]
    roles = {"safe_rlhf": ("reward", "cost"), "own-rewards": ("reward", "judge")}
    for role in roles.get(job.algorithm, ("reward",)):
        kind = draw.weighted(TABLES["rewards"][job.task])
        if kind == "model":
            most = max(job.billions, 9)
            judges = [name for name in JUDGES if ARCHITECTURES[name]["billions"] <= most]
            same = job.billions < 100 and draw.chance(0.4)
            models[role] = {"architecture": job.actor if same else draw.one(judges)}
            continue
        seconds = draw.one((0.005, 0.02, 0.5) if kind == "function" else (1.0, 3.0, 8.0))
        scored: Document = {"seconds_per_response": seconds, "concurrency": 64}
        if seconds > 0.01:  # so many at once that all take a minute or less
            scored["concurrency"] = max(64, int(sequences * seconds / draw.one((15, 60))))
        if kind == "remote" and draw.chance(0.4):
            scored["requests_per_second"] = float(max(20, sequences // draw.one((20, 60))))
        models[role] = {"function": True, **scored} if kind == "function" else {"remote": scored}


def _algorithm(algorithm: str, models: Document) -> Document:
    """The built-in's name, or a dataflow written out: its calls, and chains of what waits."""
    if algorithm == "own-rewards":
        calls = {"rollout": "actor generate", "update": "actor train"}
        calls |= {"score": "reward forward", "grade": "judge forward"}
        chains = ["rollout score update", "rollout grade update"]
        if "reference" in models:
            calls["kl"] = "reference forward"
            chains.append("rollout kl update")
    elif algorithm == "own-agents":
        calls = {"solve": "solver generate", "verify": "verifier generate"}
        calls |= {"score": "reward forward"}
        calls |= {f"{role}_kl": f"{role}_ref forward" for role in ("solver", "verifier")}
        calls |= {f"{role}_train": f"{role} train" for role in ("solver", "verifier")}
        chains = ["solve verify score solver_train", "score verifier_train"]
        chains += ["solve solver_kl solver_train", "verify verifier_kl verifier_train"]
    else:
        return {"algorithm": algorithm}
    edges = dict.fromkeys(pair for chain in chains for pair in pairwise(chain.split()))
    parts = {name: call.split() for name, call in calls.items()}
    return {
        "dataflow": {
            "calls": [
                {"id": name, "role": role, "kind": kind} for name, (role, kind) in parts.items()
            ],
            "edges": [{"source": source, "target": target} for source, target in edges],
        }
    }


def _search(draw: Draw, job: Choices, workload: Document) -> Document:
    """The objective, and whether rollouts may be stale; the rest is left as it is by default."""
    objective = draw.weighted({"throughput": 67, "price": 20, "fewest_gpus": 7, "run_price": 6})
    search: Document = {"objective": objective}
    if objective == "run_price":
        workload["startup_seconds"] = draw.one((120.0, 600.0))
        workload |= {"checkpoint_every_iterations": 20, "checkpoint_seconds": 30.0}
    patience = draw.one((2.0, 4.0, 10.0)) if draw.chance(0.7) else 0.0
    if job.hard == HURRIED:
        search["objective"], patience = "fewest_gpus", 0.02
    if search["objective"] == "fewest_gpus" and patience:
        target = int(patience * _rough_seconds(job, workload)) + 1
        search["target_iteration_seconds"] = float(target)
    if ALGORITHMS[job.algorithm]["ratio"] and draw.chance(0.35):
        search |= {"staleness": draw.weighted({1: 70, 2: 20, 4: 10}), "iteration_barrier": False}
    return search


def _rough_seconds(job: Choices, workload: Document) -> float:
    """Seconds of an iteration on the whole first pool, to an order of magnitude."""
    sequences = workload["prompts_per_iteration"] * workload["responses_per_prompt"]
    response, active = workload["response_length"], job.active_billions
    mean = response["mean"] if "mean" in response else 1.4 * response["p50"]
    tokens = sequences * (workload["prompt_length"]["mean"] + mean) * workload.get("epochs", 1)
    computing = 8e9 * active * tokens / (0.3e12 * GPUS[job.gpu]["teraflops"] * job.num_gpus)
    decoding = 0.04 * response["max"] + tokens * active / 2e4 / job.num_gpus
    return float(computing + decoding / workload.get("expected_acceptance", 1.0))


def _constraints(draw: Draw, job: Choices, models: Document, pools: list[Document]) -> Document:
    """Mostly none; pins of two pools; now and then what a user insists on."""
    if job.hard == FEW:
        return {}
    if job.hard == TIGHT:
        return {"allow_offload": False, "allow_recompute": False}
    if job.hard == UNSHARDED:
        sizes = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "sharding": "none"}
        if job.active_billions < job.billions:
            sizes["expert_parallel_size"] = 1
        return {"parallelism": {job.trainer: sizes}}
    constraints: Document = {}
    if job.billions > NODE_BILLIONS and draw.chance(0.85):
        constraints["tensor_parallel_across_nodes"] = True
    if len(pools) == 2 and draw.chance(0.5):
        constraints["pools"] = {job.trainer: pools[0]["name"]}
    if draw.chance(0.25):
        constraints |= draw.one(_wishes(draw, job, models, pools))
    return constraints


def _wishes(draw: Draw, job: Choices, models: Document, pools: list[Document]) -> list[Document]:
    """Constraints that this job can have."""
    wishes: list[Document] = [
        {"require_even_batch": True},
        {"allow_shadow_copies": False},
        {"allow_offload": False},
        {"tensor_parallel_across_nodes": True},
        {"parallelism": {job.trainer: {"tensor_parallel_size": draw.one((2, 4))}}},
    ]
    beside = ("critic", "reference", "solver_ref", "reward")
    scoring = [role for role in beside if "architecture" in models.get(role, {})]
    if scoring:
        wishes.append({"colocate": [[job.trainer, draw.one(scoring)]]})
    if scoring and job.num_gpus >= 32:
        wishes.append({"separate": [[job.trainer, scoring[-1]]]})
    if job.num_gpus >= 64:
        wishes.append({"keep_free_gpus": {pools[0]["name"]: 8}})
    return wishes
