"""Seconds that frameworks take on the host beside their kernels: measured, else constants."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from automap.planner.cost import constants
from automap.planner.cost.rollout_engines import EngineProfile
from automap.planner.cost.rows import ceil_div
from automap.planner.layout import FloatArray, IntArray

Seconds = FloatArray | float


@dataclass(frozen=True, slots=True)
class CallWork:
    """Host seconds of a scoring call, or of an optimizer step, outside its layers."""

    call: float
    layer: float = 0.0
    """Seconds per layer and call: a layer's parameters in the optimizer."""
    micro_batch: float = 0.0
    sequence: float = 0.0

    def seconds(
        self,
        *,
        num_layers: int,
        stages: IntArray,
        micro_batches: IntArray,
        micro_batch_size: IntArray,
    ) -> FloatArray:
        """Seconds of a call [candidate] on one pipeline stage.

        `num_layers` are the whole model's, dealt to `stages` pipeline stages.
        """
        if not (self.layer or self.micro_batch or self.sequence):
            return np.full(len(stages), self.call)
        each = self.micro_batch + self.sequence * micro_batch_size
        layers = ceil_div(num_layers, stages)
        return np.asarray(self.call + self.layer * layers + each * micro_batches, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Host seconds of a layer in one pass over a micro-batch."""

    layer: float
    sequence: float = 0.0

    def seconds(self, sequences: IntArray) -> Seconds:
        """Seconds of a layer with that many sequences in the micro-batch."""
        if not self.sequence:
            return self.layer
        return np.asarray(self.layer + self.sequence * sequences, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class EngineWork:
    """Host seconds of an inference engine; None: not measured."""

    call: float | None = None
    request: float | None = None
    """Seconds per request of a call: to admit it, and to hand over its tokens."""
    step: float | None = None
    sequence: float | None = None
    """Seconds of a step per running sequence."""
    layer: float | None = None
    """Seconds of a step per layer."""
    weights: float = 0.0
    """Seconds to take weights from the training engine on the same device."""
    weights_layer: float = 0.0


@dataclass(frozen=True, slots=True)
class HostWork:
    """Host work of a training framework, and of an inference engine."""

    forward: LayerWork
    backward: LayerWork
    scoring: CallWork
    step: CallWork
    """One optimizer step, with its forward and backward passes."""
    engine: EngineWork = EngineWork()
    beside_kernels: bool = True
    """Whether the host goes on while kernels run. A CPU does one thing after the other; where
    nothing was measured on it, the difference is left out, as it is smaller than what is not
    known."""

    @classmethod
    def of(
        cls, framework: str, measured: Callable[[str, str], float | None], *, on_host: bool
    ) -> "HostWork":
        """Host work of a framework, measured or else by constants.

        `measured` gives the seconds of a part by (framework, part), None where it was not measured;
        `on_host` says that the device is the host itself.
        """

        def part(name: str, otherwise: float = 0.0) -> float:
            found = measured(framework, name)
            return otherwise if found is None else found

        launch = constants.LAYER_FORWARD_LAUNCHES * constants.LAUNCH_SECONDS
        forward = part("layer_forward", launch)
        training = part("layer_training", 3.0 * launch)
        forward_sequence = part("layer_forward_sequence")
        training_sequence = part("layer_training_sequence")
        engine = ("call", "request", "step", "sequence", "layer")
        beside = not (on_host and measured(framework, "layer_forward") is not None)

        def of_micro_batches(call: CallWork, micro_batch: str, sequence: str) -> CallWork:
            """What the host does for kernels outside layers, where it is not hidden by them."""
            if beside:
                return call
            return replace(call, micro_batch=part(micro_batch), sequence=part(sequence))

        return cls(
            forward=LayerWork(forward, forward_sequence),
            backward=LayerWork(
                max(training - forward, forward), max(training_sequence - forward_sequence, 0.0)
            ),
            scoring=of_micro_batches(
                CallWork(part("forward_call", constants.STEP_OVERHEAD_SECONDS)),
                "forward_micro_batch",
                "forward_sequence",
            ),
            step=of_micro_batches(
                CallWork(
                    part("training_step", constants.STEP_OVERHEAD_SECONDS),
                    layer=part("training_step_layer"),
                ),
                "training_micro_batch",
                "training_sequence",
            ),
            engine=EngineWork(
                **{name: measured("vllm", f"engine_{name}") for name in engine},
                weights=measured("vllm", "weights_call") or 0.0,
                weights_layer=measured("vllm", "weights_layer") or 0.0,
            ),
            beside_kernels=beside,
        )

    def with_kernels(self, kernels: FloatArray, host: Seconds) -> FloatArray:
        """Seconds of a layer: the longer of kernels and host work, or their sum.

        They are summed where the device does one thing after the other.
        """
        if self.beside_kernels:
            return np.maximum(kernels, host)
        return np.asarray(kernels + host, dtype=np.float64)

    def of_engine(self, engine: EngineProfile) -> EngineProfile:
        """An engine's constants, replaced by what was measured of it.

        The seconds of a layer are replaced only where kernels do not run beside the host; else the
        constant stands for the starts of its kernels in a graph.
        """
        if engine.name != "vllm":
            return engine
        found = self.engine
        layer = None if self.beside_kernels else found.layer
        return replace(
            engine,
            call_seconds=_known(found.call, engine.call_seconds),
            request_seconds=_known(found.request, engine.request_seconds),
            step_seconds=_known(found.step, engine.step_seconds),
            sequence_seconds=_known(found.sequence, engine.sequence_seconds),
            layer_seconds=_known(layer, engine.layer_seconds),
        )

    def weights_seconds(self, layers: IntArray) -> FloatArray:
        """Seconds to hand `layers` layers of weights from training to generation on one device."""
        return np.asarray(self.engine.weights + self.engine.weights_layer * layers)


def _known(measured: float | None, otherwise: float) -> float:
    return otherwise if measured is None else measured
