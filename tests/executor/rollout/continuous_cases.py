"""Responses in flight while weights come: each token's version, and its log-probability."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from automap.executor.batch import Batch
from automap.executor.settings import RolloutSettings
from tests.executor.ranks import Case
from tests.executor.rollout.rollout_cases import (
    TOLERANCE,
    engine_of,
    prompts_of,
    rows_of,
    tiny_config,
    tiny_model,
)

LONGEST, END_TOKENS = 14, range(40, 60)
SETTINGS = RolloutSettings(temperature=0.9, max_running_sequences=5)
"""Eight requests, so that three wait for others to end."""


def requests() -> Batch:
    """Two of each prompt."""
    rows = prompts_of().take([0, 0, 1, 1, 2, 2, 3, 3])
    numbers = torch.arange(8)
    return rows.with_columns(
        request=numbers + 70, iteration=torch.full((8,), 4), number=numbers % 2
    )


def weights_come_in_flight(folder: Path, *, cache: str, tensor: int) -> None:
    """Three versions, a few steps of each; the last until all have ended."""
    from automap.executor.rollout.continuous import InFlight

    rank = dist.get_rank()
    models = [tiny_model(tiny_config(), seed=seed) for seed in (1, 2, 3)]
    ranks = list(range(tensor)) if tensor > 1 else [rank]
    with engine_of(tiny_config(), ranks, SETTINGS, cache_at_sync=cache) as engine:
        in_flight = InFlight(engine, max_response_tokens=LONGEST, end_tokens=END_TOKENS)
        with pytest.raises(RuntimeError, match="needs weights"):
            in_flight.turn(None, version=0, num_steps=1)
        found: list[Batch] = []
        given: Batch | None = requests()
        for version, (model, num_steps) in enumerate(zip(models, (4, 5, 1000), strict=True)):
            engine.load_weights(model.state_dict().items())
            rows = in_flight.turn(given, version=version, num_steps=num_steps)
            given = None
            found += [] if rows is None else [rows]
        assert in_flight.turn(None, version=3, num_steps=1000) is None
        assert sorted(int(each) for rows in found for each in rows.tensor("request")) == list(
            range(70, 78)
        )
        versions = [row.tolist() for rows in found for row in rows.ragged("token_versions").rows()]
        assert all(row == sorted(row) for row in versions)
        assert {len(set(row)) for row in versions} >= {1, 2, 3}, versions
        assert {row[0] for row in versions} >= {0, 1}, "those that waited began later"
        for rows in found:
            check_rows(rows, models, cache=cache)
        # Weights that come while nothing is in flight, and the same requests: as `generate`.
        engine.load_weights(models[0].state_dict().items())
        (again,) = turns(in_flight, requests())
        options: dict[str, Any] = {
            "max_response_tokens": LONGEST,
            "end_tokens": END_TOKENS,
            "iteration": 4,
        }
        alone = engine.generate(prompts_of(), responses_per_prompt=2, **options)
        in_order = again.take(again.tensor("request").argsort())
        assert rows_of(in_order) == rows_of(alone)


def turns(in_flight: object, given: Batch) -> Iterator[Batch]:
    rows = in_flight.turn(given, version=3, num_steps=1000)  # type: ignore[attr-defined]
    if rows is not None:
        yield rows


def check_rows(rows: Batch, models: list[PreTrainedModel], *, cache: str) -> None:
    """Each token's log-probability is that of the weights that drew it, with the cache it read."""
    names = ("prompt_tokens", "response_tokens", "response_log_probs", "token_versions")
    first = rows.tensor("weights_version").tolist()
    columns = (rows.ragged(name).rows() for name in names)
    for place, (prompt, response, found, versions) in enumerate(zip(*columns, strict=True)):
        assert first[place] == versions[0]
        assert len(response) == LONGEST or int(response[-1]) in END_TOKENS
        wanted = expected(models, prompt, response, versions, fresh=cache == "recompute")
        assert (wanted - found).abs().max() < TOLERANCE
        other = expected(models, prompt, response, versions, fresh=cache == "keep")
        if versions[0] != versions[-1]:
            assert (other - found).abs().max() > 30 * TOLERANCE, "the two are told apart"


@torch.no_grad()
def expected(
    models: list[PreTrainedModel],
    prompt: Tensor,
    response: Tensor,
    versions: Tensor,
    *,
    fresh: bool,
) -> Tensor:
    """[response tokens]; with a fresh cache of each version, or what the older ones computed."""
    sequence, cache, found = torch.cat([prompt, response]), DynamicCache(), []
    for version in versions.unique().tolist():
        first, last = (versions == version).nonzero().flatten()[[0, -1]].tolist()
        if fresh:
            cache = DynamicCache()
        start, stop = cache.get_seq_length(), len(prompt) + last
        logits = models[version](sequence[None, start:stop], past_key_values=cache).logits[0]
        drawn = logits[len(prompt) - 1 + first - start :] / SETTINGS.temperature
        chosen = response[first : last + 1, None]
        found.append(drawn.log_softmax(-1).gather(1, chosen)[:, 0])
    return torch.cat(found)


def _in_flight(cache: str, tensor: int) -> dict[str, Case]:
    name = f"{cache}, {tensor} tensor ranks"
    return {name: partial(weights_come_in_flight, cache=cache, tensor=tensor)}


ON_TWO: dict[str, Case] = _in_flight("keep", 1) | _in_flight("recompute", 2)
MORE_ON_TWO: dict[str, Case] = _in_flight("recompute", 1)
