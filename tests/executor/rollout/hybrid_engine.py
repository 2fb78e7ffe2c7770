"""The 3D hybrid engine: one model that trains and generates in turn on the same ranks."""

from typing import Literal, Protocol

from automap.executor.engines.training_engine import TrainingEngine
from automap.executor.reshard.lora_transition import AdapterTransition
from automap.executor.reshard.transition import Transition
from automap.executor.rollout.vllm_engine import VllmEngine

Offload = Literal["none", "optimizer", "weights"]


class OffloadingEngine(TrainingEngine, Protocol):
    """A training engine whose state can wait on the host."""

    def offload(self, what: Literal["optimizer", "weights"]) -> None:
        """Move masters and moments, or them and the weights, to host memory until `reload`."""
        ...

    def reload(self) -> None:
        """Bring back what `offload` moved."""
        ...


class HybridEngine:
    """Keeps a generation engine's weights at those of a training engine.

    The two share the device: the generation engine sleeps while the other trains, and the
    trainer's state waits on the host while it generates, as far as `offload` says.
    """

    def __init__(
        self,
        trainer: OffloadingEngine,
        rollout: VllmEngine,
        transition: Transition | AdapterTransition,
        *,
        offload: Offload = "none",
    ) -> None:
        """Both engines exist, and the trainer's turn is first."""
        self._trainer, self._rollout = trainer, rollout
        self._transition, self._offload = transition, offload
        self.generates = False
        rollout.sleep()

    def to_generation(self) -> VllmEngine:
        """Give the turn, and the weights as they are now, to the generation engine.

        Collective over all ranks of the trainer. Without effect if it has the turn.
        """
        if self.generates:
            return self._rollout
        if self._offload != "none":
            self._trainer.offload("optimizer")
        self._rollout.wake("weights")
        self._rollout.load_weights(self._transition.tensors())
        if self._offload == "weights":
            self._trainer.offload("weights")
        self._rollout.wake("cache")
        self.generates = True
        return self._rollout

    def to_training(self) -> OffloadingEngine:
        """Give the turn back to the trainer, as it was."""
        if self.generates:
            self._rollout.sleep()
            self._trainer.reload()
            self.generates = False
        return self._trainer
