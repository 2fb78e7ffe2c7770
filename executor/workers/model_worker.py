"""The workers that models run in: each method is called on all ranks of a copy together.

A worker's own method is added by subclassing: mark it with its protocol, and call it by name on
the role's group.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from automap.executor.batch import Batch
from automap.executor.checkpoints import FinishedResponses, RandomState
from automap.executor.engines.training_engine import Loss, Output, TrainingEngine
from automap.executor.telemetry.provenance import device_fingerprint
from automap.executor.telemetry.run_report import DeviceFingerprint
from automap.executor.workers.model_setup import ModelSetup
from automap.executor.workers.process import ProcessContext
from automap.executor.workers.protocols import THREE_D_PER_REPLICA, transfer
from automap.executor.workers.rendezvous import Rendezvous


class Rollout(Protocol):
    """What generates for a copy: beside its training engine, or alone on a shadow's devices."""

    def start(self, *, changed: bool) -> dict[str, float]:
        """Take the device, and the training engine's weights if they have changed or are not here.

        What it returns is recorded with the call: `reshard_received`, in bytes.

        A shadow keeps the weights that it was sent.
        """
        ...

    def generate(
        self, prompts: Batch, *, responses_per_prompt: int, greedy: bool, iteration: int
    ) -> Batch:
        """The prompts' columns, each row repeated, with responses; see `VllmEngine.generate`."""
        ...

    def weight_bytes(self) -> dict[str, float]:
        """Bytes of the copy's weights on this rank, recorded with the call.

        `generation_weights` while it generates, those that train among them, as far as they are on
        the device; `peak_weights` the most since it last took weights; and `packed_weights`, of
        both, what kernels keep in a format of their own.
        """
        ...

    def turn(
        self, requests: Batch | None, *, version: int, num_steps: int, greedy: bool = False
    ) -> Batch | None:
        """Go on with all responses in flight, and begin more; see `InFlight.turn`."""
        ...

    def stop(self) -> None:
        """Give the device back to the training engine."""
        ...


class WeightSync(Protocol):
    """One rank's part in sending a home's weights to its shadow."""

    def run(self) -> dict[str, float]:
        """Send, or receive and load, all weights that have changed.

        What it returns is recorded with the call: `weight_sync_received`, in bytes.
        """
        ...


@dataclass(frozen=True, slots=True)
class Factories:
    """How workers get their engines. Each function is sent to the processes by pickle."""

    build_engine: Callable[[ModelSetup, ProcessContext], TrainingEngine]
    build_rollout: Callable[[ModelSetup, ProcessContext, TrainingEngine | None], Rollout]
    build_sync: Callable[
        [ModelSetup, "SyncPlace", TrainingEngine | None, Rollout | None], WeightSync
    ]


@dataclass(frozen=True, slots=True)
class SyncPlace:
    """Where a rank stands among the senders and receivers of a weight sync."""

    meeting: Rendezvous
    """Opened by the home's rank 0."""
    rank: int
    """Within the own copy."""
    home: ModelSetup
    shadow: ModelSetup


