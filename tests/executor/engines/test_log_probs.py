"""Chunked log-probabilities and entropies, against torch's log_softmax and autograd."""

import pytest
import torch
from torch import Tensor

from automap.executor.engines.log_probs import token_log_probs

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
