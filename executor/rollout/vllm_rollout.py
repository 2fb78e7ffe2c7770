"""Generation beside a training engine, or on a shadow's own devices, with the trainer's weights."""

from collections.abc import Callable, Iterator
from typing import Protocol

from torch import Tensor

from automap.executor.batch import Batch
from automap.executor.engines.training_engine import Piece, TrainingEngine
from automap.executor.reshard.broadcast import WeightSender
from automap.executor.reshard.ledger import Ledger
from automap.executor.reshard.parts import Held
from automap.executor.rollout.continuous import InFlight
from automap.executor.rollout.vllm_engine import VllmEngine
from automap.executor.rollout.weight_turns import WeightTurns
from automap.executor.workers.model_setup import ModelSetup


class WeightSource(Protocol):
    """Where generation weights come from: a `Transition`, or an `AdapterTransition`."""

    ledger: Ledger

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Hugging Face names and whole tensors; collective, to be exhausted."""
        ...

    def parts(self) -> Iterator[tuple[str, Held]]:
        """What `tensors` brings as parts of tensors, each valid until the next is asked for."""
        ...


def pieces_of(engine: TrainingEngine, *, tensor_rank: int) -> Callable[[], Iterator[Piece]]:
    """What this rank holds of Hugging Face tensors, asked for anew at every transition."""

    def pieces() -> Iterator[Piece]:
        for name, tensor in engine.parameters():
            yield from engine.pieces(name, tensor, tensor_rank=tensor_rank)

    return pieces


class VllmRollout:
    """vLLM with the settings of a copy; implements `workers.model_worker.Rollout`."""

    def __init__(
        self,
        setup: ModelSetup,
        vllm: VllmEngine,
        source: WeightSource | None = None,
        turns: WeightTurns | None = None,
        *,
        ledger: Ledger | None = None,
    ) -> None:
        """The device is the training engine's, if there is one.

        Args:
            setup: of the copy.
            vllm: the engine.
            source: None on a shadow: its weights are sent (`WeightReceipt`).
            turns: where training weights make room for vLLM's; None: vLLM keeps its own beside.
            ledger: of the bytes of weights; None: the source's, or one of its own.
        """
        self.vllm = vllm
        self._setup = setup
        self._source = source
        self._turns = turns
        own = Ledger() if source is None else source.ledger
        self.ledger = own if ledger is None else ledger
        self.ledger.watch("generation", vllm.weights())
        if turns is not None:
            turns.give_back()
        self._in_flight = InFlight(
            vllm, max_response_tokens=setup.max_response_tokens, end_tokens=setup.end_tokens
        )

    def start(self, *, changed: bool) -> dict[str, float]:
        """See `Rollout`: on a GPU room for the weights, then they, then room for the cache."""
        if self._source is None:
            return {}
        received = 0.0
        if changed or not self.vllm.has_weights:
            received = load_from(self._source, self.vllm, self._turns)
        self.vllm.wake("cache")
        return {"reshard_received": received}

    def generate(
        self, prompts: Batch, *, responses_per_prompt: int, greedy: bool, iteration: int
    ) -> Batch:
        """See `Rollout`."""
        return self.vllm.generate(
            prompts,
            responses_per_prompt=responses_per_prompt,
            greedy=greedy,
            max_response_tokens=self._setup.max_response_tokens,
            end_tokens=self._setup.end_tokens,
            iteration=iteration,
        )

    def turn(
        self, requests: Batch | None, *, version: int, num_steps: int, greedy: bool = False
    ) -> Batch | None:
        """See `Rollout`."""
        return self._in_flight.turn(requests, version=version, num_steps=num_steps, greedy=greedy)

    def stop(self) -> None:
        """See `Rollout`; a shadow's engine keeps the device."""
        if self._turns is not None:
            self._turns.give_back()
            self.vllm.has_weights = False
        if self._source is not None:
            self.vllm.sleep()

    def weight_bytes(self) -> dict[str, float]:
        """See `Rollout`."""
        packed = self.vllm.weight_bytes().prepacked
        return {
            "generation_weights": float(self.ledger.alive("training", "generation") + packed),
            "peak_weights": float(self.ledger.peak_bytes + packed),
            "packed_weights": float(packed),
        }


class WeightSending:
    """A home's rank in a weight sync."""

    def __init__(self, every_time: WeightSender | None, once: WeightSender | None = None) -> None:
        """What is sent `once` goes ahead the first time: the base that an adapter is added to.

        Without a sender another data-parallel rank sends the same shard.
        """
        self._once, self._every_time = once, every_time

    def run(self) -> dict[str, float]:
        """See `workers.model_worker.WeightSync`."""
        if self._once is not None:
            self._once.send()
            self._once = None
        if self._every_time is not None:
            self._every_time.send()
        return {}


class WeightReceipt:
    """A shadow's rank in a weight sync."""

    def __init__(self, source: WeightSource, vllm: VllmEngine) -> None:
        self._source = source
        self._vllm = vllm

    def run(self) -> dict[str, float]:
        """See `workers.model_worker.WeightSync`."""
        return {"weight_sync_received": load_from(self._source, self._vllm)}


def load_from(source: WeightSource, vllm: VllmEngine, turns: WeightTurns | None = None) -> float:
    """Bring weights into vLLM; the bytes that came from other ranks."""
    before = source.ledger.received_bytes()
    source.ledger.forget_peaks()
    vllm.wake("weights")
    if vllm.plain is not None:
        vllm.load_parts(source.parts(), turns=turns)
    else:
        vllm.load_weights(source.tensors())
    return float(source.ledger.received_bytes() - before)
