"""Pass configurations through AReaL's own loader and checks, on CPU and without weights.

    .venv-exports/bin/python tests/exports/accept_areal.py < cases.jsonl > verdicts.jsonl

A case is {"id", "config", "environment"}. AReaL's dataclasses, its parser of backends, and what its
trainer checks before it starts anything are its own; modules that start processes are not loaded. A
verdict has either `error`, what AReaL says against the launch, or what it would run with.
"""

import ast
import dataclasses
import functools
import importlib
import importlib.util
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

from cases import answer_cases
from faster_configs import speed_up

PACKAGES = ("areal", "areal.api", "areal.utils", "areal.infra", "areal.infra.utils", "areal.engine")
"""Packages whose own first lines load what starts processes."""
SHORT = {
    "d": "data_parallel_size",
    "t": "tensor_parallel_size",
    "p": "pipeline_parallel_size",
    "c": "context_parallel_size",
    "e": "expert_parallel_size",
    "et": "expert_tensor_parallel_size",
    "v": "virtual_pipeline_parallel_size",
}


def load() -> tuple[Any, Any, Path]:
    """AReaL's modules of configurations and of backends, and its folder."""
    [folder] = map(Path, importlib.util.find_spec("areal").submodule_search_locations)  # type: ignore
    for name in PACKAGES:
        module = ModuleType(name)
        module.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module
    # Loggers of a run, of which a configuration takes the folder alone.
    loggers = ModuleType("areal.utils.stats_logger")
    loggers.StatsLogger = SimpleNamespace(get_log_path=lambda told: told.fileroot)  # type: ignore
    sys.modules[loggers.__name__] = loggers
    named = ("areal.api.alloc_mode", "areal.api.cli_args", "areal.utils.pkg_version")
    modules: list[Any] = [importlib.import_module(name) for name in named]
    alloc_mode, cli_args, pkg_version = modules

    # SGLang is not installed, and its version is all that is asked of it.
    pkg_version.is_version_greater_or_equal = lambda *_: True
    # It makes its parser anew for every backend.
    alloc_mode.Lark = functools.cache(alloc_mode.Lark)
    # And the defaults of its classes, which it copies before it writes to them.
    cli_args.OmegaConf.structured = functools.cache(cli_args.OmegaConf.structured)
    return cli_args, alloc_mode, folder


def main() -> None:
    speed_up()
    cli_args, alloc_mode, folder = load()
    check = trainer_checks(cli_args, alloc_mode, folder)
    answer_cases(
        lambda case: verdict_on(case, cli_args, alloc_mode, check),
        lambda: dict(keys(cli_args.PPOConfig)),
    )


def verdict_on(case: dict[str, Any], cli_args: Any, alloc_mode: Any, check: Any) -> dict[str, Any]:
    before = dict(os.environ)
    # Only the first rank writes the configuration down again, which takes longer than all else.
    os.environ.update({**case["environment"], "RANK": "1"})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "areal.yaml"
        path.write_text(case["config"], encoding="utf-8")
        try:
            words = ["--config", str(path), *case.get("overrides", [])]
            config, _ = cli_args.load_expr_config(words, cli_args.PPOConfig)
            checked = check(config)
            return told(config, checked, cli_args, alloc_mode)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            return {"error": f"{type(error).__name__}: {error}", "at": last.name}
        finally:
            os.environ.clear()
            os.environ.update(before)


