"""What the check counts layer by layer, beside the catalogue's counts and in plans."""

import numpy as np
import pytest

from automap.planner import catalogue
from automap.planner.check import flops
from automap.planner.check.flops import forward_flops
from automap.planner.check.layers import cache_bytes, matrix_parameters
from automap.planner.check.subject import Subject
from automap.planner.cost.batches import sequence_lengths
from automap.planner.cost.model_flops import model_flops
from tests.helpers.cost_model import call, model, workload
from tests.planner.check.broken_plans import BARRIER_JOB, BARRIER_PLAN, expect, with_call, with_copy


@pytest.mark.parametrize("name", catalogue.architectures())
def test_matrices_are_nearly_all_parameters(name: str) -> None:
    model = catalogue.architecture(name)
    positions = model.position_embedding_parameters
    rest = model.num_parameters() - positions - matrix_parameters(model)
    assert 0 < rest < 0.003 * model.num_parameters()


def test_a_cache_layer_by_layer() -> None:
    """Gemma-3-27B: 10 full layers of 16 heads of 128, 52 of the last 1,024 tokens."""
    model = catalogue.architecture("gemma-3-27b")
    token = 2 * 16 * 128 * 2
    assert cache_bytes(model, tokens=5000, element_bytes=2) == token * (10 * 5000 + 52 * 1024)
    assert cache_bytes(model, tokens=500, element_bytes=2) == token * 62 * 500


@pytest.mark.parametrize("name", catalogue.architectures())
def test_flops_layer_by_layer_are_those_of_the_cost_model(name: str) -> None:
    spec, scoring = (
        workload(response_length={"p50": 600, "p90": 6000, "max": 12000}),
        call("forward"),
    )
    one, lengths = model(name), sequence_lengths(spec)
    each = forward_flops(one.architecture, np.asarray(lengths.points), scalar_head=False)
    expected = scoring.num_sequences * float(each @ lengths.weights)
    assert model_flops(one, scoring, spec) == pytest.approx(expected, rel=1e-9)


def test_flops_that_are_not_the_layers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "model_flops", lambda *_: 1.0)
    found = list(flops.wrong_flops(Subject(BARRIER_JOB, BARRIER_PLAN)))
    assert found
    assert "has 1.000000e+00 model FLOPs, but layer by layer" in found[0]


def test_weights_that_are_too_few_are_named() -> None:
    copy = BARRIER_PLAN.copies[0]
    fewer = copy.bytes_by_kind.model_copy(update={"weights": copy.bytes_by_kind.weights // 2})
    plan = with_copy(BARRIER_PLAN, copy.id, bytes_by_kind=fewer)
    expect(BARRIER_JOB, plan, r"copy .* holds \d+ bytes of weights on \d+ GPUs, but the layers")


def test_a_cache_that_is_too_small_is_named() -> None:
    generate = next(call for call in BARRIER_PLAN.calls if call.kind == "generate")
    plan = with_call(BARRIER_PLAN, generate.id, kv_cache_bytes=1 << 20)
    expect(BARRIER_JOB, plan, r"call .* has \d+ × \d+ cache bytes, but its longest sequence")


@pytest.mark.parametrize("kind", ["gradients", "optimizer"])
def test_a_training_state_that_is_too_small_is_named(kind: str) -> None:
    copy = next(copy for copy in BARRIER_PLAN.copies if copy.bytes_by_kind.gradients)
    fewer = copy.bytes_by_kind.model_copy(update={kind: getattr(copy.bytes_by_kind, kind) // 2})
    plan = with_copy(BARRIER_PLAN, copy.id, bytes_by_kind=fewer)
    expect(BARRIER_JOB, plan, rf"copy {copy.id} holds \d+ bytes of {kind}.* but its matrices have")
