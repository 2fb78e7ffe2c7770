"""Checkpoints: whole or not there, on any layout, whatever happens while they are written."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automap.executor.checkpoints import (
    CheckpointError,
    CheckpointFolder,
    ControllerState,
    DamagedCheckpointError,
    RandomState,
)
from automap.executor.checkpoints.shard_files import ShardSaver, load_shard
from automap.executor.data import DataPosition
from automap.planner.plan.types import Parallelism
from tests.executor.checkpoints import checkpoint_cases as cases
from tests.executor.ranks import Case, run_cases

pytestmark = [
    pytest.mark.many_processes,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]


def saved(folder: CheckpointFolder, *iterations: int) -> None:
    for iteration in iterations:
        folder.begin(iteration)
        cases.save(folder, iteration, None)
        folder.commit(iteration, roles=cases.ROLES, controller=ControllerState(iteration=iteration))


def names(folder: CheckpointFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir())


def test_the_last_few_are_kept_and_the_newest_is_found(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "checkpoints", keep_last=2)
    assert folder.newest() is None
    saved(folder, 5, 10, 15)
    assert names(folder) == ["iteration-000010", "iteration-000015"]
    newest = folder.newest()
    assert newest is not None
    assert newest.manifest.iteration == newest.controller.iteration == 15
    assert newest.manifest.roles == cases.ROLES
    state = cases.whole_state("critic", 0)
    load_shard(state, newest.path / "critic", None)
    assert not cases.differs(state, cases.whole_state("critic", 15))


def test_the_controllers_state_comes_back(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep_last=1)
    controller = ControllerState(
        iteration=7,
        data={"prompts": DataPosition(epoch=1, position=9, seed=3, fingerprint="ab" * 32)},
        random=RandomState.capture(),
        lagrange_multiplier=0.1 + 0.2,
    )
    folder.begin(7)
    cases.save(folder, 7, None)
    folder.commit(7, roles=cases.ROLES, controller=controller)
    newest = folder.newest()
    assert newest is not None
    assert newest.controller == controller


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep_last=2)
    saved(folder, 1)
    for name in ("iteration-000002.partial", "iteration-000000.removed"):
        shutil.copytree(tmp_path / "iteration-000001", tmp_path / name)
    (tmp_path / "notes").mkdir()
    again = CheckpointFolder(tmp_path, keep_last=2)
    newest = again.newest()
    assert newest is not None
    assert newest.manifest.iteration == 1
    partial = again.begin(2)
    assert list(partial.iterdir()) == []
    assert names(again) == ["iteration-000001", "iteration-000002.partial", "notes"]


def test_one_checkpoint_is_written_at_a_time(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep_last=2)
    folder.begin(1)
    with pytest.raises(CheckpointError, match="iteration-000001 is still being written"):
        folder.begin(2)
    folder.discard(1)
    folder.begin(2)


def shard_of(folder: Path) -> Path:
    return next((folder / "actor").glob("*.distcp"))


def test_a_missing_shard_is_named_and_an_older_checkpoint_offered(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep_last=3)
    saved(folder, 1, 2, 3)
    shard = shard_of(tmp_path / "iteration-000003")
    shard.unlink()
    with pytest.raises(DamagedCheckpointError) as raised:
        folder.newest()
    message = str(raised.value)
    assert f"actor/{shard.name} is missing" in message
    assert "next older whole one, iteration-000002" in message
    assert raised.value.older is not None
    assert raised.value.older.manifest.iteration == 2


def test_a_shard_that_is_cut_short_is_named_and_the_next_whole_one_offered(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep_last=3)
    saved(folder, 1, 2, 3)
    (tmp_path / "iteration-000002" / "controller.json").unlink()
    shard = shard_of(tmp_path / "iteration-000003")
    size = shard.stat().st_size
    with shard.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(
        DamagedCheckpointError,
        match=rf"actor/{shard.name} has 100 bytes instead of {size:,}; .* iteration-000001",
    ):
        folder.newest()
    shutil.rmtree(tmp_path / "iteration-000001")
    with pytest.raises(
        DamagedCheckpointError, match=r"no older whole one.*checkpoint\.resume"
    ) as e:
        folder.newest()
    assert e.value.older is None


@pytest.mark.parametrize("content", [None, "{", '{"iteration": 3}'])
def test_a_manifest_that_cannot_be_read_is_damage(tmp_path: Path, content: str | None) -> None:
    folder = CheckpointFolder(tmp_path, keep_last=3)
    saved(folder, 1)
    manifest = tmp_path / "iteration-000001" / "manifest.json"
    manifest.unlink()
    if content is not None:
        manifest.write_text(content)
    with pytest.raises(DamagedCheckpointError, match=r"manifest\.json is missing|validation error"):
        folder.newest()


def test_a_checkpoint_that_replaces_a_damaged_one_of_its_name(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep_last=3)
    saved(folder, 1, 2)
    shard_of(tmp_path / "iteration-000002").unlink()
    saved(folder, 2)
    newest = folder.newest()
    assert newest is not None
    assert newest.manifest.iteration == 2


def test_a_role_that_wrote_nothing_is_named(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep_last=2)
    saved(folder, 1)
    partial = folder.begin(2)
    saver = ShardSaver()
    saver.save_shard(cases.whole_state("actor", 2), partial / "actor", None)
    saver.wait()
    with pytest.raises(CheckpointError, match="role 'critic' has written nothing"):
        folder.commit(2, roles=cases.ROLES, controller=ControllerState(iteration=2))
    assert names(folder) == ["iteration-000001"]


def test_a_state_that_the_folder_does_not_hold_is_refused(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep_last=2)
    saved(folder, 1)
    actor = tmp_path / "iteration-000001" / "actor"
    with pytest.raises(CheckpointError, match=r"actor cannot be read: .*weights\.other"):
        load_shard({"weights": {"other": torch.zeros(3)}}, actor, None)
    with pytest.raises(CheckpointError, match=r"actor cannot be read: .*[Ss]ize"):
        load_shard({"weights": {"norm": torch.zeros(9)}}, actor, None)
    with pytest.raises(CheckpointError, match="nowhere cannot be read"):
        load_shard({"weights": {"norm": torch.zeros(5)}}, tmp_path / "nowhere", None)


def test_a_full_disk_ends_with_the_cause_and_the_earlier_checkpoint(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep_last=2)
    saved(folder, 1)
    partial = folder.begin(2)
    saver = ShardSaver()
    with cases.largest_file(20_000):
        saver.save_shard({"large": torch.ones(100_000)}, partial / "actor", None)
        with pytest.raises(CheckpointError, match=r"actor cannot be written: .*File too large"):
            saver.wait()
    folder.discard(2)
    assert names(folder) == ["iteration-000001"]
    partial = folder.begin(2)
    cases.save(folder, 2, None)
    with (
        cases.largest_file(10),
        pytest.raises(CheckpointError, match=r"File too large; intact: iteration-000001"),
    ):
        folder.commit(2, roles=cases.ROLES, controller=ControllerState(iteration=2))
    assert names(folder) == ["iteration-000001"]
    newest = folder.newest()
    assert newest is not None
    assert newest.manifest.iteration == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A disk of 300 KB, where the system lets us mount one."""
    where = tmp_path / "disk"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(where)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a tmpfs")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    folder = CheckpointFolder(small_disk, keep_last=2)
    saved(folder, 1)
    partial = folder.begin(2)
    saver = ShardSaver()
    saver.save_shard({"large": torch.ones(100_000)}, partial / "actor", None)
    with pytest.raises(CheckpointError, match="No space left on device"):
        saver.wait()
    folder.discard(2)
    assert names(folder) == ["iteration-000001"]
    assert folder.newest() is not None


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be written: .*Not a directory"):
        CheckpointFolder(blocked / "checkpoints", keep_last=2).begin(1)
    with pytest.raises(ValueError, match="keep_last=0"):
        CheckpointFolder(tmp_path, keep_last=0)


