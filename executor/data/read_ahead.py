"""Prompts that a run reads before their turn, and where it would have to read on without them."""

from collections import deque

from automap.executor.batch import Batch
from automap.executor.data.prompts import PromptData
from automap.executor.data.shuffled import DataPosition


class ReadAhead:
    """One batch for each iteration, in their order."""

    def __init__(self, prompts: PromptData, *, iteration: int) -> None:
        """The prompts are those after an iteration; 0: all."""
        self._prompts = prompts
        self._iteration = iteration
        self._after = deque([prompts.state()])
        """Positions after `_iteration` and the ones that follow."""

    def next_batch(self, num_prompts: int) -> Batch:
        """See `PromptData.next_batch`."""
        batch = self._prompts.next_batch(num_prompts)
        self._after.append(self._prompts.state())
        return batch

    def prepare(self, num_prompts: int) -> None:
        """See `PromptData.prepare`."""
        self._prompts.prepare(num_prompts)

    def state_after(self, iteration: int) -> DataPosition:
        """The position after an iteration's batch; asked for in order, at most once of each."""
        while self._iteration < iteration:
            self._after.popleft()
            self._iteration += 1
        return self._after[0]
