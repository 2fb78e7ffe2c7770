"""A whole profile on this machine's CPU: tables that plans are priced with, budget, resume."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from automap.planner.catalogue import architecture, gpu_type
from automap.planner.cost.operators.interpolation import MEASURED
from automap.planner.cost.operators.profile import Profile
from automap.planner.job.resolution import resolve
from automap.planner.profiles import Key
from automap.planner.profiles.folder import profile_folder
from automap.planner.spec import JobSpec
from automap.profiler.errors import ProfileError
from automap.profiler.machine.devices import CpuDevice
from automap.profiler.measure.operations import operation
from automap.profiler.results.journal import FILE, Journal
from automap.profiler.results.profile_report import Progress
from automap.profiler.session import Session, expected_seconds, num_ranks, profile
from automap.profiler.settings import ProfileSettings
from tests.docs.documents import ROOT

pytestmark = pytest.mark.many_processes

TINY = {"tiny-llama": architecture("tiny-llama")}


@pytest.fixture(autouse=True)
def _own_lock(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile of this machine that somebody measures meanwhile is none of these tests'."""
    folder = str(tmp_path_factory.mktemp("locks"))
    monkeypatch.setattr(tempfile, "tempdir", folder)
    monkeypatch.setenv("TMPDIR", folder)


def settings(folder: Path, *, seconds: float, ranks: int | None = 1) -> ProfileSettings:
    return ProfileSettings(
        output=folder, models=TINY, budget_seconds=seconds, device="cpu", ranks=ranks
    )


@pytest.mark.slow
def test_a_short_profile_is_one_that_plans_are_priced_with_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "profile"
    monkeypatch.setattr("automap.profiler.session.WEIGHTS", {"memory_bound": 1.0, "gemm": 4.0})
    told: list[Progress] = []
    report = profile(settings(folder, seconds=5.0), told.append)
    assert report.device == "cpu"
    assert report.resumed == 0
    measured = {each.table: each.measured for each in report.tables}
    assert list(measured) == ["memory_bound", "gemm"]
    assert min(measured.values()) > 0
    assert all(0 <= each.done <= each.wanted for each in told)
    found_folder = profile_folder(str(folder), gpu_type("cpu"), field="profile")
    with_tables = Profile(gpu_type("cpu"), folder=found_folder)
    first = Journal(folder)
    entry = next(e for e in first.entries.values() if e.table == "gemm" and e.measurement)
    sizes = (entry.key["m"], entry.key["n"], entry.key["k"])
    found = with_tables.gemm(*sizes, precision=str(entry.key["precision"]))
    assert entry.measurement is not None
    assert float(found.seconds) == pytest.approx(entry.measurement.seconds)
    assert int(found.source) == MEASURED

    spec = yaml.safe_load((ROOT / "examples/tiny-ppo-cpu.yaml").read_text(encoding="utf-8"))
    spec |= yaml.safe_load((folder / "cluster.yaml").read_text(encoding="utf-8"))
    (pool,) = resolve(JobSpec.model_validate(spec | {"constraints": {}})).pools
    assert pool.gpu.name == "cpu"
    assert pool.gpus_per_node == len(os.sched_getaffinity(0))
    assert pool.profile == folder

    again = profile(settings(folder, seconds=1.0), told.append)
    assert again.resumed == len(first.entries)
    kept = Journal(folder).entries
    assert first.entries.items() <= kept.items()
    sessions = json.loads((folder / "fingerprint.json").read_text())["sessions"]
    assert [each["budget_seconds"] for each in sessions] == [5.0, 1.0]
    assert {"began", "ended", "drift", "seconds", "throttled"} <= set(sessions[0])


