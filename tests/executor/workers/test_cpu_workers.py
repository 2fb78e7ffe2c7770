"""Reward functions: found by name, called with what they ask for, and checked."""

import os
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch

from automap.executor.batch import Batch, Ragged
from automap.executor.workers.cpu_workers import FunctionWorker
from automap.executor.workers.model_setup import num_scoring_processes
from automap.executor.workers.process import start_ticks
from automap.executor.workers.reward_functions import RewardFunctionError, load_function
from automap.planner.spec import JobSpec
from tests.executor.small_plans import Place, small_spec

HERE = "tests.executor.workers.test_cpu_workers"
POSTPONED = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Scale:
    by: float = 1

def reward(prompt_tokens):
    return [Scale().by * len(each) for each in prompt_tokens]
"""


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


def sleeps(response_tokens: list[list[int]]) -> list[float]:
    """Says in a file when it ran; scores are the first tokens."""
    start = time.monotonic()
    time.sleep(0.6)
    with Path(os.environ["SLEEPS"]).open("a") as file:
        file.write(f"{os.getpid()} {start} {time.monotonic()}\n")
    sys.stdout.write("a function may print\n")
    return [each[0] for each in response_tokens]


def fails_at_six(response_tokens: list[list[int]]) -> list[float]:
    if [6] in response_tokens:
        raise LookupError("no answer")
    return [0.0] * len(response_tokens)


def dies(response_tokens: list[list[int]]) -> list[float]:
    os._exit(7)


def rows(count: int) -> Batch:
    tokens = Ragged.of([torch.tensor([number]) for number in range(count)])
    return Batch({"prompt_tokens": tokens, "response_tokens": tokens})


@pytest.mark.slow
def test_several_processes_score_parts_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLEEPS", str(tmp_path / "log"))
    worker = FunctionWorker(f"{HERE}:sleeps", num_processes=2)
    for count in (9, 1):  # fewer rows than processes are fine
        assert worker.score(rows(count)).tensor("scores").tolist() == list(range(count))
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    (one, *first), (two, *second) = lines[:2]
    assert one != two
    assert max(float(first[0]), float(second[0])) < min(float(first[1]), float(second[1]))
    assert len(lines) == 3


@pytest.mark.slow
def test_a_part_that_fails_is_named() -> None:
    worker = FunctionWorker(f"{HERE}:fails_at_six", num_processes=2)
    with pytest.raises(
        RewardFunctionError,
        match=r":fails_at_six raised LookupError: no answer; in responses 4 to 7 of the batch",
    ):
        worker.score(rows(8))
    assert worker.score(rows(4)).tensor("scores").tolist() == [0] * 4  # it goes on
    worker = FunctionWorker(f"{HERE}:dies", num_processes=2)
    with pytest.raises(RewardFunctionError, match=r"responses 0 to 3 .* ended with exit code 7"):
        worker.score(rows(8))


@pytest.mark.slow
@pytest.mark.parametrize("function", ["hangs", "holds_the_interpreter"])
def test_scoring_processes_end_with_the_one_that_started_them(function: str) -> None:
    """Also while the function runs, and without a word."""
    program = (
        "import os, signal, threading, time\n"
        "from automap.executor.workers.cpu_workers import FunctionWorker\n"
        f"from {HERE} import rows\n"
        f"worker = FunctionWorker('{HERE}:{function}', num_processes=2)\n"
        "threading.Thread(target=worker.score, args=(rows(8),), daemon=True).start()\n"
        "time.sleep(1)\n"
        "print(*[each.pid for each in worker._processes._processes], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    deadline = time.monotonic() + 10
    while any(start_ticks(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def hangs(response_tokens: list[list[int]]) -> list[float]:
    while True:
        time.sleep(1)


def test_as_many_processes_score_as_the_spec_says() -> None:
    spec = small_spec("grpo", {"actor": Place(0, 1), "reward": None}, kl="none").model_dump()

    def processes(**function: Any) -> int:
        changed = {**spec, "models": {**spec["models"], "reward": {"function": True, **function}}}
        return num_scoring_processes(JobSpec.model_validate(changed), "reward")

    assert processes() == 1
    assert processes(concurrency=4) == 4
    assert processes(seconds_per_response=0.1) == 1
    assert processes(concurrency=64) == 15  # as many as there are responses
    assert processes(seconds_per_response=0.1, concurrency=3) == 3
    rate = {"requests_per_second": 20.0, "seconds_per_response": 0.2}
    assert processes(function=False, remote=rate) == 4  # with fewer it could not ask so often
    assert processes(function=False, remote=rate | {"concurrency": 2}) == 2


def holds_the_interpreter(response_tokens: list[list[int]]) -> list[float]:
    re.match("(a+)+b", "a" * 60)
    return []


def dies_while_it_answers(response_tokens: list[list[int]]) -> list[float]:
    pipes = [fd for fd in range(3, 9) if Path(f"/proc/self/fd/{fd}").is_fifo()]
    os.write(pipes[0], pickle.dumps(([1.0] * 100, None))[:50])
    os._exit(7)


@pytest.mark.slow
def test_an_answer_that_was_torn_is_told() -> None:
    worker = FunctionWorker(f"{HERE}:dies_while_it_answers", num_processes=2)
    with pytest.raises(RewardFunctionError, match=r"responses 0 to 3 .* ended with exit code 7"):
        worker.score(rows(8))


def test_functions_come_from_files_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def reward(prompt_tokens):\n    return [sum(p) for p in prompt_tokens]\n")
    assert load_function(f"{path}:reward")([[1, 2]]) == [3]
    with pytest.raises(RewardFunctionError, match="has no function other"):
        load_function(f"{path}:other")
    path.write_text(POSTPONED)
    function = load_function(f"{path}:reward")
    assert function([[1, 2]]) == [2]
    # By value: no worker could import the file's module.
    assert b"Scale" in cloudpickle.dumps(function)
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
