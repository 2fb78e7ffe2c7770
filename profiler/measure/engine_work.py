"""Engines of tiny models, timed at several sizes, and what each of their parts takes.

A call is a sum: of the call itself, its micro-batches or steps, their sequences, the layers of
each. The parts are those that explain the measurements best and are none of them negative.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from automap.planner.catalogue import ModelArchitecture
from automap.profiler.results.measurement import Measurement, measure

FORWARD_PARTS = (
    "forward_call",
    "forward_micro_batch",
    "forward_sequence",
    "layer_forward",
    "layer_forward_sequence",
)
TRAINING_PARTS = (
    "training_step",
    "training_step_layer",
    "training_micro_batch",
    "training_sequence",
    "layer_training",
    "layer_training_sequence",
)
ENGINE_PARTS = (
    "engine_call",
    "engine_request",
    "engine_step",
    "engine_sequence",
    "engine_layer",
)
WEIGHTS_PARTS = ("weights_call", "weights_layer")
NUM_LAYERS = (1, 4)
MICRO_BATCHES = ((1, 1), (8, 1), (1, 32))
"""How many, and of how many sequences each."""
PROMPT_TOKENS = RESPONSE_TOKENS = 2
SEQUENCE_TOKENS = PROMPT_TOKENS + RESPONSE_TOKENS
"""The shortest lengths there can be: they show what a sequence takes by itself, without tokens."""
GENERATIONS = ((1, 2), (1, 16), (16, 16), (64, 2), (64, 16))
"""Sequences, and tokens of each."""
LIMIT_SECONDS = 1.5
"""Time limit of one measurement."""
LEAST_SECONDS = 1e-9
"""What counts for a part that explains nothing."""
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 256,
}
Parts = Mapping[str, float]
"""How often each part occurs in what was timed."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One measurement, and what it is made of."""

    measurement: Measurement
    parts: Parts


def explained(timings: Sequence[Timing], names: Sequence[str]) -> dict[str, Measurement]:
    """Seconds of each part: least squares of relative errors, none negative.

    The interval of a part is what half-intervals of the measurements make of it.
    """
    seconds = np.array([each.measurement.seconds for each in timings])
    halves = np.array([each.measurement.relative_interval for each in timings])
    counts = np.array([[each.parts.get(name, 0.0) for name in names] for each in timings])
    relative = counts / seconds[:, None]
    kept = list(range(len(names)))
    while True:
        inverse = np.linalg.pinv(relative[:, kept])
        found = inverse @ np.ones(len(seconds))
        if not len(kept) or found.min() >= 0.0:
            break
        kept.pop(int(found.argmin()))
    spread = np.sqrt(np.square(inverse) @ np.square(halves))
    values, spreads = np.zeros(len(names)), np.zeros(len(names))
    values[kept], spreads[kept] = found, spread
    samples = [each.measurement for each in timings]
    return {
        name: Measurement(
            seconds=max(float(value), LEAST_SECONDS),
            low=float(max(value - half, 0.0)),
            high=float(value + half),
            samples=sum(each.samples for each in samples),
            rejected=sum(each.rejected for each in samples),
            disturbed=any(each.disturbed for each in samples),
        )
        for name, value, half in zip(names, values, spreads, strict=True)
    }


def training(
    device: Any, framework: str, recompute: str, *, forward: bool
) -> Mapping[str, Measurement]:
    """Scoring, if asked for, and optimizer steps of a training engine."""
    forwards, steps = [], []
    for num_layers in NUM_LAYERS:
        for micro_batches, size in MICRO_BATCHES:
            engine = trainer(framework, recompute, tiny(num_layers), size * SEQUENCE_TOKENS)
            rows = batch_of(micro_batches * size)
            each = {"micro": micro_batches, "size": size, "layers": num_layers}
            if forward:
                seconds = timed(device, partial(engine.forward, rows, "log_probs"))
                forwards.append(Timing(seconds, forward_parts(**each)))
            seconds = timed(device, partial(engine.train_step, rows, loss()))
            steps.append(Timing(seconds, training_parts(**each)))
    found = explained(steps, TRAINING_PARTS)
    return found | explained(forwards, FORWARD_PARTS) if forward else found


def forward_parts(*, micro: int, size: int, layers: int) -> Parts:
    return {
        "forward_call": 1,
        "forward_micro_batch": micro,
        "forward_sequence": micro * size,
        "layer_forward": micro * layers,
        "layer_forward_sequence": micro * size * layers,
    }


def training_parts(*, micro: int, size: int, layers: int) -> Parts:
    return {
        "training_step": 1,
        "training_step_layer": layers,
        "training_micro_batch": micro,
        "training_sequence": micro * size,
        "layer_training": micro * layers,
        "layer_training_sequence": micro * size * layers,
    }


def tiny(num_layers: int) -> ModelArchitecture:
    """A model whose arithmetic is nothing."""
    return ModelArchitecture(num_layers=num_layers, **SIZES)


