"""An endless, shuffled order of a file's rows whose position can be saved and taken up again."""

import logging
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from automap.executor.data.files import DataError, RowFile

Count = Annotated[int, Field(ge=0)]
logger = logging.getLogger(__name__)


class DataPosition(BaseModel):
    """How far a run has read a file; part of every checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: Count
    position: Count
    """Rows of the epoch's order that are used up, dropped ones included."""
    seed: Count
    fingerprint: str
    """SHA-256 of the file."""


class ShuffledRows:
    """Numbers of a file's rows, in a new order every epoch, which follows from seed and epoch."""

    def __init__(self, rows: RowFile, *, seed: int, field: str) -> None:
        """Begin with the first epoch; `field` is the setting that names the file."""
        self._rows, self._seed, self._field = rows, seed, field
        self._epoch, self._position = 0, 0
        self._order = epoch_order(len(rows), seed=seed, epoch=0)

    @property
    def epoch(self) -> int:
        """Passes over the rows before that of the row which `advance` gave last."""
        return self._epoch

    def advance(self) -> int:
        """The next row's number."""
        if self._position == len(self._order):
            self._epoch, self._position = self._epoch + 1, 0
            self._order = epoch_order(len(self._rows), seed=self._seed, epoch=self._epoch)
            logger.info("%s: epoch %d begins", self._field, self._epoch)
        self._position += 1
        return int(self._order[self._position - 1])

    def state(self) -> DataPosition:
        """The position after the rows so far."""
        return DataPosition(
            epoch=self._epoch,
            position=self._position,
            seed=self._seed,
            fingerprint=self._rows.fingerprint,
        )

    def load_state(self, state: DataPosition) -> None:
        """Continue behind the rows that came before `state`.

        Raises:
            DataError: the position is of another file or seed.
        """
        if state.fingerprint != self._rows.fingerprint:
            raise DataError(
                f"{self._field}: {self._rows.path} is not the file of the checkpoint (SHA-256 "
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


def epoch_order(num_rows: int, *, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """A permutation of the rows, the same on every machine and with every release of numpy.

    Only the raw words of a bit generator are fixed for good, not what numpy draws from them
    (NEP 19), so the rows are sorted by one word each.
    """
    words = np.random.Philox(np.random.SeedSequence([seed, epoch])).random_raw(num_rows)
    return np.argsort(words, kind="stable")
