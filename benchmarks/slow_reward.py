"""A reward that waits, as one does that has a sandbox run what the model wrote."""

import time
from collections.abc import Sequence

from automap.executor.tiny import tasks

SECONDS_PER_RESPONSE = 0.003


def count_token(
    prompt_tokens: Sequence[Sequence[int]],
    response_tokens: Sequence[Sequence[int]],
    answers: Sequence[str] | None = None,
) -> list[float]:
    """The tiny example's, after `SECONDS_PER_RESPONSE` for each."""
    time.sleep(SECONDS_PER_RESPONSE * len(response_tokens))
    return tasks.count_token(prompt_tokens, response_tokens, answers)
