"""A question about a plan: one more constraint, on the rows, the problem or the spec."""

from collections.abc import Callable
from dataclasses import dataclass

from automap.planner.errors import SpecError
from automap.planner.explanation.study import Study
from automap.planner.explanation.study import study as priced
from automap.planner.search import Rows, SearchSpace
from automap.planner.search.model.problem import Problem
from automap.planner.spec import JobSpec, ParallelismConstraint


@dataclass(frozen=True, slots=True)
class Question:
    """A constraint in words, and on the rows, the problem or the spec."""

    name: str
    text: str
    rows: Callable[[SearchSpace], Rows] = lambda space: space.rows
    change: Callable[[Problem], Problem] = lambda problem: problem
    respec: Callable[[JobSpec], JobSpec] | None = None
    """What it changes in the spec. The tables keep only the settings of a layout that no other
    beats, so a question that fixes a setting prices anew."""
    beyond: bool = False
    """True: it allows more than the plan's search may take, so that what it finds is no candidate
    of other questions."""
    missing: str = ""
    """Why there may be no layout at all."""

    def posed(self, study: Study, *, fits_only: bool = True) -> Study | None:
        """The study under the constraint; None where a call or a model has no layout left."""
        if self.respec is not None:
            try:
                study = priced(self.respec(study.job.spec), fits_only=fits_only)
            except SpecError:
                return None
        rows = self.rows(study.space)
        if not study.space.is_complete(rows):
            return None
        part = study.space.restrict(rows)
        return study.on(part.with_problem(self.change(part.problem)))

    @property
    def of_rows(self) -> bool:
        """True when it only takes rows away."""
        return self.respec is None


def with_setting(spec: JobSpec, key: str, fixed: dict[str, int | str]) -> JobSpec:
    """The spec with values added to constraints.parallelism of a role or call."""
    constraints = spec.constraints
    now = constraints.parallelism.get(key) or ParallelismConstraint()
    wanted = {**constraints.parallelism, key: now.model_copy(update=fixed)}
    constraints = constraints.model_copy(update={"parallelism": wanted})
    return spec.model_copy(update={"constraints": constraints})
