"""What engines take beside their kernels, from small measurements of several sizes."""

import os
import time

import numpy as np
import pytest

from automap.profiler.measure.engine_work import (
    ENGINE_PARTS,
    FORWARD_PARTS,
    GENERATIONS,
    LEAST_SECONDS,
    MICRO_BATCHES,
    NUM_LAYERS,
    TRAINING_PARTS,
    Timing,
    engine_parts,
    explained,
    forward_parts,
    training_parts,
)
from automap.profiler.measure.host_work import keys, measure_host_work
from automap.profiler.results.measurement import Measurement


def lasting(seconds: float, spread: float = 0.0) -> Measurement:
    return Measurement(seconds, seconds - spread, seconds + spread, 9, 1, False)


def timings(parts: list[dict[str, float]], truth: dict[str, float], noise: float) -> list[Timing]:
    draw = np.random.default_rng(0)
    return [
        Timing(
            lasting(
                sum(truth[name] * count for name, count in each.items())
                * (1 + noise * draw.standard_normal()),
                1e-4,
            ),
            each,
        )
        for each in parts
    ]


DESIGNS = {
    "forward": (
        FORWARD_PARTS,
        [
            forward_parts(micro=micro, size=size, layers=layers)
            for layers in NUM_LAYERS
            for micro, size in MICRO_BATCHES
        ],
        (1e-3, 0.5e-3, 0.1e-3, 1.5e-3, 0.05e-3),
    ),
    "training": (
        TRAINING_PARTS,
        [
            training_parts(micro=micro, size=size, layers=layers)
            for layers in NUM_LAYERS
            for micro, size in MICRO_BATCHES
        ],
        (2e-3, 1e-3, 1.5e-3, 0.2e-3, 3e-3, 0.1e-3),
    ),
    "engine": (
        ENGINE_PARTS,
        [engine_parts(*each, layers) for layers in NUM_LAYERS for each in GENERATIONS],
        (3e-3, 0.1e-3, 0.5e-3, 0.04e-3, 0.4e-3),
    ),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_the_sizes_that_are_measured_tell_all_parts_apart(name: str) -> None:
    names, parts, values = DESIGNS[name]
    truth = dict(zip(names, values, strict=True))
    found = explained(timings([dict(each) for each in parts], truth, 0.0), names)
    for part, seconds in truth.items():
        assert found[part].seconds == pytest.approx(seconds, rel=1e-6), part
        assert found[part].low < found[part].seconds < found[part].high


@pytest.mark.parametrize("name", DESIGNS)
def test_noise_makes_no_part_negative_and_predicts_what_was_measured(name: str) -> None:
    names, parts, values = DESIGNS[name]
    truth = dict(zip(names, values, strict=True))
    measured = timings([dict(each) for each in parts], truth, 0.1)
    found = explained(measured, names)
    assert min(each.seconds for each in found.values()) >= LEAST_SECONDS
    for each in measured:
        fitted = sum(found[part].seconds * count for part, count in each.parts.items())
        assert fitted == pytest.approx(each.measurement.seconds, rel=0.35)


def test_a_part_that_would_be_negative_explains_nothing() -> None:
    both = [
        Timing(lasting(1.0), {"call": 1, "layer": 1}),
        Timing(lasting(0.9), {"call": 1, "layer": 2}),
    ]
    found = explained(both, ("call", "layer"))
    assert found["layer"].seconds == LEAST_SECONDS
    assert found["call"].seconds == pytest.approx(0.947, abs=0.01)


@pytest.mark.slow
def test_megatron_and_vllm_are_measured() -> None:
    wanted = [key for key in keys() if key["recompute"] == "none" and key["framework"] != "fsdp"]
    assert len(wanted) == 18
    found = list(measure_host_work(wanted, device="cpu", deadline=time.monotonic() + 400))
    seconds = {str(each.key["part"]): each.measurement for each in found}
    assert len(seconds) == 18
    for part, measurement in seconds.items():
        assert measurement is not None, part
        assert measurement.seconds < 1.0, (part, os.getloadavg())
    for part in ("layer_forward", "layer_training", "engine_step", "weights_layer"):
        assert seconds[part].seconds > 1e-5, part  # type: ignore[union-attr]
