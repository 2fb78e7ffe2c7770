"""Reward functions, and processes that score parts of a batch at the same time.

A scoring process imports the function's module and nothing else of a run: neither torch nor Ray.
It is `python -m` this module with PATH, and reads parts from its standard input. It ends
with that, and on Linux by a signal as well: none outlives the worker that started it.
With `--check PATH [KEYWORD ...]` it only says whether the function can be called with these.
"""

import contextlib
import ctypes
import difflib
import inspect
import json
import math
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from automap.executor.folders import NotAllowedError, opened_code
from automap.planner.dataflow import load_module

Arguments = Mapping[str, Sequence[object]]
"""Keyword → one item per response."""
Answer = tuple[list[float], str | None]
"""Scores, or what went wrong; the first one says that the function is there."""

_PR_SET_PDEATHSIG = 1
_CHECK = "--check"
_MOST_NAMES = 10
"""Functions that a module is said to have in place of one that it lacks."""


class RewardFunctionError(Exception):
    """A reward function cannot be found, raised, or returned no scores."""


class ScoringProcesses:
    """So many processes that have a function each; they end when this process does."""

    def __init__(self, path: str, count: int) -> None:
        """Start them, and wait until all have the function; `path` as of `load_function`.

        Raises:
            RewardFunctionError: one cannot import it.
        """
        self._path = path

        def start(_: int) -> "subprocess.Popen[bytes]":
            return subprocess.Popen(
                [sys.executable, "-m", __name__, path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=_environment(),
            )

        self._threads = ThreadPoolExecutor(count)
        # By these threads, which stay: to Linux the parent that dies is the thread.
        self._processes = list(self._threads.map(start, range(count)))
        for process in self._processes:
            self._answer(process, "should find the function")

    def __len__(self) -> int:
        return len(self._processes)

    def score(self, arguments: Arguments, ranges: Sequence[tuple[int, int]]) -> list[float]:
        """The scores of all rows, in order; each process scores one of the ranges of rows.

        Raises:
            RewardFunctionError: of the first range that failed; names its rows.
        """
        parts = self._threads.map(
            lambda process, rows: self._part(process, arguments, *rows),
            self._processes[: len(ranges)],
            ranges,
        )
        return [score for part in parts for score in part]

    def _part(
        self, process: "subprocess.Popen[bytes]", arguments: Arguments, start: int, stop: int
    ) -> list[float]:
        assert process.stdin is not None
        part = {name: values[start:stop] for name, values in arguments.items()}
        place = f"responses {start} to {stop - 1} of the batch"
        # A process that has died says so when its answer is read.
        with contextlib.suppress(OSError):
            pickle.dump((part, stop - start), process.stdin)
            process.stdin.flush()
        scores, error = self._answer(process, f"scored {place}")
        if error is not None:
            raise RewardFunctionError(f"{error}; in {place}")
        return scores

    def _answer(self, process: "subprocess.Popen[bytes]", did: str) -> Answer:
        assert process.stdout is not None
        try:
            scores, error = pickle.load(process.stdout)  # nosec B301  # of our child
        except (EOFError, OSError, pickle.UnpicklingError) as gone:
            code = process.wait()
            raise RewardFunctionError(
                f"{self._path}: the process that {did} ended with exit code {code}"
            ) from gone
        return scores, error


def score_rows(
    function: Callable[..., Any], path: str, arguments: Arguments, num_rows: int
) -> list[float]:
    """What the function returns for these rows: one finite number for each.

    Raises:
        RewardFunctionError: it raised, or returned something else.
    """
    try:
        scores = function(**arguments)
    except Exception as error:
        raise RewardFunctionError(f"{path} raised {type(error).__name__}: {error}") from error
    try:
        values = [float(score) for score in scores]
    except (TypeError, ValueError) as error:
        raise RewardFunctionError(f"{path} returned no list of numbers: {error}") from error
    if len(values) != num_rows:
        raise RewardFunctionError(f"{path} returned {len(values)} scores for {num_rows} responses")
    bad = [row for row, value in enumerate(values) if not math.isfinite(value)]
    if bad:
        raise RewardFunctionError(
            f"{path} returned {values[bad[0]]} for response {bad[0]}; scores are finite"
        )
    return values


def load_function(path: str) -> Callable[..., Sequence[float]]:
    """The function that `module:function` or `file.py:function` names.

    Raises:
        RewardFunctionError: no such file, module or function.
    """
    place, colon, name = path.rpartition(":")
    if not colon or not place or not name:
        raise RewardFunctionError(f"{path!r} must be module:function or file.py:function")
    try:
        place = opened_code(path, field="functions").rpartition(":")[0]
    except NotAllowedError as error:
        raise RewardFunctionError(str(error)) from error
    try:
        module = load_module(place)
    except Exception as error:
        raise RewardFunctionError(
            f"{path}: cannot import {place}: {type(error).__name__}: {error}{_to_be_found(error)}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        there = [each for each, value in vars(module).items() if inspect.isfunction(value)]
        raise RewardFunctionError(
            f"{path}: {place} has no function {name}{_has_instead(there, name)}"
        )
    return function  # type: ignore[no-any-return]


def _to_be_found(error: Exception) -> str:
    if not isinstance(error, (ModuleNotFoundError, FileNotFoundError)):
        return ""
    return "; give a module on the Python path, or a file.py that exists where the run is"


def _has_instead(functions: Sequence[str], name: str) -> str:
    """What else a module has, the closest name first; empty where it has nothing."""
    public = [each for each in functions if not each.startswith("_")]
    near = difflib.get_close_matches(name, public, n=3)
    listed = list(dict.fromkeys([*near, *public]))[:_MOST_NAMES]
    return f"; it has {', '.join(listed)}" if listed else ""


def need_keywords(function: Callable[..., Any], path: str, available: Sequence[str]) -> None:
    """Refuse a function that wants what it is not given.

    Raises:
        RewardFunctionError: names what it wants and what there is.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise RewardFunctionError(f"{path}: its parameters cannot be seen: {error}") from error
    needed = {name: each for name, each in parameters.items() if each.default is each.empty}
    unnamed = [name for name, each in needed.items() if each.kind is each.POSITIONAL_ONLY]
    if unnamed:
        raise RewardFunctionError(
            f"{path} takes {', '.join(unnamed)} by position alone; it is called with keywords"
        )
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    missing = [
        name for name, each in needed.items() if each.kind in by_keyword and name not in available
    ]
    if missing:
        raise RewardFunctionError(
            f"{path} wants {', '.join(missing)}; there are {', '.join(available)}. "
            "answers need data.answer_column, prompts and responses need data.tokenizer"
        )


def check_function(path: str, keywords: Sequence[str] | None, *, timeout_seconds: float) -> None:
    """Find a function as the processes that score do, in one that ends with that.

    Args:
        path: As of `load_function`.
        keywords: What it will be called with; None: only its program knows.
        timeout_seconds: For the import of its module.

    Raises:
        RewardFunctionError: it cannot be found, or wants other keywords.
    """
    command = [sys.executable, "-m", __name__, _CHECK, path, *(keywords or ())]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=_environment(),
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RewardFunctionError(
            f"{path}: its module was not imported within {timeout_seconds:g} s"
        ) from None
    try:
        error = json.loads(done.stdout)
    except ValueError:
        raise RewardFunctionError(
            f"{path}: the process that imported it ended with exit code {done.returncode}"
        ) from None
    if error is not None:
        raise RewardFunctionError(error)


def _environment() -> dict[str, str]:
    """Variables of a process that can import what this one can."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _check(path: str, keywords: Sequence[str]) -> None:
    """Say what is wrong with a function, or null, and end, whatever its module has started."""
    answers = _answers()
    error: str | None = None
    try:
        function = load_function(path)
        if keywords:
            need_keywords(function, path, keywords)
    except RewardFunctionError as wrong:
        error = str(wrong)
    answers.write(json.dumps(error).encode())
    answers.flush()
    os._exit(0)


def _answers() -> IO[bytes]:
    """The standard output; what a function prints goes to the standard error from here on."""
    if sys.platform == "linux":
        # A function that never lets go of the interpreter, such as a regular expression's search,
        # keeps `_receive` from seeing the end.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _serve(path: str) -> None:
    """Score what comes."""
    answers = _answers()
    parts: queue.Queue[tuple[Arguments, int]] = queue.Queue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, parts), daemon=True).start()
    function = load_function(path)
    answer: Answer = [], None
    while True:
        pickle.dump(answer, answers)
        answers.flush()
        arguments, num_rows = parts.get()
        try:
            answer = score_rows(function, path, arguments, num_rows), None
        except RewardFunctionError as error:
            answer = [], str(error)


def _receive(stream: IO[bytes], parts: "queue.Queue[tuple[Arguments, int]]") -> None:
    """Parts as they come; at their end so does the process, whatever the function is doing."""
    try:
        while True:
            parts.put(pickle.load(stream))  # nosec B301  # of our parent
    except (EOFError, OSError):
        os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == _CHECK:
        _check(sys.argv[2], sys.argv[3:])
    _serve(sys.argv[1])
