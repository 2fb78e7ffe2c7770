"""The dataflow graph of one iteration: calls and what they wait for."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil

from pydantic import BaseModel, ConfigDict

from automap.planner.errors import SpecError
from automap.planner.spec import CallKind, ModelSpec, WorkloadSpec


class Call(BaseModel):
    """One model call of an iteration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """Unique name, for example `actor.generate` or `actor.generate.greedy`."""
    role: str
    """Role that the algorithm calls, for example `reference`."""
    model: str | None
    """Role whose weights serve the call: its own, or `actor` for a LoRA reference; None for a
    function or a remote service."""
    kind: CallKind
    num_sequences: int
    """Sequences processed per iteration, repetitions included."""
    epochs: int = 1
    """Passes of a train call over its sequences; 1 for other calls."""
    num_updates: int = 0
    """Optimizer steps of a train call per iteration (epochs × updates_per_epoch); 0 for others."""
    extra_forward_sequences: int = 0
    """Further sequences with loss per iteration of a train call (the pre-train loss of PPO-ptx)."""
    fixed_seconds: float | None = None
    """Seconds of a reward function or a remote service; None where the cost model prices it."""


class Edge(BaseModel):
    """`target` starts after `source` of `distance` iterations earlier has ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    target: str
    distance: int = 0
    streamed: bool | None = None
    """Whether the target may take what the source generates in chunks, as its responses finish;
    None: as the spec's search says (`with_streaming`)."""


class Dataflow(BaseModel):
    """Calls in program order; edges at distance 0 are acyclic."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: tuple[Call, ...]
    edges: tuple[Edge, ...]
    allows_staleness: bool = True
    """False when the program declares no importance ratio."""


MAX_SEQUENCES = 10**10
"""Most sequences of a call in an iteration; token counts then stay within 64 bits."""


def make_call(
    *,
    call_id: str,
    role: str,
    kind: CallKind,
    rows: int,
    expected_rounds: float,
    workload: WorkloadSpec,
    models: Mapping[str, ModelSpec],
    field: str,
    extra_forward_sequences: int = 0,
) -> Call:
    """A call with its counts; `field` is the part of the spec that asked for it.

    Raises:
        SpecError: the role has no model, a function is asked for more than scores, or the sequences
            are beyond MAX_SEQUENCES.
    """
    serving_model = model_serving(role, models=models)
    if serving_model not in (None, role) and kind != "forward":
        raise SpecError(
            f"models.{role}",
            f"{call_id} is a {kind} call, but the {serving_model}'s base only serves forward calls",
            remedy="give the role an architecture of its own",
        )
    num_sequences = _repeated(rows, expected_rounds=expected_rounds, field=field)
    fixed_seconds = None
    if serving_model is None:
        what = "function" if models[role].function else "remote"
        if kind != "forward":
            raise SpecError(
                f"models.{role}.{what}",
                f"a {SAID[what]} can only score responses, but {call_id} is a {kind} call",
                remedy="give an architecture",
            )
        fixed_seconds = _seconds_without_gpus(models[role], num_sequences)
    trains = kind == "train"
    num_updates = _repeated(
        workload.epochs * workload.updates_per_epoch, expected_rounds=expected_rounds, field=field
    )
    return Call(
        id=call_id,
        role=role,
        model=serving_model,
        kind=kind,
        num_sequences=num_sequences,
        epochs=workload.epochs if trains else 1,
        num_updates=num_updates if trains else 0,
        extra_forward_sequences=extra_forward_sequences,
        fixed_seconds=fixed_seconds,
    )


SAID = {"function": "function", "remote": "remote service"}
"""Name in messages of each kind of model without GPUs, by its field in the spec."""


def _seconds_without_gpus(model: ModelSpec, num_sequences: int) -> float:
    """Seconds of a function or a remote service: rounds of requests, or the service's own rate.

    Whole microseconds, as all prices, and at least one: time 0 has no place in a schedule.
    """
    rounds = -(-num_sequences // model.open_requests)
    if model.remote is None:
        seconds = rounds * model.seconds_per_response
    else:
        each, rate = model.remote.seconds_per_response, model.remote.requests_per_second
        # The last request that the rate lets through is answered as late as any.
        seconds = max(rounds * each, 0.0 if rate is None else num_sequences / rate + each)
    return max(ceil(1e6 * seconds - 1e-6), 1) * 1e-6


def model_serving(role: str, *, models: Mapping[str, ModelSpec]) -> str | None:
    """The role whose weights serve a role's calls; None for a function or a remote service.

    A missing reference beside a LoRA actor is the actor's base with the adapter off.

    Raises:
        SpecError: the role has no model.
    """
    if role in models:
        return role if models[role].needs_gpus else None
    actor = models.get("actor")
    if role == "reference" and actor is not None and actor.lora is not None:
        return "actor"
    remedy = "add it"
    if role == "reference":
        remedy = "add it, or set workload.kl to none, or train the actor with lora"
    raise SpecError(
        f"models.{role}", "the algorithm calls this role but it is missing", remedy=remedy
    )


def _repeated(count: int, *, expected_rounds: float, field: str) -> int:
    """`count` times the mean number of rounds, rounded up but not by float noise."""
    product = count * expected_rounds
    if product > MAX_SEQUENCES:
        raise SpecError(
            field,
            f"{count} × {expected_rounds:g} expected rounds is more than {MAX_SEQUENCES:.0e} per "
            "iteration",
            remedy="lower the batch, or raise the expected acceptance",
        )
    return max(1, ceil(product * (1 - 1e-12)))


def reduced_edges(calls: Sequence[Call], edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Distance-0 edges without those that others imply (the transitive reduction).

    `calls` must be in an order that every edge follows, as a program's are.
    """
    order = {call.id: index for index, call in enumerate(calls)}
    sources: dict[str, set[str]] = {call.id: set() for call in calls}
    for edge in edges:
        sources[edge.target].add(edge.source)
    ancestors: dict[str, set[str]] = {}
    kept: list[Edge] = []
    for call in calls:
        direct = sources[call.id]
        implied = set().union(*(ancestors[source] for source in direct))
        ancestors[call.id] = direct | implied
        kept += [
            Edge(source=source, target=call.id)
            for source in sorted(direct - implied, key=order.__getitem__)
        ]
    return tuple(kept)


