"""Pass launches through SkyRL's own configuration, checks and placement, on CPU, without weights.

    .venv-exports/bin/python tests/exports/accept_skyrl.py < cases.jsonl > verdicts.jsonl

A case is {"id", "overrides", "program"}. SkyRL's entry runs, or the program where there is one, up
to where models are built, with recorders for what would start processes. A verdict has either
`error`, what SkyRL says against the launch, or what it would run with: the values of its
configuration, the groups of GPUs that it asks Ray for, and who is in which.
"""

import contextlib
import dataclasses
import sys
import typing
import warnings
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock, patch

import typing_extensions
from cases import answer_cases
from faster_configs import speed_up

speed_up()

# SkyRL asks for a newer Python's.
typing.TypedDict = typing_extensions.TypedDict  # type: ignore[misc,assignment]
# The router in front of the engines is a process, and nothing of it is asked here.
for _name in ("vllm_router", "vllm_router.launch_router", "vllm_router.router_args"):
    sys.modules[_name] = MagicMock()

from skyrl.backends.skyrl_train.distributed.megatron.optimizer import (  # noqa: E402
    init_megatron_optim_config,
)
from skyrl.backends.skyrl_train.inference_servers import setup  # noqa: E402
from skyrl.train import fully_async_trainer, trainer  # noqa: E402
from skyrl.train.config import SkyRLTrainConfig  # noqa: E402
from skyrl.train.entrypoints import main_base  # noqa: E402

ROLES = {"PolicyWorker": "actor", "RefWorker": "reference", "CriticWorker": "critic"}


