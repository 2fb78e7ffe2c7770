"""Whole programs on real processes against the independent trainer: weights agree to 1e-6.

The models are fp64; scores, and what is made of them, travel as fp32.
"""

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from automap.executor.batch import Batch, Ragged, concatenate
from automap.executor.data import epoch_order
from automap.executor.runtime.controller import Controller, run_iterations
from automap.executor.runtime.finished_calls import FinishedIteration
from automap.executor.settings import AlgorithmSettings, DataSettings, FunctionSettings, RunSettings
from automap.executor.workers.protocols import row_ranges
from automap.executor.workers.row_references import Block
from automap.planner.plan.types import Plan
from tests.executor.algorithms.reference import ReferenceTrainer
from tests.executor.algorithms.reference_advantages import Numbers
from tests.executor.local_ray import local_ray
from tests.executor.runtime import plain_engine
from tests.executor.runtime.plain_engine import EPSILON, LEARNING_RATE, model_of, responses
from tests.executor.small_plans import Place, small_plan

pytestmark = pytest.mark.many_processes

PROMPTS, RESPONSES, EPOCHS, UPDATES, SEED = 5, 3, 2, 2, 11
TOLERANCE = 1e-6


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    with local_ray():
        yield


class Prompts:
    """Numbered from 0, of two to eight tokens; every third has an odd sum."""

    def __init__(self) -> None:
        self.count = 0
        self.prepared: list[int] = []

    def prepare(self, num_rows: int) -> None:
        self.prepared.append(num_rows)

    def next_batch(self, num_rows: int) -> Batch:
        rows = []
        for number in range(self.count, self.count + num_rows):
            tokens = torch.full((2 + number % 7,), 2 + 2 * (number % 9))
            tokens[0] += number % 3 == 0
            rows.append(tokens)
        ids = torch.arange(self.count, self.count + num_rows)
        self.count += num_rows
        return Batch({"prompt_tokens": Ragged.of(rows), "prompt_id": ids})


class Texts:
    """Pre-train rows of two to six tokens."""

    def __init__(self) -> None:
        self.count = 0

    def next_batch(self, num_rows: int) -> Batch:
        first, self.count = self.count, self.count + num_rows
        return Batch({"tokens": Ragged.of([text(number) for number in range(first, self.count)])})


def text(number: int) -> torch.Tensor:
    return torch.arange(2 + number % 5) * 3 + 2 + number % 11


@dataclass(frozen=True)
class Case:
    algorithm: str
    roles: dict[str, Place | None]
    workload: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    shadow: Place | None = None

    def __str__(self) -> str:
        return self.algorithm

    def plan(self) -> Plan:
        return small_plan(
            self.algorithm,
            self.roles,
            shadow=self.shadow,
            prompts_per_iteration=PROMPTS,
            responses_per_prompt=RESPONSES,
            epochs=EPOCHS,
            updates_per_epoch=UPDATES,
            **self.workload,
        )

    def run_settings(self, **changes: Any) -> RunSettings:
        functions = {
            role: FunctionSettings(path=f"tests.executor.runtime.plain_engine:{function}")
            for role, function in (("reward", "score"), ("cost", "cost"))
            if role in self.roles
        }
        return RunSettings(
            data=DataSettings(path=Path("unused")),
            functions=functions,
            algorithm=AlgorithmSettings(**self.settings),
            seed=SEED,
            start_timeout_seconds=300,
            call_timeout_seconds=60,
            **changes,
        )

    def controller(self, **changes: Any) -> Controller:
        return Controller(
            self.plan(),
            self.run_settings(**changes),
            factories=plain_engine.FACTORIES,
            worker=plain_engine.PlainWorker,
            block_bytes=256,
        )


