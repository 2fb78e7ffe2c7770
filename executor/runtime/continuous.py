"""Continuous rollouts: engines that never drain, and batches in the order of the data.

Prompts become requests, one for each response, in a queue. A turn is a call of the copy that
generates: it takes requests, makes a few steps of its engines, and hands out the responses that
ended. As soon as it has ended the next one is made, so the engines go on while others train. When
training has ended, weights come between two turns; what is in flight stays in the engines.

Admission bounds staleness: with weights of version v, requests of iterations up to v + 1 + η are
begun, which are (η + v + 1)·B responses of the run (AReaL, Fu et al. 2025, arXiv:2505.24298).
Iteration i takes the i-th B of them, in the order in which they were admitted, so it trains weights
of version i − 1 on responses that were begun with i − 1 − η at the earliest. Taking whichever end
first could not hold a bound for a long one. It also bounds what waits: training that is slow stops
the engines, not the memory.

Everything here runs under the scheduler's lock: in functions that it calls.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from automap.executor.batch import Batch
from automap.executor.checkpoints import FinishedResponses, response_rows
from automap.executor.layout import GenerationLayout
from automap.executor.runtime.group import WorkerGroup
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.runtime.tasks import Future
from automap.executor.runtime.versions import Versions
from automap.executor.settings import RolloutSettings
from automap.executor.workers.protocols import Layout
from automap.executor.workers.row_references import Rows, fetch, inline, put
from automap.planner.spec import WorkloadSpec

_QUEUED = 2
"""A replica is given so many times what it runs at once: what ends is followed within the turn."""


@dataclass(slots=True)
class _Batch:
    """What one iteration will train on, as far as it has come."""

    prompts: Rows
    rows: Future[Rows]
    missing: list[int]
    """Responses of each prompt that have not ended."""
    responses: dict[int, Rows] = field(default_factory=dict)
    """Responses that have ended, by request."""
    groups: dict[int, Rows] = field(default_factory=dict)
    """By prompt, with scores: those of which every response has ended."""


class ContinuousRollouts:
    """Between the data and each iteration's program: requests, responses, whole batches."""

    def __init__(
        self,
        scheduler: Scheduler,
        group: WorkerGroup,
        *,
        call_id: str,
        versions: Versions,
        scorers: Mapping[str, WorkerGroup],
        workload: WorkloadSpec,
        staleness: int,
        settings: RolloutSettings,
        finished: FinishedResponses | None = None,
    ) -> None:
        """Nothing is generated before weights have come.

        Args:
            scheduler: The run's.
            group: The copy that generates.
            call_id: The plan's name of its call.
            versions: Knows which weights the copy has.
            scorers: Role → a function, which scores groups as they end, beside everything else.
            workload: Prompts of an iteration, and responses of a prompt: these are a group.
            staleness: η, how many iterations behind training weights may begin a response.
            settings: How many sequences an engine runs at once, and steps of a turn.
            finished: Where responses are kept for a run that resumes, and found by it.
        """
        self._scheduler, self._group, self._call_id = scheduler, group, call_id
        self._versions, self._scorers, self._staleness = versions, scorers, staleness
        self._settings, self._finished = settings, finished
        self._num_prompts = workload.prompts_per_iteration
        self._num_responses = workload.responses_per_prompt
        self._in_flight = [0] * num_replicas(group.layout)
        """Responses that each replica was given and has not handed out."""
        self._replica_of: dict[int, int] = {}
        self._queue: deque[int] = deque()
        """Requests that no replica was given."""
        self._batches: dict[int, _Batch] = {}
        """By iteration: those that are not whole."""
        self._offered: dict[int, tuple[Rows, Future[Rows]]] = {}
        """By iteration: prompts and responses of those that no program has taken."""
        self._version = 0
        self._has_weights = False
        """Whether turns may be made: not while weights come."""
        self._in_turn = False

    # What the controller uses, in its own thread

    def offer(self, iteration: int, prompts: Batch) -> None:
        """The prompts of an iteration, with the column `group`; iterations come in their order.

        Responses that an earlier attempt of the run has finished are not generated again.
        """
        first = (iteration - 1) * self._num_prompts * self._num_responses
        requests = range(first, first + self._num_prompts * self._num_responses)
        found = self._found(iteration, prompts, requests)
        batch = _Batch(
            put(prompts), Future(self._scheduler), [self._num_responses] * self._num_prompts
        )
        self._batches[iteration] = batch
        self._offered[iteration] = batch.prompts, batch.rows
        self._scheduler.derive(lambda: self._take(requests, found))

    def take(self, iteration: int) -> tuple[Rows, Future[Rows]]:
        """An iteration's prompts, and all responses, those of a prompt on end.

        They have a column `scores_of(role)` for every function.
        """
        return self._offered.pop(iteration)

    def sync(self, sync: "Sync", *, after: Sequence[Future[Any]] = ()) -> None:
        """Have weights come once these have ended; no turn is made until they are there."""

        def begin(*_: object) -> None:
            self._has_weights = False
            self._scheduler.derive(self._weights_came, sync())

        self._scheduler.derive(begin, *after)

    def _found(self, iteration: int, prompts: Batch, requests: range) -> Batch | None:
        """What is on the disk of an iteration, for the prompts that it has now."""
        lines = {} if self._finished is None else self._finished.read(iteration)
        ids = prompts.tensor("prompt_id").tolist()
        kept = [
            request
            for request in requests
            if request in lines and lines[request]["prompt_id"] == ids[self._prompt_of(request)]
        ]
        if not kept:
            return None
        rows = prompts.take([self._prompt_of(request) for request in kept])
        return response_rows(rows.merge(self._numbers(kept)), [lines[each] for each in kept])

    # Under the scheduler's lock

    def _take(self, requests: range, found: Batch | None) -> None:
        done = set() if found is None else set(found.tensor("request").tolist())
        self._queue.extend(request for request in requests if request not in done)
        if found is not None:
            self._arrived(put(found))
        self._next_turn()

    def _weights_came(self, _: object) -> None:
        self._version = self._versions.received(self._group.role)
        self._has_weights = True
        self._next_turn()

    def _next_turn(self) -> None:
        if self._in_turn or not self._has_weights:
            return
        shares = self._admitted()
        if not any(self._in_flight):
            return
        self._in_turn = True
        turn = self._group.call(
            "generate_turn",
            (shares,),
            {
                "version": self._version,
                "num_steps": self._settings.steps_per_turn,
                "finished": self._finished,
            },
            call_id=self._call_id,
            in_background=True,
        )
        self._scheduler.derive(self._turn_ended, turn, in_background=True)

    def _admitted(self) -> list[Rows | None]:
        """What each replica is to begin."""
        shares: list[list[int]] = [[] for _ in self._in_flight]
        latest = self._version + 1 + self._staleness
        most = _QUEUED * self._settings.max_running_sequences
        while self._queue and self._iteration_of(self._queue[0]) <= latest:
            replica = self._in_flight.index(min(self._in_flight))
            if self._in_flight[replica] == most:
                break
            request = self._queue.popleft()
            shares[replica].append(request)
            self._replica_of[request] = replica
            self._in_flight[replica] += 1
        return [self._rows_of(share) for share in shares]

    def _rows_of(self, requests: Sequence[int]) -> Rows | None:
        by_iteration: dict[int, list[int]] = {}
        for request in requests:
            by_iteration.setdefault(self._iteration_of(request), []).append(request)
        parts = [
            self._batches[iteration]
            .prompts.take([self._prompt_of(request) for request in those])
            .merge(inline(self._numbers(those)))
            for iteration, those in by_iteration.items()
        ]
        return Rows.concatenate(parts) if parts else None

    def _turn_ended(self, rows: Rows | None) -> None:
        self._in_turn = False
        if rows is not None:
            for request in self._arrived(rows):
                self._in_flight[self._replica_of.pop(request)] -= 1
        self._next_turn()

    def _arrived(self, rows: Rows) -> list[int]:
        """Sort responses into their groups; the requests that they answer."""
        requests: list[int] = fetch(rows.only("request")).tensor("request").tolist()
        ended = []
        for place, request in enumerate(requests):
            iteration, prompt = self._iteration_of(request), self._prompt_of(request)
            batch = self._batches[iteration]
            batch.responses[request] = rows.take([place])
            batch.missing[prompt] -= 1
            if not batch.missing[prompt]:
                ended.append((iteration, prompt))
        if ended:
            self._score(ended)
        return requests

    def _score(self, ended: Sequence[tuple[int, int]]) -> None:
        """Have functions score groups; at once, where there are none."""
        groups = []
        for iteration, prompt in ended:
            first = ((iteration - 1) * self._num_prompts + prompt) * self._num_responses
            responses = self._batches[iteration].responses
            groups += [responses.pop(first + each) for each in range(self._num_responses)]
        rows = Rows.concatenate(groups)
        scores = [
            scorer.call("score", (rows,), call_id=f"{role}.forward", in_background=True)
            for role, scorer in self._scorers.items()
        ]

        def hand_on(*scored: Rows) -> None:
            named = zip(self._scorers, scored, strict=True)
            columns = [each.only(**{scores_of(role): "scores"}) for role, each in named]
            self._hand_on(ended, rows.merge(*columns))

        self._scheduler.derive(hand_on, *scores, in_background=True)

    def _hand_on(self, ended: Sequence[tuple[int, int]], rows: Rows) -> None:
        for number, (iteration, prompt) in enumerate(ended):
            batch, start = self._batches[iteration], number * self._num_responses
            batch.groups[prompt] = rows.slice(start, start + self._num_responses)
            if len(batch.groups) == self._num_prompts:
                del self._batches[iteration]
                in_order = [batch.groups[each] for each in range(self._num_prompts)]
                batch.rows.resolve(Rows.concatenate(in_order))

    def _iteration_of(self, request: int) -> int:
        return request // (self._num_prompts * self._num_responses) + 1

    def _prompt_of(self, request: int) -> int:
        return request // self._num_responses % self._num_prompts

    def _numbers(self, requests: Sequence[int]) -> Batch:
        """Columns that name requests, and make their seeds."""
        named = torch.tensor(requests)
        return Batch(
            {
                "request": named,
                "iteration": named // (self._num_prompts * self._num_responses) + 1,
                "number": named % self._num_responses,
            }
        )


Sync = Callable[[], Future[list[object]]]
"""Makes the call that brings weights."""


def scores_of(role: str) -> str:
    """The column that a function's scores are in."""
    return f"{role}.scores"


def num_replicas(layout: Layout) -> int:
    """Engines that generate on a layout."""
    if isinstance(layout, GenerationLayout):
        return layout.num_replicas
    return layout.data_parallel_size
