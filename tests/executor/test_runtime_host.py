"""Reward functions: found by name, called with what they ask for, and checked."""

from pathlib import Path
from typing import Any

import pytest
import torch

from executor.batch import Batch, Ragged
from executor.runtime.host import FunctionWorker, RewardFunctionError, load_function

HERE = "tests.executor.test_runtime_host"


def rollout(**columns: Any) -> Batch:
    return Batch(
        {
            "prompt_tokens": Ragged.of([torch.tensor([5, 6]), torch.tensor([7])]),
            "response_tokens": Ragged.of([torch.tensor([8]), torch.tensor([9, 1])]),
            **columns,
        }
    )


def lengths(response_tokens: list[list[int]]) -> list[float]:
    return [len(each) for each in response_tokens]


def everything(**given: Any) -> list[float]:
    assert given["prompt_tokens"] == [[5, 6], [7]]
    assert given["response_tokens"] == [[8], [9, 1]]
    assert given["finished"] == [True, False]
    assert given["answers"] == ["é", "no"]
    return [1, 0]


def wants_text(responses: list[str], style: str = "plain") -> list[float]:
    return [0.0] * len(responses)


def raises(answers: Any = None) -> list[float]:
    raise LookupError("no answer for response 3")


def too_few(prompt_tokens: Any) -> list[float]:
    return [1.0]


def not_finite(prompt_tokens: Any) -> list[float]:
    return [1.0, float("nan")]


def no_numbers(prompt_tokens: Any) -> Any:
    return ["good", "bad"]


def score(name: str, batch: Batch) -> list[float]:
    scores: list[float] = FunctionWorker(f"{HERE}:{name}").score(batch).tensor("scores").tolist()
    return scores


def test_a_function_gets_what_it_asks_for() -> None:
    assert score("lengths", rollout()) == [1, 2]
    answers = Ragged.of(
        [torch.tensor(list(text.encode()), dtype=torch.uint8) for text in ("é", "no")]
    )
    both = rollout(finished=torch.tensor([True, False]), answer=answers)
    assert score("everything", both) == [1, 0]


def test_a_function_that_asks_for_what_is_not_there_is_told_what_is() -> None:
    with pytest.raises(RewardFunctionError, match=r"wants responses; there are prompt_tokens, .*"):
        score("wants_text", rollout())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "raised LookupError: no answer for response 3"),
        ("too_few", "returned 1 scores for 2 responses"),
        ("not_finite", "returned nan for response 1"),
        ("no_numbers", "returned no list of numbers: could not convert"),
    ],
)
def test_what_is_wrong_is_said_with_the_functions_name(name: str, message: str) -> None:
    with pytest.raises(RewardFunctionError) as caught:
        score(name, rollout())
    assert message in str(caught.value)
    assert f"{HERE}:{name}" in str(caught.value)


def test_functions_come_from_files_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def reward(prompt_tokens):\n    return [sum(p) for p in prompt_tokens]\n")
    assert load_function(f"{path}:reward")([[1, 2]]) == [3]
    with pytest.raises(RewardFunctionError, match="has no function other"):
        load_function(f"{path}:other")
    path.write_text("raise OSError('disk')\n")
    with pytest.raises(RewardFunctionError, match=r"cannot import .*OSError: disk"):
        load_function(f"{path}:reward")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("lengths", "must be module:function or file.py:function"),
        (":lengths", "must be module:function or file.py:function"),
        ("no.such.module:f", "cannot import no.such.module: ModuleNotFoundError"),
        ("/no/such/file.py:f", "cannot import /no/such/file.py: FileNotFoundError"),
    ],
)
def test_functions_that_cannot_be_found(path: str, message: str) -> None:
    with pytest.raises(RewardFunctionError, match=message):
        load_function(path)
