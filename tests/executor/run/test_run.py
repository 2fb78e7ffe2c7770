"""Plans that really run: Ray, Megatron-core and vLLM in one set of processes, from end to end."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from automap.executor.engines.initial_weights import initial_tensor
from automap.executor.settings import RunSettings
from automap.executor.telemetry.events import MARK
from automap.executor.tiny.tasks import write_prompts
from automap.executor.workers.model_setup import model_setups
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from tests.executor.run.run_process import RunProcess
from tests.helpers.otlp import Receiver, receiving

pytestmark = pytest.mark.many_processes

ITERATIONS = 4
SPEC: dict[str, Any] = {
    "name": "end-to-end",
    "algorithm": "ppo",
    "models": {
        "actor": {"architecture": "tiny-llama"},
        "critic": {"architecture": "tiny-llama"},
        "reference": {"architecture": "tiny-llama"},
        "reward": {"function": True},
    },
    "workload": {
        "prompts_per_iteration": 8,
        "prompt_length": {"mean": 3, "max": 4},
        "response_length": {"mean": 8, "max": 8},
        "updates_per_epoch": 2,
        "precision": "fp32",
        "kl": "reward",
        "iterations": ITERATIONS,
    },
    "cluster": {"pools": [{"name": "cpu", "gpu": "cpu", "num_nodes": 1, "gpus_per_node": 2}]},
    "constraints": {
        "parallelism": {
            "actor": {"tensor_parallel_size": 2, "generation_tensor_parallel_size": 1},
            "critic": {"num_gpus": 2, "data_parallel_size": 2, "sharding": "none"},
            "reference": {"num_gpus": 2, "data_parallel_size": 2, "sharding": "none"},
        },
        "colocate": [["actor", "critic"], ["actor", "reference"]],
        "allow_shadow_copies": False,
        "allow_offload": False,
    },
}
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"
Start = Callable[..., RunProcess]
IMPATIENT = (
    "import sys, automap.executor.run.__main__ as run; run.LOCK_SECONDS = 1.5; sys.exit(run.main())"
)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(JobSpec.model_validate(SPEC))


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    write_prompts(path, task="count_token", num_prompts=32)
    return path


def settings(
    prompts: Path, reward: str = "automap.executor.tiny.tasks:count_token"
) -> dict[str, Any]:
    optimizer = {"learning_rate": 1e-3}
    return {
        "functions": {"reward": {"path": reward}},
        "data": {"path": str(prompts)},
        "training": {"default": {"optimizer": optimizer, "micro_batch_tokens": 256}},
        "checkpoint": {"every_iterations": 1},
        "metrics": {"loggers": ["jsonl"]},
        "seed": 3,
    }


@pytest.fixture(scope="module")
def start(plan: Plan) -> Iterator[Start]:
    started: list[RunProcess] = []

    def make(given: dict[str, Any], folder: Path, **how: Any) -> RunProcess:
        started.append(RunProcess(plan, given, folder, **how))
        return started[-1]

    yield make
    for run in started:
        run.kill_all()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def undisturbed(
    start: Start, prompts: Path, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> RunProcess:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**receiver.environment, "TRACEPARENT": PARENT}.items():
            patch.setenv(name, value)
        run = start(settings(prompts), tmp_path_factory.mktemp("undisturbed"))
    assert run.end() == 0, run.log()
    return run


@pytest.mark.slow
def test_iterations_and_calls_are_spans_of_the_trace_that_asked_for_the_run(
    undisturbed: RunProcess, receiver: Receiver, plan: Plan
) -> None:
    spans = receiver.spans()
    assert {(span.trace_id, span.service) for span in spans} == {(TRACE_ID, "automap-run")}
    (whole,) = [span for span in spans if span.name == "run"]
    assert whole.parent_id == "b7ad6b7169203331"
    iterations = {
        span.span_id: span.attributes["automap.iteration"]
        for span in spans
        if span.name == "iteration"
    }
    assert sorted(iterations.values()) == [1, 2, 3, 4]
    assert {span.parent_id for span in spans if span.name == "iteration"} == {whole.span_id}
    for call in plan.calls:
        of_call = [span for span in spans if span.name == call.id]
        assert {iterations[span.parent_id] for span in of_call} == {1, 2, 3, 4}, call.id


def test_a_run_says_when_it_has_its_devices(undisturbed: RunProcess) -> None:
    states = [event["state"] for event in undisturbed.events("state")]
    begin = ["starting Ray", "reserving devices", "starting workers", "running"]
    assert states == [*begin, "saving the actor"]


def test_every_call_of_the_plan_is_measured(undisturbed: RunProcess, plan: Plan) -> None:
    report = undisturbed.report()
    assert report["outcome"]["state"] == "succeeded"
    assert report["iterations"] == ITERATIONS
    calls = {call["id"]: call for call in report["calls"]}
    for call in plan.calls:
        spread = calls[call.id]["seconds"]["measured"]
        assert spread["count"] == ITERATIONS - 1, call.id
        assert 0 < spread["min"] <= spread["median"] <= spread["max"], call.id
    assert calls["actor.generate"]["bytes"]["reshard_received"]["measured"] > 0
    held = calls["actor.generate"]["bytes"]
    weights = 4 * resolve(plan.spec).models["actor"].architecture.num_parameters()
    assert held["generation_weights"]["measured"] == weights, "what trains makes room for it"
    assert held["generation_weights"]["predicted"] == pytest.approx(weights, rel=0.01)
    # While they come, a bucket and a parameter are there too, neither more than a quarter.
    assert weights < held["peak_weights"]["measured"] < 1.5 * weights
    assert "packed_weights" not in held
    (finished,) = undisturbed.events("finished")
    assert finished["report"] == report
    assert len(undisturbed.events("iteration")) == ITERATIONS
    assert (undisturbed.folder / "timeline.json").exists()


def test_generated_log_probs_are_those_of_training(undisturbed: RunProcess) -> None:
    for metrics in undisturbed.metrics():
        assert metrics["training/rollout_log_probs_diff_max"] <= 1e-5
        assert metrics["training/rollout_probs_diff_max"] <= 1e-5


def test_the_saved_actor_is_another_than_the_one_it_began_as(
    undisturbed: RunProcess, plan: Plan, prompts: Path
) -> None:
    given = RunSettings.model_validate(settings(prompts))
    setups = model_setups(resolve(plan.spec), plan.placement(), given)
    assert setups["reference"].seed == setups["actor"].seed
    name = "model.layers.1.self_attn.q_proj.weight"
    saved = load_file(undisturbed.folder / "actor" / "model.safetensors")[name]
    shape = tuple(saved.shape)
    before = initial_tensor(name, shape, standard_deviation=0.02, seed=setups["actor"].seed)
    step = (saved - before).abs()
    assert step.max() > 1e-4
    # Adam moves no weight further than about the sum of its learning rates.
    assert step.max() < 2 * ITERATIONS * 2 * 1e-3
    assert torch.isfinite(saved).all()


def test_a_finished_run_leaves_nothing_behind(undisturbed: RunProcess) -> None:
    assert undisturbed.processes() == []


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, -1], ids=["with models", "without"])
def test_a_killed_worker_changes_nothing_in_the_end(
    start: Start, prompts: Path, undisturbed: RunProcess, tmp_path: Path, which: int
) -> None:
    run = start(settings(prompts), tmp_path)
    run.wait_until(lambda: any(call["iteration"] == 3 for call in run.events("call")))
    os.kill(run.workers()[which], signal.SIGKILL)
    assert run.end() == 0, run.log()
    logs = [event["message"] for event in run.events("log")]
    assert any(message.startswith("restarting: the process of") for message in logs), logs
    assert any(message.startswith("resuming after iteration") for message in logs), logs
    assert_ended_like(run, undisturbed)


def assert_ended_like(run: RunProcess, undisturbed: RunProcess) -> None:
    """A run that was resumed once: the same weights, and records without gap or repetition."""
    report = run.report()
    assert (report["outcome"]["state"], report["outcome"]["restarts"]) == ("succeeded", 1)
    assert report["iterations"] == ITERATIONS
    assert len(report["iteration_seconds"]["warm_up"]) == 2
    file = Path("actor", "model.safetensors")
    assert (run.folder / file).read_bytes() == (undisturbed.folder / file).read_bytes()
    steps = [metrics["training/global_step"] for metrics in run.metrics()]
    assert steps == list(range(1, ITERATIONS + 1))
    for name in ("critic/vf_loss", "actor/pg_loss", "critic/score/mean"):
        theirs = [metrics[name] for metrics in undisturbed.metrics()]
        assert [metrics[name] for metrics in run.metrics()] == theirs, name


@pytest.mark.slow
def test_a_killed_controller_changes_nothing_in_the_end(
    start: Start, prompts: Path, undisturbed: RunProcess, tmp_path: Path
) -> None:
    run = start(settings(prompts), tmp_path, by_command=True)
    run.wait_until(lambda: any(call["iteration"] == 3 for call in run.events("call")))
    run.note_shared_memory()
    assert run.shared_memory, "the object store at least is shared"
    (controller,) = run.controllers()
    doomed = {controller, *run.workers()}
    os.kill(controller, signal.SIGKILL)
    run.wait_until(lambda: not doomed & set(run.processes()), seconds=20)
    assert run.end() == 0, run.log()
    assert "ended by signal 9; starting it again" in run.log()
    (log,) = run.events("log")
    assert log["message"].startswith("resuming after iteration")
    assert_ended_like(run, undisturbed)
    assert run.processes() == []
    assert run.left_in_shared_memory() == []


@pytest.mark.slow
def test_cancel_leaves_no_process_and_no_shared_memory(
    start: Start, prompts: Path, tmp_path: Path
) -> None:
    run = start(settings(prompts) | {"iterations": 10_000}, tmp_path)
    run.wait_until(lambda: len(run.events("iteration")) >= 1)
    run.note_shared_memory()
    assert run.shared_memory, "the object store at least is shared"
    assert len(run.workers()) >= 2
    run.cancel()
    assert run.end(seconds=30) == 130, run.log()
    assert run.processes() == []
    assert run.left_in_shared_memory() == []
    assert run.report()["outcome"]["state"] == "cancelled"


@pytest.mark.slow
def test_a_killed_command_takes_its_run_along(start: Start, prompts: Path, tmp_path: Path) -> None:
    run = start(settings(prompts) | {"iterations": 10_000}, tmp_path, by_command=True)
    run.wait_until(lambda: len(run.events("iteration")) >= 1)
    run.note_shared_memory()
    run.kill()
    assert run.end() == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while run.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert run.processes() == []
    assert run.left_in_shared_memory() == []
    assert run.report()["outcome"]["state"] == "cancelled"


def told(log: Path, kind: str) -> list[dict[str, Any]]:
    """Events of a type on stdout."""
    lines = [line.partition(MARK)[2] for line in log.read_text().splitlines() if MARK in line]
    return [event for event in map(json.loads, lines) if event["type"] == kind]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 MiB, where the system lets us mount one."""
    where = tmp_path / "disk"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(where)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a tmpfs")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=True)


