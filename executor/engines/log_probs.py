"""Log-probabilities and entropies of tokens straight from hidden states, a few tokens at a time."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_BYTES = 256 * 2**20
"""Bytes of fp32 logits that exist at once. Chosen: some 500 tokens of a vocabulary of 128,000."""


def token_log_probs(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    with_entropy: bool = False,
    group: dist.ProcessGroup | None = None,
    chunk_tokens: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The targets' log softmax(hidden · weightᵀ ÷ temperature), and the entropies if wanted.

    Logits are made in the dtype of `hidden` and turned to fp32; forward and backward each make
    those of one chunk of tokens at a time.

    Args:
        hidden: [tokens, hidden].
        weight: [vocabulary, hidden]; with a group, this rank's equal part of the rows.
        targets: [tokens] int64, over the whole vocabulary.
        temperature: divides the logits.
        with_entropy: also return −Σ p·log p of every distribution.
        group: tensor-parallel ranks, which hold the vocabulary in the order of their ranks and
            the same `hidden` and `targets`.
        chunk_tokens: tokens per chunk; None: what fits in CHUNK_BYTES.

    Returns:
        Two tensors [tokens] float32, the same on all ranks of the group; None for no entropy.
    """
    if chunk_tokens is None:
        chunk_tokens = max(CHUNK_BYTES // (4 * len(weight)), 1)
    log_probs, entropy = _TokenLogProbs.apply(
        hidden, weight, targets, temperature, with_entropy, group, chunk_tokens
    )
    return log_probs, entropy if with_entropy else None


class _TokenLogProbs(torch.autograd.Function):
    """Backward makes the logits again and uses two known derivatives.

    With z = logits ÷ T, p = softmax(z), H the entropy and y the target:
    ∂ log p_y ÷ ∂z = onehot(y) − p, and ∂H ÷ ∂z = −p·(log p + H).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        temperature: float,
        with_entropy: bool,
        group: dist.ProcessGroup | None,
        chunk_tokens: int,
    ) -> tuple[Tensor, Tensor]:
        rank = 0 if group is None else dist.get_rank(group)
        local = targets - rank * len(weight)
        picked, normaliser, entropy = (
            torch.zeros(len(hidden), dtype=torch.float32, device=hidden.device) for _ in range(3)
        )
        for part in _chunks(len(hidden), chunk_tokens):
            logits = _logits(hidden[part], weight, temperature)
            normaliser[part] = _log_sum_exp(logits, group)
            picked[part] = _pick(logits, local[part])
            if with_entropy:
                log_p = logits - normaliser[part, None]
                entropy[part] = -(log_p.exp() * log_p).sum(dim=-1)
        _sum_over(picked, group)
        if with_entropy:
            _sum_over(entropy, group)
        else:
            ctx.mark_non_differentiable(entropy)
        ctx.save_for_backward(hidden, weight, local, normaliser, entropy)
        ctx.settings = temperature, with_entropy, group, chunk_tokens
        return picked - normaliser, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor, grad_entropy: Tensor) -> tuple[Any, ...]:
        hidden, weight, local, normaliser, entropy = ctx.saved_tensors
        temperature, with_entropy, group, chunk_tokens = ctx.settings
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        # Summed over the chunks in fp32: bf16 would lose what later chunks add.
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        for part in _chunks(len(hidden), chunk_tokens):
            log_p = _logits(hidden[part], weight, temperature) - normaliser[part, None]
            grad = log_p.exp() * -grad_log_probs[part, None]
            if with_entropy:
                grad -= log_p.exp() * (log_p + entropy[part, None]) * grad_entropy[part, None]
            _add_at(grad, local[part], grad_log_probs[part])
            grad = (grad / temperature).to(hidden.dtype)
            if grad_hidden is not None:
                torch.mm(grad, weight, out=grad_hidden[part])
            if grad_weight is not None:
                grad_weight += grad.T @ hidden[part]
        if grad_hidden is not None:
            _sum_over(grad_hidden, group)
        if grad_weight is not None:
            grad_weight = grad_weight.to(weight.dtype)
        return grad_hidden, grad_weight, None, None, None, None, None


def _chunks(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _logits(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    return (hidden @ weight.T).float() / temperature


def _log_sum_exp(logits: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    local = torch.logsumexp(logits, dim=-1)
    if group is None:
        return local
    largest = local.clone()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    total = torch.exp(local - largest)
    dist.all_reduce(total, group=group)
    return largest + total.log()


def _here(local: Tensor, width: int) -> Tensor:
    """Which targets lie in this rank's part of the vocabulary."""
    return (local >= 0) & (local < width)


def _pick(logits: Tensor, local: Tensor) -> Tensor:
    width = logits.shape[-1]
    index = local.clamp(0, width - 1)[:, None]
    return logits.gather(1, index)[:, 0] * _here(local, width)


def _add_at(logits_grad: Tensor, local: Tensor, amount: Tensor) -> None:
    width = logits_grad.shape[-1]
    index = local.clamp(0, width - 1)[:, None]
    logits_grad.scatter_add_(1, index, (amount * _here(local, width))[:, None])


def _sum_over(tensor: Tensor, group: dist.ProcessGroup | None) -> None:
    if group is not None:
        dist.all_reduce(tensor, group=group)
