"""The whole view at fixed widths, compared with text files that a reader can judge.

To accept a deliberate change: UPDATE_SNAPSHOTS=1 pytest tests/cli/test_render.py; read the diff.
"""

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from automap.planner import Strategy
from automap.planner.errors import Reason
from automap.planner.plan import ContinuousReport
from automap.service.cli.failure_report import reasons_view
from automap.service.cli.plan.headline import headline
from automap.service.cli.plan.strategies import nearest_usual
from automap.service.cli.plan.view import print_plan
from automap.service.cli.study.explain import _share
from automap.service.cli.terminal import formats
from tests.cli.sample_plans import asynchronous_plan, ppo_plan

SNAPSHOTS = Path(__file__).parent / "snapshots"
GIB = 2**30


def rendered(make_plan, width: int, *, with_details: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, emoji=False)
    print_plan(make_plan(), console, unicode=True, with_details=with_details)
    return "\n".join(line.rstrip() for line in console.file.getvalue().split("\n"))


@pytest.mark.parametrize(
    ("width", "with_details"), [(60, False), (80, False), (120, False), (160, False), (120, True)]
)
@pytest.mark.parametrize("make_plan", [ppo_plan, asynchronous_plan])
def test_view_is_the_reviewed_one(make_plan, width, with_details):
    text = rendered(make_plan, width, with_details=with_details)
    details = "_details" if with_details else ""
    file = SNAPSHOTS / f"{make_plan.__name__}_{width}{details}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOTS.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
    assert max(map(len, text.split("\n"))) <= width


@pytest.mark.parametrize("width", [60, 80, 160])
def test_every_call_and_copy_shows_its_figures(width):
    text = rendered(ppo_plan, width)
    for shown in ("0-127", "a100[0-63]", "tp4 dp32", "66.0/76.0", "37.00", "45%", "1,536"):
        assert shown in text
    for shown in ("130.0 s", "16,132", "25.0", "split: +40.0 % (182.0 s)"):
        assert shown in text


@pytest.mark.parametrize(
    ("least", "told"), [(3, "staleness 3 is the least that keeps"), (None, "no staleness keeps")]
)
def test_engines_that_never_drain_are_told_how_full_they_are(least, told):
    steady = ContinuousReport(
        call="actor.generate",
        training_slack=1,
        admitted_responses=2048,
        most_in_flight=2048,
        least_in_flight=1024,
        slots_per_replica=256,
        running_per_replica=191.6,
        flight_seconds=90.0,
        least_full_staleness=least,
        responses_per_second=10.0,
        recomputed_tokens=0.0,
        seconds=90.0,
        gain=1.1,
    )

    def make_plan():
        return asynchronous_plan().model_copy(update={"continuous": steady})

    text = " ".join(rendered(make_plan, 120, with_details=True).split())
    assert f"in flight a replica runs 192 of at most 256 responses; {told} it full" in text
    assert "in flight" not in rendered(make_plan, 120)


def test_strategies_software_and_bytes_are_told_on_request():
    text = rendered(ppo_plan, 120, with_details=True)
    assert text.index("split ") < text.index("standalone")
    for shown in ("searched", "rollout engine", "responses all end at 1,024 tokens"):
        assert shown in text
        assert shown not in rendered(ppo_plan, 120)


def test_warnings_stand_right_below_the_first_lines_and_other_assumptions_do_not():
    _, _, after = rendered(asynchronous_plan, 160).partition("runs with: nothing known")
    assert after.split("\n")[1].startswith("warning: search.staleness: 1 is planned only")
    assert "responses all end" not in after
    assert "1 assumption\n" in after


def priced(name: str, seconds: float | None, price: float | None = None, reason: str = ""):
    return Strategy(
        name=name,
        feasible=seconds is not None,
        iteration_seconds=seconds,
        price_per_iteration=price,
        reason=reason,
    )


@pytest.mark.parametrize(
    ("objective", "alternatives", "line"),
    [
        ("throughput", [priced("split", 143.0, 4.2), priced("standalone", 260.0, 2.1)], "+10.0 %"),
        ("price", [priced("split", 143.0, 9.24), priced("standalone", 260.0, 8.82)], "+5.0 %"),
        (
            "throughput",
            [priced("split", 128.7, 8.4)],
            "split: 1.0 % faster (128.7 s), less simple or",
        ),
        ("price", [priced("split", 143.0, 8.316)], "split: 1.0 % cheaper"),
        ("throughput", [priced("split", 130.0, 8.4, "same placement")], "split: the same"),
        (
            "throughput",
            [priced("split", None, None, "too large")],
            "none to compare: split, too large",
        ),
    ],
)
def test_the_nearest_usual_layout_is_the_best_by_what_was_asked_for(objective, alternatives, line):
    plan = ppo_plan()
    search = plan.search.model_copy(update={"objective": objective})
    plan = plan.model_copy(update={"search": search, "alternatives": alternatives})
    assert line in nearest_usual(plan)


def test_brackets_in_names_are_not_taken_for_markup():
    plan = ppo_plan().model_copy(update={"name": "job [red]x[/red]"})
    assert "job [red]x[/red]" in rendered(lambda: plan, 100)