def trainer(
    framework: str,
    recompute: str,
    architecture: ModelArchitecture,
    micro_batch_tokens: int,
    precision: str = "fp32",
) -> Any:
    """A training engine of this project on one device, with random weights."""
    from automap.executor.engines.random_model import config_of
    from automap.executor.layout import RankLayout
    from automap.executor.settings import TrainingSettings

    config = config_of(architecture)
    settings: Any = TrainingSettings(engine="fsdp" if framework == "fsdp" else "megatron")
    common: dict[str, Any] = {
        "layout": RankLayout(),
        "precision": precision,
        "training": settings,
        "micro_batch_tokens": micro_batch_tokens,
        "recompute": recompute,
    }
    if framework == "fsdp":
        from automap.executor.engines.fsdp import FsdpEngine

        return FsdpEngine(config, **common)
    from automap.executor.engines.megatron import MegatronEngine

    return MegatronEngine(config, **common)


def loss() -> Any:
    """A policy loss that needs neither old log-probabilities nor a reference."""
    from automap.executor.algorithms.losses import PolicyLoss

    return PolicyLoss(aggregate="token_mean", clip=None, reads_old_log_probs=False)


def _tokens(count: int, length: int) -> Any:
    import torch

    from automap.executor.batch import Ragged

    return Ragged.of([torch.randint(SIZES["vocab_size"], (length,)) for _ in range(count)])


def batch_of(count: int, length: int = SEQUENCE_TOKENS) -> Any:
    """So many sequences of a length, the second half of each a response."""
    import torch

    from automap.executor.batch import Batch

    responses = _tokens(count, length // 2)
    return Batch(
        {
            "prompt_tokens": _tokens(count, length - length // 2),
            "response_tokens": responses,
            "advantages": responses.with_values(torch.randn(len(responses.values))),
            "weight": torch.ones(count),
        }
    )


def generation(device: Any) -> Mapping[str, Measurement]:
    """Generate calls of vLLM, and weights that a training engine gives it."""
    steps, loads = [], []
    for num_layers in NUM_LAYERS:
        engine = _vllm(device, num_layers)
        load = partial(_load, engine, _weights(num_layers))
        parts: Parts = {"weights_call": 1, "weights_layer": num_layers}
        loads.append(Timing(timed(device, load), parts))
        for sequences, tokens in GENERATIONS:
            seconds = timed(device, partial(_generate, engine, sequences, tokens))
            steps.append(Timing(seconds, engine_parts(sequences, tokens, num_layers)))
        engine.shutdown()
    return {**explained(steps, ENGINE_PARTS), **explained(loads, WEIGHTS_PARTS)}


def engine_parts(sequences: int, tokens: int, layers: int) -> Parts:
    """The first step prefills all prompts; each makes a token of every sequence."""
    return {
        "engine_call": 1,
        "engine_request": sequences,
        "engine_step": tokens,
        "engine_sequence": tokens * sequences,
        "engine_layer": tokens * layers,
    }


def _vllm(device: Any, num_layers: int) -> Any:
    from automap.executor.engines.random_model import config_of
    from automap.executor.rollout.vllm_engine import VllmEngine
    from automap.executor.settings import RolloutSettings

    return VllmEngine(
        config_of(tiny(num_layers)),
        ranks=[0],
        precision="fp32" if device.kind == "cpu" else "bf16",
        rollout=RolloutSettings(max_running_sequences=max(count for count, _ in GENERATIONS)),
        max_model_len=64,
        kv_cache_bytes=64 << 20,
        seed=0,
    )


def _weights(num_layers: int) -> Callable[[], Any]:
    """The weights of a training engine, as they come to generation on the same device."""
    from importlib.util import find_spec

    from automap.executor.layout import GenerationLayout, RankLayout
    from automap.executor.reshard.transition import model_parallel_transition
    from automap.executor.rollout.vllm_rollout import pieces_of

    framework = "megatron-core" if find_spec("megatron") else "fsdp"
    engine = trainer(framework, "none", tiny(num_layers), SEQUENCE_TOKENS)
    transition = model_parallel_transition(
        pieces_of(engine, tensor_rank=0),
        GenerationLayout(RankLayout(), 1, 1),
        num_key_value_heads=SIZES["num_key_value_heads"],
    )
    return transition.tensors


def _load(engine: Any, tensors: Callable[[], Any]) -> None:
    engine.load_weights(tensors())


def _generate(engine: Any, sequences: int, tokens: int) -> None:
    import torch

    from automap.executor.batch import Batch

    prompts = {
        "prompt_tokens": _tokens(sequences, PROMPT_TOKENS),
        "prompt_id": torch.arange(sequences),
    }
    engine.generate(
        Batch(prompts),
        responses_per_prompt=1,
        max_response_tokens=tokens,
        end_tokens=[],
        iteration=0,
    )


def timed(
    device: Any, operation: Callable[[], object], *, limit_seconds: float = LIMIT_SECONDS
) -> Measurement:
    """An operation that has run once before it is sampled."""
    operation()
    found = measure(device.sampler(operation), limit_seconds=limit_seconds)
    device.release()
    return found
