"""Workers that need no device: numeric steps, and rewards that are Python functions."""

import importlib
import importlib.util
import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from executor.batch import Batch
from executor.data import answers_of, load_tokenizer
from executor.protocols import transfer


class NumericsWorker:
    """Runs functions on whole batches, away from the controller."""

    @transfer("RANK_ZERO")
    def run(self, function: Callable[..., object], *args: object, **kwargs: object) -> object:
        """What the function makes of batches and numbers: a batch, or something small."""
        return function(*args, **kwargs)


class RewardFunctionError(Exception):
    """A reward function cannot be found, raised, or returned no scores."""


class FunctionWorker:
    """A role whose scores are computed by a Python function.

    The function is called with those of these keywords that it takes, one item per response:
    prompt_tokens, response_tokens (lists of token ids), answers (text of data.answer_column),
    prompts, responses (text, with data.tokenizer), finished (False where the length cut it). It
    returns as many numbers.
    """

    def __init__(self, path: str, *, tokenizer: Path | None = None) -> None:
        """Find `module:function` or `file.py:function`.

        Raises:
            RewardFunctionError: there is none.
        """
        self._path = path
        self._function = load_function(path)
        self._tokenizer = load_tokenizer(tokenizer) if tokenizer is not None else None

    @transfer("RANK_ZERO")
    def score(self, rollout: Batch) -> Batch:
        """The column `scores`, one per row.

        Raises:
            RewardFunctionError: the function raised, or returned something else than a finite
                number per response.
        """
        arguments = self._arguments(rollout)
        try:
            scores = self._function(**arguments)
        except Exception as error:
            raise RewardFunctionError(
                f"{self._path} raised {type(error).__name__}: {error}"
            ) from error
        return Batch({"scores": self._checked(scores, rollout.num_rows)})

    def _arguments(self, rollout: Batch) -> dict[str, object]:
        parameters = inspect.signature(self._function).parameters
        available = self._available(rollout)
        takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        missing = [
            name
            for name, each in parameters.items()
            if each.default is each.empty
            and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
            and name not in available
        ]
        if missing:
            raise RewardFunctionError(
                f"{self._path} wants {', '.join(missing)}; there are {', '.join(available)}. "
                "answers need data.answer_column, prompts and responses need data.tokenizer"
            )
        chosen = {name: make for name, make in available.items() if takes_all or name in parameters}
        return {name: make() for name, make in chosen.items()}

    def _available(self, rollout: Batch) -> dict[str, Callable[[], object]]:
        """Keyword → how to make its values."""

        def tokens(name: str) -> list[list[int]]:
            rows = rollout.ragged(name).rows() if rollout.num_rows else ()
            return [row.tolist() for row in rows]

        found: dict[str, Callable[[], object]] = {
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

    def _checked(self, scores: Any, num_rows: int) -> torch.Tensor:
        try:
            values = [float(score) for score in scores]
        except (TypeError, ValueError) as error:
            raise RewardFunctionError(
                f"{self._path} returned no list of numbers: {error}"
            ) from error
        if len(values) != num_rows:
            raise RewardFunctionError(
                f"{self._path} returned {len(values)} scores for {num_rows} responses"
            )
        bad = [row for row, value in enumerate(values) if not math.isfinite(value)]
        if bad:
            raise RewardFunctionError(
                f"{self._path} returned {values[bad[0]]} for response {bad[0]}; scores are finite"
            )
        return torch.tensor(values, dtype=torch.float32)


def load_function(path: str) -> Callable[..., Sequence[float]]:
    """The function that `module:function` or `file.py:function` names.

    Raises:
        RewardFunctionError: no such file, module or function.
    """
    place, colon, name = path.rpartition(":")
    if not colon or not place or not name:
        raise RewardFunctionError(f"{path!r} must be module:function or file.py:function")
    try:
        is_file = place.endswith(".py")
        module = _module_of_file(Path(place)) if is_file else importlib.import_module(place)
    except Exception as error:
        raise RewardFunctionError(
            f"{path}: cannot import {place}: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise RewardFunctionError(f"{path}: {place} has no function {name}")
    return function  # type: ignore[no-any-return]


def _module_of_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
