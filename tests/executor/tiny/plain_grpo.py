"""GRPO on one process in plain torch and transformers: what the tiny tasks need to be learned."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from automap.executor.tiny.tiny_model import END_TOKEN
from benchmarks.plain_loop import positions

Reward = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]], None], list[float]]


def learn(
    model_folder: Path,
    prompts: Sequence[Sequence[int]],
    reward: Reward,
    *,
    iterations: int,
    prompts_per_iteration: int = 32,
    responses_per_prompt: int = 8,
    response_length: int = 8,
    updates: int = 4,
    learning_rate: float = 3e-3,
    seed: int = 0,
) -> list[float]:
    """Mean reward of every iteration's rollout; PPO's clipped loss at 0.2, no KL, no decay."""
    model = LlamaForCausalLM.from_pretrained(model_folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    torch.manual_seed(seed)
    means: list[float] = []
    for iteration in range(iterations):
        first = iteration * prompts_per_iteration
        chosen = [
            prompts[number % len(prompts)]
            for number in range(first, first + prompts_per_iteration)
            for _ in range(responses_per_prompt)
        ]
        tokens, mask = _left_padded(chosen)
        responses = _generate(model, tokens, mask, response_length)
        texts = [_until_end(row) for row in responses.tolist()]
        kept = torch.tensor([[n < len(text) for n in range(response_length)] for text in texts])
        rewards = torch.tensor(reward(chosen, texts, None)).view(-1, responses_per_prompt)
        means.append(rewards.mean().item())
        spread = rewards.std(dim=1, keepdim=True) + 1e-6
        advantages = ((rewards - rewards.mean(dim=1, keepdim=True)) / spread).view(-1, 1)
        tokens, mask = torch.cat([tokens, responses], 1), torch.cat([mask, kept], 1)
        with torch.no_grad():
            old = _log_probs(model, tokens, mask, response_length)
        for rows in torch.randperm(len(tokens)).chunk(updates):
            log_probs = _log_probs(model, tokens[rows], mask[rows], response_length)
            ratio = (log_probs - old[rows]).exp()
            gain = torch.minimum(ratio * advantages[rows], ratio.clamp(0.8, 1.2) * advantages[rows])
            loss = -(gain * kept[rows]).sum() / kept[rows].sum()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return means


def _left_padded(prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    longest = max(len(prompt) for prompt in prompts)
    rows = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[n >= longest - len(prompt) for n in range(longest)] for prompt in prompts]
    return torch.tensor(rows), torch.tensor(mask)


@torch.no_grad()
def _generate(model: LlamaForCausalLM, tokens: Tensor, mask: Tensor, length: int) -> Tensor:
    cache, given, drawn = None, tokens, []
    for _ in range(length):
        output = model(
            input_ids=given,
            attention_mask=mask,
            position_ids=positions(mask)[:, -given.shape[1] :],
            past_key_values=cache,
            use_cache=True,
        )
        cache = output.past_key_values
        given = torch.multinomial(output.logits[:, -1].softmax(-1), 1)
        mask = torch.cat([mask, torch.ones_like(given, dtype=torch.bool)], 1)
        drawn.append(given)
    return torch.cat(drawn, 1)


def _until_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(END_TOKEN) + 1] if END_TOKEN in tokens else tokens


def _log_probs(model: LlamaForCausalLM, tokens: Tensor, mask: Tensor, length: int) -> Tensor:
    logits = model(
        input_ids=tokens, attention_mask=mask, position_ids=positions(mask), use_cache=False
    ).logits
    log_probs = logits[:, -length - 1 : -1].log_softmax(-1)
    return log_probs.gather(-1, tokens[:, -length:].unsqueeze(-1)).squeeze(-1)
