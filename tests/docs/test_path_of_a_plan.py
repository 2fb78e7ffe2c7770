"""docs/internals/architecture.md names the modules between make_plan and CP-SAT as they are."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from automap.planner.planning import make_plan
from automap.planner.search.model.cp_sat import cp_model
from tests.docs.documents import ROOT, files_named
from tests.helpers.small_jobs import small_job

DOCUMENT = ROOT / "docs/internals/architecture.md"
MOST_MODULES = 12
"""What can be followed in one sitting."""


def steps() -> list[str]:
    """The file of each numbered step."""
    _, _, after = DOCUMENT.read_text().partition("**To the solver and back")
    path, _, _ = after.partition("\nThen ")
    return re.findall(r"^\d+\. `(planner/[\w/]+\.py)`", path, re.MULTILINE)


def planner_files(frame: FrameType | None) -> Iterator[str]:
    """The files of the planner on the stack."""
    while frame is not None:
        file = Path(frame.f_code.co_filename).resolve()
        if file.is_relative_to(ROOT / "planner"):
            yield str(file.relative_to(ROOT))
        frame = frame.f_back


def test_the_path_of_a_plan_is_the_one_that_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, on_stacks = set[str](), set[str]()
    solve = cp_model.CpSolver.solve

    def solve_and_look(*args: object) -> object:
        on_stacks.update(planner_files(sys._getframe(1)))
        return solve(*args)

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    monkeypatch.setattr(cp_model.CpSolver, "solve", solve_and_look)
    spec = small_job("ppo", num_nodes=2, search__simplicity_tolerance=0.01)
    sys.setprofile(look)
    try:
        make_plan(spec)
    finally:
        sys.setprofile(None)
    path = steps()
    assert len(path) == len(set(path)) <= MOST_MODULES
    assert set(path) <= {
        str(file.relative_to(ROOT))
        for file in map(Path.resolve, map(Path, entered))
        if file.is_relative_to(ROOT)
    }
    assert on_stacks <= files_named(DOCUMENT)
    assert len(on_stacks & set(path)) > 5
