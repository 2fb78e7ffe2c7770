"""Continuous rollouts on threads in place of processes: what is trained, on what, and when."""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from automap.executor.batch import Batch
from automap.executor.checkpoints import FinishedResponses
from automap.executor.errors import CallFailedError, CallTimeoutError, RunError
from automap.executor.runtime import controller as module
from automap.executor.runtime.controller import Controller, run_iterations
from automap.executor.runtime.finished_calls import FinishedIteration
from automap.executor.runtime.runnable import check_plan
from automap.executor.settings import AlgorithmSettings, DataSettings, FunctionSettings, RunSettings
from automap.executor.workers.row_references import fetch
from tests.executor.runtime import threads
from tests.executor.small_plans import Place, small_plan

ITERATIONS, PROMPTS, RESPONSES = 6, 6, 3
BATCH = PROMPTS * RESPONSES
SHADOW = Place(2, 2)
"""Two replicas."""
CORRECTION = {"off_policy_correction": "decoupled_ppo"}


def controller(
    *,
    algorithm: str = "grpo",
    staleness: int = 1,
    continuous: bool = True,
    shadow: Place | None = SHADOW,
    reward: str = "tests.executor.runtime.threads:score",
    reward_seconds: float = 10.0,
    settings: dict[str, Any] | None = None,
    finished: FinishedResponses | None = None,
    **workload: Any,
) -> Controller:
    roles: dict[str, Place | None] = {"actor": Place(0, 1), "reward": None}
    if algorithm == "ppo":
        roles["critic"] = Place(1, 1)
    plan = small_plan(
        algorithm,
        roles,
        shadow=shadow,
        staleness=staleness,
        continuous=continuous,
        **{"kl": "none", "iterations": ITERATIONS, "prompts_per_iteration": PROMPTS, **workload},
    )
    run = RunSettings(
        data=DataSettings(path=Path("unused")),
        functions={"reward": FunctionSettings(path=reward, timeout_seconds=reward_seconds)},
        algorithm=AlgorithmSettings(**(CORRECTION if settings is None else settings)),
        rollout={"max_running_sequences": 8, "steps_per_turn": 1},
        call_timeout_seconds=20,
    )
    return Controller(plan, run, factories=threads.FACTORIES, finished=finished)


class Trained:
    """What iterations took, seen as they are begun."""

    def __init__(self, running: Controller, patch: pytest.MonkeyPatch) -> None:
        self.futures: list[Any] = []

        class Watched(module.Iteration):
            def __init__(own, **given: Any) -> None:  # noqa: N805
                super().__init__(**given)
                self.futures.append(own.responses)

        patch.setattr(module, "Iteration", Watched)

    def batches(self) -> list[Batch]:
        return [fetch(future.result()) for future in self.futures]


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def run(
    running: Controller, trained: Trained, **given: Any
) -> tuple[list[Batch], list[FinishedIteration]]:
    finished = run_iterations(running, threads.Prompts(), **given)
    return trained.batches(), finished


