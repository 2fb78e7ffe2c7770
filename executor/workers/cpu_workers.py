"""Workers that need no device: numeric steps, and rewards that are Python functions."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from automap.executor.batch import Batch
from automap.executor.data import answers_of, load_tokenizer
from automap.executor.workers.protocols import row_ranges, transfer
from automap.executor.workers.reward_functions import (
    Arguments,
    ScoringProcesses,
    load_function,
    need_keywords,
    score_rows,
)


class NumericsWorker:
    """Runs functions on whole batches, away from the controller."""

    @transfer("RANK_ZERO")
    def run(self, function: Callable[..., object], *args: object, **kwargs: object) -> object:
        """What the function makes of batches and numbers: a batch, or something small."""
        return function(*args, **kwargs)


class FunctionWorker:
    """A role whose scores are computed by a Python function.

    The function is called with those of these keywords that it takes, one item per response:
    prompt_tokens, response_tokens (lists of token ids), answers (text of data.answer_column),
    prompts, responses (text, with data.tokenizer), finished (False where the length cut it). It
    returns as many numbers.
    """

    def __init__(self, path: str, *, tokenizer: Path | None = None, num_processes: int = 1) -> None:
        """Find `module:function` or `file.py:function`.

        Args:
            path: The function.
            tokenizer: What makes text of prompts and responses.
            num_processes: Each scores a part of a batch; 1: this process scores all of it.

        Raises:
            RewardFunctionError: there is no such function.
        """
        self._path = path
        self._function = load_function(path)
        self._processes = ScoringProcesses(path, num_processes) if num_processes > 1 else None
        self._tokenizer = load_tokenizer(tokenizer) if tokenizer is not None else None

    @transfer("RANK_ZERO")
    def score(self, rollout: Batch) -> Batch:
        """The column `scores`, one per row.

        Raises:
            RewardFunctionError: the function raised, or returned something else than a finite
                number per response.
        """
        arguments, num_rows = self._arguments(rollout), rollout.num_rows
        if self._processes is None:
            scores = score_rows(self._function, self._path, arguments, num_rows)
        else:
            parts = row_ranges(num_rows, min(len(self._processes), num_rows))
            scores = self._processes.score(arguments, parts)
        return Batch({"scores": torch.tensor(scores, dtype=torch.float32)})

    def _arguments(self, rollout: Batch) -> Arguments:
        available = self._available(rollout)
        need_keywords(self._function, self._path, list(available))
        parameters = inspect.signature(self._function).parameters
        takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        chosen = {name: make for name, make in available.items() if takes_all or name in parameters}
        return {name: make() for name, make in chosen.items()}

    def _available(self, rollout: Batch) -> dict[str, Callable[[], Sequence[object]]]:
        """Keyword → how to make its values."""

        def tokens(name: str) -> list[list[int]]:
            rows = rollout.ragged(name).rows() if rollout.num_rows else ()
            return [row.tolist() for row in rows]

        found: dict[str, Callable[[], Sequence[object]]] = {
            "prompt_tokens": lambda: tokens("prompt_tokens"),
            "response_tokens": lambda: tokens("response_tokens"),
        }
        if "finished" in rollout:
            found["finished"] = lambda: rollout.tensor("finished").tolist()
        if "answer" in rollout:
            found["answers"] = lambda: answers_of(rollout.ragged("answer"))
        if self._tokenizer is not None:
            found["prompts"] = lambda: self._texts(tokens("prompt_tokens"))
            found["responses"] = lambda: self._texts(tokens("response_tokens"))
        return found

    def _texts(self, tokens: list[list[int]]) -> list[str]:
        assert self._tokenizer is not None
        texts: list[str] = self._tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return texts
