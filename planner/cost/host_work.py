"""What frameworks take on the host beside their kernels: measured in a profile, else constants."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.cost import constants
from planner.cost.rollout_engines import EngineProfile


@dataclass(frozen=True, slots=True)
class HostWork:
    """Least seconds of a layer, whatever its kernels take, and engine overhead of a step."""

    layer_forward_seconds: float
    layer_backward_seconds: float
    engine_step_seconds: float | None = None
    """Of the inference engine; None: not measured."""
    engine_sequence_seconds: float | None = None
    """Of a step, for each running sequence; None: not measured."""

    @classmethod
    def of(cls, framework: str, measured: Callable[[str, str], float | None]) -> "HostWork":
        """Of a training framework, beside vLLM; `measured` has seconds by framework and part."""
        launch = constants.LAYER_FORWARD_LAUNCHES * constants.LAUNCH_SECONDS
        forward = measured(framework, "layer_forward")
        training = measured(framework, "layer_training")
        return cls(
            layer_forward_seconds=launch if forward is None else forward,
            layer_backward_seconds=max(training - forward, forward)
            if forward is not None and training is not None
            else 2.0 * launch,
            engine_step_seconds=measured("vllm", "engine_step"),
            engine_sequence_seconds=measured("vllm", "engine_sequence"),
        )

    def engine(self, engine: EngineProfile) -> EngineProfile:
        """An engine with what was measured of it in place of its constants."""
        if engine.name != "vllm":
            return engine
        step, sequence = self.engine_step_seconds, self.engine_sequence_seconds
        return replace(
            engine,
            step_seconds=engine.step_seconds if step is None else step,
            sequence_seconds=engine.sequence_seconds if sequence is None else sequence,
        )
