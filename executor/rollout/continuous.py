"""Responses that stay in a vLLM engine from one turn to the next; weights may come in between."""

from collections.abc import Sequence

import torch
from vllm.outputs import CompletionOutput

from automap.executor.batch import Batch, Ragged, concatenate
from automap.executor.rollout.vllm_engine import VllmEngine, response_columns


class InFlight:
    """What one generation replica has begun and not finished."""

    def __init__(
        self, vllm: VllmEngine, *, max_response_tokens: int, end_tokens: Sequence[int]
    ) -> None:
        """Nothing is in flight."""
        self._vllm = vllm
        self._max_response_tokens = max_response_tokens
        self._end_tokens = end_tokens
        self._rows: dict[int, Batch] = {}

    def turn(
        self, requests: Batch | None, *, version: int, num_steps: int, greedy: bool = False
    ) -> Batch | None:
        """Begin responses, take steps of the engine, and hand out what has ended.

        Args:
            requests: see `VllmEngine.begin`; None: no more.
            version: of the engine's weights; never falls.
            num_steps: at most.
            greedy: what is begun takes the likeliest token each time.

        Returns:
            Rows of `requests` of this and earlier turns, in the order of their ends, with
            response_tokens, response_log_probs, finished, token_versions (ragged int64, of each
            response token) and weights_version (int64, of the first); None: none has ended.
        """
        if requests is not None:
            self._vllm.begin(
                requests,
                greedy=greedy,
                max_response_tokens=self._max_response_tokens,
                end_tokens=self._end_tokens,
            )
            for place, name in enumerate(requests.tensor("request").tolist()):
                self._rows[name] = requests.slice(place, place + 1)
        done = self._vllm.step(num_steps, version=version)
        if not done:
            return None
        rows = concatenate([self._rows.pop(name) for name in done])
        outputs = list(done.values())
        versions = [_versions(output) for output in outputs]
        return rows.with_columns(
            **response_columns(outputs),
            token_versions=Ragged.of([torch.tensor(each) for each in versions]),
            weights_version=torch.tensor([each[0] for each in versions]),
        )


def _versions(output: CompletionOutput) -> list[int]:
    """Versions of the weights that drew each token, as vLLM noted them."""
    assert output.weight_versions is not None, "every step had a version"
    return [
        int(span.version) for span in output.weight_versions for _ in range(span.start, span.end)
    ]
