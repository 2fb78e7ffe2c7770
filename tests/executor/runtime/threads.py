"""A run without Ray: a thread stands for each process, each call takes what chance says.

The model is a table of logits, token by token before it: so runs take milliseconds, and yet sample,
train and send real weights. Which weights generated is told by those who generate.
"""

import queue
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from automap.executor.batch import Batch, Ragged, concatenate
from automap.executor.engines.training_engine import Loss, Output, TrainingEngine
from automap.executor.runtime import processes as runtime
from automap.executor.runtime.placement import Device, DeviceRange
from automap.executor.workers.model_setup import ModelSetup
from automap.executor.workers.model_worker import Factories, Rollout, SyncPlace
from automap.executor.workers.process import Process, ProcessContext
from automap.executor.workers.rendezvous import Rendezvous

VOCABULARY, LONGEST, LEARNING_RATE = 12, 6, 0.5
STEPS = 4
"""Optimizer steps of an iteration of `small_plans`."""
SEEDS = {"actor": 1, "reference": 1, "critic": 2, "cost_critic": 3}


@dataclass(frozen=True)
class Started:
    pending: "Future[Any]"

    def future(self) -> "Future[Any]":
        return self.pending


class Method:
    """A process's method, called from its one thread."""

    def __init__(self, process: "ThreadProcess", name: str) -> None:
        self._process, self._name = process, name

    def remote(self, *args: object) -> Started:
        return Started(self._process.submit(self._name, args))


class ThreadProcess:
    def __init__(self, rank: int, world_size: int, seed: int) -> None:
        # On a GPU, so that the environment is left alone.
        self._process = Process(rank, world_size, "threads", on_gpu=True)
        self._pool = ThreadPoolExecutor(1)
        self._chance = random.Random(seed)
        self.call, self.build = Method(self, "call"), Method(self, "build")

    def submit(self, method: str, args: Sequence[object]) -> "Future[Any]":
        seconds = self._chance.choice([0.0, 0.001, 0.004])

        def run() -> object:
            time.sleep(seconds)
            return getattr(self._process, method)(*args)

        return self._pool.submit(run)

    def end(self) -> None:
        self._pool.shutdown()


class ThreadSet:
    """As `ProcessSet`."""

    seed = 0

    def __init__(self, name: str, devices: tuple[Device, ...]) -> None:
        self.name, self.devices = name, devices
        count = len(devices) or 1
        seeds = random.Random(f"{self.seed} {name}")
        self.processes = [
            ThreadProcess(rank, count, seeds.getrandbits(32)) for rank in range(count)
        ]

    @classmethod
    def on_devices(cls, where: DeviceRange, *_: object, **__: object) -> "ThreadSet":
        return cls(str(where), where.devices)

    @classmethod
    def on_host(cls, name: str, **_: object) -> "ThreadSet":
        return cls(name, ())

    def join(self, **_: object) -> list[object]:
        return []

    def clean_up(self) -> None:
        """Nothing is left."""

    def open_rendezvous(self, other: object, **_: object) -> Rendezvous:
        return Rendezvous(f"{id(self)}", 0)

    def stacks(self, ranks: Sequence[int]) -> Mapping[int, str | None]:
        return dict.fromkeys(ranks)

    def kill(self) -> None:
        for process in self.processes:
            process.end()


class NoReservation:
    def release(self) -> None: ...