@pytest.mark.slow
def test_a_budget_goes_to_tables_that_miss_shapes_and_what_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hundredth, nothing could be measured."""
    monkeypatch.setattr("automap.profiler.session.WEIGHTS", {"optimizer": 1.0, "host_copies": 99.0})
    tried: list[Key] = []

    def fails(device: object, table: str, key: Key) -> object:
        if table == "optimizer":
            tried.append(key)
            raise RuntimeError("out of memory")
        return operation(device, table, key)  # type: ignore[arg-type]

    monkeypatch.setattr("automap.profiler.session.operation", fails)
    (table,) = profile(settings(tmp_path, seconds=2.0), lambda progress: None).tables
    failed = table.failed
    assert failed == len(tried) > 0  # once, though there are two rounds
    monkeypatch.setattr("automap.profiler.session.operation", operation)
    report = profile(settings(tmp_path, seconds=2.0), lambda progress: None)
    (table,) = report.tables
    assert report.resumed == failed
    assert 0 < table.measured >= failed - table.failed > 0
    assert Journal(tmp_path).rows()


@pytest.mark.slow
def test_only_the_tables_that_are_asked_for_are_measured_in_their_order(tmp_path: Path) -> None:
    asked_for = settings(tmp_path, seconds=2.0).model_copy(
        update={"tables": ("optimizer", "memory_bound")}
    )
    report = profile(asked_for, lambda progress: None)
    assert [each.table for each in report.tables] == ["optimizer", "memory_bound"]
    assert all(each.wanted > 0 for each in report.tables)
    session = Session(settings(tmp_path, seconds=60.0), tmp_path, CpuDevice(), print)
    assert session.wanted()["host_work"] == [], "engines take longer to start than a minute gives"
    asked_for = asked_for.model_copy(update={"tables": ("host_work",), "budget_seconds": 60.0})
    session = Session(asked_for, tmp_path, CpuDevice(), print)
    assert {shape.table for shape in session.wanted()["host_work"]} == {"host_work"}
    with pytest.raises(ValidationError, match="no such table; there are gemm"):
        ProfileSettings(output=tmp_path, tables=("gemms",))


def test_no_more_processes_than_a_profile_may_have(tmp_path: Path) -> None:
    device = CpuDevice()
    device.count = 100
    assert num_ranks(settings(tmp_path, seconds=1.0, ranks=None), device) == 64


def test_what_a_shape_may_take_grows_from_the_next_smaller_one() -> None:
    known = [(1e-6, 1e-5), (1e-3, 4e-3)]
    assert expected_seconds(1e-7, known) == 1e-7
    assert expected_seconds(1e-6, known) == pytest.approx(1e-5)
    assert expected_seconds(5e-4, known) == pytest.approx(5e-3)
    assert expected_seconds(2e-3, known) == pytest.approx(8e-3)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProfileError, match="--output: cannot write to"):
        profile(settings(tmp_path / "file" / "x", seconds=1.0), lambda progress: None)


def test_cuda_that_is_not_there_is_refused(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    asked = settings(tmp_path, seconds=1.0).model_copy(update={"device": "cuda"})
    with pytest.raises(ProfileError, match="PyTorch sees no CUDA device") as refused:
        profile(asked, lambda progress: None)
    assert "--device cpu" in refused.value.lines[0]


def started(folder: Path, seconds: float, *, ranks: int = 1) -> "subprocess.Popen[str]":
    file = folder.with_suffix(".json")
    file.write_text(settings(folder, seconds=seconds, ranks=ranks).model_dump_json())
    return subprocess.Popen(
        [sys.executable, "-m", "automap.profiler.run", "--settings", str(file)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
def test_a_profile_that_was_killed_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    killed = started(folder, 600.0)
    limit = time.monotonic() + 120
    while not (folder / FILE).exists() or (folder / FILE).read_bytes().count(b"\n") < 5:
        assert time.monotonic() < limit
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    before = (folder / FILE).read_bytes().count(b"\n")
    report = profile(settings(folder, seconds=1.0), lambda progress: None)
    assert report.resumed == before >= 5


@pytest.mark.slow
def test_collectives_are_measured_among_processes(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core")
    process = started(tmp_path / "profile", 12.0, ranks=2)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    report = json.loads(out.splitlines()[-1])["report"]
    (collectives,) = [each for each in report["tables"] if each["table"] == "collectives"]
    assert collectives["measured"] > 0
    assert collectives["failed"] == 0
    tables = Profile(gpu_type("cpu"), folder=tmp_path / "profile").tables
    assert tables is not None
    assert tables.collective("all_reduce") is not None