class Record:
    """What one launch asks for."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.members: dict[str, dict[str, Any]] = {}
        self.values: dict[str, Any] = {}
        self.trainer = ""
        self.colocated: Any = None
        """The group of all models and engines; None: they share none."""

    def group(self, bundles: list[dict[str, int]], strategy: str = "PACK") -> Any:
        self.groups.append(sum(each["GPU"] for each in bundles))
        found = MagicMock()
        found.pg, found.number = found, len(self.groups) - 1
        return found

    def models(
        self, cfg: Any, nodes: int, each: int, kind: str, pg: Any = None, **told: Any
    ) -> Any:
        place = pg or self.group([{"GPU": 1}] * (nodes * each))
        told = {"num_gpus": nodes * each, "group": place.number, "in_turn": told["colocate_all"]}
        self.members[ROLES[kind]] = told
        found = MagicMock()
        found.async_init_model.return_value = []
        return found

    def engines(self, cli_args: Any, num_servers: int, placement_group: Any, **told: Any) -> Any:
        member = self.members.setdefault(
            "rollout", {"num_gpus": 0, "group": placement_group.number, "engines": 0}
        )
        each = cli_args.tensor_parallel_size * cli_args.pipeline_parallel_size
        assert told["placement_group_bundle_offset"] == member["num_gpus"], (
            "engines are side by side"
        )
        member["num_gpus"] += num_servers * each
        member["engines"] += 1
        found = MagicMock()
        found.start.return_value = []
        return found


def main() -> None:
    answer_cases(verdict_on, lambda: dict(_flat(SkyRLTrainConfig(), types=True)))


def verdict_on(case: dict[str, Any]) -> dict[str, Any]:
    overrides, program = case["overrides"], case.get("program", "")
    record, out = Record(), sys.stdout
    with recorders(record), warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        sys.argv = ["skyrl", *overrides]
        try:
            if program:
                exec(compile(program, "program", "exec"), {"__name__": "__main__"})
            else:
                main_base.main()
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
    assert sys.stdout is out
    return {
        "groups": record.groups,
        "members": record.members,
        "values": record.values,
        "trainer": record.trainer,
    }


@contextlib.contextmanager
def recorders(record: Record) -> Iterator[None]:
    """SkyRL with recorders in place of processes, data and Ray; all its decisions are its own."""

    def remote(*functions: Any, **_: Any) -> Any:
        def here(function: Any) -> Any:
            return MagicMock(remote=function)

        return here(*functions) if functions else here

    def run(self: Any) -> None:
        cfg = self.cfg
        record.values.update(_flat(cfg))
        self.colocate_pg = colocated(self)
        engines = cfg.generator.inference_engine
        setup.create_inference_servers(engines, engines, "", self.colocate_pg)
        found = self.get_trainer(cfg, None, None, None, None, None, None, self.colocate_pg)
        record.trainer = type(found).__name__
        found.build_models("PolicyWorker", "CriticWorker", "RefWorker")
        if cfg.trainer.strategy == "megatron":
            check_optimizer(cfg.trainer.policy)

    def made(self: Any, cfg: Any, *_: Any, **__: Any) -> None:
        """What a trainer is once it is made, without data, loggers and monitors."""
        self.cfg, self.colocate_all = cfg, cfg.trainer.placement.colocate_all
        self.tokenizer = self.inference_engine_client = self.train_dataloader = MagicMock()
        self.train_dataloader.__len__.return_value = 0
        self.total_training_steps = cfg.trainer.max_training_steps
        self._callback_handler = MagicMock(callbacks=[])
        self.colocate_pg = record.colocated

    def colocated(self: Any, timeout: int = 0) -> Any:
        record.colocated = get(self, timeout)
        return record.colocated

    get = main_base.BasePPOExp.get_colocate_pg
    ray = MagicMock(remote=remote)
    with contextlib.ExitStack() as stack:
        for target, name, new in (
            (main_base, "placement_group", record.group),
            (main_base, "get_ray_pg_ready_with_timeout", MagicMock()),
            (main_base, "ResolvedPlacementGroup", lambda pg: pg),
            (main_base, "initialize_ray", MagicMock()),
            (main_base, "skyrl_entrypoint", MagicMock(remote=_entry)),
            (main_base, "ray", ray),
            (main_base.BasePPOExp, "__init__", lambda self, cfg: setattr(self, "cfg", cfg)),
            (main_base.BasePPOExp, "run", run),
            (setup, "ray_placement_group", record.group),
            (setup, "get_ray_pg_ready_with_timeout", MagicMock()),
            (setup, "ResolvedPlacementGroup", lambda pg: pg),
            (setup, "build_router_args", MagicMock()),
            (setup, "ray", ray),
            (trainer, "placement_group", record.group),
            (trainer, "get_ray_pg_ready_with_timeout", MagicMock()),
            (trainer, "ResolvedPlacementGroup", lambda pg: pg),
            (trainer, "PPORayActorGroup", record.models),
            (trainer, "WorkerDispatch", MagicMock()),
            (trainer, "ray", ray),
            (trainer.RayPPOTrainer, "__init__", made),
            (fully_async_trainer, "build_dataloader", MagicMock()),
        ):
            stack.enter_context(patch.object(target, name, new))
        servers = "skyrl.backends.skyrl_train.inference_servers"
        modules = {
            f"{servers}.server_group": MagicMock(ServerGroup=record.engines),
            f"{servers}.vllm_router": MagicMock(),
            "ray": ray,
        }
        stack.enter_context(patch.dict(sys.modules, modules))
        stack.enter_context(patch("skyrl.train.utils.utils.initialize_ray", MagicMock()))
        yield


def check_optimizer(policy: Any) -> None:
    """Have Megatron-core check the optimizer of the policy, as its worker makes it."""
    # It asks for the version of Transformer Engine, which needs a GPU.
    with patch("megatron.core.optimizer.optimizer_config.is_te_min_version", lambda _: True):
        init_megatron_optim_config(
            policy.optimizer_config, policy.megatron_config.optimizer_config_kwargs
        )


def _entry(cfg: Any) -> None:
    main_base.BasePPOExp(cfg).run()


def _flat(cfg: Any, prefix: str = "", *, types: bool = False) -> Iterator[tuple[str, Any]]:
    """Key → value, or (type, value), of every field that is no section."""
    for each in dataclasses.fields(cfg):
        value = getattr(cfg, each.name)
        if dataclasses.is_dataclass(value):
            yield from _flat(value, f"{prefix}{each.name}.", types=types)
        elif types:
            yield prefix + each.name, (str(each.type), value)
        elif isinstance(value, dict):
            yield from ((f"{prefix}{each.name}.{key}", held) for key, held in value.items())
        else:
            yield prefix + each.name, value


if __name__ == "__main__":
    main()