def draws() -> list[float]:
    return [
        random.random(),
        random.gauss(0, 1),
        float(np.random.normal()),
        float(torch.rand(1)),
        float(torch.randn(1)),
    ]


def test_random_generators_go_on_where_they_were(tmp_path: Path) -> None:
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    # One of a pair of normal numbers: the other is part of the state.
    random.gauss(0, 1)
    np.random.normal()
    tracker = torch.Generator().manual_seed(9)
    RandomState.capture({"model-parallel": tracker.get_state()}).save(tmp_path, "rank-00001")
    expected, from_tracker = draws(), torch.rand(3, generator=tracker)
    draws()
    loaded = RandomState.load(tmp_path, "rank-00001")
    assert loaded is not None
    tracker.set_state(loaded.restore()["model-parallel"])
    assert draws() == expected
    assert torch.equal(torch.rand(3, generator=tracker), from_tracker)
    assert RandomState.load(tmp_path, "rank-00002") is None


@pytest.mark.slow
def test_two_ranks_save_and_any_layout_loads(tmp_path: Path) -> None:
    named: dict[str, Case] = {
        "save and load": cases.case_two_ranks_save_and_load,
        "work on": cases.case_the_ranks_work_on_while_they_save,
        "cannot write": cases.case_a_rank_that_cannot_write_is_named_on_all,
    }
    outcomes = run_cases(named, world_size=2, folder=tmp_path)
    assert outcomes == dict.fromkeys(named), "\n".join(filter(None, outcomes.values()))
    # Here: one process without a group, where two ranks had half of the matrix each.
    folder = CheckpointFolder(tmp_path / "run", keep_last=2)
    assert names(folder) == ["iteration-000002", "iteration-000003"]
    newest = folder.newest()
    assert newest is not None
    assert newest.manifest.roles["actor"] == Parallelism(data_parallel_size=2)
    for role in cases.ROLES:
        state = cases.whole_state(role, 0)
        load_shard(state, newest.path / role, None)
        assert not cases.differs(state, cases.whole_state(role, 3))
    assert {entry.path for entry in newest.manifest.files} >= {
        "random/rank-0.json",
        "random/rank-1.json",
        "actor/__0_0.distcp",
        "actor/__1_0.distcp",
    }


def outcomes_of(folder: Path, how: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.executor.checkpoints.checkpoint_cases", str(folder), how],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    outcomes: list[dict[str, Any]] = json.loads(done.stdout)
    return outcomes


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    outcomes = outcomes_of(tmp_path / "run", "random")
    assert [outcome["wrong"] for outcome in outcomes] == [""] * len(outcomes)
    iterations = [outcome["iteration"] for outcome in outcomes]
    assert iterations == sorted(iterations), "a later kill leaves a later checkpoint"
    assert iterations[-1] > 0
    unfinished = [outcome for outcome in outcomes if outcome["unfinished"]]
    assert len(unfinished) >= 3, "the kills came while it was saving"


@pytest.mark.slow
def test_a_kill_before_every_change_of_the_disk(tmp_path: Path) -> None:
    outcomes = outcomes_of(tmp_path / "run", "points")
    assert [outcome["wrong"] for outcome in outcomes] == [""] * len(outcomes)
    iterations = [outcome["iteration"] for outcome in outcomes]
    # Two whole ones before; the third counts from one moment on, and the last child lives.
    assert iterations == sorted(iterations)
    assert set(iterations) == {2, 3}
    assert len(iterations) > 20
