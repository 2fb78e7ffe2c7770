"""Pass launches through OpenRLHF's own parser and checks, on CPU and without weights.

    .venv-exports/bin/python tests/exports/accept_openrlhf.py < cases.jsonl > verdicts.jsonl

A case is {"id", "words"}. The program itself runs, with recorders for what would start processes.
A verdict has either `error`, what OpenRLHF says against the launch, or what it would run with: the
values of its arguments, the groups of GPUs that it asks Ray for, and who is in which.
"""

import argparse
import contextlib
import importlib.util
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

from cases import answer_cases

PROGRAM = "openrlhf.cli.train_ppo_ray"
RECORDED = (
    "ray",
    "ray.util",
    "ray.util.placement_group",
    "openrlhf.trainer",
    "openrlhf.trainer.ray",
    "openrlhf.trainer.ray.launcher",
    "openrlhf.trainer.ray.ppo_actor",
    "openrlhf.trainer.ray.ppo_critic",
    "openrlhf.trainer.ppo_trainer",
    "openrlhf.trainer.ppo_trainer_async",
)
"""Modules that start processes, or import what does."""
ROLES = {
    "PolicyModelActor": "actor",
    "ReferenceModelActor": "reference",
    "CriticModelActor": "critic",
    "RewardModelActor": "reward",
}


class Record:
    """What one launch asks for."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.members: dict[str, dict[str, Any]] = {}
        self.values: dict[str, Any] = {}

    def group(self, bundles: list[Any], strategy: str) -> Any:
        self.groups.append(len(bundles))
        found = MagicMock()
        found.number = len(self.groups) - 1
        return found

    def models(self, nodes: int, each: int, kind: Any, pg: Any = None, **more: Any) -> Any:
        place = self.group([None] * (nodes * each), "PACK") if pg is None else pg
        told = {"num_gpus": nodes * each, "group": place.number}
        self.members[ROLES[kind.name]] = told | {"duplicates": more["duplicate_actors"]}
        found = MagicMock()
        found.async_init_model_from_pretrained.return_value = []
        return found

    def engines(self, count: int, tensor: int, *rest: Any, **_: Any) -> Any:
        place, share, sleeps = rest[6], rest[7], rest[8]
        place = self.group([None] * (count * tensor), "PACK") if place is None else place
        self.members["rollout"] = {
            "num_gpus": count * tensor,
            "group": place.number,
            "share": share,
            "sleeps": sleeps,
        }
        return []


def main() -> None:
    spec = importlib.util.find_spec("openrlhf")
    assert spec is not None, "openrlhf is installed"
    [folder] = map(Path, spec.submodule_search_locations or [])
    code = compile((folder / "cli/train_ppo_ray.py").read_text("utf-8"), PROGRAM, "exec")
    answer_cases(
        lambda case: verdict_on(case["words"], code, folder), lambda: arguments(code, folder)
    )


def verdict_on(words: list[str], code: Any, folder: Path) -> dict[str, Any]:
    record, told = Record(), io.StringIO()
    with recorders(record, folder), contextlib.redirect_stdout(told):
        sys.argv = [PROGRAM, *words]
        try:
            with contextlib.redirect_stderr(told):
                exec(code, {"__name__": "__main__"})
        except SystemExit:
            return {"error": told.getvalue().strip().splitlines()[-1]}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
    warned = [line for line in told.getvalue().splitlines() if "Warning" in line or "Set " in line]
    return {
        "groups": record.groups,
        "members": record.members,
        "values": record.values,
        "warned": warned,
    }


def arguments(code: Any, folder: Path) -> dict[str, dict[str, Any]]:
    """Every argument of the parser, with its type and default."""
    found: dict[str, dict[str, Any]] = {}

    def parsed(self: argparse.ArgumentParser) -> None:
        for each in self._actions:
            kind = getattr(each.type, "__name__", "flag" if each.nargs == 0 else "str")
            several = each.nargs not in (0, None)
            found[each.option_strings[-1]] = {"type": kind, "default": each.default}
            found[each.option_strings[-1]] |= {"several": several}
        raise SystemExit

    original, argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_args, parsed  # type: ignore[assignment]
    try:
        with recorders(Record(), folder), contextlib.suppress(SystemExit):
            exec(code, {"__name__": "__main__"})
    finally:
        argparse.ArgumentParser.parse_args = original  # type: ignore[method-assign]
    return found


@contextlib.contextmanager
def recorders(record: Record, folder: Path) -> Iterator[None]:
    """The modules that start processes, replaced; openrlhf.utils.config stays OpenRLHF's."""
    before = dict(sys.modules)
    for name in RECORDED:
        sys.modules[name] = MagicMock()
    for module, name in (("ppo_actor", "Policy"), ("ppo_critic", "Critic")):
        _kind(sys.modules[f"openrlhf.trainer.ray.{module}"], f"{name}ModelActor")
    launcher = sys.modules["openrlhf.trainer.ray.launcher"]
    for name in ("ReferenceModelActor", "RewardModelActor"):
        _kind(launcher, name)
    launcher.RayActorGroup = record.models  # type: ignore[attr-defined]
    sys.modules["ray.util.placement_group"].placement_group = record.group  # type: ignore[attr-defined]
    sys.modules["openrlhf.trainer.ray"].create_vllm_engines = record.engines  # type: ignore[attr-defined]
    utils = ModuleType("openrlhf.utils")
    utils.__path__ = [str(folder / "utils")]

    def strategy(args: Any) -> Any:
        record.values.update(_flat(args))
        return MagicMock()

    utils.get_strategy = strategy  # type: ignore[attr-defined]
    sys.modules["openrlhf.utils"] = utils
    try:
        yield
    finally:
        for name in set(sys.modules) - set(before):
            del sys.modules[name]
        sys.modules.update(before)


def _kind(module: Any, name: str) -> None:
    kind = MagicMock()
    kind.name = name
    setattr(module, name, kind)


def _flat(args: Any, prefix: str = "--") -> Iterator[tuple[str, Any]]:
    for name, value in vars(args).items():
        if hasattr(value, "__dict__"):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


if __name__ == "__main__":
    main()
