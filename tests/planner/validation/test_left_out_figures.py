"""What `automap validate` says beside means: groups, slopes, regret, verdicts, contradictions."""

import math

import numpy as np
import pytest

from automap.planner.cost.intervals import SPREADS
from automap.planner.validation.chosen_layouts import layout_regret
from automap.planner.validation.error_slopes import slopes
from automap.planner.validation.groups import group_of, load_of, load_stratum, project_of
from automap.planner.validation.physics import contradictions, sound_rows
from automap.planner.validation.predictions import Prediction
from automap.planner.validation.ran_runs import ran_run
from automap.planner.validation.row_intervals import interval_of, kind_of, spread_of
from automap.planner.validation.statistics import summarise
from automap.planner.validation.table import parse_table
from automap.planner.validation.verdicts import feasibility
from tests.planner.validation.published_tables import golden, published, text_of


def rows_of(kind, *cells):
    """The first sound golden row of a kind once per dictionary of cells, with ids of its own."""
    first = next(row for row in golden(kind) if kind != "generation" or row["concurrency"])
    rows = [first | {"row_id": f"row{n}"} | given for n, given in enumerate(cells)]
    table = parse_table(text_of(rows))
    assert not table.mistakes
    return table.rows


def step(row, predicted, measured=1.0, **given):
    return Prediction(row, "iteration_seconds", "dense, 16-bit", measured, predicted, **given)


def test_a_project_is_what_a_source_names_between_title_and_document():
    sources = ["A table; org/repo, docs/one.md", "Another; org/repo, two.md", "my cluster"]
    rows = rows_of("training", *({"source": source} for source in sources))
    assert [project_of(row) for row in rows] == ["org/repo", "org/repo", "my cluster"]
    assert group_of(rows[0]) == "org/repo"


def test_load_is_requests_per_replica_over_response_tokens():
    given = {"concurrency": "64", "response_length": "400", "num_gpus": "8"}
    split = {"tensor_parallel_size": "2", "data_parallel_size": "4"}
    (row,) = rows_of("generation", given | split)
    assert load_of(row) == pytest.approx(16 / 400)
    assert load_stratum(row) == "load 0 to 0.05"
    (busy,) = rows_of("generation", given | split | {"response_length": "10"})
    assert load_stratum(busy) == "load above 0.5"


def test_groups_weigh_the_same_however_many_rows_they_have():
    """Nine rows 10 % off in one project, one row 50 % off in another."""
    rows = rows_of("training", *[{"source": "A; a/a, x"}] * 9, {"source": "B; b/b, x"})
    (found,) = summarise([step(row, 1.5 if row is rows[9] else 1.1) for row in rows], by=())
    assert found.mean_error == pytest.approx(0.14)
    assert (found.num_groups, found.group_mean_error) == (2, pytest.approx(0.3))


def test_intervals_hold_by_rows_and_by_groups():
    rows = rows_of("training", *[{"source": "A; a/a, x"}] * 3, {"source": "B; b/b, x"})
    kind = kind_of(step(rows[0], 1.0))
    far = math.exp(2 * SPREADS[kind])
    (found,) = summarise([step(row, far if row is rows[3] else 1.0) for row in rows], by=())
    assert (found.rows_held, found.groups_held) == (0.75, 0.5)


def test_an_assumed_setting_widens_an_interval():
    (row,) = rows_of("training", {})
    stated = spread_of(step(row, 1.0))
    assumed = step(row, 1.0, assumptions=("recompute not stated: none (because)",))
    assert spread_of(assumed) > stated == SPREADS[kind_of(step(row, 1.0))]
    low, high = interval_of(assumed)
    assert low * high == pytest.approx(1.0)
    assert math.log(high) == pytest.approx(spread_of(assumed))


def test_software_that_nobody_measured_there_has_a_wider_interval():
    known, unknown = rows_of("training", {"gpu_type": "a100"}, {"gpu_type": "l40s"})
    assert kind_of(step(unknown, 1.0)) == f"{kind_of(step(known, 1.0))}, unseen"
    assert spread_of(step(unknown, 1.0)) >= spread_of(step(known, 1.0))


def test_an_error_that_grows_with_length_is_told_and_noise_is_not():
    lengths = [1024 * 2**n for n in range(8)]
    rows = rows_of(
        "training",
        *({"sequence_length": str(length), "tokens_per_second_per_gpu": ""} for length in lengths),
    )
    growing = [step(row, row.sequence_length**0.1) for row in rows]
    (found,) = slopes(growing)
    assert found.size == "sequence length"
    assert found.change == pytest.approx(0.1 * math.log(lengths[-1] / lengths[0]))
    noise = np.random.default_rng(0).normal(scale=0.1, size=8)
    assert slopes([step(row, math.exp(e)) for row, e in zip(rows, noise, strict=True)]) == []


def test_regret_is_what_the_layout_predicted_best_takes_longer():
    rows = rows_of("training", *({"micro_batch_size": size} for size in ("1", "2")))
    wrong = [step(rows[0], 1.0, 1.2), step(rows[1], 2.0, 1.0)]
    found = layout_regret(wrong)
    assert (found.num_jobs, found.mean) == (1, pytest.approx(0.2))
    assert layout_regret(wrong[:1]) is None


@pytest.mark.slow
def test_runs_that_ran_are_counted_with_those_that_would_be_refused():
    training = [one for one in published() if one.row.kind == "training"]
    found = feasibility(training)
    runs = [run for one in training if (run := ran_run(one.row)) is not None]
    assert (found.ran, found.refused) == (len(runs), sum(run.refused for run in runs))
    memory = feasibility(one for one in published() if one.row.kind == "memory")
    assert (memory.ran + memory.failed, memory.failed) == (20, 4)


CLOSED_LOOP = {
    "load": "serving",
    "prompt_length": "4000",
    "response_length": "1000",
    "concurrency": "48",
    "decode_step_seconds": "0.03",
    "prefill_seconds": "2",
}


@pytest.mark.parametrize(
    ("kind", "cells", "part"),
    [
        ("memory", [{"peak_memory_bytes": "9.9e11"}], "peak of 9.9e+11 bytes"),
        ("generation", [CLOSED_LOOP | {"decode_step_seconds": "1e-4"}], "a request takes"),
        (
            "generation",
            [
                CLOSED_LOOP | {"prefill_seconds": ""},
                CLOSED_LOOP
                | {"prefill_seconds": "", "concurrency": "96", "decode_step_seconds": "0.01"},
            ],
            "with more requests",
        ),
        ("training", [{"iteration_seconds": "1"}, {"iteration_seconds": "2"}], "of equal runs"),
        (
            "training",
            [
                {"num_gpus": "8", "iteration_seconds": "1"},
                {"num_gpus": "16", "iteration_seconds": "2"},
            ],
            "on fewer GPUs",
        ),
    ],
)
def test_rows_that_contradict_physics_are_named_and_left_out(kind, cells, part):
    free = {"data_parallel_size": "", "tokens_per_second_per_gpu": "", "gpus_per_node": "8"}
    known = set(golden(kind)[0])
    given = [
        {name: value for name, value in (free | one).items() if name in known} for one in cells
    ]
    rows = rows_of(kind, *given)
    found = contradictions(rows)
    assert found
    assert all(part in one.message for one in found)
    assert len(sound_rows(rows)) == len(rows) - len(found)


def test_no_golden_row_contradicts_physics():
    assert contradictions(list({one.row.row_id: one.row for one in published()}.values())) == []
