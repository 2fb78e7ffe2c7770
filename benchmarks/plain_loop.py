"""PPO and GRPO as one would write them for one process: torch, transformers, and nothing else.

Every response has the same length, as in the tiny examples, whose models have no token that ends
one: tensors are [responses, tokens].
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM, LlamaModel

from automap.executor.algorithms.defaults import resolve_settings
from automap.executor.batch import Batch
from automap.executor.engines.random_model import config_of
from automap.executor.settings import RunSettings
from automap.executor.workers.cpu_workers import load_function
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan


class Critic(nn.Module):
    """A Llama with one output per token."""

    def __init__(self, trunk: LlamaModel) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = nn.Linear(trunk.config.hidden_size, 1, bias=False)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        places = positions(mask)
        hidden = self.trunk(tokens, attention_mask=mask, position_ids=places, use_cache=False)
        return self.head(hidden.last_hidden_state).squeeze(-1)


@dataclass(frozen=True, slots=True)
class Experience:
    """What is trained on; one row per response, [rows, tokens] of responses unless said."""

    tokens: Tensor
    """Prompts, padded on the left, and responses."""
    mask: Tensor
    """What of them is no padding."""
    log_probs: Tensor
    advantages: Tensor
    values: Tensor
    returns: Tensor

    def rows(self, index: Tensor) -> "Experience":
        """Some of them."""
        names = self.__slots__
        return Experience(**{name: getattr(self, name)[index] for name in names})


class PlainLoop:
    """The models of a tiny example in this process, trained with its numbers."""

    def __init__(self, plan: Plan, settings: RunSettings) -> None:
        torch.manual_seed(settings.seed)
        job = resolve(plan.spec)
        config = config_of(job.models["actor"].architecture)
        self.actor = LlamaForCausalLM(config)
        has_reference, has_critic = (name in plan.spec.models for name in ("reference", "critic"))
        self.reference = copy.deepcopy(self.actor) if has_reference else None
        self.critic = Critic(LlamaModel(config)) if has_critic else None
        self._workload = plan.spec.workload
        self._length = self._workload.response_length.max_tokens
        assert plan.algorithm is not None, "tiny examples name one"
        kl = self._workload.kl
        self._numbers = resolve_settings(settings.algorithm, algorithm=plan.algorithm, kl=kl)
        self._temperature = settings.rollout.temperature
        self._reward = load_function(settings.functions["reward"].path)
        self._optimizers = {
            role: _Optimizer(model, settings, role)
            for role, model in (("actor", self.actor), ("critic", self.critic))
            if model is not None
        }

    def iterate(self, prompts: Batch) -> tuple[int, float]:
        """One iteration; the tokens of its prompts and responses, and the mean reward."""
        chosen = [
            row.tolist()
            for row in prompts.ragged("prompt_tokens").rows()
            for _ in range(self._workload.responses_per_prompt)
        ]
        tokens, mask = self._generate(*_left_padded(chosen))
        responses = tokens[:, -self._length :].tolist()
        rewards = torch.tensor(self._reward(prompt_tokens=chosen, response_tokens=responses))
        experience = self._experience(tokens, mask, rewards)
        for _ in range(self._workload.epochs):
            for index in torch.randperm(len(tokens)).chunk(self._workload.updates_per_epoch):
                self._update(experience.rows(index))
        return int(mask.sum()), float(rewards.mean())

    @torch.no_grad()
    def _generate(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        cache, given, drawn = None, tokens, [tokens]
        for _ in range(self._length):
            output = self.actor(
                input_ids=given,
                attention_mask=mask,
                position_ids=positions(mask)[:, -given.shape[1] :],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = output.past_key_values
            given = torch.multinomial((output.logits[:, -1] / self._temperature).softmax(-1), 1)
            mask = torch.cat([mask, torch.ones_like(given, dtype=torch.bool)], 1)
            drawn.append(given)
        return torch.cat(drawn, 1), mask

    @torch.no_grad()
    def _experience(self, tokens: Tensor, mask: Tensor, scores: Tensor) -> Experience:
        log_probs = self._log_probs(self.actor, tokens, mask)
        rewards = torch.zeros_like(log_probs)
        rewards[:, -1] = scores
        if self.reference is not None:
            divergence = log_probs - self._log_probs(self.reference, tokens, mask)
            rewards -= self._numbers.kl_coefficient * divergence
        values = returns = torch.zeros_like(log_probs)
        if self.critic is not None:
            values = self._values(tokens, mask)
            advantages = _gae(rewards, values, self._numbers.gamma, self._numbers.lam)
            returns = advantages + values
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        else:
            groups = rewards.sum(1).view(-1, self._workload.responses_per_prompt)
            spread = groups.std(1, keepdim=True) + 1e-6
            advantages = (groups - groups.mean(1, keepdim=True)) / spread
            advantages = advantages.view(-1, 1).expand_as(log_probs)
        return Experience(tokens, mask, log_probs, advantages, values, returns)

    def _update(self, rows: Experience) -> None:
        numbers = self._numbers
        ratio = (self._log_probs(self.actor, rows.tokens, rows.mask) - rows.log_probs).exp()
        clipped = ratio.clamp(1 - numbers.clip_low, 1 + numbers.clip_high)
        gain = torch.minimum(ratio * rows.advantages, clipped * rows.advantages)
        self._optimizers["actor"].step(-gain.mean())
        if self.critic is None:
            return
        values = self._values(rows.tokens, rows.mask)
        change = (values - rows.values).clamp(-numbers.clip_value, numbers.clip_value)
        errors = torch.maximum(
            (values - rows.returns).square(), (rows.values + change - rows.returns).square()
        )
        self._optimizers["critic"].step(0.5 * errors.mean())

    def _log_probs(self, model: LlamaForCausalLM, tokens: Tensor, mask: Tensor) -> Tensor:
        places = positions(mask)
        logits = model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=places,
            use_cache=False,
            logits_to_keep=self._length + 1,
        ).logits[:, :-1]
        log_probs = (logits / self._temperature).log_softmax(-1)
        return log_probs.gather(-1, tokens[:, -self._length :].unsqueeze(-1)).squeeze(-1)

    def _values(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Where each response token is chosen: at the one before."""
        assert self.critic is not None, "asked for where there is one"
        values: Tensor = self.critic(tokens, mask)
        return values[:, -self._length - 1 : -1]