BOTH = Place(0, 2)
PPO = Case("ppo", {"actor": BOTH, "critic": BOTH, "reference": BOTH, "reward": None})
SAFE_RLHF = Case(
    "safe_rlhf",
    {
        "actor": BOTH,
        "critic": Place(1, 1),
        "reference": Place(2, 1),
        "reward": None,
        "cost": None,
        "cost_critic": BOTH,
    },
    {"pretrain_loss": True},
    {"cost_limit": 0.3, "multiplier_learning_rate": 0.5},
)
"""Everything that PPO has, and more; disjoint, nested and equal ranges."""
DAPO = Case(
    "dapo",
    {"actor": BOTH, "reward": None},
    {"kl": "none", "expected_acceptance": 0.5},
    {"overlong_buffer_tokens": 2, "dynamic_sampling_max_rounds": 20},
)
REMAX = Case("remax", {"actor": BOTH, "reference": BOTH, "reward": None})
GRPO = Case(
    "grpo",
    {"actor": BOTH, "reference": Place(0, 1), "reward": None},
    {"kl": "loss", "old_log_probs": "rollout"},
    shadow=Place(2, 2),
)
STALE = replace(
    GRPO,
    workload={"kl": "loss", "old_log_probs": "recompute", "staleness": 1, "iterations": 4},
    settings={"off_policy_correction": "decoupled_ppo", "importance_weight_cap": 3.0},
)
RLOO = Case("rloo", {"actor": Place(0, 3), "reference": BOTH, "reward": None})
REINFORCE = Case("reinforce_plus_plus", {"actor": Place(0, 1), "reference": BOTH, "reward": None})


def expected_updates(num_rows: int, iteration: int) -> list[list[int]]:
    """The rows of each optimizer step, as documented: a new order every epoch."""
    updates = []
    for epoch in range(EPOCHS):
        order = epoch_order(num_rows, seed=SEED, epoch=(iteration - 1) * EPOCHS + epoch)
        updates += [order[a:b].tolist() for a, b in row_ranges(num_rows, UPDATES)]
    return updates


def scores_of(rollout: Batch) -> list[float]:
    prompts, answers = rollout.ragged("prompt_tokens"), rollout.ragged("response_tokens")
    return plain_engine.score(
        [row.tolist() for row in prompts.rows()], [row.tolist() for row in answers.rows()]
    )


def expected_rollout(prompts: Prompts, iteration: int, *, mixed: bool) -> Batch:
    """All rows of the iteration; with `mixed` of groups with unlike scores, drawn one by one."""
    kept: list[Batch] = []
    while len(kept) < PROMPTS:
        for row in range(PROMPTS):
            if row == 0:
                batch = prompts.next_batch(PROMPTS)
            group = torch.tensor([prompts.count - PROMPTS + row])
            drawn = responses(
                batch.take([row]).with_columns(group=group),
                responses_per_prompt=RESPONSES,
                greedy=False,
                iteration=iteration,
            )
            if not mixed or len(set(scores_of(drawn))) > 1:
                kept.append(drawn)
    return concatenate(kept[:PROMPTS])


class Expected:
    """The same iterations by the independent trainer."""

    def __init__(self, case: Case) -> None:
        self.case = case
        kl = case.workload.get("kl", "reward")
        trained = [role for role in ("actor", "critic", "cost_critic") if role in case.roles]
        models = {role: model_of(role) for role in [*trained, "reference"]}
        names = {
            "overlong_buffer_tokens": "overlong_buffer",
            "importance_weight_cap": "weight_cap",
        }
        changes = {
            names.get(name, name): value
            for name, value in case.settings.items()
            if name not in ("dynamic_sampling_max_rounds", "off_policy_correction")
        }
        numbers = Numbers.of(
            case.algorithm,
            kl=kl,
            maximum_response=6,
            learning_rate=LEARNING_RATE,
            epsilon=EPSILON,
            **changes,
        )
        self.trainer = ReferenceTrainer(case.algorithm, models, numbers)
        self.trained = trained
        self.prompts, self.texts = Prompts(), 0

    def iterate(self, iteration: int) -> None:
        case = self.case
        before = self.prompts.count
        rollout = expected_rollout(self.prompts, iteration, mixed=case.algorithm == "dapo")
        greedy_scores = None
        if case.algorithm == "remax":
            again = Prompts()
            again.count = before
            greedy = responses(
                again.next_batch(PROMPTS), responses_per_prompt=1, greedy=True, iteration=iteration
            )
            groups = rollout.tensor("group")[::RESPONSES].tolist()
            greedy_scores = dict(zip(groups, scores_of(greedy), strict=True))
        old, pretrain = None, None
        if case.workload.get("old_log_probs") == "rollout":
            old = [row.tolist() for row in rollout.ragged("response_log_probs").rows()]
        if case.workload.get("pretrain_loss"):
            first, self.texts = self.texts, self.texts + rollout.num_rows
            pretrain = [text(number).tolist() for number in range(first, self.texts)]
        answers = [row.tolist() for row in rollout.ragged("response_tokens").rows()]
        self.trainer.iteration(
            rollout,
            scores=scores_of(rollout),
            costs=plain_engine.cost(answers),
            greedy_scores=greedy_scores,
            updates=expected_updates(rollout.num_rows, iteration),
            old_log_probs=old,
            pretrain=pretrain,
        )


