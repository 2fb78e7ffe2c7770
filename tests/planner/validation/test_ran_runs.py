"""Runs that ran, and what the verdict on memory says of them."""

import pytest

from automap.planner.validation.predictions import Assumptions
from automap.planner.validation.ran_runs import RanRun, ran_run
from automap.planner.validation.rows import TrainingRow
from automap.planner.validation.table import parse_table
from automap.planner.validation.training import price_run
from tests.planner.validation.published_tables import PUBLISHED, text_of
from tests.planner.validation.test_predictions import TRAINING

BASE = TRAINING | {"row_id": "one", "source": "Megatron-LM examples/llama README"}
LARGE = {
    "num_gpus": "8",
    "pipeline_parallel_size": "1",
    "tensor_parallel_size": "1",
    "data_parallel_size": "8",
    "micro_batch_size": "1",
    "sequence_length": "8192",
}


def rows_of(text: str) -> list[TrainingRow]:
    return [row for row in parse_table(text).rows if isinstance(row, TrainingRow)]


def run_of(**cells: str) -> RanRun:
    (row,) = rows_of(text_of([BASE | cells]))
    found = ran_run(row)
    assert found is not None
    return found


def test_a_run_that_states_all_is_refused_by_its_bytes() -> None:
    fits, refused = run_of(recompute="full"), run_of(**LARGE, recompute="none")
    assert not fits.refused
    assert fits.bytes_over == 0
    assert fits.usable_bytes < fits.gpu_bytes
    assert fits.searched_bytes == pytest.approx(0.891 * fits.usable_bytes, rel=1e-3)
    assert refused.refused
    assert refused.beyond_margin
    assert refused.bytes_over == refused.needed_bytes - refused.usable_bytes > 0


def test_recomputation_that_is_not_stated_is_the_cheapest_that_fits() -> None:
    large = run_of(**LARGE, recompute="")
    assert large.refused_at_defaults
    assert not large.refused
    assert "recompute not stated: full (the cheapest that fits)" in large.assumptions
    small = run_of(recompute="")
    assert not small.refused_at_defaults
    assert not any("cheapest" in text for text in small.assumptions)
    assert small.needed_bytes == small.default_bytes
    never = run_of(**LARGE | {"micro_batch_size": "4"}, recompute="")
    assert never.refused
    assert "recompute not stated: full (and nothing fits)" in never.assumptions


def test_seconds_keep_the_default() -> None:
    (row,) = rows_of(text_of([BASE | LARGE | {"recompute": ""}]))
    assumptions = Assumptions()
    price_run(row, row.workload, assumptions)
    assert any(text.startswith("recompute not stated: none") for text in assumptions.texts)


def test_a_row_that_cannot_be_priced_says_nothing() -> None:
    (row,) = rows_of(text_of([BASE | {"precision": ""}]))
    assert ran_run(row) is None


def test_notes_state_gradients_and_what_is_selective() -> None:
    usual = run_of(recompute="full").needed_bytes
    low = run_of(recompute="full", notes="gradients accumulated in bf16").needed_bytes
    parameters = 8.03e9 / 4
    assert usual - low == pytest.approx(2 * parameters, rel=0.1)
    modules = run_of(recompute="selective").needed_bytes
    attention = run_of(recompute="selective", notes="recompute selective(attn)").needed_bytes
    assert attention > modules


def test_a_framework_has_its_own_precisions_for_bytes() -> None:
    """NeMo's performance recipes reduce in bf16 and keep 8-bit weights alone."""
    nemo, plain = (
        run_of(recompute="full", precision="fp8", source=name)
        for name in ("NVIDIA/NeMo performance summary", "somewhere")
    )
    # Of a quarter of the model: 2 bytes of gradients, 2 of weights and copies, less the tables'.
    assert plain.needed_bytes - nemo.needed_bytes == pytest.approx(4 * 8.03e9 / 4, rel=0.15)
    assert "fp8_param_gather not stated: true (NeMo / Megatron-Bridge)" in nemo.assumptions


@pytest.mark.slow
def test_few_published_runs_would_be_refused() -> None:
    rows = rows_of((PUBLISHED / "training.csv").read_text(encoding="utf-8"))
    runs = [found for row in rows if (found := ran_run(row)) is not None]
    assert len(runs) > 30
    assert sum(run.refused for run in runs) < 0.03 * len(runs)
