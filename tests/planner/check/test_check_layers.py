"""What the check counts layer by layer, beside the catalogue's counts and in plans."""

import pytest

from automap.planner import catalogue
from automap.planner.check.layers import cache_bytes, matrix_parameters
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


def test_weights_that_are_too_few_are_named() -> None:
    copy = BARRIER_PLAN.copies[0]
    fewer = copy.bytes_by_kind.model_copy(update={"weights": copy.bytes_by_kind.weights // 2})
    plan = with_copy(BARRIER_PLAN, copy.id, bytes_by_kind=fewer)
    expect(BARRIER_JOB, plan, r"copy .* holds \d+ bytes of weights on \d+ GPUs, but the layers")


def test_a_cache_that_is_too_small_is_named() -> None:
    call = next(call for call in BARRIER_PLAN.calls if call.kind == "generate")
    plan = with_call(BARRIER_PLAN, call.id, kv_cache_bytes=1 << 20)
    expect(BARRIER_JOB, plan, r"call .* has \d+ × \d+ cache bytes, but its longest sequence")
