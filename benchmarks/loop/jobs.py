"""The loop's job, and the plans of it that are run: constraints that the planner keeps to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from automap.executor.settings import RunSettings
from automap.executor.tiny.tasks import write_prompts
from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.spec import JobSpec, TrainingStack

ROLES = ("actor", "critic", "reference")
MOST_DEVICES = 2
"""Of a plan: so the loop is the same on all machines with at least two."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the job is made of on one kind of device: compute must outweigh what is fixed."""

    architecture: ModelArchitecture
    precision: str
    prompts: int
    prompt_tokens: int
    response_tokens: int


SIZES = {
    "cpu": Sizes(
        ModelArchitecture(
            num_layers=4,
            hidden_size=256,
            intermediate_size=768,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=32,
            vocab_size=1024,
            max_position_embeddings=2048,
        ),
        precision="fp32",
        prompts=64,
        prompt_tokens=48,
        response_tokens=32,
    ),
    "cuda": Sizes(
        # Qwen2.5-0.5B's.
        ModelArchitecture(
            num_layers=24,
            hidden_size=896,
            intermediate_size=4864,
            num_attention_heads=14,
            num_key_value_heads=2,
            head_dim=64,
            vocab_size=151_936,
            max_position_embeddings=32_768,
            tied_embeddings=True,
            attention_bias=True,
        ),
        precision="bf16",
        prompts=256,
        prompt_tokens=256,
        response_tokens=512,
    ),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to place the job."""

    name: str
    stack: TrainingStack
    constraints: dict[str, Any]
    """Of the spec; empty: the planner chooses."""


def _everywhere(**sizes: Any) -> dict[str, Any]:
    return {role: dict(sizes) for role in ROLES}


TOGETHER = [["actor", "critic"], ["actor", "reference"]]
ON_TWO: tuple[Variant, ...] = (
    Variant(
        "tensor 2",
        "megatron-core",
        {"parallelism": _everywhere(tensor_parallel_size=2), "colocate": TOGETHER},
    ),
    Variant(
        "pipeline 2",
        "megatron-core",
        {"parallelism": _everywhere(pipeline_parallel_size=2), "colocate": TOGETHER},
    ),
    Variant(
        "tensor 2, also generating",
        "megatron-core",
        {
            "parallelism": _everywhere(tensor_parallel_size=2)
            | {"actor": {"tensor_parallel_size": 2, "generation_tensor_parallel_size": 2}},
            "colocate": TOGETHER,
        },
    ),
    Variant(
        "actor apart",
        "megatron-core",
        {
            "parallelism": _everywhere(num_gpus=1),
            "separate": [["actor", "critic"], ["actor", "reference"]],
        },
    ),
    Variant("FSDP2, full sharding", "fsdp", {"parallelism": _everywhere(
        data_parallel_size=2, sharding="full")}),
    Variant(
        "FSDP2, actor apart",
        "fsdp",
        {
            "parallelism": _everywhere(num_gpus=1),
            "separate": [["actor", "critic"], ["actor", "reference"]],
        },
    ),
)  # fmt: skip
ONE: dict[str, Any] = {"colocate": TOGETHER}
ON_ONE = Variant("one device", "megatron-core", ONE | {"parallelism": _everywhere(num_gpus=1)})
MORE_ON_ONE = (
    Variant(
        "small micro-batches",
        "megatron-core",
        ONE | {"parallelism": _everywhere(num_gpus=1, micro_batch_size=1)},
    ),
    Variant(
        "recomputing",
        "megatron-core",
        ONE | {"parallelism": {role: {"num_gpus": 1, "recompute": "full"} for role in ROLES[:2]}},
    ),
    Variant(
        "FSDP2, small micro-batches",
        "fsdp",
        ONE | {"parallelism": _everywhere(num_gpus=1, micro_batch_size=1)},
    ),
    Variant(
        "FSDP2, recomputing",
        "fsdp",
        ONE | {"parallelism": {role: {"num_gpus": 1, "recompute": "full"} for role in ROLES[:2]}},
    ),
)
CHOSEN = (
    Variant("chosen", "megatron-core", {}),
    Variant("chosen, FSDP2", "fsdp", {}),
)


def variants(num_devices: int) -> tuple[Variant, ...]:
    """All that so many devices can run."""
    return (*CHOSEN, *(ON_TWO if num_devices > 1 else MORE_ON_ONE), ON_ONE)


def spec_of(variant: Variant, sizes: Sizes, pool: dict[str, Any]) -> JobSpec:
    """The job in the pool of a profile's cluster.yaml, at most two devices of it."""
    architecture = sizes.architecture.model_dump(exclude_defaults=True)
    document = {
        "name": f"loop {variant.name}",
        "algorithm": "ppo",
        "models": {
            **{role: {"architecture": architecture} for role in ROLES},
            "reward": {"function": True},
        },
        "workload": {
            "prompts_per_iteration": sizes.prompts,
            "prompt_length": {"mean": sizes.prompt_tokens, "max": sizes.prompt_tokens},
            "response_length": {"mean": sizes.response_tokens, "max": sizes.response_tokens},
            "updates_per_epoch": 2,
            "precision": sizes.precision,
            "training_stack": variant.stack,
        },
        "cluster": {"pools": [pool | {"gpus_per_node": min(pool["gpus_per_node"], MOST_DEVICES)}]},
        "constraints": {"allow_shadow_copies": False, "allow_offload": False} | variant.constraints,
    }
    return JobSpec.model_validate(document)


def settings_of(variant: Variant, sizes: Sizes, folder: Path, *, iterations: int) -> RunSettings:
    """How it runs; the prompts are written into the folder."""
    prompts = folder / "prompts.jsonl"
    if not prompts.exists():
        write_prompts(prompts, task="copy", prompt_length=sizes.prompt_tokens)
    engine = "fsdp" if variant.stack == "fsdp" else "megatron"
    return RunSettings.model_validate(
        {
            "functions": {"reward": {"path": "automap.executor.tiny.tasks:copy"}},
            "data": {"path": str(prompts)},
            "training": {"default": {"engine": engine}},
            "metrics": {"loggers": ["jsonl"]},
            "iterations": iterations,
        }
    )


def pool_of(profile: Path) -> dict[str, Any]:
    """The machine as its profile describes it."""
    (pool,) = yaml.safe_load((profile / "cluster.yaml").read_text())["cluster"]["pools"]
    return dict(pool) | {"profile": str(profile.absolute())}
