"""Programs whose iterations overlap, on threads in place of processes: what is trained, on what."""

import time
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from automap.executor.batch import Batch
from automap.executor.errors import CallFailedError, RunError
from automap.executor.runtime.controller import Controller, run_iterations
from automap.executor.runtime.finished_calls import FinishedIteration
from automap.executor.settings import AlgorithmSettings, DataSettings, FunctionSettings, RunSettings
from automap.planner.dataflow import PROGRAMS, Program
from tests.executor.runtime import threads
from tests.executor.small_plans import Place, small_plan

ITERATIONS, STEPS = 5, 4
HOME = Place(0, 1)
ROLES: dict[str, dict[str, Place | None]] = {
    "ppo": {"actor": HOME, "critic": Place(2, 1), "reference": Place(3, 1)},
    "grpo": {"actor": HOME, "reference": Place(2, 1)},
    "dapo": {"actor": HOME},
    "reinforce_plus_plus": {"actor": HOME},
    "safe_rlhf": {
        "actor": HOME,
        "critic": Place(2, 1),
        "reference": Place(3, 1),
        "cost": None,
        "cost_critic": Place(4, 1),
    },
    "remax": {"actor": HOME, "reference": Place(2, 1)},
    "rloo": {"actor": HOME},
}
CORRECTION = {"off_policy_correction": "truncated_importance_sampling"}
Run = tuple[dict[str, Tensor], list[FinishedIteration]]


def controller(
    algorithm: str,
    *,
    settings: dict[str, Any] | None = None,
    program: Program | None = None,
    reward: str = "tests.executor.runtime.threads:score",
    **workload: Any,
) -> Controller:
    roles = {**ROLES[algorithm], "reward": None}
    kl = "none" if "reference" not in roles else "reward"
    paths = {"reward": reward, "cost": "tests.executor.runtime.threads:cost"}
    plan = small_plan(
        algorithm,
        roles,
        shadow=Place(1, 1),
        **{"kl": kl, "iterations": ITERATIONS, **workload},
    )
    run = RunSettings(
        data=DataSettings(path=Path("unused")),
        functions={role: FunctionSettings(path=paths[role]) for role in roles if role in paths},
        algorithm=AlgorithmSettings(**(settings or {})),
        call_timeout_seconds=20,
    )
    return Controller(plan, run, factories=threads.FACTORIES, program=program)


def run(
    algorithm: str, *, seed: int = 0, alone: bool = False, saves: bool = False, **given: Any
) -> Run:
    """The weights of every role that trains, and the iterations.

    `alone`: one iteration after the other; `saves`: after each a checkpoint is waited for, late.
    """
    with threads.without_ray(seed), controller(algorithm, **given) as running:
        prompts = threads.Prompts()
        if alone:
            finished = [running.iterate(each + 1, prompts) for each in range(ITERATIONS)]
        else:
            finished = run_iterations(
                running, prompts, after_iteration=lambda _: saved(running) if saves else None
            )
        weights = {}
        for role, group in running._trained().items():
            (process,) = group.processes.processes
            weights[role] = process._process._workers[role].engine.weights.table.detach()
        return weights, finished


def saved(running: Controller) -> None:
    time.sleep(0.05)  # the next rollout is there, and its training waits for its turn
    running.finish_save()


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(one[role], other[role]) for role in one)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted(ROLES))
def test_with_staleness_0_it_is_the_synchronous_run_to_the_bit(algorithm: str) -> None:
    corrected = PROGRAMS[algorithm].has_importance_ratio
    given = {"settings": CORRECTION if corrected else {}, "barrier": False}
    together, finished = run(algorithm, **given)
    one_by_one, _ = run(algorithm, seed=1, alone=True, **given)
    assert equal(together, one_by_one)
    assert {each.rollout_metrics["rollout/staleness_max"] for each in finished} == {0}
    if corrected:
        # The correction has a say in it: the two engines differ a little.
        assert not equal(together, run(algorithm, barrier=False)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", [each for each in sorted(ROLES) if PROGRAMS[each].has_importance_ratio]
)
def test_with_staleness_a_run_repeats_and_overlaps(algorithm: str) -> None:
    given = {"settings": CORRECTION, "staleness": 1}
    first, finished = run(algorithm, seed=2, **given)
    again, _ = run(algorithm, seed=3, saves=True, **given)
    assert equal(first, again)
    assert not equal(first, run(algorithm, alone=True, settings=CORRECTION)[0])
    behind = [each.rollout_metrics["rollout/staleness_max"] for each in finished]
    assert behind == [0, 1, 1, 1, 1]
    overlaps = 0
    for before, after in pairwise(finished):
        generates = [call.started for call in after.calls if call.name.id == "actor.generate"]
        trained = max(call.ended for call in before.calls if call.name.id == "actor.train")
        overlaps += min(generates) < trained
    assert overlaps == ITERATIONS - 1


