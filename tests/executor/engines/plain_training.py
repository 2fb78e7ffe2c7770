"""What the engines must equal: transformers and AdamW on one process, a row at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    LlamaConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from automap.executor.batch import Batch, Ragged, concatenate
from automap.executor.engines.training_engine import LossTerms
from automap.executor.settings import OptimizerSettings

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "initializer_range": 0.05,
    "pad_token_id": 0,
    "dtype": "float32",
}


def tiny_config(family: str, *, vocab_size: int = 256) -> PreTrainedConfig:
    """Llama; Qwen2, with biases and tied embeddings; Qwen3, with norms of queries and keys.

    `sliding` is Qwen2 whose second layer sees 3 tokens; `scaled` is Llama with scaled positions.
    """
    sizes = SIZES | {"vocab_size": vocab_size}
    if family == "sliding":
        window = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}
        return Qwen2Config(**(sizes | window))
    if family == "scaled":
        scaled = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0}
        bands = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
        longest = {"original_max_position_embeddings": 32}
        return LlamaConfig(**(sizes | {"rope_parameters": scaled | bands | longest}))
    if family == "llama":
        return LlamaConfig(**sizes)
    if family == "qwen2":
        return Qwen2Config(**(sizes | {"tie_word_embeddings": True}))
    if family == "qwen3":
        return Qwen3Config(**sizes)
    raise ValueError(family)


def as_in_folders(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of transformers' Qwen3-MoE, each expert apart."""
    found = {}
    for name, tensor in weights.items():
        stem, _, kind = name.rpartition(".")
        if kind == "gate_up_proj":
            for expert, (gate, up) in enumerate(each.chunk(2) for each in tensor):
                found[f"{stem}.{expert}.gate_proj.weight"] = gate
                found[f"{stem}.{expert}.up_proj.weight"] = up
        elif kind == "down_proj":
            for expert, down in enumerate(tensor):
                found[f"{stem}.{expert}.down_proj.weight"] = down
        else:
            found[name] = tensor
    return found


def random_rows(count: int, *, seed: int, vocab_size: int = 256, longest: int = 9) -> Batch:
    """Rows with prompts, responses, and the columns that the losses below read."""
    generator = torch.Generator().manual_seed(seed)

    def lengths() -> list[int]:
        return torch.randint(1, longest + 1, (count,), generator=generator).tolist()

    def tokens(lengths: list[int]) -> Ragged:
        return Ragged.of(
            [torch.randint(vocab_size, (each,), generator=generator) for each in lengths]
        )

    responses = tokens(lengths())
    size = (len(responses.values),)
    return Batch(
        {
            "prompt_tokens": tokens(lengths()),
            "response_tokens": responses,
            "advantages": responses.with_values(torch.randn(size, generator=generator)),
            "weight": torch.rand(count, generator=generator).round(decimals=1),
        }
    )


@dataclass
class PolicyLoss:
    """Σ weight · (−advantage · log p − 0.1 · entropy), over the weights of all tokens."""

    needs_entropy: bool = True

    def weight(self, batch: Batch) -> float:
        return float((batch.tensor("weight") * batch.ragged("response_tokens").lengths).sum())

    def terms(self, prediction: Tensor, entropy: Tensor | None, batch: Batch) -> LossTerms:
        assert entropy is not None
        advantages = batch.ragged("advantages")
        weight = batch.tensor("weight")[advantages.row_of_value()]
        loss = weight * (-advantages.values * prediction - 0.1 * entropy)
        return LossTerms(loss.sum(), {"entropy": (weight * entropy).sum().detach()})


@dataclass
class ValueLoss:
    """Σ weight · (value − advantage)²."""

    needs_entropy: bool = False
    weight: Callable[[Batch], float] = field(default=PolicyLoss().weight)

    def terms(self, prediction: Tensor, entropy: Tensor | None, batch: Batch) -> LossTerms:
        assert entropy is None
        targets = batch.ragged("advantages")
        weight = batch.tensor("weight")[targets.row_of_value()]
        loss = (weight * (prediction - targets.values) ** 2).sum()
        return LossTerms(loss, {"value": (weight * prediction).sum().detach()})


class PlainTraining:
    """Single sequences without packing or padding; log_softmax of whole logits."""

    def __init__(
        self,
        config: PreTrainedConfig,
        weights: dict[str, Tensor],
        settings: OptimizerSettings,
        *,
        scalar: bool = False,
    ) -> None:
        kind = AutoModelForSequenceClassification if scalar else AutoModelForCausalLM
        if scalar:
            config.num_labels = 1
        self.scalar = scalar
        self.model = kind.from_config(config, attn_implementation="eager")
        missing, unexpected = self.model.load_state_dict(weights, strict=False)
        assert not unexpected
        assert all(name == "lm_head.weight" for name in missing), missing
        self.model.tie_weights()
        self.settings = settings
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=settings.learning_rate,
            betas=settings.betas,
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
        )

    def predict(self, batch: Batch, temperature: float = 1.0) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities and entropies, or values, of all response tokens."""
        rows = batch.ragged("prompt_tokens").rows(), batch.ragged("response_tokens").rows()
        outputs = [self._row(*pair, temperature) for pair in zip(*rows, strict=True)]
        predictions = torch.cat([each[0] for each in outputs])
        return predictions, None if self.scalar else torch.cat([each[1] for each in outputs])

    def scores(self, batch: Batch) -> Tensor:
        """Of every row, at its last token."""
        rows = batch.ragged("prompt_tokens").rows(), batch.ragged("response_tokens").rows()
        return torch.stack([self._values(torch.cat(pair))[-1] for pair in zip(*rows, strict=True)])

    def _row(self, prompt: Tensor, response: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        whole = torch.cat([prompt, response])
        places = slice(len(prompt) - 1, len(whole) - 1)
        if self.scalar:
            values = self._values(whole)[places]
            return values, values
        logits = self.model(whole[None]).logits[0, places].float() / temperature
        log_p = torch.log_softmax(logits, dim=-1)
        return log_p.gather(1, response[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)

    def _values(self, tokens: Tensor) -> Tensor:
        hidden = self.model.model(tokens[None]).last_hidden_state[0]
        return (hidden @ self.model.score.weight.T)[:, 0]

    def step(
        self, batches: list[Batch], *, learning_rate: float, temperature: float = 1.0
    ) -> dict[str, float]:
        """One step on all data ranks' rows."""
        batch = concatenate(batches)
        self.optimizer.zero_grad()
        prediction, entropy = self.predict(batch, temperature)
        loss = ValueLoss() if self.scalar else PolicyLoss()
        terms = loss.terms(prediction, entropy, batch)
        total = terms.loss_sum / loss.weight(batch)
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        metrics = {k: float(v) / loss.weight(batch) for k, v in terms.metric_sums.items()}
        return {"loss": float(total.detach()), "grad_norm": float(norm), **metrics}

    def weights(self) -> dict[str, Tensor]:
        """By Hugging Face name, tied ones once."""
        return {name: each.detach() for name, each in self.model.named_parameters()}
