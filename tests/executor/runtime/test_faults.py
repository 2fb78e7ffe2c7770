"""How runs end: with a cause in words, and with nothing left behind."""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group_table

from automap.executor.errors import (
    CallFailedError,
    CallTimeoutError,
    RunCancelledError,
    RunError,
    WorkerDiedError,
)
from automap.executor.runtime.controller import Controller
from automap.executor.runtime.planned import planned_calls
from automap.executor.settings import DataSettings, FunctionSettings, RunSettings
from automap.executor.workers.process import start_ticks
from automap.planner.plan.types import Plan
from tests.executor.local_ray import local_ray
from tests.executor.runtime import idle_engine
from tests.executor.small_plans import Place, small_plan

pytestmark = pytest.mark.many_processes

NUM_CPUS = 4
ROLES = {"actor": Place(0, 2), "reward": None}


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    with local_ray(NUM_CPUS):
        yield


def settings(function: str = "ones", **changes: Any) -> RunSettings:
    path = f"tests.executor.runtime.idle_engine:{function}"
    return RunSettings(
        data=DataSettings(path=Path("unused")),
        functions={"reward": FunctionSettings(path=path, timeout_seconds=1.0)},
        **{"start_timeout_seconds": 300.0, "call_timeout_seconds": 60.0, **changes},
    )


def controller(run: RunSettings, **options: Any) -> Controller:
    plan = small_plan("reinforce_plus_plus", ROLES, kl="none", old_log_probs="recompute")
    return Controller(plan, run, **{"factories": idle_engine.FACTORIES, **options})


@dataclass
class Left:
    """What a run holds on this machine."""

    pids: list[int] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    """Shared memory that the processes have mapped, but for Ray's own."""

    def note(self, running: Controller) -> None:
        self.pids += [each.pid for each in running._processes._identities]
        for pid in self.pids:
            maps = Path(f"/proc/{pid}/maps").read_text()
            self.files |= {
                path for path in re.findall(r"/dev/shm/\S+", maps) if "plasma" not in path
            }


@contextmanager
def nothing_left() -> Iterator[Left]:
    """Whatever happens inside, processes, actors and placement groups are as before."""
    left = Left()
    yield left
    assert [pid for pid in left.pids if start_ticks(pid) is not None] == []
    assert [path for path in left.files if Path(path).exists()] == []
    assert {group["state"] for group in placement_group_table().values()} <= {"REMOVED"}
    assert ray.util.list_named_actors(all_namespaces=True) == []
    deadline = time.monotonic() + 20
    while ray.available_resources().get("CPU") != NUM_CPUS and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ray.available_resources().get("CPU") == NUM_CPUS


@pytest.mark.slow
def test_a_reward_function_that_hangs_ends_the_run_by_name() -> None:
    with nothing_left() as left, controller(settings("hangs")) as running:
        left.note(running)
        with pytest.raises(CallTimeoutError) as caught:
            running.iterate(1, idle_engine.Prompts(0))
    assert (caught.value.role, caught.value.method) == ("reward", "score")
    assert "reward.score (function tests.executor.runtime.idle_engine:hangs)" in str(caught.value)
    assert "within 1 s" in str(caught.value)


def test_a_killed_worker_ends_the_iteration_and_frees_everything() -> None:
    with nothing_left() as left, controller(settings()) as running:
        left.note(running)
        running.iterate(1, idle_engine.Prompts(0))
        threading.Timer(1.0, lambda: os.kill(left.pids[1], signal.SIGKILL)).start()
        started = time.monotonic()
        with pytest.raises(WorkerDiedError, match=r"rank 1 of 2 ended during actor\.generate"):
            running.iterate(2, idle_engine.Prompts(40))
        assert time.monotonic() - started < 20


@pytest.mark.slow
def test_a_cancelled_run_stops_in_the_middle_of_a_call() -> None:
    cancel = threading.Event()
    with nothing_left() as left, controller(settings(), cancel=cancel) as running:
        left.note(running)
        os.kill(left.pids[0], signal.SIGSTOP)  # not even a process that hears nothing is left
        threading.Timer(1.0, cancel.set).start()
        started = time.monotonic()
        with pytest.raises(RunCancelledError):
            running.iterate(1, idle_engine.Prompts(40))
        running.close()
        assert time.monotonic() - started < 10


