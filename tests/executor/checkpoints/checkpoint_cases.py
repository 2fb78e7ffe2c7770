"""Cases for several processes, and a program whose children are killed while they save."""

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from automap.executor.checkpoints import (
    CheckpointError,
    CheckpointFolder,
    ControllerState,
    RandomState,
)
from automap.executor.checkpoints.shard_files import ShardSaver, load_shard
from automap.planner.plan.types import Parallelism

ROLES = {"actor": Parallelism(data_parallel_size=2), "critic": Parallelism()}


def whole_state(role: str, iteration: int) -> dict[str, Any]:
    """What every layout must read; values tell role, iteration and place."""
    start = iteration + (0.5 if role == "critic" else 0.0)
    return {
        "weights": {
            "matrix": torch.arange(7 * 6, dtype=torch.float32).view(7, 6) + start,
            "norm": torch.full((5,), start),
        },
        "steps": iteration,
    }


def sharded_state(role: str, iteration: int) -> dict[str, Any]:
    """The matrix over two ranks, 4 rows and 3; the norm on both."""
    mesh = init_device_mesh("cpu", (2,))
    state = whole_state(role, iteration)
    matrix, norm = state["weights"]["matrix"], state["weights"]["norm"]
    state["weights"]["matrix"] = distribute_tensor(matrix, mesh, [Shard(0)])
    state["weights"]["norm"] = distribute_tensor(norm, mesh, [Replicate()])
    return state


def spoil(state: dict[str, Any]) -> None:
    """Change everything in place, as the next optimizer step does."""
    for tensor in state["weights"].values():
        (tensor.to_local() if isinstance(tensor, DTensor) else tensor).fill_(-1.0)
    state["steps"] = -1


def differs(found: dict[str, Any], expected: dict[str, Any]) -> str:
    """What is not the same; empty if nothing is."""
    for name, value in expected["weights"].items():
        local = found["weights"][name]
        full = local.full_tensor() if isinstance(local, DTensor) else local
        if not torch.equal(full, value):
            return f"{name}: {full} instead of {value}"
    steps = found["steps"]
    return "" if steps == expected["steps"] else f"steps: {steps}, not {expected['steps']}"


def save(folder: CheckpointFolder, iteration: int, group: dist.ProcessGroup | None) -> None:
    """All roles of this process, in the background; the state changes at once."""
    saver = ShardSaver()
    written = folder.path / f"iteration-{iteration:06d}.partial"
    for role in ROLES:
        make = sharded_state if group is not None else whole_state
        state = make(role, iteration)
        saver.save_shard(state, written / role, group)
        spoil(state)
    RandomState.capture().save(written, f"rank-{dist.get_rank() if group else 0}")
    saver.wait()


def gloo_group() -> dist.ProcessGroup:
    group = dist.new_group(backend="gloo")
    assert isinstance(group, dist.ProcessGroup)
    return group


def case_two_ranks_save_and_load(path: Path) -> None:
    folder, group = CheckpointFolder(path / "run", keep_last=2), gloo_group()
    for iteration in (1, 2, 3):
        if dist.get_rank() == 0:
            folder.begin(iteration)
        dist.barrier()
        save(folder, iteration, group)
        dist.barrier()
        if dist.get_rank() == 0:
            folder.commit(iteration, roles=ROLES, controller=ControllerState(iteration=iteration))
        dist.barrier()
    newest = folder.newest()
    assert newest is not None
    assert newest.manifest.iteration == 3
    for role in ROLES:
        state = sharded_state(role, 0)
        load_shard(state, newest.path / role, group)
        assert not differs(state, whole_state(role, 3))


def case_the_ranks_work_on_while_they_save(path: Path) -> None:
    """The background thread's collectives do not mix with those of the work."""
    group = gloo_group()
    saver = ShardSaver()
    state = sharded_state("actor", 4)
    state["weights"]["large"] = torch.ones(4_000_000)
    saver.save_shard(state, path / "busy", group)
    total = torch.zeros(1)
    for number in range(100):
        term = torch.tensor([float(number)])
        dist.all_reduce(term)
        total += term
    assert total.item() == 2 * sum(range(100))
    saver.save_shard(sharded_state("actor", 5), path / "next", group)
    assert (path / "busy" / ".metadata").is_file(), "two saves were in flight"
    saver.wait()
    assert (path / "next" / ".metadata").is_file()


