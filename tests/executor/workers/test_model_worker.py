"""When a copy takes weights into its rollout, and when it gives the device back."""

import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from automap.executor.batch import Batch, Ragged
from automap.executor.errors import RunError
from automap.executor.runtime.controller import Controller, planned_calls
from automap.executor.runtime.handles import generations_in_a_row
from automap.executor.settings import DataSettings, FunctionSettings, RunSettings
from automap.executor.workers.model_setup import ModelSetup, model_setups
from automap.executor.workers.model_worker import Factories, ModelWorker, SyncPlace
from automap.executor.workers.process import ProcessContext
from automap.executor.workers.rendezvous import Rendezvous
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from tests.executor.small_plans import Place, small_plan

ROWS = Batch({"prompt_tokens": Ragged.of([torch.tensor([1])]), "prompt_id": torch.tensor([0])})


class Engines:
    """A training engine and a rollout that write down what is asked of them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fails = False

    def start(self, *, changed: bool) -> dict[str, float]:
        self.log.append("reshard" if changed else "start")
        return {"reshard_received": 8.0 if changed else 0.0}

    def weight_bytes(self) -> dict[str, float]:
        return {"generation_weights": 50.0}

    def generate(self, prompts: Batch, **_: object) -> Batch:
        if self.fails:
            raise MemoryError
        self.log.append("generate")
        return prompts

    def stop(self) -> None:
        self.log.append("stop")

    def forward(self, rows: Batch, output: str, **_: object) -> Batch:
        self.log.append("forward")
        return Batch({output: torch.zeros(rows.num_rows)})

    def train_step(self, *_: object, **__: object) -> dict[str, float]:
        self.log.append("train")
        return {}

    def offload(self, what: str) -> None:
        self.log.append(f"offload {what}")

    def reload(self, *, optimizer: bool) -> None:
        self.log.append("reload all" if optimizer else "reload weights")


def plan_of(algorithm: str, **places: Place) -> Plan:
    roles: dict[str, Place | None] = {"actor": Place(0, 1), **places, "reward": None}
    return small_plan(algorithm, roles, kl="reward" if places else "none")


def worker_of(engines: Engines, *, offload: str = "none") -> ModelWorker:
    plan = plan_of("grpo")
    settings = RunSettings(data=DataSettings(path=Path("unused")))
    setup: ModelSetup = model_setups(resolve(plan.spec), plan.placement(), settings)["actor"]

    setup = replace(setup, copy=setup.copy.model_copy(update={"offload": offload}))

    def build(*_: object) -> Any:
        return engines

    return ModelWorker(setup, ProcessContext(0, 1, "run"), Factories(build, build, build))


def test_a_controller_that_was_not_started_leaves_nothing() -> None:
    before = set(threading.enumerate())
    with pytest.raises(RunError, match=r"functions\.reward: the spec declares"):
        controller_of({})
    controller_of({"reward": FunctionSettings(path="a:b")})
    assert set(threading.enumerate()) == before


def controller_of(functions: dict[str, FunctionSettings]) -> Controller:
    settings = RunSettings(data=DataSettings(path=Path("unused")), functions=functions)
    engines = Engines()

    def build(*_: object) -> Any:
        return engines

    return Controller(plan_of("grpo"), settings, factories=Factories(build, build, build))


def generate(worker: ModelWorker, *, keep_device: bool = False) -> None:
    worker.generate(
        ROWS, responses_per_prompt=1, greedy=False, iteration=1, keep_device=keep_device
    )


def test_unchanged_weights_are_not_resharded() -> None:
    engines = Engines()
    worker = worker_of(engines)
    generate(worker)
    worker.log_probs(ROWS)
    generate(worker)
    worker.train_step(ROWS, None)  # type: ignore[arg-type]
    generate(worker)
    first, again, after = ["reshard"], ["start"], ["reshard"]
    assert engines.log == [
        *[*first, "generate", "stop", "forward"],
        *[*again, "generate", "stop", "train"],
        *[*after, "generate", "stop"],
    ]


def test_a_kept_device_is_given_back_before_the_training_engine_works() -> None:
    engines = Engines()
    worker = worker_of(engines)
    generate(worker, keep_device=True)
    generate(worker)
    generate(worker, keep_device=True)
    worker.log_probs(ROWS)
    assert engines.log == [
        *["reshard", "generate", "start", "generate", "stop"],
        *["start", "generate", "stop", "forward"],
    ]
    engines.fails = True
    with suppress(MemoryError):
        generate(worker, keep_device=True)
    assert engines.log[-2:] == ["start", "stop"]


def test_of_offloaded_state_a_call_brings_back_what_it_needs() -> None:
    engines = Engines()
    worker = worker_of(engines, offload="weights")
    generate(worker)
    worker.log_probs(ROWS)
    worker.train_step(ROWS, None)  # type: ignore[arg-type]
    scoring, training, away = "reload weights", "reload all", "offload weights"
    assert engines.log == [
        *[scoring, away],  # as it is built
        *[scoring, "reshard", away, "generate", "stop"],
        *[scoring, "forward", away],
        *[training, "train", away],
    ]
    engines = Engines()
    worker = worker_of(engines, offload="optimizer")
    worker.log_probs(ROWS)
    worker.train_step(ROWS, None)  # type: ignore[arg-type]
    away = "offload optimizer"
    assert engines.log == [away, "forward", away, training, "train", away]


def test_a_plan_keeps_the_device_where_generations_follow_each_other() -> None:
    def found(plan: Plan) -> frozenset[str]:
        calls = {call.id: call for call in plan.calls}
        return generations_in_a_row(planned_calls(plan), calls)

    (kept,) = found(plan_of("remax"))
    assert kept.startswith("actor.generate")
    assert found(plan_of("remax", reference=Place(1, 1))) == {kept}
    assert found(plan_of("grpo")) == frozenset()
    assert found(plan_of("grpo", reference=Place(0, 1))) == frozenset()


def test_weights_are_on_the_device_while_a_shadow_is_connected() -> None:
    """What is sent is described by the weights themselves, which may rest on the host."""
    engines = Engines()
    worker = worker_of(engines, offload="weights")

    def build(*_: object) -> Any:
        engines.log.append("connect")
        return engines

    worker._factories = replace(worker._factories, build_sync=build)
    engines.log.clear()
    worker.connect(SyncPlace(Rendezvous("127.0.0.1", 0), 0, worker.setup, worker.setup))
    assert engines.log == ["reload weights", "connect", "offload weights"]
