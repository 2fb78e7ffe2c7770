"""Algorithms that users write: a program found by name, and a job spec that carries its dataflow.

A spec never names code: the program is traced here, by whoever has it, and the spec holds the calls
and edges that came out. The run settings name the program again, for the run.
"""

from collections.abc import Iterable, Mapping

from automap.planner.dataflow.algorithms.program import Program
from automap.planner.dataflow.code_files import load_module
from automap.planner.dataflow.explicit import explicit_dataflow, written_out
from automap.planner.dataflow.graph import Dataflow
from automap.planner.dataflow.trace import trace
from automap.planner.errors import SpecError
from automap.planner.spec import DataflowEdgeSpec, JobSpec, ModelSpec, WorkloadSpec

_DRAFT = {"calls": [{"id": "draft", "role": "actor", "kind": "generate"}]}


def load_program(path: str, *, field: str = "algorithm") -> Program:
    """The program that `module:NAME` or `file.py:NAME` names.

    Importing it runs its code, so this is never done for a path that came over a network.

    Raises:
        SpecError: no such file, module or program; `field` is the place of the path in the spec.
    """
    place, _, name = path.rpartition(":")
    if not place or not name:
        raise SpecError(field, f"{path!r} names no program", remedy="write file.py:NAME")
    try:
        module = load_module(place)
    except Exception as error:
        raise SpecError(
            field,
            f"cannot import {place}: {type(error).__name__}: {error}",
            remedy="give a file.py that exists, or a module on the Python path",
        ) from error
    found = getattr(module, name, None)
    if not isinstance(found, Program):
        known = [each for each, value in vars(module).items() if isinstance(value, Program)]
        what = "has no such name" if found is None else f"has a {type(found).__name__} of that name"
        raise SpecError(
            field,
            f"{path!r}: {place} {what}",
            remedy=f"its programs are {', '.join(known)}" if known else "define NAME = Program(…)",
        )
    return found


def job_spec(document: Mapping[str, object], program: Program) -> JobSpec:
    """The spec of a job that runs `program`, with its dataflow in place of an algorithm's name.

    Args:
        document: A job spec without algorithm and dataflow.
        program: What is traced; the run needs it too, as `program` of the run settings.

    Raises:
        ValidationError: the document is no job spec.
        SpecError: the program cannot be traced with it, or does what no explicit dataflow can say.
    """
    rest = {name: value for name, value in document.items() if name != "algorithm"}
    spec = JobSpec.model_validate({**rest, "dataflow": _DRAFT})
    if spec.search.staleness and not program.has_importance_ratio:
        raise SpecError(
            "search.staleness",
            f"{program.name} declares no importance ratio that would correct for rollouts "
            f"{spec.search.staleness} iterations old",
            remedy="set it to 0",
        )
    dataflow = traced(program, workload=spec.workload, models=spec.models)
    graph = written_out(dataflow, workload=spec.workload)
    again = explicit_dataflow(graph, workload=spec.workload, models=spec.models)
    if again.calls != dataflow.calls or set(again.edges) != set(dataflow.edges):
        raise SpecError(
            "algorithm",
            f"{program.name} has calls that an explicit dataflow cannot express: a pre-train loss, "
            "or training inside repeat_until",
            remedy="leave these out, or make it a built-in algorithm: see CONTRIBUTING.md",
        )
    workload = _without_acceptance(spec, program, dataflow)
    return spec.model_copy(update={"dataflow": graph, "workload": workload})


def check_program(program: Program, spec: JobSpec) -> None:
    """Make sure that a program makes the calls of a spec's explicit dataflow, in a possible order.

    Raises:
        SpecError: says which call or edge differs.
    """
    assert spec.dataflow is not None, "a built-in algorithm is its own program"
    made = traced(program, workload=spec.workload, models=spec.models, field="program")
    own = {(call.id, call.role, call.kind) for call in made.calls}
    planned = {(call.id, call.role, call.kind) for call in spec.dataflow.calls}
    for calls, where in ((own - planned, "the dataflow lacks"), (planned - own, "it never makes")):
        if calls:
            names = ", ".join(f"{{id: {i}, role: {r}, kind: {k}}}" for i, r, k in sorted(calls))
            raise SpecError(
                "program",
                f"{program.name} does not fit the plan's dataflow: {where} the call {names}",
                remedy="plan again, with `algorithm: file.py:NAME` in the spec",
            )
    before = _ancestors(spec.dataflow.edges)
    for edge in made.edges:
        if edge.distance == 0 and edge.source not in before.get(edge.target, set()):
            raise SpecError(
                "program",
                f"{program.name} has {edge.target} wait for {edge.source}, the dataflow does not",
                remedy=f"add the edge {{source: {edge.source}, target: {edge.target}}} and plan "
                "again",
            )


def traced(
    program: Program,
    *,
    workload: WorkloadSpec,
    models: Mapping[str, ModelSpec],
    field: str = "algorithm",
) -> Dataflow:
    """The dataflow of a user's program, by `trace.trace`.

    Raises:
        SpecError: the program fails while it is traced, or calls a role that `models` lacks.
    """
    try:
        return trace(program, workload=workload, models=models)
    except SpecError:
        raise
    except Exception as error:
        raise SpecError(
            field,
            f"{program.name} raised {type(error).__name__}: {error}, when run with recording "
            "handles",
            remedy="a program calls the roles that it declares and passes their results on",
        ) from error


def _without_acceptance(spec: JobSpec, program: Program, dataflow: Dataflow) -> WorkloadSpec:
    """The workload when the dataflow's expected rounds have taken up the expected acceptance."""
    neutral = spec.workload.model_copy(update={"expected_acceptance": 1.0})
    if neutral != spec.workload and dataflow == traced(
        program, workload=neutral, models=spec.models
    ):
        raise SpecError(
            "workload.expected_acceptance",
            f"is {spec.workload.expected_acceptance}, but {program.name} does not read it",
            remedy="leave it out",
        )
    return neutral


def _ancestors(edges: Iterable[DataflowEdgeSpec]) -> dict[str, set[str]]:
    """Map each call to those of its iteration that end before it starts."""
    before: dict[str, set[str]] = {}
    for edge in edges:
        if edge.distance == 0:
            before.setdefault(edge.target, set()).add(edge.source)
    growing = True
    while growing:
        growing = False
        for sources in before.values():
            further = set().union(*(before.get(each, set()) for each in sources)) - sources
            sources |= further
            growing = growing or bool(further)
    return before