def test_reasons_show_phase_bytes_and_remedy():
    console = Console(file=io.StringIO(), width=100)
    reason = Reason(
        summary="the actor's training state does not fit",
        phase="actor.train",
        required_bytes=90 * GIB,
        capacity_bytes=76 * GIB,
        over_bytes=14 * GIB,
        remedy="offload the optimizer",
    )
    console.print(reasons_view([reason]))
    text = console.file.getvalue()
    for shown in ("actor.train", "90.0", "76.0", "14.0", "- offload the optimizer"):
        assert shown in text


def test_each_remedy_is_told_once_and_empty_columns_not_at_all():
    console = Console(file=io.StringIO(), width=100)
    remedy = "use 2 nodes"
    console.print(
        reasons_view(
            [
                Reason(summary="too few GPUs"),
                Reason(summary=f"it would fit if you {remedy}", remedy=remedy),
            ]
        )
    )
    text = console.file.getvalue()
    assert text.count(remedy) == 1
    assert "It would fit with any one of:" in text
    assert "GiB" not in text
    assert "phase" not in text
    assert "it would fit if you" not in text


def test_control_characters_of_a_name_do_not_reach_the_terminal():
    plan = ppo_plan().model_copy(update={"name": "a\x1b[31mb\x07\u202ec\nd\x9be"})
    text = rendered(lambda: plan, 100)
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(text)
    assert r"a\x1b[31mb\x07\u202ec\nd\x9be" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (4.5, "4.50"), (131.23, "131.2"), (2310.4, "2,310"), (0, "0")],
)
def test_seconds(value, text):
    assert formats.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12, "12.00 s"),
        (125, "2 min 5 s"),
        (52_500, "14 h 35 min"),
        (3599.7, "1 h 0 min"),
        (200_000, "2 days 8 h"),
    ],
)
def test_duration(value, text):
    assert formats.duration(value) == text


def test_percent_never_hides_what_is_there():
    assert [formats.percent(share) for share in (0, 0.001, 0.5, 1)] == ["0%", "<1%", "50%", "100%"]


def test_a_run_of_one_iteration_is_priced_by_its_tokens():
    plan = ppo_plan()
    assert " the run of " in rendered(lambda: plan, 120)
    workload = plan.spec.workload.model_copy(update={"iterations": 1})
    one = plan.model_copy(update={"spec": plan.spec.model_copy(update={"workload": workload})})
    (line,) = [
        line for line in rendered(lambda: one, 120).splitlines() if line.startswith("price ")
    ]
    assert f"{plan.price_per_million_tokens:.2f} a million tokens" in line
    assert "the run" not in line


def test_gaps_and_errors_have_no_exponents():
    assert [formats.gap(share) for share in (0, 4e-9, 0.0026, 0.5)] == [
        "0%",
        "below 0.01%",
        "0.26%",
        "50%",
    ]
    assert [_share(value) for value in (2.1e-14, 0.0079, 0.67, 1.9)] == [
        "0 %",
        "0.79 %",
        "67 %",
        "190 %",
    ]


def test_a_cut_search_is_told_with_its_limit_in_the_first_line_and_the_proof():
    plan = ppo_plan()
    cut = plan.search.model_copy(update={"status": "feasible", "lower_bound": 125.58})
    plan = plan.model_copy(update={"search": cut, "relative_gap": 0.034})
    text = rendered(lambda: plan, 200, with_details=True)
    limit = "the time limit of 30 s"
    assert f"not proven: stopped at {limit}, gap 3.4%" in text.split("\n")[0]
    assert f"best found when the search stopped at {limit}: 130.0 s" in text


def test_the_totals_say_how_layers_lie_on_unequal_stages():
    plan = ppo_plan()
    assert "layers per stage" not in rendered(lambda: plan, 120, with_details=True)
    first = plan.copies[0].model_copy(update={"layers_per_stage": [7, 8, 8, 7]})
    uneven = plan.model_copy(update={"copies": [first, *plan.copies[1:]]})
    text = rendered(lambda: uneven, 120, with_details=True)
    line = next(line for line in text.split("\n") if line.startswith("layers per stage"))
    assert line.endswith(f"{first.id} 7, 8 × 2, 7")


def test_the_totals_say_on_which_gpu_operators_were_measured():
    plan = ppo_plan()
    tables = {"a100-80gb-sxm": "a100-80gb-sxm", "a800": "a100-80gb-sxm", "cpu": None}
    named = plan.provenance.model_copy(update={"operator_tables": tables})
    told = plan.model_copy(update={"provenance": named})
    text = rendered(lambda: told, 240, with_details=True)
    line = next(line for line in text.split("\n") if line.startswith("operator times"))
    assert "a100-80gb-sxm: from tables measured on it" in line
    assert "a800: scaled from tables measured on a100-80gb-sxm" in line
    assert "cpu: by formula alone" in line


@pytest.mark.parametrize(
    ("chance", "shown"), [(0.0312, "3.1 %"), (0.05, "5 %"), (1e-9, "below 0.1 %"), (None, "")]
)
def test_the_first_line_says_how_likely_a_plan_runs_out_of_memory(chance, shown):
    plan = ppo_plan().model_copy(update={"out_of_memory_probability": chance})
    first = headline(plan).plain
    assert f"out of memory: {shown}," in first if shown else "out of memory" not in first
