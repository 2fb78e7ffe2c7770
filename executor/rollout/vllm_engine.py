"""A vLLM engine that lives in the processes of one generation replica."""

import gc
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PretrainedConfig

from automap.executor.batch import Batch, Column, Ragged
from automap.executor.engines.tensor_folder import TensorFolder
from automap.executor.reshard.parts import Held, of_whole
from automap.executor.rollout.environment import prepare_environment, undisturbed
from automap.executor.rollout.sampling import response_seed
from automap.executor.settings import RolloutSettings

prepare_environment()

from vllm import SamplingParams  # noqa: E402
from vllm.logprobs import FlatLogprobs  # noqa: E402
from vllm.outputs import CompletionOutput, RequestOutput  # noqa: E402

from automap.executor.rollout.engine_start import (  # noqa: E402
    CacheAtSync,
    Precision,
    start_engine,
)
from automap.executor.rollout.plain_weights import PlainWeights  # noqa: E402
from automap.executor.rollout.replica import keep_default_group  # noqa: E402
from automap.executor.rollout.sampling import TemperedSampler, sampling_params  # noqa: E402
from automap.executor.rollout.weight_loading import (  # noqa: E402
    WeightBytes,
    load_weights,
    weight_bytes,
)
from automap.executor.rollout.weight_turns import WeightTurns  # noqa: E402