def assert_same_weights(controller: Controller, expected: Expected) -> None:
    for role in expected.trained:
        found = controller.groups[role].weights().result()
        wanted = expected.trainer.models[role].state_dict()
        start = model_of(role).state_dict()
        assert found.keys() == wanted.keys()
        assert max(float((found[name] - wanted[name]).abs().max()) for name in wanted) < TOLERANCE
        assert max(float((found[name] - start[name]).abs().max()) for name in wanted) > 1e-3


def run_and_compare(case: Case) -> list[FinishedIteration]:
    expected, prompts = Expected(case), Prompts()
    with case.controller() as controller:
        finished = run_iterations(
            controller, prompts, pretrain=Texts() if case.workload.get("pretrain_loss") else None
        )
        assert len(prompts.prepared) == len(finished) - 1  # nothing is read past the last one
        for record in finished:
            expected.iterate(record.number)
        assert_same_weights(controller, expected)
        if case.algorithm == "safe_rlhf":
            assert controller.multiplier == pytest.approx(expected.trainer.multiplier, abs=1e-6)
            assert controller.multiplier != 1
    return finished


def blocks() -> list[Block]:
    """Those that are alive in this process."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Block)]


@pytest.mark.slow
def test_safe_rlhf_on_disjoint_nested_and_shared_devices() -> None:
    others = blocks()  # constants of other tests of this process
    finished = run_and_compare(SAFE_RLHF)
    assert [each for each in blocks() if not any(each is other for other in others)] == []
    calls = finished[1].calls
    assert [call.name.id for call in calls].count("actor.train") == EPOCHS * UPDATES
    assert {call.name.id for call in calls} >= {
        "actor.generate",
        "actor.forward",
        "reference.forward",
        "critic.forward",
        "reward.forward",
        "numerics.gae",
        "critic.train",
    }
    by_id = {call.name.id: call for call in calls}
    generation = by_id["actor.generate"]
    assert generation.num_rows == PROMPTS * RESPONSES
    assert generation.worst("reshard_received") == 100
    assert generation.worst("generation_weights") == 50
    # The actor's first device is free for none but the actor; the critic waits for its second.
    assert by_id["critic.forward"].started >= by_id["actor.forward"].ended
    assert by_id["cost_critic.train"].started >= by_id["actor.train"].ended
    # The reference has a device of its own: it starts as soon as the rollout is there.
    assert by_id["reference.forward"].started < by_id["critic.forward"].ended


@pytest.mark.slow
def test_dapo_draws_until_the_batch_is_full() -> None:
    finished = run_and_compare(DAPO)
    rounds = [call for call in finished[0].calls if call.name.id == "actor.generate"]
    assert len(rounds) > 1


@pytest.mark.slow
def test_grpo_with_a_shadow_that_generates() -> None:
    finished = run_and_compare(GRPO)
    for record in finished:
        by_id = {call.name.id: call for call in record.calls}
        sync = by_id["actor.sync"]
        assert sync.ended <= by_id["actor.generate"].started
        assert {device.number for device in sync.devices} == {0, 1, 2, 3}
        assert sync.worst("weight_sync_received") == 8


@pytest.mark.slow
def test_iterations_overlap_as_planned_and_train_as_one_after_the_other() -> None:
    finished = run_and_compare(STALE)
    assert [record.rollout_metrics["rollout/staleness_max"] for record in finished] == [0, 1, 1, 1]
    for before, after in pairwise(finished):
        assert {call.iteration for call in after.calls} == {after.number}
        (generate,) = (call for call in after.calls if call.name.id == "actor.generate")
        trained = max(call.ended for call in before.calls if call.name.id == "actor.train")
        assert generate.started < trained
        assert before.ended <= after.started


@pytest.mark.slow
@pytest.mark.parametrize("case", [SAFE_RLHF, DAPO, REMAX], ids=str)
def test_other_programs_overlap(case: Case) -> None:
    """ReMax, whose loss cannot correct for old rollouts, with none."""
    corrected = case.algorithm != "remax"
    overlapping = replace(
        case,
        shadow=Place(4, 2),
        workload={**case.workload, "staleness": int(corrected), "barrier": False, "iterations": 3},
        settings={**case.settings, **(STALE.settings if corrected else {})},
    )
    finished = run_and_compare(overlapping)
    for before, after in pairwise(finished):
        assert after.rollout_metrics["rollout/staleness_max"] <= corrected
        generated = min(call.started for call in after.calls if call.name.id == "actor.generate")
        trained = max(call.ended for call in before.calls if call.name.method == "train_step")
        assert (generated < trained) == corrected


@pytest.mark.slow
def test_nothing_of_a_later_iteration_begins_before_a_checkpoint() -> None:
    prompts, drawn = Prompts(), []
    with STALE.controller() as controller:
        finished = run_iterations(
            controller,
            prompts,
            after_iteration=lambda record: drawn.append(prompts.count // PROMPTS),
            ends_alone=lambda number: number == 2,
        )
    assert drawn == [2, 2, 4, 4]
    assert [record.rollout_metrics["rollout/staleness_max"] for record in finished] == [0, 1, 0, 1]


@pytest.mark.slow
def test_remax_reshards_once_for_its_two_generations() -> None:
    for record in run_and_compare(REMAX):
        by_id = {call.name.id: call for call in record.calls}
        first, second = by_id["actor.generate"], by_id["actor.generate.greedy"]
        assert first.ended <= second.started
        assert first.worst("reshard_received") == 100
        assert second.worst("reshard_received") == 0


@pytest.mark.slow
@pytest.mark.parametrize("case", [PPO, RLOO, REINFORCE], ids=str)
def test_other_programs(case: Case) -> None:
    run_and_compare(case)


@pytest.mark.slow
def test_a_run_goes_on_from_its_saved_state_on_another_layout(tmp_path: Path) -> None:
    case = Case("reinforce_plus_plus", {"actor": BOTH, "reward": None}, {"kl": "none"})
    other = Case("reinforce_plus_plus", {"actor": Place(1, 1), "reward": None}, {"kl": "none"})
    expected = Expected(case)
    prompts = Prompts()
    with case.controller() as controller:
        controller.iterate(1, prompts)
        expected.iterate(1)
        layouts = controller.save_state(tmp_path)
        assert layouts["actor"].data_parallel_size == 2
        controller.iterate(2, Prompts())  # what comes after does not reach the checkpoint
        controller.finish_save()
    with other.controller() as controller:
        controller.load_state(tmp_path)
        (record,) = run_iterations(controller, prompts, first=2)
        expected.iterate(2)
        assert_same_weights(controller, expected)
        records = controller.records(record)
    kinds = [each.kind for each in records]
    assert kinds[-1] == "iteration"
    assert {"generate", "reshard", "forward", "train", "operation"} <= set(kinds)
    generation = next(each for each in records if each.kind == "generate")
    reshard = next(each for each in records if each.kind == "reshard")
    assert generation.ranks == reshard.ranks == (1,)
    assert reshard.bytes == {"reshard_received": 100}
    assert reshard.end_seconds == generation.start_seconds
    assert abs(records[-1].end_seconds - records[-1].start_seconds - record.seconds) < 1e-3
