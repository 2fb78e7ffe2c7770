"""The loop of every program here: a case per line of standard input, a verdict per line."""

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any


def answer_cases(
    verdict_on: Callable[[dict[str, Any]], dict[str, Any]],
    described: Callable[[], dict[str, Any]] | None = None,
) -> None:
    """Judge each case; one with `described` asks for the framework's own keys or arguments."""
    answers = sys.stdout
    for line in sys.stdin:
        case = json.loads(line)
        with contextlib.redirect_stdout(sys.stderr):
            asked = described if described and case.get("described") else None
            verdict = asked() if asked else verdict_on(case)
        answers.write(json.dumps({"id": case["id"], **verdict}, default=str) + "\n")
        answers.flush()
