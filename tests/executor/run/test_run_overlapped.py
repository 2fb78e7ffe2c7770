"""A run whose iterations overlap, and what a kill -9 in the middle of two changes: nothing."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from automap.executor.tiny.tasks import write_prompts
from automap.planner.plan.types import Plan
from tests.executor.run.run_process import RunProcess
from tests.executor.small_plans import Place, small_plan

pytestmark = [pytest.mark.many_processes, pytest.mark.slow]

ITERATIONS, SAVED_EVERY = 6, 3
Start = Callable[..., RunProcess]
WEIGHTS = Path("actor", "model.safetensors")
LEARNT = ("actor/pg_loss", "actor/grad_norm", "critic/score/mean", "rollout/staleness_max")


def overlapping_plan(*, shadow: Place | None = None, staleness: int = 0) -> Plan:
    """One process trains; another one generates, if there is a shadow."""
    return small_plan(
        "reinforce_plus_plus",
        {"actor": Place(0, 1), "reward": None},
        shadow=shadow,
        staleness=staleness,
        kl="none",
        prompts_per_iteration=8,
        responses_per_prompt=4,
        prompt_length={"mean": 3, "max": 4},
        response_length={"mean": 8, "max": 8},
        iterations=ITERATIONS,
    )


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    prompts = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    write_prompts(prompts, task="count_token", num_prompts=32)
    training = {"optimizer": {"learning_rate": 1e-2}, "micro_batch_tokens": 256}
    settings: dict[str, Any] = {
        "functions": {"reward": {"path": "tests.executor.runtime.threads:score"}},
        "data": {"path": str(prompts)},
        "training": {"default": training},
        "algorithm": {"off_policy_correction": "decoupled_ppo"},
        "checkpoint": {"every_iterations": SAVED_EVERY},
        "metrics": {"loggers": ["jsonl"]},
        "seed": 3,
    }
    started: list[RunProcess] = []

    def make(folder: Path, plan: Plan | None = None) -> RunProcess:
        plan = plan or overlapping_plan(shadow=Place(1, 1), staleness=1)
        started.append(RunProcess(plan, settings, folder))
        return started[-1]

    yield make
    for run in started:
        run.kill_all()


@pytest.fixture(scope="module")
def undisturbed(start: Start, tmp_path_factory: pytest.TempPathFactory) -> RunProcess:
    run = start(tmp_path_factory.mktemp("undisturbed"))
    assert run.end() == 0, run.log()
    return run


def assert_alike(run: RunProcess, other: RunProcess) -> None:
    """They trained on the same, to the bit."""
    assert (run.folder / WEIGHTS).read_bytes() == (other.folder / WEIGHTS).read_bytes()
    ours, theirs = run.metrics(), other.metrics()
    for name in LEARNT:
        assert [each[name] for each in ours] == [each[name] for each in theirs], name


def test_with_staleness_0_it_is_the_synchronous_run_to_the_bit(
    start: Start, tmp_path: Path
) -> None:
    """Engines on devices of their own, whose weights come by syncs, and one that takes turns."""
    apart = start(tmp_path / "apart", overlapping_plan(shadow=Place(1, 1)))
    assert apart.end() == 0, apart.log()
    in_turn = start(tmp_path / "in turn", overlapping_plan())
    assert in_turn.end() == 0, in_turn.log()
    assert {each["rollout/staleness_max"] for each in apart.metrics()} == {0}
    assert_alike(apart, in_turn)


def test_a_batch_is_generated_while_the_one_before_is_trained_on(undisturbed: RunProcess) -> None:
    metrics = undisturbed.metrics()
    assert [each["rollout/staleness_max"] for each in metrics] == [0, 1, 1, 0, 1, 1]
    for each in metrics:
        assert each["actor/grad_norm"] > 0
        # Old weights generated, so the weights of the tokens are not all 1.
        assert (abs(each["actor/behaviour_kl"]) > 1e-4) == (each["rollout/staleness_max"] > 0)
    ends = {
        (call["iteration"], call["call"]): number
        for number, call in enumerate(undisturbed.events("call"))
    }
    for number in range(2, SAVED_EVERY + 1):
        assert ends[number, "actor.generate"] < ends[number - 1, "actor.train"]
    assert ends[SAVED_EVERY, "actor.train"] < ends[SAVED_EVERY + 1, "actor.generate"]


@pytest.mark.parametrize("which", [0, 1], ids=["the larger", "the other"])
def test_a_worker_that_is_killed_with_two_iterations_in_flight(
    start: Start, undisturbed: RunProcess, tmp_path: Path, which: int
) -> None:
    run = start(tmp_path)
    # Written after the fourth iteration: the fifth has its responses, the sixth has not, so both
    # processes have something left to do.
    checkpoint = run.folder / "checkpoints" / f"iteration-{SAVED_EVERY:06}"
    run.wait_until(checkpoint.exists)
    finished = len(run.events("iteration"))
    os.kill(run.workers()[which], signal.SIGKILL)
    assert run.end() == 0, run.log()
    assert finished < ITERATIONS - 1, "it was killed too late"
    logs = [event["message"] for event in run.events("log")]
    assert f"resuming after iteration {SAVED_EVERY}" in " ".join(logs)
    assert run.report()["outcome"]["restarts"] == 1
    assert [each["training/global_step"] for each in run.metrics()] == [*range(1, ITERATIONS + 1)]
    assert_alike(run, undisturbed)
