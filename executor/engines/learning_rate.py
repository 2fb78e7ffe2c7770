"""The learning rate at every optimizer step: warm-up, then decay."""

import math

from automap.executor.settings import OptimizerSettings


def learning_rate(settings: OptimizerSettings, step: int) -> float:
    """The rate of optimizer step `step`, counted from 0.

    Warm-up is linear and wastes no step: step s < warmup_steps takes (s + 1) ÷ warmup_steps of the
    rate. Decay runs from there to minimum_learning_rate at step decay_steps, linearly or along
    half a cosine, and stays.

    Raises:
        ValueError: settings that contradict each other, see `check_schedule`.
    """
    check_schedule(settings)
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    if settings.decay == "constant" or settings.decay_steps is None:
        return settings.learning_rate
    done = (step - settings.warmup_steps) / (settings.decay_steps - settings.warmup_steps)
    done = min(done, 1.0)
    left = 1.0 - done if settings.decay == "linear" else (1.0 + math.cos(math.pi * done)) / 2
    minimum = settings.minimum_learning_rate
    return minimum + (settings.learning_rate - minimum) * left


def check_schedule(settings: OptimizerSettings) -> None:
    """ValueError if the decay lacks its length, ends in the warm-up, or would rise."""
    if settings.decay == "constant":
        return
    if settings.decay_steps is None:
        raise ValueError(f"decay {settings.decay!r} needs decay_steps, got None")
    if settings.decay_steps <= settings.warmup_steps:
        raise ValueError(
            f"decay_steps must be above warmup_steps {settings.warmup_steps}, "
            f"got {settings.decay_steps}"
        )
    if settings.minimum_learning_rate > settings.learning_rate:
        raise ValueError(
            f"minimum_learning_rate must be at most learning_rate {settings.learning_rate}, "
            f"got {settings.minimum_learning_rate}"
        )
