"""How a response is drawn, with log-probabilities as the trainer computes them.

The log-probability of a token is log_softmax(logits ÷ temperature) before top-p and top-k cut the
distribution: what a training engine's forward with the same temperature gives. Greedy responses
report the same quantity, at the run's sampling temperature.
"""

import hashlib
from collections.abc import Sequence

from torch import Tensor
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler
from vllm.v1.sample.sampler import Sampler

from automap.executor.settings import RolloutSettings


def sampling_params(
    settings: RolloutSettings,
    *,
    seed: int,
    greedy: bool,
    max_response_tokens: int,
    end_tokens: Sequence[int],
) -> SamplingParams:
    """Sampling parameters of one response, as vLLM takes them."""
    return SamplingParams(
        temperature=0.0 if greedy else settings.temperature,
        top_p=1.0 if greedy else settings.top_p,
        top_k=0 if greedy else max(settings.top_k, 0),
        seed=None if greedy else seed,
        max_tokens=max_response_tokens,
        stop_token_ids=list(end_tokens),
        logprobs=0,  # of the sampled token alone
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


class TemperedSampler(Sampler):
    """vLLM's sampler with the log-probabilities of this module.

    vLLM itself offers those at temperature 1, or those after top-p and top-k.
    """

    def __init__(self, temperature: float) -> None:
        super().__init__("processed_logprobs")
        # Its own log-probabilities are not wanted: raw lets it use the faster kernels.
        self.topk_topp_sampler = TopKTopPSampler("raw_logprobs")
        self.temperature = temperature

    def sample(
        self, logits: Tensor, sampling_metadata: SamplingMetadata, *_: object
    ) -> tuple[Tensor, Tensor | None]:
        """Sampled tokens [requests] and log-probabilities [requests, vocabulary]."""
        log_probs = self.compute_logprobs(logits / self.temperature)  # before in-place changes
        return super().sample(logits, sampling_metadata, "raw_logprobs")[0], log_probs


def response_seed(seed: int, iteration: int, prompt_id: int, response: int, epoch: int = 0) -> int:
    """A seed below 2^63 that depends on these alone, not on replica or place in the batch.

    Args:
        seed: of the run.
        iteration: that the response is generated in.
        prompt_id: of the prompt in the data.
        response: number among the prompt's responses.
        epoch: passes over the data before the one that the prompt is drawn in. An iteration that
            ends one, or draws again, has a prompt twice, and other responses to it.
    """
    text = f"{seed}/{iteration}/{prompt_id}/{response}{f'/{epoch}' if epoch else ''}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1