@pytest.mark.slow
def test_a_full_disk_ends_the_run_and_leaves_its_checkpoints(
    start: Start, prompts: Path, undisturbed: RunProcess, small_disk: Path, tmp_path: Path
) -> None:
    folder, log = small_disk / "run", tmp_path / "printed.log"
    run = start(settings(prompts), folder, log=log)
    run.wait_until(lambda: any(call["iteration"] == 3 for call in run.events("call")))
    with contextlib.suppress(OSError), (small_disk / "filling").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert run.end() == 1, run.log()
    (failed,) = told(log, "failed")
    assert "No space left on device" in failed["cause"]
    (small_disk / "filling").unlink()
    again = start(settings(prompts), folder, log=log)
    assert again.end() == 0, again.log()
    assert_ended_like(again, undisturbed)


@pytest.mark.slow
def test_a_reward_that_raises_ends_the_run_by_name(
    start: Start, prompts: Path, tmp_path: Path
) -> None:
    file = tmp_path / "rewards.py"
    file.write_text("def broken(response_tokens):\n    raise ValueError('no such answer')\n")
    run = start(settings(prompts, reward=f"{file}:broken"), tmp_path / "run")
    assert run.end() == 1, run.log()
    (failed,) = run.events("failed")
    for part in ("reward.score", f"{file}:broken", "ValueError: no such answer"):
        assert part in failed["cause"], failed
    outcome = run.report()["outcome"]
    assert (outcome["state"], outcome["cause"]) == ("failed", failed["cause"])


@pytest.mark.slow
def test_a_folder_in_use_is_waited_for_and_bad_input_refused_before_anything_starts(
    start: Start, prompts: Path, tmp_path: Path
) -> None:
    bad = settings(prompts) | {"data": {"path": "/nowhere/prompts.jsonl"}}
    with (tmp_path / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("process 7 on there")
        lock.flush()
        run = start(bad, tmp_path)
        run.wait_until(lambda: "waiting up to 60 s" in run.log())
        assert "process 7 on there" in run.log()
    # Once it is free the run begins: it gets to what is wrong with it.
    assert run.end() == 2, run.log()
    (failed,) = run.events("failed")
    assert failed["kind"] == "bad_input"
    assert "data.path" in failed["cause"]
    with (tmp_path / "run.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        arguments = ["--plan", "no", "--settings", "no", "--output", str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-c", IMPATIENT, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2, done.stderr
    assert "has not ended within 1.5 s (process" in done.stdout
