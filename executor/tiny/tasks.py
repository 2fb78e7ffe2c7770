"""Verifiable tasks over bare token ids, small enough to see a policy learn on one CPU core.

Prompts are lists of token ids, so no tokenizer is needed; the rewards are reward functions as any
other. With `automap.executor.tiny.tiny_model`: `python -m automap.executor.tiny --output FOLDER`.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

TaskName = Literal["count_token", "copy"]

FIRST_SYMBOL = 32
"""Token id of the first symbol; ids below are left for beginnings, endings and padding."""


def count_token(
    prompt_tokens: Sequence[Sequence[int]],
    response_tokens: Sequence[Sequence[int]],
    answers: Sequence[str] | None = None,
) -> list[float]:
    """Share of a response's tokens that equal the prompt's last token; 0 without a response."""
    return [
        sum(token == prompt[-1] for token in response) / max(1, len(response))
        for prompt, response in zip(prompt_tokens, response_tokens, strict=True)
    ]


def copy(
    prompt_tokens: Sequence[Sequence[int]],
    response_tokens: Sequence[Sequence[int]],
    answers: Sequence[str] | None = None,
) -> list[float]:
    """Share of a prompt's tokens that stand at the same place of the response."""
    return [
        sum(wanted == given for wanted, given in zip(prompt, response, strict=False)) / len(prompt)
        for prompt, response in zip(prompt_tokens, response_tokens, strict=True)
    ]


def unknown_symbols(
    prompt_tokens: Sequence[Sequence[int]],
    response_tokens: Sequence[Sequence[int]],
    num_symbols: int = 4,
) -> list[float]:
    """A cost: share of a response's tokens that are no symbol of any prompt."""
    symbols = range(FIRST_SYMBOL, FIRST_SYMBOL + num_symbols)
    return [
        sum(token not in symbols for token in response) / max(1, len(response))
        for response in response_tokens
    ]


def write_prompts(
    path: Path,
    *,
    task: TaskName,
    num_prompts: int = 1024,
    seed: int = 0,
    num_symbols: int = 4,
    prompt_length: int | None = None,
) -> None:
    """A .jsonl file of prompts (`prompt`: token ids) with the expected symbols as `answer`.

    `count_token`: one symbol, 1 to `prompt_length` (4) times, so that lengths differ; a policy
    blind to the prompt earns 1 / `num_symbols` at best. `copy`: `prompt_length` (3) symbols.
    Token ids are below 32 + `num_symbols`.
    """
    for name, value in {"num_prompts": num_prompts, "num_symbols": num_symbols}.items():
        if value < 1:
            raise ValueError(f"{name}={value}: give at least 1")
    draw = random.Random(seed)  # nosec B311  # a task that is to be the same each time
    symbols = range(FIRST_SYMBOL, FIRST_SYMBOL + num_symbols)

    def prompt() -> list[int]:
        if task == "count_token":
            return [draw.choice(symbols)] * draw.randint(1, prompt_length or 4)
        return [draw.choice(symbols) for _ in range(prompt_length or 3)]

    with path.open("w", encoding="utf-8") as file:
        for _ in range(num_prompts):
            tokens = prompt()
            wanted = tokens[-1:] if task == "count_token" else tokens
            row = {"prompt": tokens, "answer": " ".join(map(str, wanted))}
            file.write(json.dumps(row) + "\n")