class _Optimizer:
    """AdamW with clipped gradients, as a role's settings say."""

    def __init__(self, model: nn.Module, settings: RunSettings, role: str) -> None:
        chosen = settings.training_of(role).optimizer
        self._parameters = list(model.parameters())
        self._clip = chosen.clip_grad_norm
        self._adam = torch.optim.AdamW(
            self._parameters,
            lr=chosen.learning_rate,
            betas=chosen.betas,
            eps=chosen.epsilon,
            weight_decay=chosen.weight_decay,
        )

    def step(self, loss: Tensor) -> None:
        self._adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, self._clip)
        self._adam.step()


def _left_padded(prompts: list[list[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, prompts))
    rows = [[0] * (longest - len(prompt)) + prompt for prompt in prompts]
    mask = [[n >= longest - len(prompt) for n in range(longest)] for prompt in prompts]
    return torch.tensor(rows), torch.tensor(mask)


def positions(mask: Tensor) -> Tensor:
    """Of tokens among those that are no padding."""
    return (mask.long().cumsum(1) - 1).clamp(min=0)


def _gae(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    following = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], 1)
    errors = rewards + gamma * following - values
    advantages, last = [], torch.zeros_like(errors[:, 0])
    for step in reversed(range(errors.shape[1])):
        last = errors[:, step] + gamma * lam * last
        advantages.append(last)
    return torch.stack(advantages[::-1], 1)
