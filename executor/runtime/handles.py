"""What a program gets when it runs for real: models whose calls return futures at once.

Implements `dataflow.algorithms.program` Models and Handle, as the planner's trace does. A program
passes `Sequences` (prompts, rollouts) and `Values` (one value per row or token of a rollout) on
and never looks inside.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from automap.executor.algorithms.losses import build_loss
from automap.executor.data import epoch_order
from automap.executor.layout import GenerationLayout
from automap.executor.runtime.continuous import scores_of
from automap.executor.runtime.dealing import even_order
from automap.executor.runtime.group import WorkerGroup
from automap.executor.runtime.plan_order import PlannedCall
from automap.executor.runtime.planned import Streamed
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.runtime.streams import Stream
from automap.executor.runtime.tasks import Future
from automap.executor.runtime.versions import Versions
from automap.executor.settings import AlgorithmSettings
from automap.executor.workers import numeric_steps
from automap.executor.workers.cpu_workers import NumericsWorker
from automap.executor.workers.protocols import Layout, row_ranges
from automap.executor.workers.row_references import Rows
from automap.planner.dataflow import Loss
from automap.planner.plan import CallPlacement
from automap.planner.spec import CallKind, WorkloadSpec

_READ_BY_MODELS = ("prompt_tokens", "response_tokens")


@dataclass(frozen=True, slots=True)
class Sequences:
    """Prompts, or prompts with their responses."""

    rows: Future[Rows]
    stream: Stream | None = None
    """Hands responses out as they end; None: all at once, when the last one has."""


@dataclass(frozen=True, slots=True)
class Values:
    """One column, row by row beside a rollout."""

    rows: Future[Rows]
    rollout: Sequences


@dataclass(slots=True)
class Iteration:
    """One run of the program: what its handles and operations share."""

    number: int
    """From 1."""
    scheduler: Scheduler
    groups: Mapping[str, WorkerGroup]
    """By copy."""
    functions: Mapping[str, WorkerGroup]
    """By role."""
    numerics: WorkerGroup
    calls: Mapping[str, CallPlacement]
    """The plan's, by id."""
    homes: Mapping[str, str]
    """Role → the copy that trains."""
    workload: WorkloadSpec
    settings: AlgorithmSettings
    """Resolved: every default filled in."""
    seed: int
    versions: Versions
    streamed: Mapping[str, Streamed] = field(default_factory=dict)
    """See `streamed_calls`."""
    steps_per_turn: int = 1
    """Engines take so many before it is seen what has ended."""
    keeps_device: frozenset[str] = frozenset()
    """See `generations_in_a_row`."""
    responses: Future[Rows] | None = None
    """What continuous rollouts have for it; None: it generates for itself."""
    updates: dict[str, Future[list[object]]] = field(default_factory=dict)
    """Role → the last training that the program asked for."""
    used_ids: Counter[str] = field(default_factory=Counter)
    costs: "Values | None" = None
    """What the role `cost` scored first: the Lagrange multiplier follows its mean."""
    trained: "Sequences | None" = None
    """What the actor trained on."""
    notes: "list[tuple[str, Values]]" = field(default_factory=list)
    """Columns by name, of any rollout, for the iteration's metrics."""

    def call_id(self, role: str, kind: CallKind, name: str = "") -> str:
        """The plan's name of the program's next such call; as the trace counts them."""
        wanted = f"{role}.{kind}" + (f".{name}" if name else "")
        self.used_ids[wanted] += 1
        number = self.used_ids[wanted]
        return wanted if number == 1 else f"{wanted}.{number}"

    def group_of(self, call_id: str, role: str, kind: CallKind) -> WorkerGroup:
        """Who serves a call: the copy that the plan says, or the function."""
        if role in self.functions:
            return self.functions[role]
        call = self.calls.get(call_id)
        if call is None:
            alike = [each for each in self.calls.values() if (each.role, each.kind) == (role, kind)]
            call = alike[0] if alike else None
        copy = call.copy_id if call is not None else None
        return self.groups[copy or self.homes[role]]

    def note(self, name: str, values: "Values") -> "Values":
        """Remember a column for the iteration's metrics."""
        self.notes.append((name, values))
        return values

    def summary(self) -> Future[dict[str, float]] | None:
        """Metrics of the rollout that the actor trained on; None if it did not train."""
        if self.trained is None:
            return None
        columns: dict[str, Future[Rows]] = {}
        for name, values in self.notes:
            if values.rollout is self.trained:
                columns.setdefault(name, values.rows)
        # Nothing but the end of the iteration waits for it.
        return self.compute_apart(
            numeric_steps.rollout_summary,
            self.trained.rows,
            iteration=self.number,
            max_prompt_length=self.workload.prompt_length.max_tokens,
            max_response_length=self.workload.response_length.max_tokens,
            **columns,
        )

    def compute(self, function: Callable[..., object], *args: object, **numbers: object) -> Future:
        """A quick numeric step: in the controller if its rows are there, else away from it."""
        return self._numeric(function, args, numbers, here=NumericsWorker())

    def compute_apart(
        self, function: Callable[..., object], *args: object, **numbers: object
    ) -> Future:
        """A numeric step away from the controller, wherever its rows are."""
        return self._numeric(function, args, numbers, here=None)

    def _numeric(
        self,
        function: Callable[..., object],
        args: Sequence[object],
        numbers: Mapping[str, object],
        *,
        here: NumericsWorker | None,
    ) -> Future:
        name = getattr(function, "__name__", "function")
        call_id = f"numerics.{name}"
        return self.numerics.call("run", (function, *args), numbers, call_id=call_id, here=here)