def case_a_rank_that_cannot_write_is_named_on_all(path: Path) -> None:
    group = gloo_group()
    saver = ShardSaver()
    state = {"matrix": sharded_state("actor", 1)["weights"]["matrix"]}
    # Each rank's own data, so that each must write more than the limit allows.
    state[f"large-{dist.get_rank()}"] = torch.ones(100_000)
    with largest_file(50_000 if dist.get_rank() == 1 else None):
        saver.save_shard(state, path / "limited", group)
        with pytest.raises(
            CheckpointError, match=r"limited cannot be written: rank 1: .*too large"
        ):
            saver.wait()
    saver.wait()  # the failure is over once it was told
    saver.save_shard(state, path / "limited", group)
    saver.wait()


@contextmanager
def largest_file(num_bytes: int | None) -> Iterator[None]:
    """As a full disk: writing beyond fails with EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if num_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# A program: python -m tests.executor.checkpoints.checkpoint_cases FOLDER random|points


def killed_at_random(path: Path, *, kills: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Children that save iteration after iteration, each killed at a random moment."""
    draw = random.Random(seed)
    for _ in range(kills):
        child = _fork(lambda: _save_for_ever(path))
        time.sleep(draw.uniform(0.02, 0.35))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        yield state_of(path)


def killed_at_every_point(path: Path) -> Iterator[dict[str, Any]]:
    """Children that end themselves at the first, the second, … dealing with the disk."""
    _save_one(path, 1)
    _save_one(path, 2)
    point, code = 0, int(signal.SIGKILL)
    while code == signal.SIGKILL:
        point += 1
        child = _fork(partial(_save_and_die, path, point))
        code = os.WTERMSIG(os.waitpid(child, 0)[1])
        found = state_of(path)
        yield found
        if found["iteration"] == 3:
            shutil.rmtree(path / "iteration-000003")
            if not (path / "iteration-000001").exists():
                _save_one(path, 1)


def _save_and_die(path: Path, point: int) -> None:
    _die_at(point)
    _save_one(path, 3)


def _die_at(number: int) -> None:
    """Before the number-th time that a folder or file is synced, renamed or removed."""
    calls = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return call

    os.fsync, os.rename, os.unlink = counted(os.fsync), counted(os.rename), counted(os.unlink)
    os.rmdir, os.mkdir = counted(os.rmdir), counted(os.mkdir)


def _save_for_ever(path: Path) -> None:
    newest = CheckpointFolder(path, keep_last=2).newest()
    iteration = newest.manifest.iteration if newest else 0
    while True:
        iteration += 1
        _save_one(path, iteration)


def _save_one(path: Path, iteration: int) -> None:
    folder = CheckpointFolder(path, keep_last=2)
    folder.begin(iteration)
    save(folder, iteration, None)
    folder.commit(iteration, roles=ROLES, controller=ControllerState(iteration=iteration))


def state_of(path: Path) -> dict[str, Any]:
    """What the run that comes next would find."""
    unfinished = [each.name for each in path.glob("*.partial")] if path.exists() else []
    newest = CheckpointFolder(path, keep_last=2).newest()
    if newest is None:
        return {"iteration": 0, "wrong": "", "unfinished": unfinished}
    wrong = ""
    for role in ROLES:
        state = whole_state(role, 0)
        load_shard(state, newest.path / role, None)
        wrong = wrong or differs(state, whole_state(role, newest.manifest.iteration))
    return {"iteration": newest.manifest.iteration, "wrong": wrong, "unfinished": unfinished}


def _fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


if __name__ == "__main__":
    torch.set_num_threads(1)
    where, how = Path(sys.argv[1]), sys.argv[2]
    outcomes = (
        killed_at_random(where, kills=12) if how == "random" else killed_at_every_point(where)
    )
    sys.stdout.write(json.dumps(list(outcomes)))
