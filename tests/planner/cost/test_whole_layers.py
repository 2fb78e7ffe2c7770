"""Layers measured end to end: against their operators' sum, and in prices."""

from pathlib import Path

import numpy as np
import pytest

from automap.planner.catalogue import gpu_type
from automap.planner.cost.layer.transformer_layer import (
    KernelContext,
    MicroBatch,
    dense_layer_seconds,
)
from automap.planner.cost.operators.profile import Profile, load_profile
from automap.planner.cost.training.whole_layers import (
    layer_architecture,
    layer_checks,
    priced_layer_seconds,
)
from automap.planner.job.job import Model
from automap.planner.profiles import Row
from tests.helpers.cost_model import ints, pool
from tests.helpers.layer_work import HOST, KERNELS, ONES, SIZES, layers
from tests.helpers.profile_folders import profile_folder

CPU = gpu_type("cpu")


def profile_of(folder: Path, rows: list[Row]) -> Profile:
    return Profile(CPU, folder=profile_folder(folder, [*KERNELS, *HOST, *rows]))


def summed(profile: Profile, part: str = "forward", recompute: str = "none") -> dict[int, float]:
    """What operators add up to, by sequences."""
    return {
        each.key.num_sequences: each.summed
        for each in layer_checks(profile)
        if (each.key.part, each.key.recompute) == (part, recompute)
    }


def seconds_of(profile: Profile, *, priced: bool) -> tuple[float, float]:
    """(forward, backward) of a micro-batch of 16 sequences of 64 tokens."""
    from automap.planner.cost.batches import SequenceLengths

    setting = KernelContext(
        Model("actor", layer_architecture(SIZES), False, trainable=True, lora_rank=None),
        pool("cpu"),
        profile,
        "fp32",
        SequenceLengths(np.array([64.0]), np.ones(1), 64),
    )
    price = priced_layer_seconds if priced else dense_layer_seconds
    found = price(setting, MicroBatch(ints(1), ints(1), ints(1), ints(16), ints(1024)))
    return float(found.forward[0]), float(found.backward[0])


def test_a_layer_is_compared_with_its_operators_and_the_host(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, layers(ONES))
    checks = list(layer_checks(profile))
    assert len(checks) == len(ONES)
    for check in checks:
        assert check.measured == 1.0
        assert check.error == pytest.approx(check.summed - 1.0)
        assert 0 < check.host < check.summed
    there, both, again = (
        summed(profile, part, mode)
        for part, mode in (("forward", "none"), ("training", "none"), ("training", "full"))
    )
    # Full recomputation repeats the forward pass.
    assert again[8] - both[8] == pytest.approx(there[8])
    assert both[8] > 2 * there[8]


def test_layers_take_what_measured_ones_take_of_their_sums(tmp_path: Path) -> None:
    plain = profile_of(tmp_path / "plain", layers(ONES))
    there, both = summed(plain), summed(plain, "training")
    # What lies between the passes and the sum of training is the optimizer step of the weights.
    whole = seconds_of(plain, priced=False)
    measured = {("none", "forward", count): 1.25 * there[count] for count in (8, 64)}
    measured |= {
        ("none", "training", count): both[count] + 0.25 * there[count] for count in (8, 64)
    }
    rows = layers(measured)
    found = profile_of(tmp_path / "measured", rows)
    forward, backward = seconds_of(found, priced=True)
    assert forward == pytest.approx(1.25 * whole[0])
    # Measured training exceeds its sum by what forward does, so the backward pass is as summed.
    assert backward == pytest.approx(whole[1])
    assert seconds_of(found, priced=False) == pytest.approx(whole)
    for check in layer_checks(found):
        assert check.priced == pytest.approx(check.measured, rel=1e-6)


def test_one_disturbed_layer_does_not_move_prices(tmp_path: Path) -> None:
    plain = summed(profile_of(tmp_path / "plain", layers(ONES)))
    measured = {("none", "forward", 8): 1.1 * plain[8], ("none", "forward", 64): 1.1 * plain[64]}
    disturbed = measured | {("none", "forward", 16): 50.0}
    calm, noisy = (
        seconds_of(profile_of(tmp_path / name, layers(rows)), priced=True)
        for name, rows in (("calm", measured), ("noisy", disturbed))
    )
    assert noisy == pytest.approx(calm)


def test_frameworks_and_shipped_tables_have_their_own(tmp_path: Path) -> None:
    other = profile_of(tmp_path, layers(ONES, "fsdp"))
    assert seconds_of(other, priced=True) == seconds_of(other, priced=False)
    assert not list(layer_checks(load_profile(gpu_type("h100"))))