class RunningModels:
    """Implements `dataflow.algorithms.program.Models`."""

    def __init__(self, iteration: Iteration) -> None:
        self._iteration = iteration
        self._roles = {*iteration.homes, *iteration.functions}

    def __contains__(self, role: str) -> bool:
        return role in self._roles

    def __getattr__(self, role: str) -> "RunningHandle":
        return RunningHandle(self._iteration, role)


class RunningHandle:
    """Implements `dataflow.algorithms.program.Handle` by calling the role's workers."""

    def __init__(self, iteration: Iteration, role: str) -> None:
        self._iteration = iteration
        self._role = role

    def generate(self, prompts: Sequences, *, greedy: bool = False) -> Sequences:
        """See `Handle`."""
        iteration = self._iteration
        responses = 1 if greedy else iteration.workload.responses_per_prompt
        call_id = iteration.call_id(self._role, "generate", "greedy" if greedy else "")
        if iteration.responses is not None:
            return Sequences(iteration.responses)
        marked = partial(iteration.versions.marked, iteration=iteration.number, call_id=call_id)
        if call_id in iteration.streamed:
            stream = self._stream(prompts, call_id, responses, greedy=greedy)
            return Sequences(stream.rows.map(marked), stream)
        rows = self._by_rows(
            "generate",
            "generate",
            prompts.rows,
            call_id,
            results_per_row=responses,
            responses_per_prompt=responses,
            greedy=greedy,
            iteration=iteration.number,
            keep_device=call_id in iteration.keeps_device,
        )
        return Sequences(rows.map(marked))

    def _stream(
        self, prompts: Sequences, call_id: str, responses_per_prompt: int, *, greedy: bool
    ) -> Stream:
        iteration = self._iteration
        group = iteration.group_of(call_id, self._role, "generate")
        return Stream(
            iteration.scheduler,
            group,
            prompts.rows,
            call_id=call_id,
            iteration=iteration.number,
            version=partial(iteration.versions.generating, self._role),
            responses_per_prompt=responses_per_prompt,
            greedy=greedy,
            num_replicas=num_parts(group.layout, "generate"),
            num_chunks=iteration.streamed[call_id].num_chunks,
            steps_per_turn=iteration.steps_per_turn,
            keep_device=call_id in iteration.keeps_device,
        )

    def log_probs(self, rollout: Sequences) -> Values:
        """See `Handle`; of a LoRA actor's base for a reference that has no model of its own."""
        has_model = self._role in self._iteration.homes
        return self._forward("log_probs" if has_model else "reference_log_probs", rollout)

    def values(self, rollout: Sequences) -> Values:
        """See `Handle`."""
        return self._forward("values", rollout)

    def score(self, rollout: Sequences, *, name: str = "") -> Values:
        """See `Handle`."""
        scores = self._forward("score", rollout, name=name)
        if self._role == "cost" and self._iteration.costs is None:
            self._iteration.costs = scores
        return scores

    def train(self, rollout: Sequences, *, loss: Loss, **inputs: object) -> Future[list[object]]:
        """See `Handle`; the result is the metrics of every step."""
        iteration = self._iteration
        if self._role == "actor":
            iteration.trained = rollout
        columns = {name: each.rows for name, each in inputs.items() if isinstance(each, Values)}
        if loss == "ppo_clip" and iteration.settings.off_policy_correction is not None:
            columns["behaviour_log_probs"] = rollout.rows.map(
                lambda each: each.only(log_probs="response_log_probs")
            )

        def merge(rows: Rows, *others: Rows) -> Rows:
            iteration.versions.check(rows, iteration=iteration.number)
            return _merged(rows, dict(zip(columns, others, strict=True)))

        merged = iteration.scheduler.derive(merge, rollout.rows, *columns.values())
        rows_per_unit = 1
        pretrain = inputs.get("pretrain")
        if isinstance(pretrain, Sequences):
            rows_per_unit = 2
            merged = iteration.compute(
                numeric_steps.with_pretrain,
                merged,
                pretrain.rows,
                coefficient=iteration.settings.pretrain_coefficient,
                aggregate=iteration.settings.aggregate,
            )
        minimised = build_loss(loss, iteration.settings, inputs)
        call_id = iteration.call_id(self._role, "train")
        group = iteration.group_of(call_id, self._role, "train")
        parts = num_parts(group.layout, "train")
        steps = [
            group.call(
                "train_step",
                (merged.map(partial(_mini_batch, take=take, parts=parts)), minimised),
                call_id=call_id,
            )
            for take in self._mini_batches(rows_per_unit)
        ]
        done = iteration.scheduler.derive(lambda *outputs: [each[0] for each in outputs], *steps)
        iteration.updates[self._role] = done
        return done

    def _mini_batches(self, rows_per_unit: int) -> list[Callable[[Rows], Rows]]:
        """What picks the rows of every optimizer step: a new order each epoch, on any layout."""
        workload = self._iteration.workload

        def picker(epoch: int, update: int) -> Callable[[Rows], Rows]:
            def take(rows: Rows) -> Rows:
                units = rows.num_rows // rows_per_unit
                order = epoch_order(
                    units,
                    seed=self._iteration.seed,
                    epoch=(self._iteration.number - 1) * workload.epochs + epoch,
                )
                start, stop = row_ranges(units, workload.updates_per_epoch)[update]
                chosen = order[start:stop, None] * rows_per_unit + np.arange(rows_per_unit)
                return rows.take(chosen.reshape(-1))

            return take

        return [
            picker(epoch, update)
            for epoch in range(workload.epochs)
            for update in range(workload.updates_per_epoch)
        ]

    def _forward(self, method: str, rollout: Sequences, name: str = "") -> Values:
        rows, is_function = rollout.rows, self._role in self._iteration.functions
        call_id = self._iteration.call_id(self._role, "forward", name)
        if is_function and self._iteration.responses is not None:
            scores = rows.map(lambda each: each.only(scores=scores_of(self._role)))
        else:

            def computed(rows: Future[Rows]) -> Future[Rows]:
                if is_function:
                    return self._by_rows(method, "forward", rows, call_id)
                return self._evenly(method, rows, call_id)

            stream = rollout.stream
            if stream is not None and call_id in self._iteration.streamed[stream.call_id].takers:
                scores = stream.in_order([computed(chunk) for chunk in stream.chunks])
            else:
                scores = computed(rows)
        values = Values(scores, rollout)
        return self._iteration.note(f"{self._role}.{method}", values)

    def _evenly(self, method: str, rows: Future[Rows], call_id: str) -> Future[Rows]:
        """A forward call that gives every data-parallel rank about as many tokens."""
        iteration = self._iteration
        layout = iteration.group_of(call_id, self._role, "forward").layout
        order = rows.map(partial(even_order, num_parts=num_parts(layout, "forward")))
        dealt = iteration.scheduler.derive(
            lambda each, order: each.only(*_READ_BY_MODELS).take(order), rows, order
        )
        result = self._by_rows(method, "forward", dealt, call_id)
        return iteration.scheduler.derive(
            lambda each, order: each.take(np.argsort(order)), result, order
        )

    def _by_rows(
        self,
        method: str,
        kind: CallKind,
        rows: Future[Rows],
        call_id: str,
        *,
        results_per_row: int = 1,
        **arguments: object,
    ) -> Future[Rows]:
        """A call whose result has so many rows per row; no rank is left without one."""
        iteration = self._iteration
        group = iteration.group_of(call_id, self._role, kind)
        parts = num_parts(group.layout, kind)
        enough = rows.map(lambda each: each.pad(parts) if each.num_rows < parts else each)
        result = group.call(method, (enough,), arguments, call_id=call_id)
        return iteration.scheduler.derive(
            lambda whole, given: _first(whole, given.num_rows * results_per_row), result, rows
        )


