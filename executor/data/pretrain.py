"""Pre-train rows for PPO-ptx: texts, or token ids, cut to a length."""

import torch

from automap.executor.batch import Batch, Ragged
from automap.executor.data.encoding import Encoder
from automap.executor.data.files import DataError, cell, open_rows
from automap.executor.data.shuffled import DataPosition, ShuffledRows
from automap.executor.settings import DataSettings, PretrainSettings


class PretrainData:
    """Rows of one file in a new order every epoch, each no longer than the longest sequence.

    A row is read and tokenised when it is due; what exceeds the length is left out.
    """

    def __init__(
        self, settings: DataSettings, *, max_tokens: int, seed: int, vocab_size: int
    ) -> None:
        """Open the file that `settings.pretrain` names; nothing but its first row is tokenised.

        Args:
            settings: With `pretrain`.
            max_tokens: Longest row, unless `pretrain.max_tokens` is less.
            seed: Seed of the order.
            vocab_size: Vocabulary of the model that trains on them.

        Raises:
            DataError: the file, its column, the tokenizer or the first row cannot be used.
        """
        assert settings.pretrain is not None
        self._settings: PretrainSettings = settings.pretrain
        own = self._settings.tokenizer
        self._encoder = Encoder(
            own or settings.tokenizer,
            what="pre-train row",
            field="data.tokenizer" if own is None else "data.pretrain.tokenizer",
            vocab_size=vocab_size,
        )
        self._max_tokens = min(self._settings.max_tokens or max_tokens, max_tokens)
        wanted = {"data.pretrain.column": self._settings.column}
        self._rows = open_rows(self._settings.path, wanted, field="data.pretrain.path")
        self._order = ShuffledRows(self._rows, seed=seed, field="data.pretrain.path")
        self._has_tokenizer = (own or settings.tokenizer) is not None
        self._tokens(0)

    def next_batch(self, num_rows: int) -> Batch:
        """The next rows: the ragged column `tokens`.

        Raises:
            DataError: a row that is due cannot be used.
        """
        rows = [torch.tensor(self._tokens(self._order.advance())) for _ in range(num_rows)]
        return Batch({"tokens": Ragged.of(rows)})

    def check_rows(self) -> None:
        """DataError if any row of token ids cannot be used; text is read when it is due."""
        if not self._has_tokenizer:
            for number in range(len(self._rows)):
                self._tokens(number)

    def state(self) -> DataPosition:
        """The position after the batches so far."""
        return self._order.state()

    def load_state(self, state: DataPosition) -> None:
        """Continue behind the batches that came before; see `ShuffledRows.load_state`."""
        self._order.load_state(state)

    def _tokens(self, number: int) -> list[int]:
        value = cell(self._rows, number, "data.pretrain.column", self._settings.column)
        place = f"{self._rows.path}, {self._rows.where(number)}"
        tokens = self._encoder.token_ids(value, place)[: self._max_tokens]
        if len(tokens) < 2:
            raise DataError(
                f"{place}: the pre-train row has {len(tokens)} token; it needs two, one to predict "
                "from and one to predict"
            )
        return tokens
