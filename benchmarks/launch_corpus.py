"""Launches to import: files written in the forms that people use, and for verl many from forms."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice, product
from pathlib import Path

import yaml

from automap.planner.imports import LaunchFile
from automap.service.schemas.document_lines import key_lines

FOLDER = Path(__file__).parent / "launches"
MODELS = {
    "Qwen/Qwen2.5-1.5B-Instruct": (1, 1),
    "Qwen/Qwen3-8B": (2, 2),
    "meta-llama/Llama-3.1-8B-Instruct": (2, 4),
    "/data/models/Qwen2.5-32B": (8, 8),
}
"""Path of a model → (tensor size of training, of generation)."""


@dataclass(frozen=True, slots=True)
class Written:
    """A launch, and what its first lines say it needs beside GPU and lengths."""

    name: str
    files: tuple[LaunchFile, ...]
    help: tuple[str, ...] = ()
    """Options, for instance `--set NNODES=2`."""


SLIME = FOLDER / "slime"
BESIDE = ".model.sh"
"""Ending of scripts that others read."""
NEMO_RL = FOLDER / "nemo_rl"
AREAL = FOLDER / "areal"
WITH_CONFIGURATIONS = {"nemo-rl": NEMO_RL, "areal": AREAL}
"""Framework whose launches are configurations too → their folder."""
PART = "# part of another"
"""First line of configurations that are launched by others alone."""


def corpus(framework: str = "verl") -> list[Written]:
    """All of a framework."""
    if framework in WITH_CONFIGURATIONS:
        folder = WITH_CONFIGURATIONS[framework]
        files = [each for each in sorted(folder.iterdir()) if each.suffix in (".sh", ".yaml")]
        return list(_of_files([each for each in files if PART not in each.read_text("utf-8")]))
    if framework != "verl":
        found = sorted((FOLDER / framework).glob("*.sh"))
        return list(_of_files([each for each in found if not each.name.endswith(BESIDE)]))
    return [*_of_files([*sorted(FOLDER.glob("*.sh")), FOLDER / "config-b.yaml"]), *_of_forms()]


def _of_files(paths: list[Path]) -> Iterator[Written]:
    """The scripts, each with the files that it says are beside it."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        beside = re.search(r"^# beside: (.*)$", text, re.MULTILINE)
        names = [path.name, *(beside[1].split() if beside else [])]
        given = re.search(r"^# with: (.*)$", text, re.MULTILINE)
        options = tuple(shlex.split(given[1])) if given else ()
        files = tuple(file_of(name, folder=path.parent) for name in names)
        yield Written(path.stem, files, options)


def file_of(name: str, *, folder: Path = FOLDER) -> LaunchFile:
    """A file of a folder."""
    path = folder / name
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".sh", ".py"):
        return LaunchFile(path.name, text)
    return LaunchFile(path.name, document=yaml.safe_load(text), lines=key_lines(text))


def _of_forms() -> Iterator[Written]:
    """Every algorithm with every model, the engines and the forms of a script in turn."""
    forms = cycle((_flat, _arrays, _submitted, _exported))
    engines = cycle(("fsdp", "megatron", "fsdp2"))
    drawn = zip(
        product(("grpo", "gae", "reinforce_plus_plus"), MODELS), forms, engines, strict=False
    )
    for (algorithm, model), form, engine in islice(drawn, 12):
        for dynamic in (False, True):
            settings = _settings(algorithm, model, engine, dynamic=dynamic)
            short = model.rpartition("/")[2]
            name = f"{algorithm} {short} {engine}, {form.__name__[1:]}, dynamic {dynamic}"
            yield Written(name, (LaunchFile(f"{name}.sh", form(settings)),))


