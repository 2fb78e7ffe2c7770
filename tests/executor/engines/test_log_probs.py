"""Chunked log-probabilities and entropies, against torch's log_softmax and autograd."""

import json
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from automap.executor.engines.log_probs import CHUNK_BYTES, token_log_probs
from automap.planner.cost.stacks import STACKS
from automap.planner.spec import TrainingStack

TOKENS, HIDDEN, VOCABULARY, TEMPERATURE = 11, 16, 37, 0.7


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(TOKENS, HIDDEN, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(VOCABULARY, HIDDEN, generator=generator).to(dtype).requires_grad_()
    return hidden, weight, torch.randint(VOCABULARY, (TOKENS,), generator=generator)


def plain(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    log_p = torch.log_softmax((hidden @ weight.T).double() / TEMPERATURE, dim=-1)
    return log_p.gather(1, targets[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)


def objective(log_probs: Tensor, entropy: Tensor | None) -> Tensor:
    """Uses every output with another factor, so that no error cancels."""
    factors = torch.linspace(-1.0, 2.0, TOKENS)
    total = (factors * log_probs).sum()
    return total if entropy is None else total + (factors.flip(0) * entropy).sum()


@pytest.mark.parametrize("chunk_tokens", [1, 4, TOKENS, 100])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_values_and_gradients_equal_autograd(chunk_tokens: int, with_entropy: bool) -> None:
    hidden, weight, targets = inputs()
    got = token_log_probs(
        hidden,
        weight,
        targets,
        temperature=TEMPERATURE,
        with_entropy=with_entropy,
        chunk_tokens=chunk_tokens,
    )
    expected = plain(hidden, weight, targets)
    torch.testing.assert_close(got[0].double(), expected[0], rtol=1e-5, atol=1e-5)
    if with_entropy:
        assert got[1] is not None
        torch.testing.assert_close(got[1].double(), expected[1], rtol=1e-5, atol=1e-5)
    else:
        assert got[1] is None
    own = torch.autograd.grad(objective(*got), (hidden, weight))
    theirs = torch.autograd.grad(
        objective(expected[0], expected[1] if with_entropy else None), (hidden, weight)
    )
    for one, other in zip(own, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_bf16_inputs_give_fp32_results_and_bf16_gradients() -> None:
    hidden, weight, targets = inputs(torch.bfloat16)
    log_probs, entropy = token_log_probs(
        hidden, weight, targets, temperature=TEMPERATURE, with_entropy=True
    )
    assert entropy is not None
    expected = plain(hidden, weight, targets)
    torch.testing.assert_close(log_probs.double(), expected[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy.double(), expected[1], rtol=1e-5, atol=1e-5)
    gradient = torch.autograd.grad(objective(log_probs, entropy), weight)[0]
    assert gradient.dtype == torch.bfloat16
    theirs = torch.autograd.grad(objective(*expected), weight)[0]
    # Rounded once per product to 8 bits.
    torch.testing.assert_close(gradient, theirs, rtol=2e-2, atol=5e-2)


def test_a_frozen_weight_gets_no_gradient() -> None:
    hidden, weight, targets = inputs()
    weight.requires_grad_(False)
    log_probs, _ = token_log_probs(hidden, weight, targets)
    log_probs.sum().backward()
    assert weight.grad is None
    assert hidden.grad is not None


def test_no_tokens() -> None:
    hidden, weight, targets = inputs()
    log_probs, entropy = token_log_probs(hidden[:0], weight, targets[:0], with_entropy=True)
    assert entropy is not None
    (log_probs.sum() + entropy.sum()).backward()
    assert weight.grad is not None
    assert not weight.grad.any()


def test_full_logits_never_exist() -> None:
    """The largest tensor made is the chunk's, forward and backward."""
    hidden, weight, targets = inputs()
    sizes: list[int] = []

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                sizes.append(result.numel())
            return result

    with Sizes():
        log_probs, _ = token_log_probs(hidden, weight, targets, chunk_tokens=2)
        log_probs.sum().backward()
    assert max(sizes) <= max(weight.numel(), 2 * VOCABULARY)


@pytest.mark.parametrize("stack", ["automap-megatron", "automap-fsdp"])
def test_the_planner_prices_the_chunk_that_the_executor_has(stack: TrainingStack) -> None:
    assert STACKS[stack].memory.logit_chunk_bytes == CHUNK_BYTES


@pytest.mark.parametrize(
    ("trains", "with_entropy", "priced"),
    [
        (False, False, "scored_logit_bytes"),
        (True, False, "logit_bytes"),
        (True, True, None),
    ],
)
def test_the_peak_of_a_chunk_is_what_the_planner_prices(
    trains: bool, with_entropy: bool, priced: str | None, tmp_path: Path
) -> None:
    """An entropy bonus, of which the planner knows nothing, takes 20 bytes per logit."""
    rows, width, chunk = 20_000, 2, 32
    hidden = torch.randn(4 * chunk, width).bfloat16().requires_grad_(trains)
    weight = torch.randn(rows, width).bfloat16().requires_grad_(trains)
    targets = torch.zeros(len(hidden), dtype=torch.int64)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        log_probs, entropy = token_log_probs(
            hidden, weight, targets, with_entropy=with_entropy, chunk_tokens=chunk
        )
        if trains:
            (log_probs.sum() if entropy is None else (log_probs + entropy).sum()).backward()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    changes = sorted(
        (each["ts"], each["args"]["Bytes"]) for each in events if each["name"] == "[memory]"
    )
    peak = max(accumulate(change for _, change in changes))
    # Beside the logits there is the sum of the weight's gradient.
    peak -= 4 * rows * width if trains else 0
    expected = 20 if priced is None else getattr(STACKS["automap-fsdp"].memory, priced)
    assert peak / (rows * chunk) == pytest.approx(expected, rel=0.01)