@pytest.mark.parametrize(
    ("staleness", "behind"),
    [
        (0, [0, 0, 0, 0, 0]),
        (1, [0, 1, 1, 1, 1]),
        # This plan syncs for the next iteration just before it generates.
        (2, [0, 1, 1, 1, 1]),
    ],
)
def test_every_row_names_the_weights_that_generated_it(staleness: int, behind: list[int]) -> None:
    """Those who generate tell how many optimizer steps made the weights that they have."""
    seen: list[int] = []

    def with_versions(scores: Tensor, rollout: Batch) -> Tensor:
        versions = rollout.tensor("weights_version")
        assert torch.equal(rollout.tensor("true_steps"), versions * STEPS)
        seen.extend(versions.unique().tolist())
        return scores

    def learn(models: Any, prompts: Any, ops: Any) -> None:
        rollout = models.actor.generate(prompts)
        old = models.actor.log_probs(rollout)
        scores = ops.apply(with_versions, models.reward.score(rollout), rollout)
        advantages = ops.group_normalise(ops.penalise_kl(scores, None, None))
        models.actor.train(rollout, loss="ppo_clip", advantages=advantages, old_log_probs=old)

    program = replace(PROGRAMS["grpo"], run=learn)
    given = {"kl": "none", "staleness": staleness, "settings": CORRECTION}
    _, finished = run("reinforce_plus_plus", program=program, **given)
    assert seen == [number - each for number, each in enumerate(behind)]
    for name in ("max", "mean"):
        assert [each.rollout_metrics[f"rollout/staleness_{name}"] for each in finished] == behind


def test_what_fails_beside_another_iteration_is_named() -> None:
    """The rewards of the third iteration, while the fourth is generated."""
    calls = count(1)

    def broken(scores: Tensor) -> Tensor:
        if next(calls) == 3:
            raise ValueError("no such answer")
        return scores

    def learn(models: Any, prompts: Any, ops: Any) -> None:
        rollout = models.actor.generate(prompts)
        old = models.actor.log_probs(rollout)
        scores = ops.apply(broken, models.reward.score(rollout))
        advantages = ops.group_normalise(ops.penalise_kl(scores, None, None))
        models.actor.train(rollout, loss="ppo_clip", advantages=advantages, old_log_probs=old)

    program = replace(PROGRAMS["grpo"], run=learn)
    done: list[int] = []
    given = {"program": program, "staleness": 1, "settings": CORRECTION}
    with (
        threads.without_ray(0),
        controller("reinforce_plus_plus", **given) as running,
        pytest.raises(CallFailedError, match=r"numerics\.run failed .*no such answer"),
    ):
        run_iterations(
            running, threads.Prompts(), after_iteration=lambda each: done.append(each.number)
        )
    assert done in ([1], [1, 2])


@pytest.mark.parametrize(
    ("algorithm", "settings", "workload", "message"),
    [
        (
            "grpo",
            {},
            {"staleness": 2},
            r"algorithm\.off_policy_correction: it is not set, but rollouts may be 2 iterations "
            r"old .*; use decoupled_ppo or truncated_importance_sampling, or plan with old_log",
        ),
        (
            "grpo",
            CORRECTION,
            {"staleness": 1, "old_log_probs": "rollout"},
            r"algorithm\.off_policy_correction: it is truncated_importance_sampling, but with "
            r"workload\.old_log_probs: rollout",
        ),
        (
            "remax",
            {"off_policy_correction": "decoupled_ppo"},
            {},
            r"algorithm\.off_policy_correction: it is decoupled_ppo, but the loss has no import",
        ),
        (
            "ppo",
            {"importance_weight_cap": 3},
            {},
            r"algorithm\.importance_weight_cap: it is 3, but no correction is chosen",
        ),
    ],
)
def test_old_rollouts_without_a_correction_are_refused(
    algorithm: str, settings: dict[str, Any], workload: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        controller(algorithm, settings=settings, **workload)


def test_old_rollouts_of_a_loss_without_a_ratio_are_refused() -> None:
    program = replace(PROGRAMS["grpo"], has_importance_ratio=False)
    message = r"search\.staleness: it is 1, but the loss has no importance ratio"
    with pytest.raises(RunError, match=message):
        controller("reinforce_plus_plus", staleness=1, program=program)


def test_the_ratio_to_who_generated_needs_no_correction() -> None:
    assert controller("grpo", staleness=1, old_log_probs="rollout").ahead == 1
