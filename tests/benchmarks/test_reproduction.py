"""The reproduction of published studies: its document, its charts, and what it concludes."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from automap.planner.job.resolution import resolve
from benchmarks.reproduction import deepspeed_chat, hybridflow_generation, systems_points
from benchmarks.reproduction.__main__ import run, write
from benchmarks.reproduction.cases import CallSeconds, Outcome, outcomes
from benchmarks.reproduction.document import STUDIES, TEXTS, document, filled
from benchmarks.reproduction.hybridflow_generation import TENSOR_SIZES, Sizes
from benchmarks.reproduction.hybridflow_transition import TRANSITION, transitions
from benchmarks.reproduction.pictures import bars, lines
from benchmarks.reproduction.placement_points import EQUAL, study_cases
from benchmarks.reproduction.published import best_at, published
from benchmarks.reproduction.study import Claim, Report, Study, number_claim, percent, table

DOCS = Path(__file__).parents[2] / "docs" / "internals"
COMMITTED = (DOCS / "reproduction.md").read_text()
NAMES = re.compile(r"ZeRO-3|A100|H100|13B|7B|70B|34B")
"""What may have digits in prose: software, GPUs, models."""


@pytest.fixture(scope="module")
def tiny() -> Study:
    """A real study of one model."""
    cases = {("7B", 2): hybridflow_generation.CASES["7B", 2]}

    def report(found):
        (placed,) = found.values()
        seconds = placed["colocate_all"].seconds
        claim = number_claim("seconds", seconds, seconds, str)
        picture = bars("seconds", ["7B"], {"plan": [seconds]}, "s")
        return Report(transition_values(), [claim], {"transition.svg": picture})

    return replace(TRANSITION, title="One plan", cases=cases, report=report)


def transition_values() -> dict[str, str]:
    return dict(TRANSITION.report({}).values)


def test_a_study_from_its_cases_to_the_document(tiny: Study, tmp_path: Path) -> None:
    reports = run([tiny], workers=1)
    write(reports, tmp_path, [tiny])
    text = (tmp_path / "reproduction.md").read_text()
    assert "Of 1 published findings 1 agree" in text
    assert "[One plan](#one-plan)" in text
    assert "\n## One plan\n" in text
    assert [each.name for each in (tmp_path / "reproduction").iterdir()] == ["transition.svg"]
    again = run([tiny], workers=1)
    assert again == reports
    assert document(again, [tiny]) == text


def test_a_failing_study_leaves_the_document_alone(tiny: Study, tmp_path: Path) -> None:
    report = TRANSITION.report({})
    values = {name: value for name, value in report.values.items() if name != "factor"}
    with pytest.raises(ValueError, match="differ in: factor"):
        write({tiny.name: replace(report, values=values)}, tmp_path, [tiny])
    assert not (tmp_path / "reproduction.md").exists()


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_the_committed_document_has_every_study_and_its_hardware(study: Study) -> None:
    assert f"\n## {study.title}\n\n{study.source}.\n" in COMMITTED
    hardware = study.hardware
    assert f"*Stated*: {hardware.stated}. *Not stated*: {hardware.unstated}.\n" in COMMITTED
    assert (TEXTS / f"{study.name}.md").exists()


def test_the_committed_document_shows_every_picture_and_no_other() -> None:
    shown = re.findall(r"!\[[^]]+\]\((reproduction/[a-z_]+\.svg)\)", COMMITTED)
    assert len(shown) == len(set(shown)) >= 6
    files = {f"reproduction/{each.name}" for each in (DOCS / "reproduction").iterdir()}
    assert set(shown) == files
    for name in files:
        ElementTree.parse(DOCS / name)
        assert (DOCS / name).stat().st_size < 40_000


@pytest.mark.parametrize("text", sorted(TEXTS.glob("*.md")), ids=lambda path: path.stem)
def test_no_number_is_typed_into_a_text(text: Path) -> None:
    prose = re.sub(r"\{[a-z_]+\}|\([^)]*\.(?:md|svg)[^)]*\)", "", text.read_text())
    assert not re.findall(r".*\d.*", NAMES.sub("", prose))


def test_texts_and_values_must_name_the_same() -> None:
    with pytest.raises(ValueError, match="nothing_like_it"):
        filled("transition", {**transition_values(), "nothing_like_it": "1"})
    with pytest.raises(ValueError, match="table"):
        filled("transition", {})


def test_the_volumes_of_a_transition_are_those_of_the_paper() -> None:
    for each in transitions():
        for system in ("hybridflow", "deepspeed_chat"):
            assert each.volume[system] == pytest.approx(each.formula[system], rel=1e-6)
        assert each.formula["vanilla"] > each.formula["hybridflow"]


def test_implied_host_work_explains_what_was_published() -> None:
    sizes = Sizes("7B", {1: 70.0, 2: 56.0, 4: 54.0, 8: 60.0}, dict.fromkeys(TENSOR_SIZES, 1.0))
    assert sizes.best == 4
    assert sizes.saving(2) == pytest.approx(1 - 56 / 60)
    work = sizes.implied_host_work(2, 0.6)
    assert work > 0
    assert sizes.with_host_work(work).saving(2) == pytest.approx(0.6)


def outcome(seconds: float | None, generation: float = 0.0, **ranges: tuple[int, int]) -> Outcome:
    calls = {
        f"actor.{kind}": CallSeconds(kind, took, 0.0, 0.0, None)
        for kind, took in (("generate", generation), ("train", (seconds or 0.0) - generation))
    }
    return Outcome(seconds, ranges=ranges, calls=calls)


def test_what_its_own_runs_take_longer_makes_deepspeed_chat_slower() -> None:
    point = systems_points.Point(
        "ppo",
        "7B",
        8,
        {
            "hybridflow": outcome(100.0, 40.0),
            "deepspeed_chat": outcome(110.0, 40.0),
            "openrlhf": outcome(None),
            "nemo_aligner": outcome(150.0, 90.0),
        },
        2.0,
    )
    assert point.speed_ups(software=False) == pytest.approx([1.1, 1.5])
    assert point.speed_ups(software=True) == pytest.approx([2.2, 1.5])


def test_what_a_system_would_have_to_take_makes_its_published_mean() -> None:
    placed = {"hybridflow": outcome(100.0, 40.0), "nemo_aligner": outcome(150.0, 90.0)}
    point = systems_points.Point("ppo", "7B", 8, placed, 1.0)
    fact = next(f for f in published().hybridflow.systems.over if f.system == "nemo_aligner")
    (times,) = systems_points.needed([point], fact, generation=True)
    assert 60.0 + times * 90.0 == pytest.approx(fact.mean * 100.0)
    (others,) = systems_points.needed([point], fact, generation=False)
    assert others * 60.0 + 90.0 == pytest.approx(fact.mean * 100.0)


def test_the_factor_of_software_is_a_median_of_what_can_be_priced() -> None:
    rows = deepspeed_chat.FACTS.rows
    found = {
        (row.model, row.num_gpus): {"deepspeed_chat": outcome(row.iteration_seconds / factor)}
        for row, factor in zip(rows, (1, 2, 3, 4, 5, 6, 7, 8), strict=True)
    }
    assert deepspeed_chat.software_factor(found) == pytest.approx(4.5)
    found[rows[0].model, rows[0].num_gpus] = {"deepspeed_chat": outcome(None)}
    assert deepspeed_chat.software_factor(found) == pytest.approx(5.0)


def test_what_is_published_is_read_by_model_and_size() -> None:
    best = published().hybridflow.placement.best
    assert best_at(best, "13B", 16) == best_at(best, "13B", 64) == "colocate_all"
    assert best_at(best, "13B", 128) == "standalone"
    assert best_at(best, "13B", 256) is best_at(best, "7B", 16) is None
    keys = [(row.system, row.model, row.response_tokens) for row in published().real.rows]
    assert len(keys) == len(set(keys))


def test_a_number_agrees_within_the_tolerance() -> None:
    assert number_claim("x", 100.0, 124.0, str) == Claim("x", "100.0", "124.0 (+24 %)", True)
    assert not number_claim("x", 100.0, 126.0, str).agrees
    assert number_claim("x", 0.5, 0.5, percent).predicted == "50 % (+0.0 %)"


def test_tables_put_numbers_to_the_right() -> None:
    rows = [["a", "1.2×", "–"], ["b", "**3 s**", "4"]]
    assert table(["x", "y", "z"], rows).splitlines()[1] == "| :--- | ---: | ---: |"


def test_charts_break_where_a_value_is_missing() -> None:
    svg = lines("t", ["a", "b", "c", "d"], {"x & y": [1.0, None, 0.5, 2.0]}, "s")
    drawn = ElementTree.fromstring(svg)
    namespace = "{http://www.w3.org/2000/svg}"
    runs = [line.get("points", "").split() for line in drawn.iter(f"{namespace}polyline")]
    assert [len(run) for run in runs] == [1, 2]
    svg = bars("t", ["a", "b"], {"x": [10.0, None], "y": [5.0, 20.0]}, "s")
    heights = [
        float(each.get("height", 0))
        for each in ElementTree.fromstring(svg).iter(f"{namespace}rect")
    ]
    assert len(heights) == 1 + 3 + 2  # background, bars, legend
    assert heights[3] == pytest.approx(4 * heights[2], abs=0.2)


def test_a_network_that_machines_share_is_divided_among_their_gpus() -> None:
    case = study_cases(EQUAL, (16,))["paper", "13B", 16]
    (pool,) = resolve(case.spec).pools
    assert pool.inter_node_bytes_per_second * pool.gpus_per_node * 8 == 200e9


def test_layouts_of_the_paper_are_all_that_its_placements_use() -> None:
    case = study_cases(EQUAL, (16,))["paper", "13B", 16]
    placed = outcomes(replace(case, ways=("colocate_all",)))["colocate_all"]
    assert {layout.sharding for layout in placed.layouts.values()} <= {"none", "optimizer"}
    assert {layout.virtual_pipeline_parallel_size for layout in placed.layouts.values()} == {1}
    facts = published().hybridflow.transition
    for role in ("actor", "critic"):
        assert placed.layouts[role].tensor_parallel_size == facts.training_tensor_size["13B"]
        stages = placed.layouts[role].pipeline_parallel_size
        assert stages <= facts.training_pipeline_size["13B"]
    generation = hybridflow_generation.CASES["7B", 2]
    (engine,) = (
        call.layout
        for call in outcomes(generation)["colocate_all"].calls.values()
        if call.kind == "generate"
    )
    assert engine is not None
    assert engine.tensor_parallel_size == 2


@pytest.mark.slow
def test_all_studies_run(tmp_path: Path) -> None:
    write(run(STUDIES, workers=2), tmp_path)
    text = (tmp_path / "reproduction.md").read_text()
    headings = re.compile(r"^## .*$", re.M)
    assert headings.findall(text) == headings.findall(COMMITTED)
