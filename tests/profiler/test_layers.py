"""Whole layers: which are measured, what a layer is of two models, why a sum is off."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from automap.planner.catalogue import architecture, gpu_type
from automap.planner.cost.training.whole_layers import LayerCheck, LayerKey
from automap.profiler.machine.devices import CpuDevice
from automap.profiler.measure.layer_validation import explanation, layer_errors
from automap.profiler.measure.layers import BATCHES, TABLE, difference, keys, measure_layers
from automap.profiler.results.journal import Entry, Journal
from automap.profiler.results.measurement import Measurement
from automap.profiler.results.profile_report import LayerError
from tests.helpers.layer_work import HOST, KERNELS, ONES, layers
from tests.helpers.profile_folders import profile_folder

MEASURED = Measurement(1.0, 0.99, 1.01, 9, 1, False)


def test_layers_of_the_models_in_each_mode_the_plain_ones_first() -> None:
    found = keys(CpuDevice(), [architecture("tiny-llama")], budget_seconds=300.0)
    plain = [key for key in found if key["recompute"] == "none"]
    assert found[: len(plain)] == plain
    assert {key["part"] for key in plain} == {"forward", "training"}
    assert {(key["recompute"], key["part"]) for key in found[len(plain) :]} == {
        ("selective", "training"),
        ("full", "training"),
    }
    assert {(key["num_sequences"], key["sequence_length"]) for key in found} == set(BATCHES)


def test_layers_that_are_too_long_or_have_experts_are_left_out() -> None:
    device = CpuDevice()
    assert not keys(device, [architecture("llama-2-70b")], budget_seconds=300.0)
    assert not keys(device, [architecture("mixtral-8x7b")], budget_seconds=1e9)
    assert keys(device, [], budget_seconds=300.0)  # a usual layer where no model is named


def test_a_layer_is_half_of_what_two_layers_more_take() -> None:
    found = difference(replace(MEASURED, seconds=1.0), replace(MEASURED, seconds=3.0))
    assert found is not None
    assert found.seconds == 1.0
    assert found.low < 1.0 < found.high
    assert found.samples == 18
    assert difference(replace(MEASURED, seconds=1.0), replace(MEASURED, seconds=0.9)) is None


def check(summed: float, host: float) -> LayerCheck:
    key = LayerKey("fsdp", "none", "forward", "fp32", 8, 64, ())
    return LayerCheck(key, measured=1.0, summed=summed, host=host, priced=1.0)


@pytest.mark.parametrize(
    ("summed", "host", "told"),
    [
        (0.95, 0.9, ""),
        (0.8, 0.5, "launch-bound: 62%"),
        (1.3, 0.1, "overlap"),
        (0.7, 0.1, "contention"),
    ],
)
def test_large_errors_are_explained(summed: float, host: float, told: str) -> None:
    found = explanation(check(summed, host), None, alone=False)
    assert found.startswith(told)
    assert bool(found) == bool(told)


def test_noise_is_told_from_what_the_layer_does() -> None:
    wide = Entry("layers", {}, replace(MEASURED, low=0.8, high=1.2, disturbed=True))
    assert explanation(check(0.7, 0.1), wide, alone=False).startswith("noise")
    assert explanation(check(0.7, 0.1), None, alone=True).startswith("between operators")


def test_a_report_has_every_layer(tmp_path: Path) -> None:
    rows = [*KERNELS, *HOST, *layers(ONES)]
    profile_folder(tmp_path, rows)
    journal = Journal(tmp_path)
    for table, key, seconds in rows:
        found = Measurement(seconds, seconds, seconds, 9, 0, False)
        journal.append(Entry(table, key, found))
    journal.close()
    errors = layer_errors(gpu_type("cpu"), journal)
    assert len(errors) == len(ONES)
    assert all(isinstance(each, LayerError) for each in errors)
    for each in errors:
        assert each.sum_error == pytest.approx(each.sum_seconds / each.measured_seconds - 1)
        assert each.explanation  # a second for a layer of a core: all far off


@pytest.mark.slow
def test_a_layer_is_measured_in_both_frameworks() -> None:
    wanted = [
        key
        for key in keys(CpuDevice(), [architecture("tiny-llama")], budget_seconds=300.0)
        if key["num_sequences"] == 8 and key["recompute"] in ("none", "full")
    ]
    found = list(measure_layers(wanted, device="cpu", deadline=time.monotonic() + 200))
    assert {entry.table for entry in found} == {TABLE}
    assert len(found) == len(wanted)
    known = {
        tuple(entry.key[name] for name in ("framework", "recompute", "part")): entry.measurement
        for entry in found
    }
    for (framework, _, part), measurement in known.items():
        assert measurement is not None, (framework, part)
        assert 1e-5 < measurement.seconds < 1.0
