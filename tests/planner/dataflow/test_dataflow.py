"""Explicit dataflows, the reduction of edges, weight edges and staleness."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automap.planner.dataflow.graph import (
    Call,
    Dataflow,
    Edge,
    add_weight_edges,
    reduced_edges,
    with_staleness,
)
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from tests.helpers.specs import job_spec

DRAW = {"id": "draw", "role": "actor", "kind": "generate"}
JUDGE = {"id": "judge", "role": "judge", "kind": "forward"}
LEARN = {"id": "learn", "role": "actor", "kind": "train"}
CHAIN = [{"source": "draw", "target": "judge"}, {"source": "judge", "target": "learn"}]
LLAMA = {"architecture": "llama-2-7b"}


def explicit(calls: list[dict[str, Any]], edges: list[dict[str, Any]], **changes: Any) -> Dataflow:
    changes.setdefault("models", {"actor": LLAMA, "judge": LLAMA})
    graph = {"calls": calls, "edges": edges}
    return resolve(job_spec(algorithm=None, dataflow=graph, **changes)).dataflow


def refused(calls: list[dict[str, Any]], edges: list[dict[str, Any]], **changes: Any) -> SpecError:
    with pytest.raises(SpecError) as error:
        explicit(calls, edges, **changes)
    return error.value


def call(call_id: str, *, kind: str = "forward", role: str = "m") -> Call:
    return Call.model_validate(
        {"id": call_id, "role": role, "model": role, "kind": kind, "num_sequences": 1}
    )


def triples(dataflow: Dataflow) -> set[tuple[str, str, int]]:
    return {(edge.source, edge.target, edge.distance) for edge in dataflow.edges}


def test_explicit_dataflow_gets_its_weight_edge() -> None:
    dataflow = explicit([DRAW, JUDGE, LEARN], CHAIN)
    assert triples(dataflow) == {("draw", "judge", 0), ("judge", "learn", 0), ("learn", "draw", 1)}
    assert [item.num_sequences for item in dataflow.calls] == [1024, 1024, 1024]
    assert dataflow.calls[2].num_updates == 8


def test_expected_rounds_scale_sequences_and_updates() -> None:
    calls = [dict(DRAW, expected_rounds=2.5), JUDGE, dict(LEARN, expected_rounds=0.5)]
    dataflow = explicit(calls, CHAIN)
    assert [item.num_sequences for item in dataflow.calls] == [2560, 1024, 512]
    assert dataflow.calls[2].num_updates == 4


def test_a_weight_edge_of_the_users_own_is_kept_and_not_doubled() -> None:
    dataflow = explicit(
        [DRAW, JUDGE, LEARN],
        [*CHAIN, *CHAIN, {"source": "learn", "target": "draw", "distance": 3}],
    )
    assert len(dataflow.edges) == 3
    assert ("learn", "draw", 3) in triples(dataflow)


def test_explicit_scoring_function() -> None:
    models = {
        "actor": LLAMA,
        "judge": {"function": True, "seconds_per_response": 1, "concurrency": 512},
    }
    dataflow = explicit([DRAW, JUDGE, LEARN], CHAIN, models=models)
    assert (dataflow.calls[1].model, dataflow.calls[1].fixed_seconds) == (None, 2.0)


def test_explicit_dataflow_allows_staleness() -> None:
    assert explicit([DRAW, JUDGE, LEARN], CHAIN, search={"staleness": 2}).allows_staleness


def test_repeated_id() -> None:
    error = refused([DRAW, JUDGE, dict(LEARN, id="draw")], [])
    assert error.field == "dataflow.calls.2.id"


def test_role_without_model() -> None:
    error = refused([DRAW, dict(JUDGE, role="critic"), LEARN], CHAIN)
    assert error.field == "dataflow.calls.1.role"
    assert "judge" in error.remedy


def test_model_without_call() -> None:
    error = refused([DRAW, LEARN], [])
    assert error.field == "models.judge"


@pytest.mark.parametrize("end", ["source", "target"])
def test_edge_to_nowhere(end: str) -> None:
    error = refused([DRAW, JUDGE, LEARN], [CHAIN[0], dict(CHAIN[1], **{end: "nobody"})])
    assert error.field == f"dataflow.edges.1.{end}"
    assert "draw, judge, learn" in error.remedy


def test_circle_is_named_in_its_direction() -> None:
    error = refused([DRAW, JUDGE, LEARN], [*CHAIN, {"source": "learn", "target": "judge"}])
    assert error.field == "dataflow.edges"
    assert "judge → learn → judge" in error.message
    assert "draw" not in error.message


def test_circle_of_one() -> None:
    error = refused([DRAW, JUDGE, LEARN], [{"source": "draw", "target": "draw"}])
    assert "draw → draw" in error.message


def test_circle_over_iterations_is_fine() -> None:
    assert explicit(
        [DRAW, JUDGE, LEARN], [*CHAIN, {"source": "judge", "target": "judge", "distance": 1}]
    )


@pytest.mark.parametrize("kind", ["train", "generate"])
def test_function_only_scores(kind: str) -> None:
    error = refused(
        [DRAW, dict(JUDGE, kind=kind), LEARN],
        CHAIN,
        models={"actor": LLAMA, "judge": {"function": True}},
    )
    assert error.field == "models.judge.function"


def test_lora_base_serves_an_explicit_reference_forward_only() -> None:
    models = {"actor": dict(LLAMA, lora={})}
    reference = {"id": "anchor", "role": "reference", "kind": "forward"}
    assert explicit([DRAW, reference, LEARN], [], models=models).calls[1].model == "actor"
    error = refused([DRAW, dict(reference, kind="train"), LEARN], [], models=models)
    assert error.field == "models.reference"


def test_absurd_repetition() -> None:
    error = refused([dict(DRAW, expected_rounds=1e18), JUDGE, LEARN], CHAIN)
    assert error.field == "dataflow.calls.0.expected_rounds"


@pytest.mark.parametrize(("name", "value"), [("pretrain_loss", True), ("expected_acceptance", 0.5)])
def test_settings_that_an_explicit_dataflow_does_not_read(name: str, value: object) -> None:
    error = refused([DRAW, JUDGE, LEARN], CHAIN, **{f"workload__{name}": value})
    assert error.field == f"workload.{name}"


@given(st.integers(1, 9), st.randoms(use_true_random=False))
def test_reduction_keeps_reachability_and_nothing_to_spare(size: int, draw: Any) -> None:
    calls = [call(f"c{index}") for index in range(size)]
    edges = [
        Edge(source=a.id, target=b.id) for a, b in combinations(calls, 2) if draw.random() < 0.5
    ]
    kept = reduced_edges(calls, edges + edges)
    assert _reachable(kept) == _reachable(edges)
    for edge in kept:
        assert _reachable([other for other in kept if other != edge]) != _reachable(kept)


def _reachable(edges: Any) -> set[tuple[str, str]]:
    """Pairs joined by a chain of edges, by repeated composition."""
    pairs = {(edge.source, edge.target) for edge in edges}
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs


def test_weight_edges_come_from_the_last_training_of_a_role() -> None:
    calls = [
        call("read"),
        call("first", kind="train"),
        call("second", kind="train"),
        call("other", role="n"),
    ]
    edges = [Edge(source="read", target="first"), Edge(source="first", target="second")]
    added = add_weight_edges(calls, edges)[len(edges) :]
    assert added == (Edge(source="second", target="read", distance=1),)


@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_staleness_moves_only_train_to_generate(staleness: int) -> None:
    before = resolve(job_spec()).dataflow
    moved = triples(with_staleness(before, staleness)) - triples(before)
    expected = {("actor.train", "actor.generate", 1 + staleness)} if staleness else set()
    assert moved == expected
    distances = {(s, t): d for s, t, d in triples(with_staleness(before, staleness))}
    assert distances["actor.train", "actor.forward"] == 1
    assert distances["critic.train", "critic.forward"] == 1


def test_neither_algorithm_nor_dataflow_is_refused() -> None:
    with pytest.raises(ValueError, match="either algorithm or dataflow"):
        job_spec(algorithm=None)
