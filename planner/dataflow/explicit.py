"""Dataflow graphs that a spec writes out in `dataflow:`, as validated calls and edges."""

from collections.abc import Mapping

from automap.planner.dataflow.graph import (
    Call,
    Dataflow,
    Edge,
    add_weight_edges,
    can_stream,
    make_call,
    model_serving,
)
from automap.planner.errors import SpecError
from automap.planner.spec import (
    DataflowCallSpec,
    DataflowEdgeSpec,
    DataflowSpec,
    ModelSpec,
    WorkloadSpec,
)


def explicit_dataflow(
    graph: DataflowSpec, *, workload: WorkloadSpec, models: Mapping[str, ModelSpec]
) -> Dataflow:
    """The dataflow that a spec writes out, with the weight edges of training added.

    Every call processes the iteration's sequences `expected_rounds` times. Edges stay as given,
    without doubles.

    Raises:
        SpecError: ids repeat, a role has no model, an edge names no call, or calls wait for one
            another in a circle.
    """
    _check_ids(graph)
    calls = tuple(
        _call(given, field=f"dataflow.calls.{index}", workload=workload, models=models)
        for index, given in enumerate(graph.calls)
    )
    edges = _checked_edges(graph)
    _check_streams(calls, graph)
    _check_acyclic(calls, edges)
    return Dataflow(calls=calls, edges=add_weight_edges(calls, edges))


def written_out(dataflow: Dataflow, *, workload: WorkloadSpec) -> DataflowSpec:
    """A dataflow as a spec writes it: without the edges that `explicit_dataflow` adds."""
    return DataflowSpec(
        calls=[
            DataflowCallSpec(
                id=call.id,
                role=call.role,
                kind=call.kind,
                expected_rounds=call.num_sequences / workload.num_sequences,
            )
            for call in dataflow.calls
        ],
        edges=[
            DataflowEdgeSpec(source=edge.source, target=edge.target, streamed=edge.streamed)
            for edge in dataflow.edges
            if edge.distance == 0
        ],
    )


def _call(
    given: DataflowCallSpec,
    *,
    field: str,
    workload: WorkloadSpec,
    models: Mapping[str, ModelSpec],
) -> Call:
    try:
        model_serving(given.role, models=models)
    except SpecError as error:
        raise SpecError(
            f"{field}.role",
            f"call {given.id} names the role {given.role}, which models lacks",
            remedy=f"add it to models, or use one of {', '.join(sorted(models))}",
        ) from error
    return make_call(
        call_id=given.id,
        role=given.role,
        kind=given.kind,
        rows=workload.num_sequences,
        expected_rounds=given.expected_rounds,
        workload=workload,
        models=models,
        field=f"{field}.expected_rounds",
    )


def _check_ids(graph: DataflowSpec) -> None:
    first: dict[str, int] = {}
    for index, call in enumerate(graph.calls):
        if call.id in first:
            raise SpecError(
                f"dataflow.calls.{index}.id",
                f"{call.id} is also the id of call {first[call.id]}",
                remedy="give every call its own id",
            )
        first[call.id] = index


def _checked_edges(graph: DataflowSpec) -> tuple[Edge, ...]:
    ids = [call.id for call in graph.calls]
    edges: dict[tuple[str, str, int], Edge] = {}
    for index, given in enumerate(graph.edges):
        for end in ("source", "target"):
            call_id = getattr(given, end)
            if call_id not in ids:
                raise SpecError(
                    f"dataflow.edges.{index}.{end}",
                    f"no call has the id {call_id}",
                    remedy=f"use one of {', '.join(ids)}",
                )
        edge = Edge(
            source=given.source,
            target=given.target,
            distance=given.distance,
            streamed=given.streamed,
        )
        edges.setdefault((edge.source, edge.target, edge.distance), edge)
    return tuple(edges.values())


def _check_streams(calls: tuple[Call, ...], graph: DataflowSpec) -> None:
    for index, given in enumerate(graph.edges):
        edge = Edge(source=given.source, target=given.target, distance=given.distance)
        if given.streamed and not can_stream(calls, edge):
            raise SpecError(
                f"dataflow.edges.{index}.streamed",
                f"{given.target} cannot take what {given.source} makes in parts",
                remedy="stream only at distance 0, from a generate call to a forward call",
            )


def _check_acyclic(calls: tuple[Call, ...], edges: tuple[Edge, ...]) -> None:
    """Refuse calls that wait for one another in a circle.

    Calls that wait for nothing are taken away until none is left, or a circle is.
    """
    waits_for = {
        call.id: {e.source for e in edges if e.target == call.id and e.distance == 0}
        for call in calls
    }
    while free := [call_id for call_id, sources in waits_for.items() if not sources]:
        for call_id in free:
            del waits_for[call_id]
        for sources in waits_for.values():
            sources.difference_update(free)
    if waits_for:
        circle = _circle(waits_for)
        raise SpecError(
            "dataflow.edges",
            f"calls wait for one another in a circle: {' → '.join(circle)}",
            remedy="remove one of these edges, or give it distance 1 (the iteration before)",
        )


def _circle(waits_for: dict[str, set[str]]) -> list[str]:
    """One circle among calls that each wait for at least one other of them, in edge direction."""
    path = [min(waits_for)]
    while (source := min(waits_for[path[-1]])) not in path:
        path.append(source)
    return [source, *reversed(path[path.index(source) :])]