def add_weight_edges(calls: Sequence[Call], edges: Sequence[Edge]) -> tuple[Edge, ...]:
    """`edges` and, at distance 1, from a role's train call to that role's other calls.

    A call that follows its role's train call within the iteration reads its weights already, and a
    pair that has an edge keeps it. A reference served by the actor's base has no edge: training
    changes the adapter alone.
    """
    present = {(edge.source, edge.target) for edge in edges}
    after = _descendants(calls, edges)
    weight_edges = []
    for train in (call for call in calls if call.kind == "train"):
        same_role = [call for call in calls if call.role == train.role and call.id != train.id]
        if any(call.kind == "train" and call.id in after[train.id] for call in same_role):
            continue  # A later train call of the role hands the weights on.
        weight_edges += [
            Edge(source=train.id, target=call.id, distance=1)
            for call in same_role
            if call.kind != "train"
            and call.id not in after[train.id]
            and (train.id, call.id) not in present
        ]
    return (*edges, *weight_edges)


def _descendants(calls: Sequence[Call], edges: Iterable[Edge]) -> dict[str, set[str]]:
    """Map each call to those that wait for it within the iteration, directly or not."""
    targets: dict[str, list[str]] = {call.id: [] for call in calls}
    for edge in edges:
        if edge.distance == 0:
            targets[edge.source].append(edge.target)
    result = {}
    for call in calls:
        found: set[str] = set()
        frontier = [call.id]
        while frontier:
            fresh = [target for target in targets[frontier.pop()] if target not in found]
            found.update(fresh)
            frontier += fresh
        result[call.id] = found
    return result


