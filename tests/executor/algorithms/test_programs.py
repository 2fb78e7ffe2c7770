"""Every program on the executor's mathematics against the independent trainer, step by step."""

import copy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from automap.executor.algorithms.defaults import resolve_settings
from automap.executor.batch import Batch, Ragged
from automap.executor.settings import AlgorithmSettings
from automap.planner.dataflow.algorithms import PROGRAMS
from tests.executor.algorithms.local_run import Given, LocalHandle, LocalModels, LocalOps, Step
from tests.executor.algorithms.reference import Iteration, ReferenceTrainer
from tests.executor.algorithms.reference_advantages import Numbers, mixed_rows

GROUPS, RESPONSES, LONGEST = 4, 3, 9
UPDATES = [[0, 5, 7, 10], [1, 3, 8, 11], [2, 4, 6, 9]]
"""Rows of the three optimizer steps of an iteration; groups are split among them."""
ITERATIONS = 2
LEARNING_RATE = 3e-3
EPSILON = 1e-4
"""Of Adam. At 1e-8 it divides gradients that are rounding errors by themselves."""
ROLES = {
    "ppo": ("actor", "critic", "reference"),
    "safe_rlhf": ("actor", "critic", "reference"),
}


@dataclass(frozen=True)
class Case:
    algorithm: str
    settings: dict[str, Any] = field(default_factory=dict)
    kl: str = "reward"
    old: str = "recompute"
    pretrain: bool = False
    cost_critic: bool = False

    def __str__(self) -> str:
        extras = [name for name in ("pretrain", "cost_critic") if getattr(self, name)]
        return "-".join([self.algorithm, self.kl, self.old, *extras, *self.settings])


CASES = [
    Case("ppo", pretrain=True),
    Case("ppo", {"entropy_coefficient": 0.01, "dual_clip": 1.2}, kl="loss", old="rollout"),
    Case("ppo", {"aggregate": "sequence_mean", "pretrain_coefficient": 0.3}, pretrain=True),
    Case("ppo", {"gamma": 0.97, "lam": 0.8, "whiten_advantages": False}),
    Case("grpo", kl="loss"),
    Case("grpo", {"kl_estimator": "k3"}, old="rollout"),
    Case("remax"),
    Case("remax", {"kl_estimator": "k2"}, kl="loss"),
    Case("safe_rlhf", {"cost_limit": 0.3}),
    Case("safe_rlhf", {"multiplier_learning_rate": 0.5}, cost_critic=True, kl="none"),
    Case("rloo"),
    Case("rloo", {"entropy_coefficient": 0.02}, kl="loss"),
    Case("reinforce_plus_plus", {"gamma": 0.98}),
    Case("dapo", {"overlong_buffer_tokens": 4}, kl="none"),
    Case("dapo", kl="reward", old="rollout"),
]


