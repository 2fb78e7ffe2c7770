"""Rows of the data, drawn batch by batch and put where calls fetch them."""

from collections.abc import Callable
from typing import Protocol

import torch

from automap.executor.batch import Batch
from automap.executor.runtime.handles import Sequences
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.workers.row_references import put
from automap.planner.spec import WorkloadSpec


class RowSource(Protocol):
    """Endless rows: prompts (`executor.data.PromptData`), or pre-train text (column `tokens`)."""

    def next_batch(self, num_rows: int, /) -> Batch:
        """The next rows."""
        ...


class PromptSource(RowSource, Protocol):
    """Rows that can be read before they are due."""

    def prepare(self, num_rows: int, /) -> None:
        """Read what `next_batch` will be asked for next."""
        ...


class RowDraws:
    """Gives programs their prompts and pre-train rows."""

    def __init__(self, scheduler: Scheduler, workload: WorkloadSpec, *, block_bytes: int) -> None:
        self._scheduler, self._block_bytes = scheduler, block_bytes
        self._num_prompts = workload.prompts_per_iteration

    def draws(self, prompts: RowSource) -> Callable[[], Sequences]:
        """Full batches of prompts, their groups numbered through the iteration."""
        count, drawn = self._num_prompts, 0

        def draw() -> Sequences:
            nonlocal drawn
            batch = prompts.next_batch(count).with_columns(
                group=torch.arange(drawn * count, (drawn + 1) * count)
            )
            drawn += 1
            return self.sequences(batch)

        return draw

    def prepare(self, prompts: PromptSource) -> None:
        """Read the next iteration's prompts, while devices work for this one."""
        prompts.prepare(self._num_prompts)

    def sequences(self, batch: Batch) -> Sequences:
        """Rows as programs hold them."""
        rows = put(batch, block_bytes=self._block_bytes)
        return Sequences(self._scheduler.derive(lambda: rows))