def weights_edge(dataflow: Dataflow, model: str) -> Edge | None:
    """The edge that a weight sync from a model's home to a shadow would follow; None: no shadow.

    A shadow is synced once per iteration, so all generate calls of the model must wait for the same
    training, equally many iterations (at least one) back. A rollout that follows a training of its
    own iteration would need a second sync.
    """
    after = _descendants(dataflow.calls, dataflow.edges)
    calls = [call for call in dataflow.calls if call.model == model]
    trains = [call.id for call in calls if call.kind == "train"]
    rollouts = [call.id for call in calls if call.kind == "generate"]
    if any(rollout in after[train] for train in trains for rollout in rollouts):
        return None
    edges = [e for e in dataflow.edges if e.source in trains and e.target in rollouts]
    waited_for = {(edge.source, edge.distance) for edge in edges}
    if len(waited_for) != 1 or {edge.target for edge in edges} != set(rollouts):
        return None
    return edges[0]


def with_staleness(dataflow: Dataflow, staleness: int) -> Dataflow:
    """The dataflow when a rollout may use weights that are `staleness` iterations older.

    Only a role's train → generate edges move further back. Old log-probs and values are computed
    with the weights that training starts from, so theirs stay.
    """
    kinds = {call.id: call.kind for call in dataflow.calls}
    roles = {call.id: call.role for call in dataflow.calls}

    def moved(edge: Edge) -> Edge:
        is_rollout_of_trained = (
            edge.distance > 0
            and kinds[edge.source] == "train"
            and kinds[edge.target] == "generate"
            and roles[edge.source] == roles[edge.target]
        )
        extra = staleness if is_rollout_of_trained else 0
        return edge.model_copy(update={"distance": edge.distance + extra})

    return dataflow.model_copy(update={"edges": tuple(moved(edge) for edge in dataflow.edges)})


def in_turns(dataflow: Dataflow, turns: Sequence[tuple[str, str]]) -> Dataflow:
    """The dataflow when calls of these (role, kind) also wait for the ones before them in `turns`.

    The first waits for the last of the iteration before. What the program orders otherwise stays.
    """
    ordered = [
        call.id
        for role, kind in turns
        for call in dataflow.calls
        if (call.role, call.kind) == (role, kind)
    ]
    edges = list(dataflow.edges)
    for one, other in pairwise(ordered):
        after = _descendants(dataflow.calls, edges)
        if other not in after[one] and one not in after[other]:
            edges.append(Edge(source=one, target=other, streamed=False))
    if len(ordered) > 1:
        first, last = ordered[0], ordered[-1]
        if not any((edge.source, edge.target) == (last, first) for edge in edges):
            edges.append(Edge(source=last, target=first, distance=1, streamed=False))
    calls = _followed(dataflow.calls, edges)
    return dataflow.model_copy(update={"calls": calls, "edges": tuple(edges)})


def _followed(calls: Sequence[Call], edges: Sequence[Edge]) -> tuple[Call, ...]:
    """The calls in an order that every edge within the iteration follows, else as they are."""
    left, done = list(calls), list[Call]()
    while left:
        waiting = {call.id for call in left}
        blocked = {e.target for e in edges if e.distance == 0 and e.source in waiting}
        ready = next(call for call in left if call.id not in blocked)
        left.remove(ready)
        done.append(ready)
    return tuple(done)


def with_streaming(dataflow: Dataflow, *, wanted: bool) -> Dataflow:
    """The dataflow with `streamed` decided for every edge: `wanted`, where an edge does not say.

    Scores, log-probabilities and values need one response at a time, so a call that computes them
    can take a generation's responses as they finish; training needs them all.
    """
    edges = tuple(
        edge.model_copy(
            update={
                "streamed": can_stream(dataflow.calls, edge)
                and (wanted if edge.streamed is None else edge.streamed)
            }
        )
        for edge in dataflow.edges
    )
    return dataflow.model_copy(update={"edges": edges})


def can_stream(calls: Sequence[Call], edge: Edge) -> bool:
    """True for an edge from a generation to a call that scores its responses."""
    kinds = {call.id: call.kind for call in calls}
    ends = kinds[edge.source], kinds[edge.target]
    return edge.distance == 0 and ends == ("generate", "forward")
