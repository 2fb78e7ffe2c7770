"""An endless, shuffled stream of prompts whose position can be saved and taken up again."""

import json
import logging
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field

from executor.batch import Batch, Column, Ragged
from executor.data.encoding import PromptEncoder
from executor.data.files import DataError, cell, open_rows
from executor.settings import DataSettings

Count = Annotated[int, Field(ge=0)]
logger = logging.getLogger(__name__)


class DataPosition(BaseModel):
    """How far a run has read its prompts; part of every checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: Count
    position: Count
    """Rows of the epoch's order that are used up, dropped ones included."""
    seed: Count
    fingerprint: str
    """SHA-256 of the file."""


class PromptData:
    """Prompts of one file in a new order every epoch; a batch may span the end of an epoch.

    The order follows from seed and epoch alone. Rows are read and tokenised when they are due.
    """

    def __init__(
        self,
        settings: DataSettings,
        *,
        max_prompt_length: int,
        seed: int = 0,
        vocab_size: int | None = None,
        tokens_column: str = "prompt_tokens",
    ) -> None:
        """Open the file; nothing but its first row is tokenised.

        Args:
            settings: The file and how to read it.
            max_prompt_length: In tokens, after the chat template.
            seed: Of the order.
            vocab_size: Bound of the token ids that a file gives itself.
            tokens_column: What the batches call the tokens; `tokens` for pre-train text.

        Raises:
            DataError: the file, its columns, the tokenizer or the first row cannot be used.
        """
        self._settings = settings
        self._max_prompt_length = max_prompt_length
        self._seed = seed
        self._tokens_column = tokens_column
        self._rows = open_rows(settings)
        self._encoder = PromptEncoder(settings, vocab_size=vocab_size)
        self._epoch, self._position = 0, 0
        self._order = epoch_order(len(self._rows), seed=seed, epoch=0)
        self.num_dropped = 0
        """Over-long prompts that were passed over since this object was made."""
        self._tokens(0)  # a wrong kind of prompt shows before any model is loaded

    def next_batch(self, num_prompts: int) -> Batch:
        """The next prompts: `prompt_tokens` (ragged int64), `prompt_id` (int64, the row's number).

        With an answer column also `answer`, ragged uint8: `answers_of` makes text of it.

        Raises:
            DataError: a row that is due cannot be used, or no row of the file can be.
        """
        rows = [self._next_row() for _ in range(num_prompts)]
        columns: dict[str, Column] = {
            self._tokens_column: Ragged.of([torch.tensor(tokens) for _, tokens in rows]),
            "prompt_id": torch.tensor([number for number, _ in rows]),
        }
        if self._settings.answer_column is not None:
            columns["answer"] = _encoded([self._answer(number) for number, _ in rows])
        return Batch(columns)

    def state(self) -> DataPosition:
        """The position after the batches so far."""
        return DataPosition(
            epoch=self._epoch,
            position=self._position,
            seed=self._seed,
            fingerprint=self._rows.fingerprint,
        )

    def load_state(self, state: DataPosition) -> None:
        """Continue behind the batches that came before `state`.

        Raises:
            DataError: the position is of another file or seed.
        """
        if state.fingerprint != self._rows.fingerprint:
            raise DataError(
                f"data.path: {self._rows.path} is not the file of the checkpoint (SHA-256 "
                f"{self._rows.fingerprint[:12]}…, then {state.fingerprint[:12]}…); "
                "give that file, or start anew with checkpoint.resume: false"
            )
        if state.seed != self._seed:
            raise DataError(
                f"seed: {self._seed}, but the checkpoint's order of prompts is that of seed "
                f"{state.seed}; give that seed, or start anew with checkpoint.resume: false"
            )
        self._epoch, self._position = state.epoch, state.position
        self._order = epoch_order(len(self._rows), seed=self._seed, epoch=self._epoch)

    def _next_row(self) -> tuple[int, list[int]]:
        # The one row that fits may come first in this epoch and last in the next.
        for _ in range(2 * len(self._rows)):
            number = self._advance()
            tokens = self._fitting(number)
            if tokens is not None:
                return number, tokens
            self.num_dropped += 1
        raise DataError(
            f"data.overlong: drop leaves none of the {len(self._rows)} prompts of "
            f"{self._rows.path}: all are longer than {self._max_prompt_length} tokens"
        )

    def _advance(self) -> int:
        if self._position == len(self._order):
            self._epoch, self._position = self._epoch + 1, 0
            self._order = epoch_order(len(self._rows), seed=self._seed, epoch=self._epoch)
            logger.info("prompts: epoch %d begins", self._epoch)
        self._position += 1
        return int(self._order[self._position - 1])

    def _fitting(self, number: int) -> list[int] | None:
        """The row's tokens; None for a prompt to drop."""
        tokens = self._tokens(number)
        if len(tokens) <= self._max_prompt_length:
            return tokens
        match self._settings.overlong:
            case "drop":
                return None
            case "truncate_left":
                return tokens[-self._max_prompt_length :]
            case "error":
                raise DataError(
                    f"{self._place(number)}: the prompt has {len(tokens)} tokens, and at most "
                    f"{self._max_prompt_length} are allowed (workload.prompt_length); set "
                    "data.overlong to drop or truncate_left to go on"
                )

    def _tokens(self, number: int) -> list[int]:
        prompt = cell(self._rows, number, "prompt_column", self._settings.prompt_column)
        return self._encoder.token_ids(prompt, self._place(number))

    def _answer(self, number: int) -> str:
        assert self._settings.answer_column is not None, "asked for with an answer column alone"
        answer = cell(self._rows, number, "answer_column", self._settings.answer_column)
        if answer is None:
            raise DataError(f"{self._place(number)}: the answer is missing")
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)

    def _place(self, number: int) -> str:
        return f"{self._rows.path}, {self._rows.where(number)}"


def epoch_order(num_rows: int, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """A permutation of the rows, the same on every machine and with every release of numpy.

    Only the raw words of a bit generator are fixed for good, not what numpy draws from them
    (NEP 19), so the rows are sorted by one word each.
    """
    words = np.random.Philox(np.random.SeedSequence([seed, epoch])).random_raw(num_rows)
    return np.argsort(words, kind="stable")


def _encoded(answers: Sequence[str]) -> Ragged:
    return Ragged.of([torch.tensor(list(text.encode()), dtype=torch.uint8) for text in answers])


def answers_of(column: Ragged) -> list[str]:
    """The text of a ragged `answer` column."""
    return [bytes(row.tolist()).decode() for row in column.rows()]
