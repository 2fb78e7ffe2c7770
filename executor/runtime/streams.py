"""A generation in turns, whose responses are scored elsewhere while the others are generated.

To the scheduler it is one call in rounds: engines get all prompts in the first turn and take a few
steps in each; what has ended is put in chunks, in the order of the ends, and a call that the plan
streams takes chunk after chunk. The rollout as a whole is in the order of the data, and the same to
the bit as without turns: a response's seed does not depend on when it ends.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from automap.executor.batch import Batch
from automap.executor.errors import RunError
from automap.executor.runtime.group import Rounds, WorkerGroup
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.runtime.tasks import Future
from automap.executor.workers.protocols import row_ranges
from automap.executor.workers.row_references import Rows, fetch, inline

_OF_TURNS = frozenset({"request", "iteration", "number", "token_versions", "weights_version"})
"""Columns that only generation in turns has."""


class Stream:
    """One generate call, and its responses in equal chunks, each as soon as it is there."""

    def __init__(
        self,
        scheduler: Scheduler,
        group: WorkerGroup,
        prompts: Future[Rows],
        *,
        call_id: str,
        iteration: int,
        version: Callable[[], int],
        responses_per_prompt: int,
        greedy: bool,
        num_replicas: int,
        num_chunks: int,
        steps_per_turn: int,
        keep_device: bool,
    ) -> None:
        """Make the call.

        Args:
            scheduler: The run's.
            group: The copy that generates.
            prompts: With the column `group`.
            call_id: The plan's name of the call.
            iteration: Of the run; seeds depend on it.
            version: Of the weights, asked when the call starts.
            responses_per_prompt: Rows of one prompt follow each other in `rows`.
            greedy: The likeliest token each time.
            num_replicas: Engines, which share the prompts.
            num_chunks: See `streamed_calls`.
            steps_per_turn: After so many it is seen what has ended.
            keep_device: The copy generates again next.
        """
        self.call_id = call_id
        self.chunks: list[Future[Rows]] = [Future(scheduler) for _ in range(num_chunks)]
        """Responses in the order of their ends."""
        self._scheduler, self._prompts = scheduler, prompts
        self._iteration, self._version, self._greedy = iteration, version, greedy
        self._num_responses, self._num_replicas = responses_per_prompt, num_replicas
        self._steps_per_turn, self._keep_device = steps_per_turn, keep_device
        self._places: list[int] = []
        """Rows in the rollout of the responses that have ended, in the order of their ends."""
        self.rows: Future[Rows] = group.call_in_rounds(
            self._rounds(), method="generate", inputs=[prompts], call_id=call_id
        )
        """All of them, in the order of the data."""

    def in_order(self, parts: Sequence[Future[Rows]]) -> Future[Rows]:
        """What was made of each chunk, row by row, in the order of the data."""
        return self._scheduler.derive(lambda *rows: self._in_order(rows), *parts)

    def _rounds(self) -> Rounds:
        prompts = self._prompts.result()
        total = prompts.num_rows * self._num_responses
        if total < len(self.chunks):
            raise RunError(
                f"{self.call_id} has {total} responses, too few for the {len(self.chunks)} chunks "
                "in which the plan streams them (search.stream_chunks)"
            )
        stops = [stop for _, stop in row_ranges(total, len(self.chunks))]
        requests: list[Rows | None] = self._requests(prompts)
        chunks: list[Rows] = []
        ended: list[Rows] = []
        given = {
            "version": self._version(),
            "num_steps": self._steps_per_turn,
            "greedy": self._greedy,
        }
        while len(self._places) < total:
            rows = yield "generate_turn", (requests,), given
            requests = [None] * self._num_replicas
            if rows is None:
                continue
            self._places += fetch(rows.only("request")).tensor("request").tolist()
            ended.append(rows.only(*sorted(rows.columns - _OF_TURNS)))
            while len(chunks) < len(stops) and stops[len(chunks)] <= len(self._places):
                here = Rows.concatenate(ended)
                size = stops[len(chunks)] - sum(each.num_rows for each in chunks)
                chunks.append(here.slice(0, size))
                ended = [here.slice(size, here.num_rows)] if size < here.num_rows else []
                self.chunks[len(chunks) - 1].resolve(chunks[-1])
        if not self._keep_device:
            yield "end_generation", (), {}
        return self._in_order(chunks)

    def _requests(self, prompts: Rows) -> list[Rows | None]:
        """What each replica is to generate: prompts on end, as a call without turns has them."""
        num_parts = min(self._num_replicas, prompts.num_rows)
        shares: list[Rows | None] = [None] * self._num_replicas
        for replica, (start, stop) in enumerate(row_ranges(prompts.num_rows, num_parts)):
            named = torch.arange(start * self._num_responses, stop * self._num_responses)
            numbers = Batch(
                {
                    "request": named,
                    "iteration": torch.full_like(named, self._iteration),
                    "number": named % self._num_responses,
                }
            )
            rows = prompts.take((named // self._num_responses).numpy())
            shares[replica] = rows.merge(inline(numbers))
        return shares

    def _in_order(self, parts: Sequence[Rows]) -> Rows:
        return Rows.concatenate(parts).take(np.argsort(self._places))