class VllmEngine:
    """One rank's part of a generation replica.

    Every method is called on all ranks of the replica with the same arguments, and returns the
    same on all of them. The replicas of a world are independent: they may start, generate and
    take weights at different times, and one may have nothing to generate.
    """

    def __init__(
        self,
        model: Path | PretrainedConfig,
        *,
        ranks: Sequence[int],
        tensor_parallel_size: int | None = None,
        expert_parallel_size: int = 1,
        precision: Precision,
        rollout: RolloutSettings,
        max_model_len: int,
        kv_cache_bytes: int,
        seed: int,
        cache_at_sync: CacheAtSync | None = None,
        plain: bool = True,
    ) -> None:
        """Build the engine with room for weights, but none in it: they come by `load_weights`.

        Args:
            model: a Hugging Face folder, of which only the config is read, or a config.
            ranks: this replica's ranks of torch's default group, tensor-parallel ranks first,
                then pipeline stages.
            tensor_parallel_size: None: all the ranks.
            expert_parallel_size: 1, every expert is split over the tensor ranks, or the tensor
                size: experts lie whole on them.
            precision: of weights and cache; fp8 quantises bf16 weights as they come (GPU only).
            rollout: how it samples, and how many sequences at once.
            max_model_len: most tokens of a prompt and its response together.
            kv_cache_bytes: of the cache, on each rank.
            seed: the run's; responses depend on it, see `generate`.
            cache_at_sync: what weights that come while responses are in flight do to their cache;
                None: nothing is in flight then.
            plain: whether kernels that read weights as they are go before those that pack them,
                where there are both: for dense models on a CPU.

        Raises:
            ValueError: this process is not in `ranks`, or they do not fill the tensor groups; the
                expert size is another; the model's head_dim, or the precision, is none that vLLM
                has kernels for on CPU.
            RuntimeError: this process already has an engine.
        """
        self._rollout, self._seed, self._max_model_len = rollout, seed, max_model_len
        self.has_weights = False
        """Whether it can generate: since the last whole load, no `sleep` has taken them."""
        self._asleep: set[str] = set()
        self._cache_at_sync = cache_at_sync
        self._engine, is_plain = start_engine(
            model,
            ranks=ranks,
            tensor_parallel_size=tensor_parallel_size or len(ranks),
            expert_parallel_size=expert_parallel_size,
            precision=precision,
            rollout=rollout,
            max_model_len=max_model_len,
            kv_cache_bytes=kv_cache_bytes,
            seed=seed,
            cache_at_sync=cache_at_sync,
            plain=plain,
        )
        self._runner.sampler = TemperedSampler(rollout.temperature)
        self.plain: PlainWeights | None = None
        """Its weights, where all kernels read them as they are: of a dense model on a CPU. Kernels
        for experts pack theirs, and on a GPU sleep mode owns their memory."""
        if is_plain:
            self.plain = PlainWeights(self._runner.get_model(), self._runner.vllm_config)

    @property
    def _runner(self) -> Any:
        return self._engine.model_executor.driver_worker.worker.model_runner

    def generate(
        self,
        prompts: Batch,
        *,
        responses_per_prompt: int,
        greedy: bool = False,
        max_response_tokens: int,
        end_tokens: Sequence[int],
        iteration: int,
    ) -> Batch:
        """Responses to this replica's prompts.

        A response is drawn with a seed of its own, made of the run's seed, the iteration, the
        prompt's id and its number among that prompt's responses: which replica generates it,
        and beside which others, matters only as far as rounding does.

        Args:
            prompts: columns prompt_tokens and prompt_id; zero rows are fine.
            responses_per_prompt: drawn independently.
            greedy: the likeliest token each time.
            max_response_tokens: after which a response is cut off.
            end_tokens: any of these ends a response, and is its last token.
            iteration: of the run; other iterations draw other responses.

        Returns:
            The columns of `prompts` with each row repeated `responses_per_prompt` times on end,
            and response_tokens, response_log_probs, finished, group (unless `prompts` has it: the
            row of the prompt). Log-probabilities are of log_softmax(logits ÷ temperature), before
            top-p and top-k.

        Raises:
            RuntimeError: no weights were loaded since the start or the last `sleep`.
            ValueError: a prompt and its response could exceed `max_model_len`.
        """
        self._check_weights()
        self._check_lengths(prompts, max_response_tokens)
        if "group" not in prompts:
            prompts = prompts.with_columns(group=torch.arange(prompts.num_rows))
        rows = prompts.take(torch.arange(prompts.num_rows).repeat_interleave(responses_per_prompt))
        numbers = torch.arange(responses_per_prompt).repeat(prompts.num_rows)
        ids = zip(rows.tensor("prompt_id").tolist(), numbers.tolist(), _epochs(rows), strict=True)
        parameters = [
            sampling_params(
                self._rollout,
                seed=response_seed(self._seed, iteration, prompt_id, number, epoch),
                greedy=greedy,
                max_response_tokens=max_response_tokens,
                end_tokens=end_tokens,
            )
            for prompt_id, number, epoch in ids
        ]
        with undisturbed():
            completed = self._complete(_token_lists(rows), parameters)
        return rows.with_columns(**response_columns(completed))

    def begin(
        self,
        requests: Batch,
        *,
        greedy: bool = False,
        max_response_tokens: int,
        end_tokens: Sequence[int],
    ) -> None:
        """Have responses begun beside those in flight; `step` brings all of them on.

        Args:
            requests: columns prompt_tokens, prompt_id, request (a name, unique among those in
                flight), and what the seed is made of as by `generate`: iteration, and number among
                the prompt's responses.
            greedy: the likeliest token each time.
            max_response_tokens: after which a response is cut off.
            end_tokens: any of these ends a response, and is its last token.

        Raises:
            ValueError: a prompt and its response could exceed `max_model_len`.
        """
        self._check_lengths(requests, max_response_tokens)
        names = ("request", "prompt_id", "iteration", "number")
        numbers = zip(*(requests.tensor(name).tolist() for name in names), strict=True)
        with undisturbed():
            for tokens, (name, prompt_id, iteration, number), epoch in zip(
                _token_lists(requests), numbers, _epochs(requests), strict=True
            ):
                parameters = sampling_params(
                    self._rollout,
                    seed=response_seed(self._seed, iteration, prompt_id, number, epoch),
                    greedy=greedy,
                    max_response_tokens=max_response_tokens,
                    end_tokens=end_tokens,
                )
                self._engine.add_request(str(name), {"prompt_token_ids": tokens}, parameters)

    def step(self, num_steps: int, *, version: int) -> dict[int, CompletionOutput]:
        """Take steps while responses are in flight; those that ended, by the request's name.

        Args:
            num_steps: at most; each adds a token to every response that runs.
            version: of the weights; each response says which of them drew which tokens.

        Raises:
            RuntimeError: no weights were loaded since the start or the last `sleep`.
        """
        self._check_weights()
        self._engine.set_weight_version(str(version))
        done: dict[int, CompletionOutput] = {}
        with undisturbed():
            for _ in range(num_steps):
                if not self._engine.has_unfinished_requests():
                    break
                done |= {int(name): output for name, output in self._step()}
        return done

    def load_weights(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Take weights by Hugging Face name, each of its full shape, and forget cached prefixes.

        Responses in flight go on with them; what was cached of these is kept or computed again.

        With tensor parallelism a rank reads its own slice of each tensor and nothing else, so the
        rest may hold anything. A tensor is kept until its layer's others have come: q, k and v
        should follow each other, and so should gate and up. The weights stay where they are in
        memory. Works while asleep as far as `wake` has given the weights' memory back.

        Raises:
            ValueError: a weight of the model did not come; names them. Until all have come in
                another call, the engine does not generate.
        """
        if self.plain is not None:
            self.load_parts((name, of_whole(name, tensor)) for name, tensor in tensors)
            return
        self.has_weights = False
        load_weights(self._runner, tensors)
        self._weights_came()

    def load_parts(
        self, weights: Iterable[tuple[str, Held]], *, turns: WeightTurns | None = None
    ) -> None:
        """Take weights as `load_weights` does, in parts, straight to where they are read.

        For an engine whose weights are `plain`.

        Args:
            weights: what this rank reads of every tensor; more may hold anything.
            turns: lends the memory of training weights meanwhile; None: they stay.

        Raises:
            ValueError: a weight of the model did not come.
        """
        assert self.plain is not None, "see `plain`"
        self.has_weights = False
        if turns is not None:
            filled = turns.lend(weights)
        else:
            filled = frozenset(chain.from_iterable(self.plain.fill(*each) for each in weights))
        if missing := self.plain.missing(filled):
            raise ValueError(f"no weights came for {', '.join(missing)}")
        self._weights_came()

    def _weights_came(self) -> None:
        again = self._cache_at_sync == "recompute"
        self._engine.reset_prefix_cache(reset_running_requests=again)
        self.has_weights = True

    def weights(self) -> list[Tensor]:
        """The parameters of vLLM's model on this rank."""
        return list(self._runner.get_model().parameters())

    def load_folder(self, folder: Path) -> None:
        """Take the weights of a Hugging Face folder of safetensors."""
        stored = TensorFolder(folder)
        self.load_weights((name, stored.read(name)) for name in stored)

    def weight_bytes(self) -> WeightBytes:
        """What this rank's weights take."""
        return weight_bytes(self._runner)

    def sleep(self) -> None:
        """Give weights and cache back to the device; weights must be loaded anew afterwards.

        On a CPU nothing is given back, and the weights stay, unless `WeightTurns` has them go.
        """
        if torch.cuda.is_available() and not self._asleep:
            self._engine.sleep(level=2)
            self._asleep = {"weights", "cache"}
            self.has_weights = False

    def wake(self, part: Literal["weights", "cache"]) -> None:
        """Take memory for the weights, before `load_weights`, or the cache, before `generate`.

        In this order, so that the trainer's weights can be freed in between. Without effect on
        what is awake.
        """
        if part in self._asleep:
            self._engine.wake_up([{"weights": "weights", "cache": "kv_cache"}[part]])
            self._asleep.remove(part)

    def shutdown(self) -> None:
        """Free all that the engine holds; torch's default group stays. Collective."""
        with keep_default_group():
            self._engine.engine_core.shutdown()
        del self._engine
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _complete(
        self, prompts: Sequence[list[int]], parameters: Sequence[SamplingParams]
    ) -> list[CompletionOutput]:
        """Run all requests to their ends; if one fails, none is left in the engine."""
        done: dict[str, CompletionOutput] = {}
        names = [str(index) for index in range(len(prompts))]
        try:
            for name, tokens, one in zip(names, prompts, parameters, strict=True):
                self._engine.add_request(name, {"prompt_token_ids": tokens}, one)
            while self._engine.has_unfinished_requests():
                done |= dict(self._step())
        except BaseException:
            self._engine.abort_request(names)
            raise
        return [done[name] for name in names]

    def _step(self) -> Iterator[tuple[str, CompletionOutput]]:
        for output in self._engine.step():
            if isinstance(output, RequestOutput) and output.finished:
                yield output.request_id, output.outputs[0]

    def _check_weights(self) -> None:
        if not self.has_weights:
            raise RuntimeError("generate needs weights: call load_weights or load_folder first")

    def _check_lengths(self, prompts: Batch, max_response_tokens: int) -> None:
        lengths = prompts.ragged("prompt_tokens").lengths
        longest = int(lengths.max()) if len(lengths) else 0
        if longest + max_response_tokens > self._max_model_len:
            prompt_id = int(prompts.tensor("prompt_id")[lengths.argmax()])
            raise ValueError(
                f"prompt {prompt_id} has {longest} tokens; with max_response_tokens "
                f"{max_response_tokens} that exceeds max_model_len {self._max_model_len}"
            )


def _token_lists(rows: Batch) -> list[list[int]]:
    prompts = rows.ragged("prompt_tokens")
    return [] if not rows.num_rows else [tokens.tolist() for tokens in prompts.rows()]


def _epochs(rows: Batch) -> list[int]:
    """Passes over the data before each row's prompt was drawn."""
    if "prompt_epoch" not in rows:
        return [0] * rows.num_rows
    found: list[int] = rows.tensor("prompt_epoch").tolist()
    return found


def response_columns(completions: Sequence[CompletionOutput]) -> dict[str, Column]:
    """The columns response_tokens, response_log_probs and finished."""
    tokens = [list(each.token_ids) for each in completions]
    log_probs = [_log_probs(each) for each in completions]
    lengths = torch.tensor([len(each) for each in tokens], dtype=torch.int64)
    return {
        "response_tokens": Ragged(torch.tensor(list(chain(*tokens)), dtype=torch.int64), lengths),
        "response_log_probs": Ragged(
            torch.tensor(list(chain(*log_probs)), dtype=torch.float32), lengths
        ),
        "finished": torch.tensor(
            [each.finish_reason == "stop" for each in completions], dtype=torch.bool
        ),
    }


def _log_probs(completion: CompletionOutput) -> list[float]:
    """Log probabilities of the sampled tokens: the only ones asked for, one per position."""
    flat = completion.logprobs
    assert isinstance(flat, FlatLogprobs)
    return flat.logprobs
