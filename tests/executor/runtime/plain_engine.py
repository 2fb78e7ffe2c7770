"""A small engine in plain torch, for tests of the controller: data-parallel copies of a Llama.

It trains exactly (fp64) what the independent trainer trains. Responses are made up from prompt,
number and iteration, so that a test knows them beforehand.
"""

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from automap.executor.batch import Batch, Ragged
from automap.executor.engines.training_engine import Loss, Output, TrainingEngine
from automap.executor.workers.model_setup import ModelSetup
from automap.executor.workers.model_worker import Factories, ModelWorker, Rollout, SyncPlace
from automap.executor.workers.process import ProcessContext
from automap.executor.workers.protocols import transfer
from tests.executor.algorithms.local_run import Given, LocalHandle

LEARNING_RATE, EPSILON = 3e-3, 1e-4
SEEDS = {"actor": 3, "reference": 3, "critic": 4, "cost_critic": 5}


def model_of(role: str) -> Any:
    """Actor and reference start alike."""
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        initializer_range=0.1,
        pad_token_id=0,
        num_labels=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEEDS[role])
        kind = LlamaForSequenceClassification if "critic" in role else LlamaForCausalLM
        return kind(config).to(torch.float64)


def responses(prompts: Batch, *, responses_per_prompt: int, greedy: bool, iteration: int) -> Batch:
    """The prompts' rows, each so many times, with one to six tokens that nobody else would get."""
    rows = prompts.take(torch.arange(prompts.num_rows).repeat_interleave(responses_per_prompt))
    tokens = []
    for place, prompt_id in enumerate(rows.tensor("prompt_id").tolist()):
        number = place % responses_per_prompt
        seed = ((iteration * 1000 + prompt_id) * 100 + number) * 2 + greedy
        generator = torch.Generator().manual_seed(seed)
        length = int(torch.randint(1, 7, (), generator=generator))
        tokens.append(torch.randint(2, 64, (length,), generator=generator))
    column = Ragged.of(tokens)
    log_probs = column.with_values(-(column.values.double() % 7) / 3)
    return rows.with_columns(response_tokens=column, response_log_probs=log_probs)


def score(prompt_tokens: list[list[int]], response_tokens: list[list[int]]) -> list[float]:
    """A reward function: whether the last token is even; a prompt of odd sum earns nothing."""
    return [
        float(response[-1] % 2 == 0 and sum(prompt) % 2 == 0)
        for prompt, response in zip(prompt_tokens, response_tokens, strict=True)
    ]


def cost(response_tokens: list[list[int]]) -> list[float]:
    """Another one, with other arguments."""
    return [len(response) / 6 for response in response_tokens]


class PlainEngine:
    def __init__(self, setup: ModelSetup) -> None:
        role = setup.role
        self.model = model_of(role)
        self.optimizer = torch.optim.AdamW(
            [
                {"params": [each], "weight_decay": 0.01 if each.dim() > 1 else 0.0}
                for each in self.model.parameters()
            ],
            lr=LEARNING_RATE,
            eps=EPSILON,
        )
        empty = Given(Batch({}), {}, [])
        self.handle = LocalHandle(role, self.model, self.optimizer, None, empty)  # type: ignore[arg-type]

    def forward(self, batch: Batch, output: Output, *, temperature: float = 1.0) -> Batch:
        with torch.no_grad():
            values, _ = self.handle.predict(batch)
        lengths = batch.ragged("response_tokens").lengths
        return Batch({output: Ragged(values, lengths), "unasked": lengths})

    def train_step(self, batch: Batch, loss: Loss, *, temperature: float = 1.0) -> dict[str, float]:
        weight = torch.tensor(loss.weight(batch), dtype=torch.float64)
        dist.all_reduce(weight)
        self.optimizer.zero_grad()
        prediction, entropy = self.handle.predict(batch)
        terms = loss.terms(prediction, entropy if loss.needs_entropy else None, batch)
        (terms.loss_sum / weight).backward()
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        mean = (terms.loss_sum / weight).detach()
        dist.all_reduce(mean)
        return {"loss": float(mean), "grad_norm": float(norm)}

    def state(self) -> dict[str, object]:
        if not self.optimizer.state:
            self._make_moments()  # for load to fill
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _make_moments(self) -> None:
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
        self.optimizer.step()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def adapter_disabled(self) -> Any:
        return nullcontext()


class PlainRollout:
    def start(self, *, changed: bool) -> dict[str, float]:
        return {"reshard_received": 100.0 if changed else 0.0}

    def weight_bytes(self) -> dict[str, float]:
        return {"generation_weights": 50.0}

    def generate(
        self, prompts: Batch, *, responses_per_prompt: int, greedy: bool, iteration: int
    ) -> Batch:
        return responses(
            prompts, responses_per_prompt=responses_per_prompt, greedy=greedy, iteration=iteration
        )

    def stop(self) -> None: ...


class PlainSync:
    """Sends one number: how often the home has trained."""

    def __init__(self, setup: ModelSetup, place: SyncPlace, engine: Any) -> None:
        self.is_sender, self.engine = not setup.is_shadow, engine
        self.count = 0
        self.store = place.meeting.store(timedelta(minutes=5))

    def run(self) -> dict[str, float]:
        self.count += 1
        if self.is_sender:
            self.store.set(f"weights{self.count}", "ready")
            return {}
        self.store.wait([f"weights{self.count}"])
        return {"weight_sync_received": 8.0}


class PlainWorker(ModelWorker):
    """With a method of its own."""

    @transfer("RANK_ZERO")
    def weights(self) -> dict[str, torch.Tensor]:
        return self._engine().model.state_dict()  # type: ignore[attr-defined,no-any-return]


def build_engine(setup: ModelSetup, context: ProcessContext) -> TrainingEngine:
    return PlainEngine(setup)  # type: ignore[return-value]


def build_rollout(
    setup: ModelSetup, context: ProcessContext, engine: TrainingEngine | None
) -> Rollout:
    return PlainRollout()


def build_sync(
    setup: ModelSetup, place: SyncPlace, engine: TrainingEngine | None, rollout: Rollout | None
) -> PlainSync:
    return PlainSync(setup, place, engine)


FACTORIES = Factories(build_engine, build_rollout, build_sync)