def config() -> LlamaConfig:
    return LlamaConfig(
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


def models_of(case: Case, dtype: torch.dtype) -> dict[str, Any]:
    torch.manual_seed(3)
    models = {"actor": LlamaForCausalLM(config()), "reference": LlamaForCausalLM(config())}
    if case.algorithm in ROLES:
        models["critic"] = LlamaForSequenceClassification(config())
    if case.cost_critic:
        models["cost_critic"] = LlamaForSequenceClassification(config())
    return {role: model.to(dtype) for role, model in models.items()}


def random_rollout(seed: int, dtype: torch.dtype) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def lengths(low: int, high: int) -> list[int]:
        return torch.randint(low, high, (GROUPS * RESPONSES,), generator=generator).tolist()

    def tokens(length: int) -> torch.Tensor:
        return torch.randint(2, 64, (length,), generator=generator)

    responses = [tokens(length) for length in lengths(1, LONGEST + 1)]
    noise = [-4 + torch.randn(len(row), generator=generator).to(dtype) for row in responses]
    return Batch(
        {
            "prompt_tokens": Ragged.of([tokens(length) for length in lengths(2, 7)]),
            "response_tokens": Ragged.of(responses),
            "response_log_probs": Ragged.of(noise),
            "group": torch.arange(GROUPS * RESPONSES) // RESPONSES,
        }
    )


@dataclass
class Both:
    """The same start for the two implementations, and what they make of it."""

    case: Case
    dtype: torch.dtype

    def __post_init__(self) -> None:
        case = self.case
        given = AlgorithmSettings(**case.settings)
        self.settings = resolve_settings(given, algorithm=case.algorithm, kl=case.kl)  # type: ignore[arg-type]
        models = models_of(case, self.dtype)
        self.trainer = ReferenceTrainer(case.algorithm, copy.deepcopy(models), self.numbers())
        empty = Given(Batch({}), {}, [])
        self.handles = {
            role: LocalHandle(role, model, optimizer_of(model), self.settings, empty)
            for role, model in models.items()
        }
        for role in ("reward", "cost"):
            self.handles[role] = LocalHandle(role, None, None, self.settings, empty)
        self.ops = LocalOps(None, self.settings, empty, self.settings.initial_multiplier)

    def numbers(self) -> Numbers:
        names = {
            "aggregate": "mean_over",
            "overlong_buffer_tokens": "overlong_buffer",
            "whiten_advantages": "whiten",
        }
        changes = {names.get(name, name): value for name, value in self.case.settings.items()}
        if "mean_over" in changes:
            changes["mean_over"] = "sequences"
        return Numbers.of(
            self.case.algorithm,
            kl=self.case.kl,
            maximum_response=LONGEST,
            learning_rate=LEARNING_RATE,
            epsilon=EPSILON,
            **changes,
        )

    def iterate(self, seed: int) -> tuple[Iteration, dict[str, list[Step]]]:
        generator = torch.Generator().manual_seed(seed + 100)
        rollout = random_rollout(seed, self.dtype)
        scores = torch.randint(0, 3, (rollout.num_rows,), generator=generator).to(self.dtype)
        costs = torch.randn(rollout.num_rows, generator=generator).to(self.dtype)
        greedy = torch.randn(GROUPS, generator=generator).to(self.dtype)
        texts = [
            torch.randint(2, 64, (length,), generator=generator)
            for length in torch.randint(2, 8, (rollout.num_rows,), generator=generator).tolist()
        ]
        updates = UPDATES
        if self.case.algorithm == "dapo":
            scores[:RESPONSES] = 1.0
            kept = mixed_rows(scores.tolist(), rollout.tensor("group").tolist())
            assert 0 < len(kept) < rollout.num_rows
            updates = [kept[0::3], kept[1::3], kept[2::3]]
        theirs = self.trainer.iteration(
            rollout,
            scores=scores.tolist(),
            updates=updates,
            costs=costs.tolist(),
            greedy_scores=dict(enumerate(greedy.tolist())),
            old_log_probs=[row.tolist() for row in rollout.ragged("response_log_probs").rows()]
            if self.case.old == "rollout"
            else None,
            pretrain=[text.tolist() for text in texts] if self.case.pretrain else None,
        )
        before = {role: len(handle.steps) for role, handle in self.handles.items()}
        self._run(rollout, scores, costs, greedy, texts, updates)
        return theirs, {role: self.handles[role].steps[before[role] :] for role in before}

    def _run(self, rollout, scores, costs, greedy, texts, updates) -> None:  # type: ignore[no-untyped-def]
        if self.case.algorithm == "dapo":
            order = sorted(row for rows in updates for row in rows)
            updates = [[order.index(row) for row in rows] for rows in updates]
        self.ops.costs = costs
        self.ops.workload = SimpleNamespace(
            kl=self.case.kl,
            old_log_probs=self.case.old,
            expected_acceptance=0.5,
            response_length=SimpleNamespace(max_tokens=LONGEST),
        )
        given = Given(
            rollout=rollout,
            scores={"reward": scores, "cost": costs},
            updates=updates,
            greedy=Batch({"group": torch.arange(GROUPS).flip(0)}),
            greedy_scores=greedy.flip(0),
        )
        if self.case.pretrain:
            given.pretrain = Batch({"tokens": Ragged.of(texts)})
        for handle in self.handles.values():
            handle.given = given
        self.ops.given = given
        PROGRAMS[self.case.algorithm].run(LocalModels(self.handles), None, self.ops)


def optimizer_of(model: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        [
            {"params": [each], "weight_decay": 0.01 if each.dim() > 1 else 0.0}
            for each in model.parameters()
        ],
        lr=LEARNING_RATE,
        betas=(0.9, 0.999),
        eps=EPSILON,
    )


def largest_difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-6), (torch.float32, 1e-5)],
    ids=["float64", "float32"],
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_programs_agree_with_the_independent_trainer(
    case: Case, dtype: torch.dtype, tolerance: float
) -> None:
    torch.set_num_threads(1)
    both = Both(case, dtype)
    start = copy.deepcopy(both.handles["actor"].model.state_dict())
    for seed in range(ITERATIONS):
        theirs, ours = both.iterate(seed)
        for role, steps in theirs.steps.items():
            assert len(ours[role]) == len(steps) == len(UPDATES)
            for mine, other in zip(ours[role], steps, strict=True):
                assert mine.loss == pytest.approx(other.loss, abs=tolerance, rel=tolerance)
                difference = largest_difference(mine.gradients, other.gradients)
                assert difference < tolerance * max(1.0, other.grad_norm)
            weights = both.handles[role].model.state_dict()
            expected = both.trainer.models[role].state_dict()
            assert largest_difference(weights, expected) < tolerance
    assert both.ops.multiplier == pytest.approx(both.trainer.multiplier, abs=1e-12)
    moved = largest_difference(both.handles["actor"].model.state_dict(), start)
    assert moved > LEARNING_RATE


def test_the_cases_reach_every_branch_of_the_losses() -> None:
    """Otherwise agreement would prove little."""
    reached: dict[str, float] = {}
    for case in CASES[:2]:
        both = Both(case, torch.float64)
        _, ours = both.iterate(0)
        for step in ours["actor"] + ours["critic"]:
            for name, value in step.metrics.items():
                reached[name] = max(reached.get(name, 0.0), value)
    for name in ("actor/pg_clipfrac", "actor/pg_clipfrac_lower", "critic/vf_clipfrac"):
        assert reached[name] > 0
    assert {"actor/pretrain_loss", "actor/kl_loss", "actor/entropy"} <= reached.keys()


def test_all_programs_have_a_case() -> None:
    assert {case.algorithm for case in CASES} == PROGRAMS.keys()
