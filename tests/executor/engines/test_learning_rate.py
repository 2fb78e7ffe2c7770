"""The learning rate, against figures worked out by hand."""

import pytest

from automap.executor.engines.learning_rate import learning_rate
from automap.executor.settings import OptimizerSettings


def rates(steps: range, **settings: object) -> list[float]:
    return [learning_rate(OptimizerSettings(learning_rate=1.0, **settings), s) for s in steps]


def test_constant_from_the_first_step() -> None:
    assert rates(range(3)) == [1.0, 1.0, 1.0]


def test_warm_up_reaches_the_rate_in_its_last_step() -> None:
    assert rates(range(6), warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_linear_decay_after_warm_up_to_the_minimum_and_no_further() -> None:
    got = rates(range(8), warmup_steps=2, decay="linear", decay_steps=6, minimum_learning_rate=0.2)
    assert got == pytest.approx([0.5, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2])


def test_cosine_decay_is_half_way_in_the_middle() -> None:
    got = rates(range(5), decay="cosine", decay_steps=4)
    assert got == pytest.approx([1.0, 0.853553, 0.5, 0.146447, 0.0], abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay": "linear"}, "needs decay_steps"),
        ({"decay": "cosine", "decay_steps": 3, "warmup_steps": 3}, "above warmup_steps 3"),
        ({"decay": "linear", "decay_steps": 3, "minimum_learning_rate": 2.0}, "at most"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rates(range(1), **settings)
