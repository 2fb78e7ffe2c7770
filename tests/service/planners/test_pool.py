"""Planner processes that take too long, are cancelled, or die: the next request is answered."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from automap.planner.errors import InfeasibleError
from automap.planner.spec import JobSpec
from automap.service.api.refusals import refusal_of
from automap.service.errors.domain import (
    BusyError,
    PlannerCancelledError,
    PlannerCrashedError,
    PlannerDiedError,
    PlannerMemoryError,
    PlannerTimeoutError,
)
from automap.service.planners.messages import PlanTask, StrategiesTask
from automap.service.planners.pool import PlannerPool
from automap.service.planners.process import PlannerProcess
from tests.service.support.samples import infeasible_spec, large_spec

LARGE = PlanTask(spec=JobSpec.model_validate(large_spec()))


@pytest.fixture(scope="module")
def process() -> Iterator[PlannerProcess]:
    process = PlannerProcess(tick_seconds=0.1)
    yield process
    process.stop()


def pid(process: PlannerProcess) -> int:
    assert process.pid is not None
    return process.pid


def answers(process: PlannerProcess) -> bool:
    return bool(process.run(StrategiesTask(), limit_seconds=60))


def alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_stays_warm_between_requests(process: PlannerProcess) -> None:
    assert answers(process)
    first = pid(process)
    started = time.perf_counter()
    assert answers(process)
    assert time.perf_counter() - started < 0.5
    assert pid(process) == first


def test_whoever_reads_goes_before_whoever_plans(process: PlannerProcess) -> None:
    assert answers(process)
    planner, own = (os.getpriority(os.PRIO_PROCESS, each) for each in (pid(process), 0))
    assert planner == min(own + 3, 19)


@pytest.mark.slow
def test_the_planners_errors_arrive_as_they_were(process: PlannerProcess) -> None:
    request = PlanTask(spec=JobSpec.model_validate(infeasible_spec()))
    with pytest.raises(InfeasibleError) as caught:
        process.run(request, limit_seconds=60)
    assert caught.value.reasons


def test_an_unreadable_request_does_not_end_the_process(process: PlannerProcess) -> None:
    assert answers(process)
    first = pid(process)
    spec = LARGE.spec.model_copy(update={"name": ""})
    with pytest.raises(PlannerCrashedError, match="ValidationError"):
        process.run(PlanTask.model_construct(kind="plan", spec=spec), limit_seconds=60)
    assert answers(process)
    assert pid(process) == first


def test_a_late_answer_ends_the_process(process: PlannerProcess) -> None:
    assert answers(process)
    late = pid(process)
    started = time.perf_counter()
    with pytest.raises(PlannerTimeoutError):
        process.run(LARGE, limit_seconds=0.2)
    assert time.perf_counter() - started < 2
    assert not alive(late)
    assert answers(process)


def test_an_unwanted_search_ends(process: PlannerProcess) -> None:
    assert answers(process)
    with pytest.raises(PlannerCancelledError):
        process.run(LARGE, limit_seconds=60, keep_going=lambda: False)
    assert answers(process)


@pytest.mark.slow
def test_a_killed_process_is_tried_once_more(process: PlannerProcess) -> None:
    assert answers(process)
    victim = pid(process)
    threading.Timer(0.2, os.kill, (victim, signal.SIGKILL)).start()
    assert process.run(LARGE, limit_seconds=60)
    assert pid(process) != victim


def test_a_process_that_is_killed_again_says_how_and_is_replaced(process: PlannerProcess) -> None:
    assert answers(process)
    killed: set[int] = set()

    def kill() -> bool:
        if pid(process) not in killed:
            killed.add(pid(process))
            os.kill(pid(process), signal.SIGKILL)
        return True

    with pytest.raises(PlannerDiedError) as caught:
        process.run(LARGE, limit_seconds=60, keep_going=kill)
    assert len(killed) == 2
    refusal = refusal_of(caught.value)
    assert (refusal.status, refusal.type) == (500, "/problems/planner-killed")
    assert "SIGKILL" in refusal.detail
    assert answers(process)


@pytest.mark.slow
def test_a_process_that_takes_too_much_memory_is_ended() -> None:
    usual = PlannerProcess()
    assert answers(usual)
    warm = resident_bytes(pid(usual))
    usual.stop()
    process = PlannerProcess(memory_bytes=warm + 2**24)
    assert answers(process)
    greedy = pid(process)
    with pytest.raises(PlannerMemoryError) as caught:
        process.run(LARGE, limit_seconds=60)
    refusal = refusal_of(caught.value)
    assert (refusal.status, refusal.type) == (422, "/problems/planning-memory")
    assert "GiB" in refusal.detail
    assert not alive(greedy)
    assert answers(process)
    process.stop()


def test_a_process_bounds_what_it_reserves_by_itself() -> None:
    process = PlannerProcess(memory_bytes=2**30)
    assert answers(process)
    limits = Path(f"/proc/{pid(process)}/limits").read_text()
    (data,) = (line for line in limits.splitlines() if line.startswith("Max data size"))
    assert data.split()[3:5] == [str(3 * 2**30), str(3 * 2**30)]
    process.stop()


def resident_bytes(process_id: int) -> int:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_process_that_died_idle_is_not_noticed(process: PlannerProcess) -> None:
    assert answers(process)
    os.kill(pid(process), signal.SIGKILL)
    time.sleep(0.1)
    assert answers(process)


def test_stopping_ends_a_running_search() -> None:
    process = PlannerProcess()
    assert answers(process)
    running = pid(process)
    threading.Timer(0.2, process.stop).start()
    with pytest.raises(PlannerCancelledError):
        process.run(LARGE, limit_seconds=60)
    assert not alive(running)
    with pytest.raises(PlannerCancelledError):
        process.run(StrategiesTask(), limit_seconds=60)


def test_only_so_many_requests_wait() -> None:
    pool = PlannerPool(size=1, max_waiting=1)
    release = threading.Event()
    inside = threading.Semaphore(0)

    def hold() -> None:
        with pool.process():
            inside.release()
            release.wait()

    threads = [threading.Thread(target=hold) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.acquire()
    time.sleep(0.1)  # the second waits for the one process by now
    with pytest.raises(BusyError) as caught, pool.process():
        pass
    assert refusal_of(caught.value).status == 503
    release.set()
    for thread in threads:
        thread.join()
    with pool.process():
        pass


def test_nobody_waits_for_what_is_not_wanted() -> None:
    pool = PlannerPool(size=1, max_waiting=1)
    with pool.process():
        with (
            pytest.raises(PlannerCancelledError),
            pool.process(is_wanted=lambda: False),
        ):
            pass
        with pytest.raises(BusyError), pool.process(wait_seconds=0.1):
            pass
    with pool.process():
        pass
