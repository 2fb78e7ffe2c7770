"""The chart against what a reader counts by hand: one column is a known number of seconds."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automap.planner.plan.types import Parallelism
from automap.service.cli.plan.call_table import call_table
from automap.service.cli.plan.gantt import gantt
from automap.service.cli.plan.timeline import events_of, rows_of
from tests.cli.sample_plans import asynchronous_plan, call, copy, plan, ppo_plan
from tests.helpers.tailed_jobs import tailed_plan

HALF = Parallelism(tensor_parallel_size=8, data_parallel_size=8)
ALL = Parallelism(tensor_parallel_size=8, data_parallel_size=16)


def cells(chart_plan, *, row: str, columns: int) -> str:
    """The drawn part, `columns` wide, of the row with that label."""
    labels = [label(one.gpus) for one in rows_of(events_of(chart_plan))]
    margin = max(map(len, labels)) + 1
    chart = gantt(chart_plan, width=margin + columns + len(" 100% busy")).plain.split("\n")
    line = chart[labels.index(row)]
    assert line[: len(row)] == row
    return line[margin : margin + columns]


def label(gpus) -> str:
    if gpus is None:
        return "host"
    return f"a100[{gpus.first_gpu}-{gpus.first_gpu + gpus.num_gpus - 1}]"


def test_overlapping_ranges_become_rows_of_equal_gpus():
    rows = rows_of(events_of(ppo_plan()))
    assert [(row.gpus.first_gpu, row.gpus.num_gpus) for row in rows] == [(0, 64), (64, 64)]
    names = [[event.name for event in row.events] for row in rows]
    on_all = ["actor.generate", "critic.forward", "actor.train", "critic.train"]
    assert sorted(names[0]) == sorted([*on_all, "reference.forward"])
    assert sorted(names[1]) == sorted([*on_all, "reward.forward"])


def test_one_column_per_second():
    actor = copy("actor", first_gpu=0, layout=ALL, trains=True)
    calls = [
        call(actor, "actor.generate", start=0, end=30),
        call(actor, "actor.train", start=40, end=60),
    ]
    made = plan([actor], calls, [], iteration_seconds=60.0)
    generate = "│a actor.generate ".ljust(30, "─")
    train = "│b actor.train ".ljust(20, "─")
    assert cells(made, row="a100[0-127]", columns=60) == generate + "·" * 10 + train
    assert " 83% busy\n" in gantt(made, width=80).plain


def test_a_call_over_the_end_of_the_period_continues_at_its_start():
    drawn = cells(asynchronous_plan(), row="a100[64-127]", columns=100)
    # Generation runs from 30 to 120 of a period of 100; the sync from 22 to 28.
    assert drawn[30:] == "│a actor.generate ".ljust(70, "─")
    assert drawn[:20] == "─a actor.generate ".ljust(20, "─")
    assert drawn[20:30] == "··│d────··"


def test_the_shortest_call_is_still_drawn():
    actor = copy("actor", first_gpu=0, layout=ALL, trains=True)
    calls = [
        call(actor, "actor.generate", start=0, end=0.001),
        call(actor, "actor.forward", start=0.001, end=99.998),
        call(actor, "actor.train", start=99.998, end=100.0),
    ]
    made = plan([actor], calls, [], iteration_seconds=100.0)
    drawn = cells(made, row="a100[0-127]", columns=40)
    assert drawn == "a" + "│b actor.forward ".ljust(38, "─") + "c"


def test_a_reward_function_runs_on_the_host():
    chart = gantt(asynchronous_plan(), width=100).plain
    assert [line.split()[0] for line in chart.split("\n")][:3] == [
        "a100[0-63]",
        "a100[64-127]",
        "host",
    ]


def test_ascii_chart_has_only_ascii():
    assert gantt(asynchronous_plan(), width=90, unicode=False).plain.isascii()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_asked(width):
    chart = gantt(ppo_plan(), width=width).plain
    assert max(map(len, chart.split("\n"))) <= max(width, 45)


@given(
    starts=st.lists(st.floats(0, 99.9), min_size=1, max_size=12),
    lengths=st.lists(st.floats(0.0001, 99), min_size=12, max_size=12),
    columns=st.integers(24, 150),
)
def test_every_row_fills_its_columns_whatever_the_schedule(starts, lengths, columns):
    actor = copy("actor", first_gpu=0, layout=HALF, trains=True)
    calls = [
        call(actor, f"actor.forward.{index}", start=start, end=start + length)
        for index, (start, length) in enumerate(zip(starts, lengths, strict=False))
    ]
    made = plan([actor], calls, [], iteration_seconds=100.0)
    chart = gantt(made, width=columns + len("a100[0-63]  100% busy"))
    row, ruler = chart.plain.split("\n")[:2]
    drawn = row.removeprefix("a100[0-63]")
    assert all(event.key in drawn for event in events_of(made))
    assert len(row.rsplit(" busy")[0]) - len(" 100%") == len(ruler.rstrip())


def test_ticks_are_round_and_the_end_is_the_iteration_time():
    chart = gantt(ppo_plan(), width=120).plain.split("\n")
    numbers = chart[-1].split()
    assert numbers == ["0", "20", "40", "60", "80", "100", "120", "130.0", "s"]


def test_a_tail_leaves_the_other_gpus_to_the_calls_that_stream_from_it() -> None:
    plan = tailed_plan()
    rows = rows_of(events_of(plan))
    kept, freed = rows[0], rows[-1]
    generate = plan.calls[0]
    assert generate.bulk_end_seconds is not None
    seconds = {
        row.gpus: next(e.duration_seconds for e in row.events if e.name == generate.id)
        for row in (kept, freed)
    }
    assert seconds[kept.gpus] == generate.end_seconds - generate.start_seconds
    assert seconds[freed.gpus] == generate.bulk_end_seconds - generate.start_seconds
    for row in rows:
        ends = [(e.start_seconds, e.start_seconds + e.duration_seconds) for e in row.events]
        assert all(one[1] <= two[0] + 1e-5 for one, two in pairwise(sorted(ends)))
    caption = str(call_table(plan, width=120).caption)
    assert "~ begins while responses are still generated" in caption
    assert "actor.generate goes on with a100[0-1] alone after" in caption
