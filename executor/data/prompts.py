"""An endless, shuffled stream of prompts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from automap.executor.batch import Batch, Column, Ragged
from automap.executor.data.encoding import Encoder
from automap.executor.data.files import DataError, cell, open_rows
from automap.executor.data.shuffled import DataPosition, ShuffledRows
from automap.executor.settings import DataSettings


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A batch that was read before it was due."""

    num_prompts: int
    before: DataPosition
    batch: Batch | Exception


class PromptData:
    """Prompts of one file in a new order every epoch; a batch may span the end of an epoch.

    The order follows from seed and epoch alone. Rows are read and tokenised when they are due, or
    before, where there is time (`prepare`); what is wrong with one is said when it is due.
    """

    def __init__(
        self,
        settings: DataSettings,
        *,
        max_prompt_length: int,
        seed: int = 0,
        vocab_size: int | None = None,
    ) -> None:
        """Open the file; nothing but its first row is tokenised.

        Args:
            settings: The file and how to read it.
            max_prompt_length: In tokens, after the chat template.
            seed: Seed of the order.
            vocab_size: Vocabulary of the models; no prompt may have a token id from there on.

        Raises:
            DataError: the file, its columns, the tokenizer or the first row cannot be used.
        """
        self._settings = settings
        self._max_prompt_length = max_prompt_length
        columns = {
            "data.prompt_column": settings.prompt_column,
            "data.answer_column": settings.answer_column,
        }
        wanted = {field: name for field, name in columns.items() if name is not None}
        self._rows = open_rows(settings.path, wanted, field="data.path")
        self._order = ShuffledRows(self._rows, seed=seed, field="data.path")
        self._encoder = Encoder(
            settings.tokenizer, chat_template=settings.chat_template, vocab_size=vocab_size
        )
        self._tokens(0)  # a wrong kind of prompt shows before any model is loaded
        self._prepared: _Prepared | None = None

    def prepare(self, num_prompts: int) -> None:
        """Read what `next_batch` will be asked for next; the position stays before it."""
        if self._prepared is not None:
            return
        before = self._order.state()
        batch: Batch | Exception
        try:
            batch = self._read(num_prompts)
        except Exception as error:  # whatever is wrong with the data, or its tokenizer
            batch = error
        self._prepared = _Prepared(num_prompts, before, batch)

    def next_batch(self, num_prompts: int) -> Batch:
        """The next prompts: `prompt_tokens` (ragged int64), `prompt_id` (int64, the row's number).

        `prompt_epoch` (int64) are the passes over the data before theirs.
        With an answer column also `answer`, ragged uint8: `answers_of` makes text of it.

        Raises:
            DataError: a row that is due cannot be used, or no row of the file can be.
        """
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return self._read(num_prompts)
        if prepared.num_prompts != num_prompts:
            self._order.load_state(prepared.before)
            return self._read(num_prompts)
        if isinstance(prepared.batch, Exception):
            raise prepared.batch
        return prepared.batch

    def _read(self, num_prompts: int) -> Batch:
        rows, epochs = list[tuple[int, list[int]]](), list[int]()
        for _ in range(num_prompts):
            rows.append(self._next_row())
            epochs.append(self._order.epoch)
        columns: dict[str, Column] = {
            "prompt_tokens": Ragged.of([torch.tensor(tokens) for _, tokens in rows]),
            "prompt_id": torch.tensor([number for number, _ in rows]),
            "prompt_epoch": torch.tensor(epochs),
        }
        if self._settings.answer_column is not None:
            columns["answer"] = _encoded([self._answer(number) for number, _ in rows])
        return Batch(columns)

    def check_rows(self) -> None:
        """DataError if any row of token ids cannot be used; text is read when it is due."""
        if self._settings.tokenizer is None:
            for number in range(len(self._rows)):
                self._fitting(number)

    def state(self) -> DataPosition:
        """The position after the batches so far."""
        return self._order.state() if self._prepared is None else self._prepared.before

    def load_state(self, state: DataPosition) -> None:
        """Continue behind the batches that came before; see `ShuffledRows.load_state`."""
        self._order.load_state(state)
        self._prepared = None

    def _next_row(self) -> tuple[int, list[int]]:
        # The one row that fits may come first in this epoch and last in the next.
        for _ in range(2 * len(self._rows)):
            number = self._order.advance()
            tokens = self._fitting(number)
            if tokens is not None:
                return number, tokens
        raise DataError(
            f"data.overlong: drop leaves none of the {len(self._rows)} prompts of "
            f"{self._rows.path}: all are longer than {self._max_prompt_length} tokens"
        )

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
        prompt = cell(self._rows, number, "data.prompt_column", self._settings.prompt_column)
        return self._encoder.token_ids(prompt, self._place(number))

    def _answer(self, number: int) -> str:
        assert self._settings.answer_column is not None, "asked for with an answer column alone"
        answer = cell(self._rows, number, "data.answer_column", self._settings.answer_column)
        if answer is None:
            raise DataError(f"{self._place(number)}: the answer is missing")
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)

    def _place(self, number: int) -> str:
        return f"{self._rows.path}, {self._rows.where(number)}"


def _encoded(answers: Sequence[str]) -> Ragged:
    return Ragged.of([torch.tensor(list(text.encode()), dtype=torch.uint8) for text in answers])


def answers_of(column: Ragged) -> list[str]:
    """The text of a ragged `answer` column."""
    return [bytes(row.tolist()).decode() for row in column.rows()]