def generations_in_a_row(
    planned: Sequence[PlannedCall], calls: Mapping[str, CallPlacement]
) -> frozenset[str]:
    """Generations after which the plan has the same copy generate again on all its devices.

    Between the two it has no reason to give up weights and cache.
    """
    copies = {
        each.id: calls[each.id].copy_id
        for each in planned
        if each.id in calls and calls[each.id].kind == "generate"
    }
    found = set()
    for number, call in enumerate(planned):
        on_its_devices = (each for each in planned[number + 1 :] if each.devices & call.devices)
        following = next(on_its_devices, None)
        if following is not None and copies.get(call.id, "") == copies.get(following.id):
            found.add(call.id)
    return frozenset(found)


def num_parts(layout: Layout, kind: CallKind) -> int:
    """Into how many parts a call's rows are split."""
    if isinstance(layout, GenerationLayout):
        if kind == "generate":
            return layout.num_replicas
        layout = layout.training
    return layout.data_parallel_size


def _mini_batch(rows: Rows, *, take: Callable[[Rows], Rows], parts: int) -> Rows:
    """The rows of a step, for each data-parallel rank equally many, and about as many tokens."""
    padded = take(rows).pad(parts)
    return padded.take(even_order(padded, parts))


def _merged(rollout: Rows, columns: Mapping[str, Rows]) -> Rows:
    """What a loss may read: tokens, and each column under the name that it is given by."""
    named = [column.only(**{name: _name(column)}) for name, column in columns.items()]
    return rollout.only(*_READ_BY_MODELS).merge(*named)


def _name(column: Rows) -> str:
    (name,) = column.columns
    return name


def _first(rows: Rows, count: int) -> Rows:
    return rows if rows.num_rows == count else rows.slice(0, count)


def concatenated(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts."""
    return parts[0] if len(parts) == 1 else Rows.concatenate(parts)
