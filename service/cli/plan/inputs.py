"""How every command that looks at a plan gets it: read, or planned first."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from automap.planner.errors import InfeasibleError
from automap.planner.plan import Infeasible
from automap.planner.spec import JobSpec
from automap.planner.studies import ExplainedInfeasibleError
from automap.service.cli.backends.protocol import Backend, KnownPlan
from automap.service.cli.options.shared import Show
from automap.service.cli.terminal import console


def read_or_make_plan(backend: Backend, source: str, show: Show) -> KnownPlan:
    """The plan that a source names, or that of the job spec in it."""
    given = backend.read_plan(source)
    return make_plan(backend, given, show) if isinstance(given, JobSpec) else given


def make_plan(backend: Backend, spec: JobSpec, show: Show) -> KnownPlan:
    """The best plan of a job, with a spinner."""
    with working(planning_message(spec), show) as tell:
        return backend.plan(spec, tell)


@contextmanager
def working(message: str, show: Show) -> Iterator[Callable[[str], None]]:
    """A spinner; with --json the reasons of an infeasible job go to stdout as well."""
    with console.progress(message, quiet=show.quiet) as tell:
        try:
            yield tell
        except ExplainedInfeasibleError as error:
            if show.json:
                console.write_json(error.refusal.model_dump_json(indent=2, by_alias=True))
            raise
        except InfeasibleError as error:
            if show.json:
                console.write_json(Infeasible(reasons=error.reasons).model_dump_json(indent=2))
            raise


def planning_message(spec: JobSpec) -> str:
    """What the spinner says while a job is planned."""
    if spec.search.strategy is not None:
        return f"Placing as {spec.search.strategy} does"
    return f"Planning (at most about {spec.search.time_limit_seconds:g} s of search)"