def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    cancel = threading.Event()
    threading.Timer(0.5, cancel.set).start()
    with nothing_left(), pytest.raises(RunCancelledError):
        controller(settings(), cancel=cancel).start()


@pytest.mark.slow
def test_an_engine_that_cannot_be_built_ends_the_start() -> None:
    with nothing_left(), pytest.raises(CallFailedError) as caught:
        controller(settings(), factories=idle_engine.BROKEN).start()
    assert "actor.build failed on rank" in str(caught.value)
    assert "MemoryError: no room for the weights" in str(caught.value)


def test_functions_are_checked_before_anything_starts() -> None:
    run = settings().model_copy(update={"functions": {}})
    with pytest.raises(RunError, match=r"functions\.reward: the spec declares this role"):
        controller(run)
    function = FunctionSettings(path="a:b")
    run = settings().model_copy(update={"functions": {"reward": function, "judge": function}})
    with pytest.raises(RunError, match=r"functions\.judge: the spec has no such function"):
        controller(run)


@pytest.mark.parametrize(
    ("name", "value"), [("rollout_engine", "trtllm"), ("rollout_cache_precision", "fp8")]
)
def test_an_engine_that_plans_cannot_run_on_is_refused(name: str, value: str) -> None:
    changes = {"kl": "none", "old_log_probs": "recompute", name: value}
    plan = small_plan("reinforce_plus_plus", ROLES, **changes)
    with pytest.raises(RunError, match=rf"workload\.{name}: it is {value}"):
        Controller(plan, settings(), factories=idle_engine.FACTORIES)


def test_training_in_8_bits_is_refused() -> None:
    plan = small_plan("reinforce_plus_plus", ROLES, kl="none", old_log_probs="recompute")
    workload = plan.spec.workload.model_copy(update={"training_precision": "fp8"})
    spec = plan.spec.model_copy(update={"workload": workload})
    with pytest.raises(RunError, match=r"workload\.training_precision: it is fp8"):
        Controller(
            plan.model_copy(update={"spec": spec}), settings(), factories=idle_engine.FACTORIES
        )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"tail": {"num_gpus": 1, "ended_share": 0.9}}, "generation_tail"),
        (
            {"tail": {"num_gpus": 2, "tensor_parallel_size": 2, "ended_share": 0.9}},
            "generation_tensor_schedule",
        ),
    ],
)
def test_tails_are_refused(change: dict[str, object], field: str) -> None:
    document = small_plan("reinforce_plus_plus", ROLES, kl="none").model_dump(by_alias=True)
    document["calls"][0].update(change)
    plan = Plan.model_validate(document)
    with pytest.raises(RunError, match=rf"search\.{field}: "):
        Controller(plan, settings(), factories=idle_engine.FACTORIES)


def test_stages_that_the_engines_do_not_cut_are_refused() -> None:
    plan = small_plan("reinforce_plus_plus", ROLES, kl="none")
    copies = [each.model_copy(update={"layers_per_stage": [1, 1]}) for each in plan.copies]
    changed = plan.model_copy(update={"copies": copies})
    message = r"copy actor: layers_per_stage is \[1, 1\], but the engines cut equal stages"
    with pytest.raises(RunError, match=message):
        Controller(changed, settings(), factories=idle_engine.FACTORIES)


def test_calls_are_expected_in_the_plans_order() -> None:
    plan = small_plan(
        "grpo",
        {"actor": Place(0, 2), "reference": Place(0, 2), "reward": None},
        shadow=Place(2, 2),
        kl="loss",
        order=["actor.generate", "reference.forward"],
    )
    planned = planned_calls(plan)
    assert [call.id for call in planned][:2] == ["actor.sync", "actor.generate"]
    names = [call.id for call in planned]
    assert names.index("reference.forward") < names.index("actor.forward")
    by_id = {call.id: {device.number for device in call.devices} for call in planned}
    assert by_id["actor.sync"] == {0, 1, 2, 3}
    assert by_id["actor.generate"] == {2, 3}
    assert by_id["reward.forward"] == set()
