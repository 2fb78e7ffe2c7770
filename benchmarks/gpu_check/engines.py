"""A training engine and vLLM in turns on one device, in bf16: they must agree after every step."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.distributed as dist

from automap.executor.algorithms.losses import PolicyLoss
from automap.executor.batch import Batch, Ragged
from automap.executor.engines.random_model import config_of
from automap.executor.layout import GenerationLayout, RankLayout
from automap.executor.reshard.transition import (
    Transition,
    data_parallel_transition,
    model_parallel_transition,
)
from automap.executor.settings import OptimizerSettings, RolloutSettings, TrainingSettings
from benchmarks.gpu_check.findings import Figures, NotRunError
from benchmarks.loop.jobs import SIZES

PROMPTS, PROMPT_TOKENS = 16, 64
RESPONSE_TOKENS = {"cuda": 256, "cpu": 16}
CACHE_BYTES = {"cuda": 4 << 30, "cpu": 32 << 20}
ROUNDS = 3
MEAN_ERROR = 0.02
"""In nats, over tokens, between two implementations of a model in bf16. Yao et al. 2025 ("On the
rollout-training mismatch in modern RL systems") see means of this order."""
FP8_MEAN_ERROR = 0.2
"""Weights of 3 bits of mantissa; a wrong scale gives whole nats."""
CHANGE = 1e-3
"""Least mean change of log-probabilities by one step at a learning rate of 10⁻³: else the weights
that vLLM has are still the old ones."""


def megatron(device: torch.device, figures: Figures) -> None:
    """Megatron-core trains, vLLM generates."""
    with _world(device):
        _alternate("megatron", device, figures)


def fsdp(device: torch.device, figures: Figures) -> None:
    """FSDP2 trains, vLLM generates; the trainer's state waits on the host meanwhile."""
    with _world(device):
        _alternate("fsdp", device, figures, offload=True)


def fp8(device: torch.device, figures: Figures) -> None:
    """vLLM quantises bf16 weights to 8 bits as they come.

    Raises:
        NotRunError: on CPU cores, where vLLM has no kernels for it.
    """
    if device.type != "cuda":
        raise NotRunError("vLLM has kernels of 8 bits on GPUs alone")
    with _world(device):
        _alternate("fsdp", device, figures, precision="fp8", rounds=1, mean_error=FP8_MEAN_ERROR)


def _alternate(
    trainer: Literal["megatron", "fsdp"],
    device: torch.device,
    figures: Figures,
    *,
    precision: Literal["bf16", "fp8"] = "bf16",
    offload: bool = False,
    rounds: int = ROUNDS,
    mean_error: float = MEAN_ERROR,
) -> None:
    """Generate, score what was generated with the trainer, train on it, and again."""
    from automap.executor.rollout.vllm_engine import VllmEngine

    config = config_of(SIZES[device.type].architecture)
    engine, transition = _trainer(trainer, config)
    vllm = VllmEngine(
        config,
        ranks=[0],
        precision=precision,
        rollout=RolloutSettings(max_running_sequences=PROMPTS),
        max_model_len=PROMPT_TOKENS + RESPONSE_TOKENS[device.type],
        kv_cache_bytes=CACHE_BYTES[device.type],
        seed=3,
    )
    awake = _free_bytes(device)
    vllm.sleep()
    least = 0.9 * CACHE_BYTES["cuda"] / 1e9 if device.type == "cuda" else None
    given_back = (_free_bytes(device) - awake) / 1e9
    figures.add("memory that vLLM gives back asleep", given_back, "GB", at_least=least)
    errors, worst, load_seconds, tokens_per_second = [], [], [], []
    for number in range(rounds):
        load_seconds.append(_to_generation(engine, vllm, transition, offload=offload))
        began = time.perf_counter()
        rows = _generated(vllm, config.vocab_size, device, iteration=number)
        generated = len(rows.ragged("response_tokens").values)
        tokens_per_second.append(generated / (time.perf_counter() - began))
        if number == 0:
            figures.add(
                "tokens that differ after sleep, wake and the same weights",
                _differing(engine, vllm, transition, rows, device, offload=offload),
                at_most=0 if precision == "bf16" else None,
            )
        vllm.sleep()
        engine.reload()
        before = engine.forward(rows, "log_probs").ragged("log_probs").values
        difference = (before - rows.ragged("response_log_probs").values).abs()
        errors.append(float(difference.mean()))
        worst.append(float(difference.max()))
        changed = _trained(engine, rows, before)
        what = f"step {number + 1}: mean change of log-probabilities"
        figures.add(what, changed, "nats", at_least=CHANGE)
    what = "log-probabilities, vLLM and trainer"
    figures.add(f"{what}: mean difference", max(errors), "nats", at_most=mean_error)
    figures.add(f"{what}: greatest difference", max(worst), "nats")
    figures.add("weights into vLLM, first", load_seconds[0], "s")
    figures.add("weights into vLLM, last", load_seconds[-1], "s")
    figures.add("generation, last", tokens_per_second[-1], "tokens/s")
    vllm.shutdown()


def _trainer(kind: Literal["megatron", "fsdp"], config: Any) -> tuple[Any, Transition]:
    """A training engine on this one rank, and how its weights come to a rollout."""
    common: dict[str, Any] = {
        "layout": RankLayout(),
        "precision": "bf16",
        "training": TrainingSettings(optimizer=OptimizerSettings(learning_rate=1e-3)),
        "seed": 5,
    }
    engine: Any
    if kind == "megatron":
        from automap.executor.engines.megatron import MegatronEngine

        engine = MegatronEngine(config, **common)
    else:
        from automap.executor.engines.fsdp import FsdpEngine

        engine = FsdpEngine(config, **common)
    from automap.executor.reshard.parts import Target
    from automap.executor.rollout.vllm_rollout import pieces_of

    pieces, heads = pieces_of(engine, tensor_rank=0), config.num_key_value_heads
    if kind == "megatron":
        generation = GenerationLayout(common["layout"], 1)
        return engine, model_parallel_transition(
            pieces, generation, num_key_value_heads=heads, dtype=torch.bfloat16
        )
    everyone = dist.group.WORLD
    assert everyone is not None
    return engine, data_parallel_transition(
        pieces, everyone, Target(0, 1, heads), dtype=torch.bfloat16
    )


def _to_generation(engine: Any, vllm: Any, transition: Transition, *, offload: bool) -> float:
    """Seconds until vLLM has the trainer's weights and its cache."""
    began = time.perf_counter()
    engine.offload("optimizer")
    vllm.wake("weights")
    vllm.load_weights(transition.tensors())
    if offload:
        engine.offload("weights")
    vllm.wake("cache")
    return time.perf_counter() - began


def _differing(
    engine: Any,
    vllm: Any,
    transition: Transition,
    rows: Batch,
    device: torch.device,
    *,
    offload: bool,
) -> int:
    """Greedy tokens that are others when vLLM has slept and has the same weights anew."""
    before = _greedy(vllm, rows, device)
    vllm.sleep()
    engine.reload()
    _to_generation(engine, vllm, transition, offload=offload)
    return int((before != _greedy(vllm, rows, device)).sum())


def _greedy(vllm: Any, rows: Batch, device: torch.device) -> torch.Tensor:
    prompts = Batch({name: rows[name] for name in ("prompt_tokens", "prompt_id")})
    answers = vllm.generate(
        prompts,
        responses_per_prompt=1,
        greedy=True,
        max_response_tokens=RESPONSE_TOKENS[device.type],
        end_tokens=[],
        iteration=0,
    )
    values: torch.Tensor = answers.ragged("response_tokens").values
    return values


def _generated(vllm: Any, vocab_size: int, device: torch.device, *, iteration: int) -> Batch:
    generator = torch.Generator().manual_seed(iteration)
    tokens = torch.randint(2, vocab_size, (PROMPTS * PROMPT_TOKENS,), generator=generator)
    prompts = Batch(
        {
            "prompt_tokens": Ragged(tokens, torch.full((PROMPTS,), PROMPT_TOKENS)),
            "prompt_id": torch.arange(PROMPTS),
        }
    )
    rows: Batch = vllm.generate(
        prompts,
        responses_per_prompt=1,
        max_response_tokens=RESPONSE_TOKENS[device.type],
        end_tokens=[],
        iteration=iteration,
    )
    return rows


def _trained(engine: Any, rows: Batch, before: torch.Tensor) -> float:
    """Mean change of the rows' log-probabilities by one step that makes them likelier."""
    advantages = rows.ragged("response_log_probs").with_values(torch.ones(len(before)))
    loss = PolicyLoss(aggregate="token_mean", clip=None)
    engine.train_step(
        rows.with_columns(advantages=advantages, weight=torch.ones(rows.num_rows)), loss
    )
    after = engine.forward(rows, "log_probs").ragged("log_probs").values
    return float((after - before).abs().mean())


def _free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0


@contextmanager
def _world(device: torch.device) -> Iterator[None]:
    """A world of this process alone, as a worker's."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
