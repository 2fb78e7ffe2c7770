"""The picture of a plan: which bars, which labels, and a file that is the same each time."""

from importlib import util

import pytest

from automap.service.cli.plan.timeline import events_of, rows_of
from automap.service.cli.plan.timeline_picture import _bars, _colours, _fitting, draw_plan
from tests.cli.commands import TINY, call
from tests.planner.check.broken_plans import BARRIER_PLAN, CYCLIC_PLAN

LABEL = "reference.forward\ntp1 dp64\n21.77 s"


@pytest.mark.parametrize("plan", [BARRIER_PLAN, CYCLIC_PLAN], ids=["barrier", "cyclic"])
def test_bars_cover_what_the_rows_are_busy(plan):
    events = events_of(plan)
    rows = rows_of(events)
    period = plan.iteration_seconds
    bars = [each for event in events for each in _bars(event, rows, period, _colours(events))]
    for number, row in enumerate(rows):
        here = [bar for bar in bars if bar.first_row <= number < bar.first_row + bar.num_rows]
        drawn = sum(bar.end_seconds - bar.start_seconds for bar in here)
        assert drawn == pytest.approx(row.busy_seconds())
        assert all(0 <= bar.start_seconds <= bar.end_seconds <= period * 1.001 for bar in here)


@pytest.mark.parametrize(
    ("wide", "high", "shown"),
    [
        (2.0, 1.0, (LABEL, False)),
        (2.0, 0.25, ("reference.forward", False)),
        (0.9, 1.0, (LABEL.replace(".f", "\nf"), False)),
        (0.3, 2.0, ("reference.forward", True)),
        (0.05, 2.0, ("", True)),
    ],
)
def test_a_label_shows_what_there_is_room_for(wide, high, shown):
    assert _fitting(LABEL, wide=wide, high=high) == shown


def test_plan_draws_or_says_what_it_needs(capsys, tmp_path):
    path = tmp_path / "plan.svg"
    code, _, err = call(capsys, "plan", TINY, "-q", "--picture", str(path))
    if util.find_spec("matplotlib") is None:
        assert code == 2
        assert "pip install matplotlib" in err
        assert not path.exists()
        return
    assert code == 0
    assert "critic" in path.read_text(encoding="utf-8")


@pytest.mark.skipif(util.find_spec("matplotlib") is None, reason="the plot extra is not installed")
def test_a_plan_is_drawn_the_same_twice(tmp_path):
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    for path in (first, second):
        draw_plan(BARRIER_PLAN, str(path), title="a plan")
    assert first.read_bytes() == second.read_bytes()