@contextmanager
def without_ray(seed: int) -> Iterator[None]:
    """Controllers that are made inside have threads; `seed` is that of their calls' seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ThreadSet, "seed", seed)
        patch.setattr(runtime, "ProcessSet", ThreadSet)
        patch.setattr(runtime, "reserve", lambda *_, **__: NoReservation())
        patch.setattr(runtime, "end_local", lambda *_, **__: None)
        yield


@dataclass
class Weights:
    """A table, and how many optimizer steps made it."""

    table: Tensor
    steps: int = 0

    def logits(self, batch: Batch) -> Tensor:
        """[response tokens, vocabulary], or [response tokens] of a critic."""
        before = [
            torch.cat([prompt[-1:], response[:-1]])
            for prompt, response in zip(
                batch.ragged("prompt_tokens").rows(),
                batch.ragged("response_tokens").rows(),
                strict=True,
            )
        ]
        return self.table[torch.cat(before)]


class TableEngine:
    def __init__(self, setup: ModelSetup) -> None:
        generator = torch.Generator().manual_seed(SEEDS[setup.role])
        shape = (VOCABULARY,) if "critic" in setup.role else (VOCABULARY, VOCABULARY)
        table = torch.randn(shape, generator=generator, dtype=torch.float64)
        self.weights = Weights(table.requires_grad_())

    def predict(self, batch: Batch) -> Tensor:
        found = self.weights.logits(batch)
        if found.dim() == 1:
            return found
        chosen = batch.ragged("response_tokens").values
        return found.log_softmax(-1).gather(1, chosen[:, None]).squeeze(1)

    def forward(self, batch: Batch, output: Output, *, temperature: float = 1.0) -> Batch:
        with torch.no_grad():
            return Batch({output: batch.ragged("response_tokens").with_values(self.predict(batch))})

    def train_step(self, batch: Batch, loss: Loss, *, temperature: float = 1.0) -> dict[str, float]:
        terms = loss.terms(self.predict(batch), None, batch)
        mean = terms.loss_sum / loss.weight(batch)
        (gradient,) = torch.autograd.grad(mean, [self.weights.table])
        table = (self.weights.table - LEARNING_RATE * gradient).detach().requires_grad_()
        self.weights = Weights(table, self.weights.steps + 1)
        return {"loss": float(mean.detach()), "grad_norm": float(gradient.norm())}


class Response:
    """One that is drawn token by token."""

    def __init__(self, prompt: Batch, *, greedy: bool = False) -> None:
        self.greedy = greedy
        iteration, prompt_id, number = (
            int(prompt.tensor(name)) for name in ("iteration", "prompt_id", "number")
        )
        seed = (iteration * 1000 + prompt_id) * 100 + number
        self.iteration, self.prompt, self.generator = (
            iteration,
            prompt,
            torch.Generator().manual_seed(seed),
        )
        self.length = int(torch.randint(1, LONGEST + 1, (), generator=self.generator))
        self.token = prompt.ragged("prompt_tokens").values[-1]
        self.tokens: list[Tensor] = []
        self.log_probs: list[Tensor] = []
        self.versions: list[int] = []
        # Chance alone seldom lets a response of six tokens be in flight when weights come.
        self.may_await_weights = self.length > 1 and number == 0

    @property
    def request(self) -> int:
        return int(self.prompt.tensor("request"))

    @property
    def has_ended(self) -> bool:
        return len(self.tokens) == self.length

    def awaits_weights(self, version: int) -> bool:
        """Whether it takes its second token from newer weights than the first.

        Those come for certain only to a batch that is not the next to be trained on.
        """
        is_ahead = self.iteration - 1 > version
        return self.may_await_weights and is_ahead and self.versions == [version]

    def step(self, weights: Weights, *, version: int = 0) -> None:
        table = weights.table.detach().log_softmax(-1)
        odds = table[self.token].exp()
        token = odds.argmax() if self.greedy else odds.multinomial(1, generator=self.generator)[0]
        # As of another engine: not quite those that training computes.
        self.log_probs.append((table[self.token, token] + 0.2 * (token % 2)).float())
        self.tokens.append(token)
        self.token = token
        self.versions.append(version)

    def row(self, *, with_versions: bool = False) -> Batch:
        row = self.prompt.with_columns(
            response_tokens=Ragged.of([torch.stack(self.tokens)]),
            response_log_probs=Ragged.of([torch.stack(self.log_probs)]),
        )
        if not with_versions:
            return row
        return row.with_columns(
            finished=torch.tensor([self.length < LONGEST]),
            token_versions=Ragged.of([torch.tensor(self.versions)]),
            weights_version=torch.tensor(self.versions[:1]),
        )


class TableRollout:
    """Samples from the weights that it has; without an engine they come by a sync."""

    awaits_weights: ClassVar[bool] = True
    """Whether some responses do not end before newer weights have come."""

    def __init__(self, engine: TableEngine | None) -> None:
        self.engine, self.received = engine, Weights(torch.empty(0))
        self.in_flight: list[Response] = []
        self.turns: list[tuple[int, list[int]]] = []
        """Version and requests in flight of each."""

    def start(self, *, changed: bool) -> dict[str, float]:
        return {}

    def weight_bytes(self) -> dict[str, float]:
        return {}

    def generate(
        self, prompts: Batch, *, responses_per_prompt: int, greedy: bool, iteration: int
    ) -> Batch:
        weights = self.engine.weights if self.engine else self.received
        rows = prompts.take(torch.arange(prompts.num_rows).repeat_interleave(responses_per_prompt))
        numbers = torch.arange(rows.num_rows) % responses_per_prompt
        rows = rows.with_columns(number=numbers, iteration=torch.full_like(numbers, iteration))
        responses = [Response(rows.slice(at, at + 1), greedy=greedy) for at in range(rows.num_rows)]
        for response in responses:
            while not response.has_ended:
                response.step(weights)
        steps = torch.full((rows.num_rows,), weights.steps)
        return concatenate([each.row() for each in responses]).with_columns(true_steps=steps)

    def turn(
        self, requests: Batch | None, *, version: int, num_steps: int, greedy: bool = False
    ) -> Batch | None:
        weights = self.engine.weights if self.engine else self.received
        assert weights.steps == version * STEPS, "the weights are those that it is told of"
        for at in range(0 if requests is None else requests.num_rows):
            assert requests is not None
            self.in_flight.append(Response(requests.slice(at, at + 1), greedy=greedy))
        self.turns.append((version, [each.request for each in self.in_flight]))
        for _ in range(num_steps):
            for response in self.in_flight:
                awaits = self.awaits_weights and response.awaits_weights(version)
                if not response.has_ended and not awaits:
                    response.step(weights, version=version)
        ended = [each for each in self.in_flight if each.has_ended]
        self.in_flight = [each for each in self.in_flight if not each.has_ended]
        time.sleep(0.04)  # as slow as training is here
        return concatenate([each.row(with_versions=True) for each in ended]) if ended else None

    def stop(self) -> None: ...


class TableSync:
    boxes: ClassVar[dict[tuple[str, int], "queue.Queue[Weights]"]] = {}
    """One for each rank that receives, from whoever asks for it first."""

    def __init__(
        self, place: SyncPlace, engine: TableEngine | None, rollout: TableRollout | None
    ) -> None:
        self.place, self.engine, self.rollout = place, engine, rollout

    def run(self) -> dict[str, float]:
        if self.engine is not None:
            for rank in range(self.place.shadow.copy.num_gpus):
                self.box(rank).put(self.engine.weights, timeout=10)
        elif self.rollout is not None:
            self.rollout.received = self.box(self.place.rank).get(timeout=10)
        return {}

    def box(self, rank: int) -> "queue.Queue[Weights]":
        # In one step: two threads that both find none must not make two.
        return self.boxes.setdefault((self.place.meeting.host, rank), queue.Queue(1))


class Prompts:
    """Numbered from 0, of one token."""

    def __init__(self) -> None:
        self.count = 0

    def prepare(self, num_rows: int) -> None: ...

    def next_batch(self, num_rows: int) -> Batch:
        ids = torch.arange(self.count, self.count + num_rows)
        self.count += num_rows
        return Batch(
            {"prompt_tokens": Ragged.of(list((ids % VOCABULARY)[:, None])), "prompt_id": ids}
        )


def score(response_tokens: list[list[int]]) -> list[float]:
    """The share of even tokens."""
    return [sum(token % 2 == 0 for token in row) / len(row) for row in response_tokens]


def cost(response_tokens: list[list[int]]) -> list[float]:
    """Long ones cost more."""
    return [len(row) / LONGEST for row in response_tokens]


def build_engine(setup: ModelSetup, context: ProcessContext) -> TrainingEngine:
    return TableEngine(setup)  # type: ignore[return-value]


def build_rollout(
    setup: ModelSetup, context: ProcessContext, engine: TrainingEngine | None
) -> Rollout:
    return TableRollout(engine)  # type: ignore[arg-type]


def build_sync(
    setup: ModelSetup, place: SyncPlace, engine: TrainingEngine | None, rollout: Rollout | None
) -> TableSync:
    return TableSync(place, engine, rollout)  # type: ignore[arg-type]


FACTORIES = Factories(build_engine, build_rollout, build_sync)
