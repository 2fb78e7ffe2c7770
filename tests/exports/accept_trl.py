"""Pass launches through TRL's, accelerate's and vLLM's own code, on CPU and without weights.

    .venv-exports/bin/python tests/exports/accept_trl.py < cases.jsonl > verdicts.jsonl

A case has the two files of a launch, the words of its commands, and which of TRL's scripts it
starts. A verdict has either `error`, what they say against the launch, or what they would run with:
accelerate's arguments, the trainer's, and those of the engine, in its processes or served.
"""

import argparse
import dataclasses
import importlib
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

from cases import answer_cases

os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
warnings.filterwarnings("ignore")
LAUNCH = [
    "num_processes",
    "num_machines",
    "machine_rank",
    "mixed_precision",
    "use_deepspeed",
    "use_fsdp",
    "zero_stage",
    "fsdp_version",
    "fsdp_auto_wrap_policy",
    "deepspeed_multinode_launcher",
    "fsdp_reshard_after_forward",
    "fsdp_offload_params",
    "fsdp_activation_checkpointing",
    "offload_optimizer_device",
    "offload_param_device",
]
TRAINER = [
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "generation_batch_size",
    "steps_per_generation",
    "num_generations",
    "num_iterations",
    "max_completion_length",
    "beta",
    "use_vllm",
    "vllm_mode",
    "gradient_checkpointing",
    "max_steps",
    "save_steps",
]
SERVER = [
    "tensor_parallel_size",
    "data_parallel_size",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_memory_bytes",
    "gpu_memory_utilization",
]


def main() -> None:
    answer_cases(verdict_on, arguments)


def verdict_on(case: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name}.yaml" for name in ("accelerate", "trainer")}
        for name, path in paths.items():
            path.write_text(case[name], encoding="utf-8")
        try:
            launch = launched(paths["accelerate"], case["launch"])
            trainer = trained(case, paths["trainer"], launch["num_processes"])
            found = {
                "launch": launch,
                "trainer": {name: getattr(trainer, name) for name in TRAINER},
            }
            if trainer.vllm_mode == "server":
                return {**found, "server": served(case["serve"])}
            # It says in the environment which rank it is, which the next launch would join.
            with patch.dict(os.environ):
                return {**found, "engine": engine(trainer, launch["num_processes"])}
        except SystemExit:
            return {"error": "a parser ends"}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}


def launched(path: Path, words: list[str]) -> dict[str, Any]:
    """What `accelerate launch` makes of its file; keys of a section are its own arguments."""
    import yaml

    module = importlib.import_module("accelerate.commands.launch")

    parser = module.launch_command_parser()
    args = parser.parse_args(["--config_file", str(path), *words, "-m", "trl.scripts.grpo"])
    known = set(vars(args))
    for name, section in yaml.safe_load(path.read_text("utf-8")).items():
        others = set(section) - known if isinstance(section, dict) else set()
        if others:
            raise ValueError(f"{name} has {others}, which accelerate launch has no arguments for")
    checked, _, _ = module._validate_launch_command(args)
    return {name: getattr(checked, name) for name in LAUNCH}


def trained(case: dict[str, Any], path: Path, processes: int) -> Any:
    """The arguments that the script would give its trainer on so many processes."""
    trl = importlib.import_module("trl")

    name = {"grpo": "GRPOConfig", "rloo": "RLOOConfig"}[case["program"]]
    original = getattr(trl, name)
    alike: Any = dataclasses.dataclass(
        type(name, (original,), {"world_size": property(lambda _: processes)})
    )
    setattr(trl, name, alike)
    try:
        parser = importlib.import_module(f"trl.scripts.{case['program']}").make_parser()
        # The plan's are GPUs; here are none.
        cpu = ["--use_cpu", "True", "--bf16", "False"]
        words = ["--config", str(path), *case["words"], *cpu]
        return parser.parse_args_and_config(words, fail_with_unknown_args=True)[1]
    finally:
        setattr(trl, name, original)


def engine(args: Any, processes: int) -> dict[str, Any]:
    """What TRL tells the engine in its processes, by its own code with a recorder for vLLM's."""
    import torch

    module: Any = importlib.import_module("trl.generation.vllm_generation")

    told: dict[str, Any] = {}
    module.is_vllm_available = lambda *_, **__: True
    module.LLM = lambda **more: told.update(more) or MagicMock()
    torch.distributed.new_subgroups_by_enumeration = lambda groups: (None, None)
    accelerator = MagicMock(num_processes=processes, process_index=0, local_process_index=0)
    model = MagicMock(name_or_path="x")
    model.named_modules.return_value = []
    size = args.vllm_tensor_parallel_size
    module.VLLMGeneration(
        model,
        accelerator,
        MagicMock(),
        mode=args.vllm_mode,
        tensor_parallel_size=size,
        gpu_memory_utilization=args.vllm_gpu_memory_utilization,
        max_model_length=args.vllm_max_model_length,
        # As in GRPOTrainer.
        max_num_seqs=args.per_device_train_batch_size * size * args.steps_per_generation,
        enable_sleep_mode=args.vllm_enable_sleep_mode,
        model_impl=args.vllm_model_impl,
    )
    return told


def served(words: list[str]) -> dict[str, Any]:
    """What `vllm serve` makes of its words."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    args = make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", "x", *words])
    return {name: getattr(args, name) for name in SERVER}


def arguments() -> dict[str, dict[str, dict[str, Any]]]:
    """Arguments of TRL's scripts and of accelerate's command, with their types and defaults."""
    module = importlib.import_module("accelerate.commands.launch")
    parsers = {"accelerate": module.launch_command_parser()}
    for name in ("grpo", "rloo"):
        parsers[name] = importlib.import_module(f"trl.scripts.{name}").make_parser()
    return {name: _arguments(parser) for name, parser in parsers.items()}


def _arguments(parser: argparse.ArgumentParser) -> dict[str, dict[str, Any]]:
    return {
        each.dest: {
            "type": getattr(each.type, "__name__", "flag" if each.nargs == 0 else "str"),
            "default": each.default,
            "several": each.nargs in ("+", "*"),
        }
        for each in parser._actions
        if each.option_strings and not each.option_strings[0].startswith(("--no_", "--no-"))
    }


if __name__ == "__main__":
    main()