def _settings(algorithm: str, model: str, engine: str, *, dynamic: bool) -> dict[str, str]:
    tensor, generation = MODELS[model]
    actor = "actor_rollout_ref.actor"
    found = {
        "algorithm.adv_estimator": algorithm,
        "data.train_batch_size": "256",
        "data.max_prompt_length": "1024",
        "data.max_response_length": "2048",
        "actor_rollout_ref.model.path": model,
        f"{actor}.ppo_mini_batch_size": "64",
        f"{actor}.use_kl_loss": str(algorithm == "grpo"),
        f"{actor}.optim.lr": "1e-6",
        f"{actor}.use_dynamic_bsz": str(dynamic),
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.tensor_model_parallel_size": str(generation),
        "actor_rollout_ref.rollout.gpu_memory_utilization": "0.6",
        "actor_rollout_ref.rollout.n": "1" if algorithm == "gae" else "8",
        "trainer.nnodes": "2",
        "trainer.n_gpus_per_node": "8",
        "trainer.total_epochs": "10",
    }
    if dynamic:
        found[f"{actor}.ppo_max_token_len_per_gpu"] = "$((3072 * 4))"
    else:
        found[f"{actor}.ppo_micro_batch_size_per_gpu"] = "4"
        found["actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"] = "8"
        found["actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"] = "8"
    if algorithm == "gae":
        found["critic.model.path"] = model
        found["critic.ppo_micro_batch_size_per_gpu"] = "8"
    roles = [actor, *(["critic"] if algorithm == "gae" else [])]
    if engine == "megatron":
        found["model_engine"] = "megatron"
        for role in roles:
            found[f"{role}.megatron.tensor_model_parallel_size"] = str(tensor)
            found[f"{role}.megatron.param_offload"] = "True"
            found[f"{role}.megatron.optimizer_offload"] = "True"
        return found
    for role in roles:
        section = "fsdp" if role == "critic" else "fsdp_config"
        found[f"{role}.strategy"] = engine
        found[f"{role}.{section}.param_offload"] = "True"
        found[f"{role}.{section}.optimizer_offload"] = "True"
    return found


def _flat(settings: dict[str, str]) -> str:
    lines = " \\\n    ".join(f"{key}={value}" for key, value in settings.items())
    return f"set -x\n\npython3 -m verl.trainer.main_ppo \\\n    {lines} $@\n"


def _arrays(settings: dict[str, str]) -> str:
    groups: dict[str, list[str]] = {}
    for key, value in settings.items():
        groups.setdefault(key.split(".")[0].upper().replace("_", ""), []).append(f"{key}={value}")
    texts = [
        f"{name}=(\n" + "".join(f"    {each}\n" for each in group) + ")"
        for name, group in groups.items()
    ]
    used = " ".join(f'"${{{name}[@]}}"' for name in groups)
    head = "#!/usr/bin/env bash\nset -xeuo pipefail\n"
    return "\n".join([head, *texts, f'python3 -m verl.trainer.main_ppo {used} "$@"\n'])


def _submitted(settings: dict[str, str]) -> str:
    names = {key: key.replace(".", "_") for key in settings}
    heads = [f"{names[key]}={value}" for key, value in settings.items()]
    lines = " \\\n    ".join(f'{key}="${{{names[key]}}}"' for key in settings)
    start = "ray job submit --address=http://127.0.0.1:8265 --runtime-env-json='{\"a\": {}}' -- "
    return "\n".join([*heads, f"{start}python3 -m verl.trainer.main_ppo \\\n    {lines}\n"])


def _exported(settings: dict[str, str]) -> str:
    """Each value can be given from outside, and the log goes to a file."""
    names = {key: key.replace(".", "_").upper() for key in settings}
    heads = [f'export {names[key]}="${{{names[key]}:-{value}}}"' for key, value in settings.items()]
    lines = " \\\n    ".join(f"{key}=${names[key]}" for key in settings)
    log = "2>&1 | tee logs/$(date +%s).log"
    return "\n".join([*heads, f"nohup python3 -u -m verl.trainer.main_ppo \\\n    {lines} {log}\n"])
