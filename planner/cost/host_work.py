"""What frameworks take on the host beside their kernels: measured in a profile, else constants."""

from collections.abc import Callable
from dataclasses import dataclass

from planner.cost import constants


@dataclass(frozen=True, slots=True)
class HostWork:
    """Least seconds of a layer, whatever its kernels take, and engine overhead of a step."""

    layer_forward_seconds: float
    layer_backward_seconds: float
    engine_step_seconds: float
    engine_sequence_seconds: float
    """Of a step, for each running sequence."""

    @classmethod
    def of(cls, framework: str, measured: Callable[[str, str], float | None]) -> "HostWork":
        """Of a training framework, beside vLLM; `measured` has seconds by framework and part."""
        launch = constants.LAYER_FORWARD_LAUNCHES * constants.LAUNCH_SECONDS
        forward = measured(framework, "layer_forward")
        training = measured(framework, "layer_training")
        step, sequence = measured("vllm", "engine_step"), measured("vllm", "engine_sequence")
        return cls(
            layer_forward_seconds=launch if forward is None else forward,
            layer_backward_seconds=max(training - forward, forward)
            if forward is not None and training is not None
            else 2.0 * launch,
            engine_step_seconds=constants.ENGINE_STEP_SECONDS if step is None else step,
            engine_sequence_seconds=constants.ENGINE_SEQUENCE_SECONDS
            if sequence is None
            else sequence,
        )