class ModelWorker:
    """A copy of a role's model on one rank.

    A method of a subclass that changes weights does so within `_on_device(optimizer=True)`.
    """

    def __init__(self, setup: ModelSetup, context: ProcessContext, factories: Factories) -> None:
        """Build the engines that the copy needs, with their weights."""
        self.setup = setup
        self.engine: TrainingEngine | None = None
        self.rollout: Rollout | None = None
        self._context = context
        self._factories = factories
        self._sync: WeightSync | None = None
        self._changed = True
        """Whether the weights are others than the rollout last took."""
        self._generates = False
        """Whether the rollout has the device."""
        if not setup.is_shadow:
            self.engine = factories.build_engine(setup, context)
        if setup.generation is not None:
            self.rollout = factories.build_rollout(setup, context, self.engine)
        with self._on_device():
            pass

    @transfer("3D_ALL_MICRO_DP")
    def generate(
        self,
        prompts: Batch,
        *,
        responses_per_prompt: int,
        greedy: bool,
        iteration: int,
        keep_device: bool = False,
    ) -> Batch:
        """Respond to each prompt so many times; rows of one prompt follow each other.

        With `keep_device` the generation engine stays awake, because it generates again next.
        """
        if self.rollout is None:
            raise ValueError(f"the plan has copy {self.setup.copy.id} not generate")
        self._begin_generation(self.rollout)
        try:
            with self._timed("generate"):
                rows = self.rollout.generate(
                    prompts,
                    responses_per_prompt=responses_per_prompt,
                    greedy=greedy,
                    iteration=iteration,
                )
        except BaseException:
            self._end_generation()
            raise
        if not keep_device:
            self._end_generation()
        return rows

    @transfer("3D_PER_REPLICA")
    def generate_turn(
        self,
        requests: Batch | None,
        *,
        version: int,
        num_steps: int,
        greedy: bool = False,
        finished: FinishedResponses | None = None,
    ) -> Batch | None:
        """Begin responses beside those in flight, and go on with all; those that have ended.

        What runs stays in the engine between turns, also while weights come.

        Args:
            requests: see `InFlight.turn`; None: no more.
            version: of the weights that the engine has.
            num_steps: of the engine, at most.
            greedy: those that are begun take the likeliest token each time.
            finished: where responses that have ended are kept for a run that resumes.
        """
        if self.rollout is None:
            raise ValueError(f"the plan has copy {self.setup.copy.id} not generate")
        self._begin_generation(self.rollout)
        with self._timed("generate"):
            rows = self.rollout.turn(requests, version=version, num_steps=num_steps, greedy=greedy)
        hands_out = self._context.rank in THREE_D_PER_REPLICA.collected(self.setup.protocol_layout)
        if finished is not None and rows is not None and hands_out:
            finished.append(rows, writer=f"{self._context.run_id}-{self._context.rank}")
        return rows

    @transfer("ONE_TO_ALL")
    def end_generation(self) -> None:
        """Give the device back after turns; the responses in flight have ended."""
        self._end_generation()

    @transfer("3D")
    def log_probs(self, rollout: Batch) -> Batch:
        """The column `log_probs`, ragged over response tokens, at the rollout's temperature."""
        return self._forward(rollout, "log_probs")

    @transfer("3D")
    def reference_log_probs(self, rollout: Batch) -> Batch:
        """The column `log_probs` by the frozen base under a LoRA actor."""
        with self._engine().adapter_disabled():  # type: ignore[attr-defined]
            return self._forward(rollout, "log_probs")

    @transfer("3D")
    def values(self, rollout: Batch) -> Batch:
        """The column `values`, ragged over response tokens."""
        return self._forward(rollout, "values")

    @transfer("3D")
    def score(self, rollout: Batch) -> Batch:
        """The column `scores`, one per row."""
        return self._forward(rollout, "scores")

    @transfer("3D")
    def train_step(self, mini_batch: Batch, loss: Loss) -> dict[str, float]:
        """One optimizer step; the metrics, the same on every rank."""
        temperature = self.setup.rollout.temperature
        with self._on_device(optimizer=True):
            return self._engine().train_step(mini_batch, loss, temperature=temperature)

    @transfer("ONE_TO_ALL")
    def connect(self, place: SyncPlace) -> None:
        """Prepare `sync_weights`; called on a home and its shadow at the same time."""
        own = replace(place, rank=self._context.rank)
        with self._on_device():
            self._sync = self._factories.build_sync(self.setup, own, self.engine, self.rollout)

    @transfer("ONE_TO_ALL")
    def sync_weights(self) -> None:
        """Send the weights, or receive them; called on a home and its shadow at the same time."""
        if self._sync is None:
            raise ValueError(f"copy {self.setup.copy.id} is not connected to another")
        with self._on_device():
            self._context.measured.update(self._sync.run())

    @transfer("ONE_TO_ALL")
    def save(self, folder: Path) -> None:
        """Write the weights as a Hugging Face folder, from rank 0, whole or not at all."""
        with self._on_device():
            self._engine().save(folder)

    @transfer("ONE_TO_ALL")
    def save_state(self, checkpoint: Path) -> None:
        """Write the role's weights, optimizer and schedule, and the process's random state.

        In the background: `finish_save` says how it went. Models of one set of processes are
        written one after the other.
        """
        from automap.executor.checkpoints.shard_files import ShardSaver

        saver = self._context.saver = self._context.saver or ShardSaver()
        with self._on_device(optimizer=True):
            state, group = self._engine().state(), self._context.checkpoint_group
            saver.save_shard(state, checkpoint / self.setup.role, group)
        RandomState.capture().save(checkpoint, self._process_name)

    @transfer("ONE_TO_ALL")
    def finish_save(self) -> None:
        """Wait until what `save_state` began is on the disk; raises if it could not be written."""
        if self._context.saver is not None:
            self._context.saver.wait()

    @transfer("ONE_TO_ALL")
    def load_state(self, checkpoint: Path) -> None:
        """Take back what `save_state` wrote, on this layout or another one."""
        from automap.executor.checkpoints.shard_files import load_shard

        with self._on_device(optimizer=True):
            state = self._engine().state()
            load_shard(state, checkpoint / self.setup.role, self._context.checkpoint_group)
            self._engine().load_state(state)
        random = RandomState.load(checkpoint, self._process_name)
        if random is not None:
            random.restore()

    @transfer("RANK_ZERO")
    def device(self, num_devices: int) -> DeviceFingerprint:
        """What the run, of so many devices, computes on."""
        return device_fingerprint(num_devices=num_devices)

    @property
    def _process_name(self) -> str:
        return f"{self.setup.role}-{self._context.rank}"

    def _forward(self, rollout: Batch, output: Output) -> Batch:
        temperature = self.setup.rollout.temperature
        with self._on_device():
            return self._engine().forward(rollout, output, temperature=temperature).only(output)

    def _begin_generation(self, rollout: Rollout) -> None:
        # Between two generations in a row the training engine is left where it is.
        place = nullcontext() if self._generates else self._on_device()
        with self._timed("reshard"), place:
            self._context.measured.update(rollout.start(changed=self._changed))
        self._context.measured.update(rollout.weight_bytes())
        self._generates, self._changed = True, False

    def _end_generation(self) -> None:
        if self._generates and self.rollout is not None:
            self._generates = False
            self.rollout.stop()

    def _engine(self) -> TrainingEngine:
        if self.engine is None:
            raise ValueError(f"copy {self.setup.copy.id} is a shadow: it only generates")
        return self.engine

    @contextmanager
    def _on_device(self, *, optimizer: bool = False) -> Iterator[None]:
        """Have the weights, or all, on the device; afterwards what the plan offloads is away.

        Whoever has the optimizer there may change the weights.
        """
        self._end_generation()
        self._changed |= optimizer
        offload = self.setup.copy.offload
        if self.engine is None or offload == "none":
            yield
            return
        engine: Any = self.engine  # both engines can, in the same words
        if optimizer or offload == "weights":
            engine.reload(optimizer=optimizer)
        try:
            yield
        finally:
            engine.offload(offload)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._context.measured[f"{name}_seconds"] = time.perf_counter() - start
