"""Continuous rollouts as iterations see them: prompts ahead, a batch each, weights after each."""

from typing import Any

import torch

from automap.executor.runtime.continuous import ContinuousRollouts, Sync
from automap.executor.runtime.handles import Sequences
from automap.executor.runtime.row_draws import RowSource
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.runtime.tasks import Future
from automap.executor.workers.row_references import Rows


class ContinuousFlow:
    """Keeps as many prompts offered as may begin, and has weights come when they were trained."""

    def __init__(
        self,
        scheduler: Scheduler,
        rollouts: ContinuousRollouts,
        sync: Sync,
        *,
        num_prompts: int,
        staleness: int,
        first: int,
    ) -> None:
        """Weights come at once; `first` is the first iteration that takes a batch."""
        self._scheduler, self._rollouts, self._sync = scheduler, rollouts, sync
        self._num_prompts, self._staleness = num_prompts, staleness
        self._offered = first - 1
        """The last iteration whose prompts are there."""
        rollouts.sync(sync)

    def batch(self, number: int, prompts: RowSource, last: int) -> tuple[Sequences, Future[Rows]]:
        """Prompts and responses of an iteration; and prompts of those that may begin beside it.

        Those of the iteration that is admitted once this one's weights have come are there too.
        """
        count = self._num_prompts
        for each in range(self._offered + 1, min(number + self._staleness + 1, last) + 1):
            batch = prompts.next_batch(count).with_columns(group=torch.arange(count))
            self._rollouts.offer(each, batch)
            self._offered = each
        rows, responses = self._rollouts.take(number)
        return Sequences(self._scheduler.derive(lambda: rows)), responses

    def trained(self, updates: Future[Any]) -> None:
        """Weights of an iteration come as soon as it has trained them."""
        self._rollouts.sync(self._sync, after=[updates])