def told(config: Any, checked: Any, cli_args: Any, alloc_mode: Any) -> dict[str, Any]:
    """Who runs with which sizes and shares whose GPUs, and the values that plans decide."""
    parts = {"actor": config.actor, "rollout": config.rollout, "critic": config.critic}
    if config.actor.kl_ctl > 0 and config.ref is not None:
        parts["ref"] = config.ref
    models = {}
    for name, part in parts.items():
        if part is None:
            continue
        found = alloc_mode.ModelAllocation.from_str(part.backend, name=name)
        sizes = dataclasses.asdict(found.parallel)
        if found.backend == "megatron":
            # As AReaL's engine makes them of the two.
            virtual = part.megatron.virtual_pipeline_parallel_size
            sizes = dataclasses.asdict(
                alloc_mode.MegatronParallelStrategy(virtual_pipeline_parallel_size=virtual, **sizes)
            )
        strategy = part.scheduling_strategy
        shared = checked._is_colocation(strategy)
        models[name] = {short: sizes.get(long, 1) for short, long in SHORT.items()}
        models[name] |= {"backend": found.backend, "with": strategy.target if shared else None}
        assert all(spec.gpu == 1 for spec in part.scheduling_spec), "processes without a GPU"
        if name == "critic":
            assert part.is_critic, "a critic without a value head"
    layout = checked.rollout_alloc.parallel
    kind = cli_args.vLLMConfig if checked.rollout_alloc.backend == "vllm" else cli_args.SGLangConfig
    section = getattr(config, checked.rollout_alloc.backend)
    more = {} if kind is cli_args.vLLMConfig else {"base_gpu_id": 0}
    arguments = kind.build_args(section, tp_size=layout.tp_size, pp_size=layout.pp_size, **more)
    return {
        "models": models,
        "arguments": arguments,
        "command": kind.build_cmd_from_args(arguments),
        "values": {
            "train_dataset.batch_size": config.train_dataset.batch_size,
            "rollout.consumer_batch_size": config.rollout.consumer_batch_size,
            "rollout.max_head_offpolicyness": config.rollout.max_head_offpolicyness,
            "gconfig.n_samples": config.gconfig.n_samples,
            "gconfig.max_new_tokens": config.gconfig.max_new_tokens,
            "actor.ppo_n_minibatches": config.actor.ppo_n_minibatches,
            "actor.mb_spec.max_tokens_per_mb": config.actor.mb_spec.max_tokens_per_mb,
            "total_train_steps": config.total_train_steps,
            "cluster.n_nodes": config.cluster.n_nodes,
            "computes log-probabilities": config.actor.should_compute_prox_logp(),
            "has a reference": "ref" in models,
            "engine": checked.rollout_alloc.backend,
            "enable_offload": config.enable_offload,
        },
    }


def trainer_checks(cli_args: Any, alloc_mode: Any, folder: Path) -> Any:
    """What AReaL's trainer reads of a configuration and checks before it starts anything.

    These are the lines of its `__init__` from the backends to the checks, and the methods they
    call: the rest of the module loads what starts processes.
    """
    source = (folder / "trainer/rl_trainer.py").read_text(encoding="utf-8")
    [kind] = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == "PPOTrainer"
    ]
    methods = {node.name: node for node in kind.body if isinstance(node, ast.FunctionDef)}
    start = methods["__init__"]
    lines = [ast.unparse(line) for line in start.body]
    first = next(i for i, line in enumerate(lines) if line.startswith("self.actor_alloc"))
    last = next(i for i, line in enumerate(lines) if line.startswith("self._validate_cfg"))
    start.body = start.body[first : last + 1]
    start.name = "check"
    wanted = ("_is_colocation", "_is_actor_rollout_colocated", "_validate_cfg")
    kind.body = [start, *(methods[name] for name in wanted)]
    future = ast.parse("from __future__ import annotations").body
    names = vars(cli_args) | {"ModelAllocation": alloc_mode.ModelAllocation}
    exec(compile(ast.Module([*future, kind], []), "rl_trainer.py", "exec"), names)

    def check(config: Any) -> Any:
        trainer = names["PPOTrainer"].__new__(names["PPOTrainer"])
        trainer.config = config
        trainer.check(config)
        return trainer

    return check


def keys(kind: Any, prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key of a configuration, with its type and default."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        plain = [each for each in get_args(hint) if each is not type(None)]
        section = hint if dataclasses.is_dataclass(hint) else None
        if len(plain) == 1 and dataclasses.is_dataclass(plain[0]) and get_origin(hint) is not tuple:
            section = plain[0]
        if section is not None:
            yield from keys(section, f"{prefix}{field.name}.")
            continue
        default = field.default
        if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        shown = [getattr(each, "__name__", str(each)) for each in plain or [hint]]
        yield f"{prefix}{field.name}", {"type": shown[0], "default": default}


if __name__ == "__main__":
    main()
