"""What engines take beside their kernels, from differences of small measurements."""

import os
import time

import pytest

from profiler.host_work import _difference, _shifted, keys, measure_host_work
from profiler.timing import Measurement


def lasting(seconds: float, spread: float = 0.0) -> Measurement:
    return Measurement(seconds, seconds - spread, seconds + spread, 9, 1, False)


def test_a_layer_is_the_difference_of_three_and_one() -> None:
    found = _difference([lasting(3.0, 0.1), lasting(5.0, 0.3)], (1, 3))
    assert found.seconds == pytest.approx(1.0)
    assert (found.low, found.high) == pytest.approx((0.8, 1.2))
    assert found.rejected == 2


def test_noise_never_makes_a_layer_free() -> None:
    found = _difference([lasting(3.0, 0.1), lasting(2.9, 0.1)], (1, 3))
    assert found.seconds == pytest.approx(0.01 * 2.9 / 3)
    assert found.low == 0.0


def test_what_is_left_of_a_call_is_never_negative() -> None:
    assert _shifted(lasting(2.0), -0.5).seconds == pytest.approx(1.5)
    assert _shifted(lasting(2.0), -5.0).seconds == pytest.approx(0.02)


@pytest.mark.slow
def test_megatron_and_vllm_are_measured() -> None:
    wanted = [key for key in keys() if key["recompute"] == "none" and key["framework"] != "fsdp"]
    assert len(wanted) == 6
    found = list(measure_host_work(wanted, device="cpu", deadline=time.monotonic() + 400))
    seconds = {str(each.key["part"]): each.measurement for each in found}
    assert len(seconds) == 6
    for part, measurement in seconds.items():
        assert measurement is not None, part
        assert 1e-7 < measurement.seconds < 1.0, (part, os.getloadavg())
