"""Seeds of random problems: some for `make test`, the others for `make test-all`."""

from collections.abc import Iterable

import pytest


def seeds(numbers: Iterable[int], *, slow: Iterable[int] = ()) -> list[object]:
    """Parameters of a test: all but every fourth, and those named, are marked slow."""
    return [
        pytest.param(number, marks=[pytest.mark.slow] * (place % 4 != 0 or number in slow))
        for place, number in enumerate(numbers)
    ]