def rollouts(running: Controller) -> list[threads.TableRollout]:
    processes = running.groups["actor.shadow"].processes.processes
    return [each._process._workers["actor.shadow"].rollout for each in processes]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "staleness"), [("grpo", 1), ("grpo", 2), ("grpo", 4), ("ppo", 2)]
)
def test_batches_come_in_the_order_of_the_data_within_the_bound(
    algorithm: str, staleness: int, patch: pytest.MonkeyPatch
) -> None:
    with (
        threads.without_ray(staleness),
        controller(algorithm=algorithm, staleness=staleness) as running,
    ):
        trained = Trained(running, patch)
        batches, finished = run(running, trained)
        turns = [turn for each in rollouts(running) for turn in each.turns]
    for number, batch in enumerate(batches):
        assert batch.tensor("request").tolist() == list(range(number * BATCH, (number + 1) * BATCH))
        assert batch.tensor("prompt_id").tolist() == [
            number * PROMPTS + row // RESPONSES for row in range(BATCH)
        ]
        assert batch.tensor("group").tolist() == [row // RESPONSES for row in range(BATCH)]
        versions = batch.ragged("token_versions")
        assert all(row.tolist() == sorted(row.tolist()) for row in versions.rows())
        behind = number - versions.values
        assert int(behind.min()) >= 0
        assert int(behind.max()) <= staleness
        scores = torch.tensor(
            threads.score([r.tolist() for r in batch.ragged("response_tokens").rows()])
        )
        assert torch.allclose(batch.tensor("reward.scores"), scores)
    # More is never in flight than the bound admits, and that much is: the bound is what holds it.
    latest = {version: 0 for version, _ in turns}
    for version, requests in turns:
        latest[version] = max([latest[version], *(each // BATCH + 1 for each in requests)])
    assert all(found <= version + 1 + staleness for version, found in latest.items())
    assert any(found == version + 1 + staleness for version, found in latest.items())
    metrics = [each.rollout_metrics for each in finished]
    assert max(each["rollout/staleness_max"] for each in metrics) == staleness
    assert any(each["rollout/spanning_share"] > 0 for each in metrics)


@pytest.mark.slow
def test_turns_go_on_while_others_train() -> None:
    with threads.without_ray(5), controller(staleness=2) as running:
        finished = run_iterations(running, threads.Prompts())
    calls = [call for each in finished for call in each.calls]
    turns = [call for call in calls if call.name.id == "actor.generate"]
    trains = [call for call in calls if call.name.id == "actor.train"]
    syncs = [call for call in calls if call.name.id == "actor.sync"]
    assert len(trains) == ITERATIONS * threads.STEPS
    assert len(syncs) == ITERATIONS
    overlapped = [
        each
        for each in trains
        if any(turn.started < each.ended and each.started < turn.ended for turn in turns)
    ]
    assert len(overlapped) > ITERATIONS
    # A sync and a turn have the same devices: never both at a time.
    in_order = sorted((*turns, *syncs), key=lambda each: each.started)
    assert all(before.ended <= after.started + 1e-4 for before, after in pairwise(in_order))


@pytest.mark.slow
def test_with_staleness_0_it_is_the_synchronous_run_to_the_bit() -> None:
    weights = []
    for continuous in (True, False):
        with (
            threads.without_ray(int(continuous)),
            controller(staleness=0, continuous=continuous) as running,
        ):
            finished = run_iterations(running, threads.Prompts())
            (process,) = running.groups["actor"].processes.processes
            weights.append(process._process._workers["actor"].engine.weights.table.detach())
        assert {each.rollout_metrics["rollout/staleness_max"] for each in finished} == {0}
    assert torch.equal(*weights)


@pytest.mark.slow
def test_what_an_ended_attempt_has_finished_is_not_generated_again(
    tmp_path: Path, patch: pytest.MonkeyPatch
) -> None:
    """Its first iteration was trained, and no checkpoint written: all of it is trained on again."""
    kept = FinishedResponses(tmp_path)

    def stop(record: FinishedIteration) -> None:
        if record.number == 2:
            raise KeyboardInterrupt

    with threads.without_ray(1), controller(staleness=2, finished=kept) as running:
        trained = Trained(running, patch)
        with pytest.raises(KeyboardInterrupt):
            run(running, trained, after_iteration=stop)
        before = trained.batches()
    found = {number: kept.read(number) for number in range(1, ITERATIONS + 1)}
    on_disk = {request for lines in found.values() for request in lines}
    assert {len(found[1]), len(found[2])} == {BATCH}
    assert len(on_disk) < ITERATIONS * BATCH
    cut = next(each for each in tmp_path.rglob("iteration-000002/*.jsonl"))
    with cut.open("ab") as file:
        file.write(b'{"request":12,"promp')  # a line that a kill has cut
    with threads.without_ray(2), controller(staleness=2, finished=kept) as running:
        trained = Trained(running, patch)
        batches, _ = run(running, trained)
        generated = {
            request for each in rollouts(running) for _, those in each.turns for request in those
        }
    assert generated == set(range(ITERATIONS * BATCH)) - on_disk
    assert [int(request) for batch in batches for request in batch.tensor("request")] == list(
        range(ITERATIONS * BATCH)
    )
    for ours, theirs in zip(batches, before, strict=False):
        for name in ("response_tokens", "response_log_probs", "token_versions"):
            assert torch.equal(ours.ragged(name).values, theirs.ragged(name).values), name
            assert ours.ragged(name).values.dtype == theirs.ragged(name).values.dtype
    kept.drop(up_to=ITERATIONS - 1)
    assert [each.name for each in tmp_path.iterdir()] == [f"iteration-{ITERATIONS:06d}"]


def test_responses_of_other_prompts_are_not_taken(tmp_path: Path) -> None:
    """Another seed, or other data: what lies there is of no use."""
    kept = FinishedResponses(tmp_path)
    with threads.without_ray(1), controller(iterations=1, finished=kept) as running:
        run_iterations(running, threads.Prompts())
    others = threads.Prompts()
    others.next_batch(7)
    with threads.without_ray(1), controller(iterations=1, finished=kept) as running:
        run_iterations(running, others)
        assert sum(len(each.turns) for each in rollouts(running)) > 0


def broken(response_tokens: list[list[int]]) -> list[float]:
    raise ValueError("no such answer")


def test_a_function_that_fails_beside_training_is_named() -> None:
    reward = f"{__name__}:broken"
    with (
        threads.without_ray(0),
        controller(reward=reward) as running,
        pytest.raises(CallFailedError, match=r"reward\.score .*function .*no such answer"),
    ):
        run_iterations(running, threads.Prompts())


def hangs(response_tokens: list[list[int]]) -> list[float]:
    time.sleep(2.0)  # a thread cannot be ended: the run's end waits for it
    return [0.0] * len(response_tokens)


@pytest.mark.slow
def test_an_environment_that_hangs_beside_training_is_named() -> None:
    with (
        threads.without_ray(0),
        controller(reward=f"{__name__}:hangs", reward_seconds=0.5) as running,
        pytest.raises(CallTimeoutError, match=r"reward\.score .*:hangs.* within 0\.5 s"),
    ):
        run_iterations(running, threads.Prompts())


@pytest.mark.slow
def test_where_training_is_slow_engines_stop_at_the_bound(patch: pytest.MonkeyPatch) -> None:
    """The buffer is full: what is begun is all that the bound admits, and no more comes."""
    staleness, step, begun = 1, threads.TableEngine.train_step, list[set[int]]()
    patch.setattr(threads.Response, "awaits_weights", lambda *_: False)  # all that is begun ends

    with threads.without_ray(3), controller(staleness=staleness) as running:

        def turns() -> list[tuple[int, list[int]]]:
            return [turn for each in rollouts(running) for turn in each.turns]

        def slow(engine: threads.TableEngine, *args: Any, **given: Any) -> dict[str, float]:
            if engine.weights.steps % threads.STEPS == 0:
                before, deadline = -1, time.monotonic() + 10
                while before != len(turns()) and time.monotonic() < deadline:
                    before = len(turns())
                    time.sleep(0.3)
                begun.append({request for _, those in turns() for request in those})
            return step(engine, *args, **given)

        patch.setattr(threads.TableEngine, "train_step", slow)
        run_iterations(running, threads.Prompts())
    admitted = [min(each + 1 + staleness, ITERATIONS) * BATCH for each in range(ITERATIONS)]
    assert begun == [set(range(each)) for each in admitted]


@pytest.mark.slow
def test_nothing_is_generated_with_weights_that_came_half(
    tmp_path: Path, patch: pytest.MonkeyPatch
) -> None:
    """A sync that fails ends the attempt; the next one has whole weights, and what was finished."""
    kept, run_sync, versions = FinishedResponses(tmp_path), threads.TableSync.run, list[int]()

    def half(sync: threads.TableSync) -> dict[str, float]:
        rollout = sync.rollout if sync.place.rank == 1 else None
        if rollout is not None and rollout.received.steps == 2 * threads.STEPS:
            table = rollout.received.table.detach().clone()
            table[::2] = torch.nan
            rollout.received = threads.Weights(table, 2 * threads.STEPS)
            versions.append(2)
            raise ConnectionError("the peer is gone")
        return run_sync(sync)

    with threads.without_ray(1), controller(staleness=2, finished=kept) as running:
        patch.setattr(threads.TableSync, "run", half)
        with pytest.raises(CallFailedError, match="the peer is gone"):
            run_iterations(running, threads.Prompts())
        patch.undo()
        turns = [version for each in rollouts(running) for version, _ in each.turns]
    assert versions == [2]
    assert max(turns) == 2  # none with the new weights, nor with a mixture under the old name
    found = [line for number in range(1, ITERATIONS + 1) for line in kept.read(number).values()]
    assert found
    with threads.without_ray(2), controller(staleness=2, finished=kept) as running:
        batches, _ = run(running, Trained(running, patch))
    assert [int(request) for batch in batches for request in batch.tensor("request")] == list(
        range(ITERATIONS * BATCH)
    )
    assert all(
        bool(batch.ragged("response_log_probs").values.isfinite().all()) for batch in batches
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"settings": {}},
            r"algorithm\.off_policy_correction: it is not set, but rollouts may be 1 iterations",
        ),
        (
            {"algorithm": "dapo"},
            r"search\.continuous_rollouts: it is true, and dapo drains batches",
        ),
    ],
)
def test_what_cannot_be_run_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        controller(**given)


def test_what_generates_all_the_time_has_devices_of_its_own() -> None:
    with threads.without_ray(0):
        running = controller()
    copies = [each.model_copy(update={"first_gpu": 0}) for each in running.plan.copies]
    plan = running.plan.model_copy(update={"copies": copies})
    message = r"search\.continuous_rollouts: actor\.generate lies on devices of actor, but what"
    with pytest.raises(RunError, match=message):
        check_plan(plan, running.settings, running.program)
