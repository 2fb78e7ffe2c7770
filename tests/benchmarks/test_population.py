"""The population of jobs: drawn the same everywhere, valid, resumed, and compared by the rule."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from automap.planner.job.resolution import resolve
from automap.planner.spec import JobSpec
from benchmarks.population import append, key_of, known
from benchmarks.population_compare import breach, change, print_comparison
from benchmarks.population_jobs import ALGORITHMS, ARCHITECTURES, Document, digest, drawn
from tests.docs.documents import ROOT

JOBS = [drawn(0, index) for index in range(300)]
QUICK_JOB = 0


def population(*arguments: str) -> str:
    """What the command prints; it must succeed."""
    command = [sys.executable, "-m", "benchmarks.population", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def architectures(job: Document) -> set[str]:
    return {model.get("architecture") for model in job["models"].values()}


def num_gpus(job: Document) -> int:
    return sum(pool.num_gpus for pool in resolve(JobSpec.model_validate(job)).pools)


def test_a_job_depends_on_seed_and_index_alone() -> None:
    assert [drawn(0, index) for index in (299, 3, 0)] == [JOBS[299], JOBS[3], JOBS[0]]
    assert len({digest(job) for job in JOBS}) == len(JOBS)
    assert drawn(1, 0)["models"] != JOBS[0]["models"] or drawn(1, 1)["models"] != JOBS[1]["models"]


def test_the_draw_is_the_one_that_results_were_recorded_for() -> None:
    """Who changes the draw changes these, and results of before are of other jobs."""
    assert [digest(JOBS[index]) for index in (0, 50, 92, 299)] == [
        "a2b0304da1538747",
        "f2676056055b0bc5",
        "34b7943a9a9f7233",
        "5687f4ab89e575b4",
    ]


def test_every_job_is_a_valid_spec() -> None:
    for job in JOBS:
        resolve(JobSpec.model_validate(job))


def test_the_jobs_are_of_all_kinds() -> None:
    names = {job.get("algorithm", "own") for job in JOBS}
    assert names == {name for name in ALGORITHMS if not name.startswith("own")} | {"own"}
    assert set().union(*map(architectures, JOBS)) >= set(ARCHITECTURES)
    assert {num_gpus(job) for job in JOBS} >= {8, 64, 1024, 16384, 32768}
    assert {len(job["cluster"]["pools"]) for job in JOBS} == {1, 2}
    objectives = {job["search"]["objective"] for job in JOBS}
    assert objectives == {"throughput", "price", "run_price", "fewest_gpus"}
    assert {job["search"].get("staleness", 0) for job in JOBS} == {0, 1, 2, 4}
    longest = {job["workload"]["response_length"]["max"] for job in JOBS}
    assert min(longest) <= 512
    assert max(longest) == 32768
    rewards = [job["models"]["reward"] for job in JOBS]
    kinds = ("architecture", "function", "remote")
    assert all(any(kind in reward for reward in rewards) for kind in kinds)
    assert any("lora" in model for job in JOBS for model in job["models"].values())


def row(outcome: str, value: float = 100.0, gap: float = 0.0, **more: Any) -> dict[str, Any]:
    planned = {"value": value, "bound": value * (1 - gap), "gap": gap, "placement": f"{value}"}
    return {
        "seed": 0,
        "index": 7,
        "spec": "abc",
        "job": "ppo-llama-2-7b",
        "nodes": "2 h100",
        "objective": "throughput",
        "outcome": outcome,
        "solving_seconds": 1.0,
        **(planned if outcome in ("optimal", "cut") else {}),
        **more,
    }


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        (row("optimal"), row("optimal"), None),
        (row("optimal"), row("optimal", 100.000001), "worse"),
        (row("optimal"), row("optimal", 99.9), "contradiction"),
        (row("optimal"), row("cut", 100.0, 0.004), None),
        (row("optimal"), row("cut", 100.0, 0.006), "gap lost"),
        (row("optimal"), row("cut", 100.1, 0.002), "worse"),
        (row("optimal"), row("killed"), "lost"),
        (row("optimal"), row("infeasible"), "contradiction"),
        (row("cut", 100, 0.02), row("cut", 101, 0.0249), None),
        (row("cut", 100, 0.02), row("cut", 100, 0.0251), "gap lost"),
        (row("cut", 100, 0.02), row("cut", 97, 0.0), "contradiction"),
        (row("cut", 100, 0.02), row("optimal", 99), None),
        (row("cut", 100, 0.02), row("optimal", 101), "contradiction"),
        (row("cut", 100, 0.02), row("not found"), "lost"),
        (row("infeasible"), row("infeasible"), None),
        (row("infeasible"), row("not found"), None),
        (row("infeasible"), row("error"), "lost"),
        (row("infeasible"), row("cut", 100, 0.5), "contradiction"),
        (row("killed"), row("killed"), None),
        (row("not found"), row("cut", 100, 0.5), None),
    ],
)
def test_the_rule(old: dict[str, Any], new: dict[str, Any], word: str | None) -> None:
    found = breach(old, new)
    assert (found and found[0]) == word
    if word is None and old["outcome"] != new["outcome"]:
        assert change(old, new) is not None
    files = ({key_of(old): old}, {key_of(new): new})
    assert print_comparison(Console(quiet=True), *files) == (0 if word is None else 1)


def test_a_job_that_only_the_old_results_have_breaks_the_rule() -> None:
    one, other = row("optimal"), row("optimal", index=8)
    old, new = {key_of(each): each for each in (one, other)}, {key_of(one): one}
    assert print_comparison(Console(quiet=True), old, new) == 1
    assert print_comparison(Console(quiet=True), old, new, only=[7]) == 0
    drawn_otherwise = row("optimal", spec="def")
    assert print_comparison(Console(quiet=True), new, {key_of(drawn_otherwise): drawn_otherwise})


def test_a_line_cut_short_is_planned_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first, second = row("optimal"), row("cut", 100, 0.1, index=8)
    append(path, first)
    with path.open("a") as file:
        file.write(json.dumps(second)[:40])
    assert list(known(path)) == [key_of(first)]
    append(path, second)
    assert known(path) == {key_of(first): first, key_of(second): second}
    append(path, first | {"value": 99.0})
    assert known(path)[key_of(first)]["value"] == 99.0


@pytest.mark.slow
def test_a_run_goes_on_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    only = ("--only", str(QUICK_JOB), "--results", str(path))
    ended = population(*only, "--end-after", "0.1")
    assert "1 killed" in ended
    printed = population(*only, "--again")
    assert "proven (optimal or infeasible): 100.0%" in printed
    assert "hybridflow" in printed
    text = path.read_text()
    assert len(text.splitlines()) == 2
    assert population(*only) == printed
    assert path.read_text() == text
    assert "the rule is kept" in population("--compare", str(path), str(path))
    assert json.loads(population("--spec", str(QUICK_JOB))) == JOBS[QUICK_JOB]
