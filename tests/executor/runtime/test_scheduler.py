"""The order of calls, with processes that answer when the test says so."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future as Pending
from dataclasses import dataclass, field
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from automap.executor.errors import (
    CallFailedError,
    CallTimeoutError,
    RunCancelledError,
    WorkerDiedError,
)
from automap.executor.runtime.blame import CallName
from automap.executor.runtime.placement import Device
from automap.executor.runtime.plan_order import PlannedCall
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.runtime.tasks import Future, Task
from automap.executor.workers.process import Failure, Reply
from automap.executor.workers.row_references import Traffic


@dataclass
class Hand:
    """Stands where Ray would: keeps what was started until the test answers."""

    started: list[str] = field(default_factory=list)
    open: dict[str, dict[int, "Pending[Reply]"]] = field(default_factory=dict)

    def call(
        self,
        scheduler: Scheduler,
        name: str,
        *devices: int,
        inputs: tuple[Future[Any], ...] = (),
        ranks: int = 1,
        timeout_seconds: float = 60.0,
        processes: object | None = None,
        rounds: int = 1,
    ) -> Future[Any]:
        left = [rounds]

        def start() -> Mapping[int, Any]:
            left[0] -= 1
            self.started.append(name)
            self.open[name] = {rank: Pending() for rank in range(ranks)}
            return {rank: Reference(pending) for rank, pending in self.open[name].items()}

        role, method = name.split(".")
        return scheduler.submit(
            Task(
                name=CallName(name, role, method, ranks),
                devices=frozenset(Device("pool", number) for number in devices),
                inputs=inputs,
                start=start,
                finish=lambda replies: [replies[rank].value for rank in sorted(replies)],
                stacks=lambda ranks: dict.fromkeys(ranks, 'File "a.py", line 1, in work'),
                again=None if rounds == 1 else lambda replies: start() if left[0] else {},
                timeout_seconds=timeout_seconds,
                processes=processes,
            )
        )

    def answer(self, name: str, value: object = None, seconds: float = 0.0) -> None:
        for pending in self.open.pop(name).values():
            pending.set_result(reply(value, seconds=seconds))


@dataclass(frozen=True)
class Reference:
    pending: "Pending[Reply]"

    def future(self) -> "Pending[Reply]":
        return self.pending


def reply(
    value: object = None,
    failure: Failure | None = None,
    at: float = 0.0,
    seconds: float = 0.0,
) -> Reply:
    return Reply(value, failure, at, seconds, Traffic(), {})


def eventually(found: Callable[[], object], wanted: object) -> None:
    """The scheduler's thread needs a moment; what it did too much stays wrong."""
    deadline = time.monotonic() + 10
    while found() != wanted and time.monotonic() < deadline:
        time.sleep(0.001)
    assert found() == wanted


@pytest.fixture
def scheduler() -> Any:
    made = Scheduler()
    yield made
    made.close()


def test_disjoint_devices_overlap_and_shared_ones_wait(scheduler: Scheduler) -> None:
    hand = Hand()
    first = hand.call(scheduler, "a.one", 0, 1)
    hand.call(scheduler, "b.two", 2, 3)
    hand.call(scheduler, "c.three", 1, 2)
    last = hand.call(scheduler, "d.four", 3)
    assert hand.started == ["a.one", "b.two"]
    hand.answer("b.two")
    eventually(lambda: hand.started, ["a.one", "b.two", "d.four"])
    assert not first.done()
    hand.answer("a.one", 7)
    assert first.result() == [7]
    eventually(lambda: hand.started[-1], "c.three")
    hand.answer("c.three")
    hand.answer("d.four")
    scheduler.wait()
    assert last.done()


def test_a_call_without_its_inputs_holds_its_devices_for_its_turn(scheduler: Scheduler) -> None:
    hand = Hand()
    made = hand.call(scheduler, "a.make", 0)
    hand.call(scheduler, "b.use", 1, inputs=(made,))
    hand.call(scheduler, "c.later", 1)
    assert hand.started == ["a.make"]
    hand.answer("a.make")
    eventually(lambda: hand.started, ["a.make", "b.use"])


def test_derived_results_need_no_device(scheduler: Scheduler) -> None:
    hand = Hand()
    made = hand.call(scheduler, "a.make", 0)
    doubled = made.map(lambda values: values[0] * 2)
    both = scheduler.derive(lambda x, y: (x, y), made, doubled)
    hand.answer("a.make", 21)
    assert both.result() == ([21], 42)


def test_the_plans_order_holds_on_shared_devices(scheduler: Scheduler) -> None:
    hand = Hand()
    device = frozenset([Device("pool", 0)])
    scheduler.expect([PlannedCall("c.score", device), PlannedCall("b.values", device)])
    hand.call(scheduler, "b.values", 0)
    assert hand.started == []  # the plan has the score first, and the program will ask for it
    hand.call(scheduler, "x.other", 1)
    assert hand.started == ["x.other"]
    hand.call(scheduler, "c.score", 0)
    assert hand.started == ["x.other", "c.score"]
    hand.answer("c.score")
    eventually(lambda: hand.started[-1], "b.values")


def test_a_call_whose_inputs_the_controller_makes_goes_before_later_ones(
    scheduler: Scheduler,
) -> None:
    hand = Hand()
    device, other = frozenset([Device("pool", 0)]), frozenset([Device("pool", 1)])
    planned = [PlannedCall("b.train", device), PlannedCall("a.train", other)]
    scheduler.expect(planned)
    score = hand.call(scheduler, "r.score", 2)
    merged = scheduler.derive(lambda values: values, score)
    hand.call(scheduler, "a.train", 1, inputs=(merged,), processes="a")
    merged = scheduler.derive(lambda values: values, score)
    hand.call(scheduler, "n.summary", 3, inputs=(score,), processes="n")
    hand.call(scheduler, "b.train", 0, inputs=(merged,), processes="b")
    hand.answer("r.score")
    eventually(lambda: len(hand.started), 4)
    assert hand.started == ["r.score", "b.train", "a.train", "n.summary"]


def test_a_program_that_waits_is_not_held_up_by_calls_it_has_not_made(scheduler: Scheduler) -> None:
    hand = Hand()
    device = frozenset([Device("pool", 0)])
    scheduler.expect([PlannedCall("c.score", device), PlannedCall("b.values", device)])
    values = hand.call(scheduler, "b.values", 0)
    threading.Timer(0.2, lambda: hand.answer("b.values", 3)).start()
    assert values.result() == [3]


def test_the_end_of_the_program_frees_what_waited_for_calls_that_never_came(
    scheduler: Scheduler,
) -> None:
    hand = Hand()
    device = frozenset([Device("pool", 0)])
    scheduler.expect([PlannedCall("c.score", device), PlannedCall("b.values", device)])
    hand.call(scheduler, "b.values", 0)
    scheduler.expect(())
    assert hand.started == ["b.values"]


def test_calls_after_an_iteration_come_after_it(scheduler: Scheduler) -> None:
    hand = Hand()
    device = frozenset([Device("pool", 0)])
    scheduler.expect([PlannedCall("a.one", device), PlannedCall("b.two", device)])
    hand.call(scheduler, "a.one", 0)
    hand.call(scheduler, "b.two", 0)
    scheduler.expect(())
    hand.call(scheduler, "a.save", 0)
    for name in ("a.one", "b.two", "a.save"):
        eventually(lambda: hand.started[-1], name)
        hand.answer(name)
    scheduler.wait()


@pytest.mark.parametrize("seed", range(25))
def test_random_calls_keep_every_rule(seed: int, scheduler: Scheduler) -> None:
    """Against the rules themselves, after every event; and nothing that may start waits."""
    draw = random.Random(seed)
    hand = Hand()
    devices: dict[str, set[int]] = {}
    inputs: dict[str, set[str]] = {}
    futures: dict[str, Future[Any]] = {}
    done: set[str] = set()

    def may_have_started(name: str) -> bool:
        earlier = [other for other in devices if other < name and devices[other] & devices[name]]
        return done.issuperset(earlier) and inputs[name] <= done

    def check() -> None:
        wanted = {name for name in devices if may_have_started(name)}
        eventually(lambda: set(hand.started), wanted)
        for name in wanted - done:
            for other in wanted - done - {name}:
                assert not devices[name] & devices[other]

    while len(done) < 30:
        names = sorted(devices)
        if len(names) < 30 and (not hand.open or draw.random() < 0.5):
            name = f"r{len(names):02}.call"
            devices[name] = set(draw.sample(range(5), draw.randint(0, 3)))
            inputs[name] = set(draw.sample(names, min(len(names), draw.randint(0, 2))))
            futures[name] = hand.call(
                scheduler,
                name,
                *devices[name],
                inputs=tuple(futures[each] for each in sorted(inputs[name])),
            )
        else:
            name = draw.choice(sorted(hand.open))
            done.add(name)
            hand.answer(name)
        check()


def test_one_call_is_sent_to_processes_that_are_busy_with_the_one_before(
    scheduler: Scheduler,
) -> None:
    hand, same, other = Hand(), object(), object()
    made = hand.call(scheduler, "x.make", 5)
    hand.call(scheduler, "a.one", 0, 1, processes=same)
    hand.call(scheduler, "b.two", 0, 1, processes=same)
    hand.call(scheduler, "c.three", 0, 1, processes=same)
    hand.call(scheduler, "d.inside", 1, processes=other)
    hand.call(scheduler, "e.four", 0, 1, processes=same, inputs=(made,))
    hand.call(scheduler, "f.five", 0, 1, processes=same)
    assert hand.started == ["x.make", "a.one", "b.two"]
    for answered, started in [
        ("a.one", "c.three"),
        ("b.two", "c.three"),  # an earlier call of other processes waits for device 1
        ("c.three", "d.inside"),
        ("d.inside", "d.inside"),  # e.four goes before f.five, though it lacks its input
        ("x.make", "f.five"),
        ("e.four", "f.five"),
    ]:
        hand.answer(answered)
        eventually(lambda: hand.started[-1], started)
        time.sleep(0.01)
        assert hand.started[-1] == started
    hand.answer("f.five")
    scheduler.wait()
    assert hand.started[-2:] == ["e.four", "f.five"]


def test_a_call_that_waits_in_its_processes_begins_when_the_one_before_ends(
    scheduler: Scheduler,
) -> None:
    hand, same = Hand(), object()
    hand.call(scheduler, "a.one", 0, processes=same)
    waiting = hand.call(scheduler, "b.two", 0, processes=same, timeout_seconds=0.3)
    assert hand.started == ["a.one", "b.two"]
    threading.Timer(0.6, lambda: hand.answer("a.one")).start()
    with pytest.raises(CallTimeoutError, match=r"b\.two did not come back"):
        waiting.result()
    (first,) = scheduler.take_records()
    assert first.seconds >= 0.6


def test_a_call_in_rounds_keeps_its_devices_until_the_last(scheduler: Scheduler) -> None:
    """Nothing of another call comes in between, not even what waits in the same processes."""
    hand, same = Hand(), object()
    result = hand.call(scheduler, "a.turns", 0, processes=same, ranks=2, rounds=3)
    hand.call(scheduler, "b.after", 0, processes=same)
    hand.call(scheduler, "c.beside", 1)
    for number in range(3):
        eventually(lambda: "a.turns" in hand.open, True)
        assert hand.started.count("a.turns") == number + 1
        assert "b.after" not in hand.started
        hand.answer("a.turns", number, seconds=2.0)
    assert result.result() == [2, 2], "the last round's"
    eventually(lambda: hand.started[-1], "b.after")
    hand.answer("c.beside")
    hand.answer("b.after")
    scheduler.wait()
    (record,) = [each for each in scheduler.take_records() if each.name.id == "a.turns"]
    assert [each.seconds for each in record.ranks] == [6.0, 6.0], "of all rounds"


def test_a_failure_in_a_later_round_is_the_calls(scheduler: Scheduler) -> None:
    hand = Hand()
    hand.call(scheduler, "a.turns", 0, rounds=3)
    hand.answer("a.turns")
    eventually(lambda: "a.turns" in hand.open, True)
    (pending,) = hand.open["a.turns"].values()
    pending.set_result(reply(failure=Failure("ValueError", "no token", "")))
    with pytest.raises(CallFailedError, match=r"a\.turns.*ValueError: no token"):
        scheduler.wait()


def test_a_process_without_a_device_does_one_thing_at_a_time(scheduler: Scheduler) -> None:
    hand, same = Hand(), object()
    hand.call(scheduler, "a.score", processes=same)
    second = hand.call(scheduler, "b.score", processes=same, timeout_seconds=0.5)
    hand.call(scheduler, "c.score", processes=same)
    hand.call(scheduler, "d.compute", processes=object())
    assert hand.started == ["a.score", "b.score", "d.compute"]
    threading.Timer(0.4, lambda: hand.answer("a.score")).start()
    threading.Timer(0.7, lambda: hand.answer("b.score")).start()
    second.result()
    eventually(lambda: hand.started[-1], "c.score")
    first, after = scheduler.take_records()
    assert 0.4 <= first.ended <= after.started
    assert after.seconds < 0.4


@pytest.mark.parametrize("devices", [(0,), ()])
def test_what_waits_in_processes_that_end_is_not_blamed(
    scheduler: Scheduler, devices: tuple[int, ...]
) -> None:
    hand, same = Hand(), object()
    future = hand.call(scheduler, "actor.train_step", *devices, processes=same)
    hand.call(scheduler, "critic.train_step", *devices, processes=same)
    hand.open["critic.train_step"][0].set_exception(ActorDiedError())
    hand.open["actor.train_step"][0].set_exception(ActorDiedError())
    with pytest.raises(WorkerDiedError, match=r"ended during actor\.train_step"):
        future.result()


def test_the_record_says_when_and_what(scheduler: Scheduler) -> None:
    hand = Hand()
    hand.call(scheduler, "a.one", 0, ranks=2)
    waiting = hand.call(scheduler, "b.two", 0)
    time.sleep(0.05)
    hand.answer("a.one", 1)
    eventually(lambda: "b.two" in hand.open, True)
    hand.answer("b.two", 2)
    waiting.result()
    first, second = scheduler.take_records()
    assert (first.name.id, first.value, len(first.ranks)) == ("a.one", [1, 1], 2)
    assert first.seconds >= 0.05
    assert second.submitted < first.ended <= second.started <= second.ended
    assert scheduler.take_records() == []


def test_a_failure_names_role_call_rank_and_cause(scheduler: Scheduler) -> None:
    hand = Hand()
    future = hand.call(scheduler, "actor.train_step", 0, ranks=4)
    never = hand.call(scheduler, "actor.log_probs", 0)
    failure = Failure("ValueError", "no such row", "Traceback: line 3")
    hand.open["actor.train_step"][2].set_result(reply(failure=failure))
    with pytest.raises(CallFailedError) as caught:
        future.result()
    assert (caught.value.role, caught.value.method) == ("actor", "train_step")
    assert caught.value.ranks == (2,)
    for text in ("actor.train_step", "rank 2 of 4", "ValueError: no such row", "line 3"):
        assert text in str(caught.value)
    with pytest.raises(CallFailedError):
        never.result()
    assert hand.started == ["actor.train_step"]
    with pytest.raises(CallFailedError):
        hand.call(scheduler, "actor.save", 0)


def test_a_death_explains_the_failures_that_it_causes(scheduler: Scheduler) -> None:
    hand = Hand()
    future = hand.call(scheduler, "actor.train_step", 0, ranks=3)
    lost = Failure("RuntimeError", "Connection closed by peer", "")
    hand.open["actor.train_step"][0].set_result(reply(failure=lost))
    hand.open["actor.train_step"][2].set_result(reply(failure=lost))
    hand.open["actor.train_step"][1].set_exception(ActorDiedError())
    with pytest.raises(WorkerDiedError, match="rank 1 of 3 ended") as caught:
        future.result()
    assert caught.value.ranks == (1,)
    assert len(caught.value.__notes__) == 2


def test_the_first_exception_explains_lost_connections(scheduler: Scheduler) -> None:
    hand = Hand()
    future = hand.call(scheduler, "actor.train_step", 0, ranks=2)
    lost = Failure("RuntimeError", "[gloo] Connection closed by peer", "")
    hand.open["actor.train_step"][0].set_result(reply(failure=lost, at=1.0))
    hand.open["actor.train_step"][1].set_result(
        reply(failure=Failure("FloatingPointError", "loss is nan", ""), at=2.0)
    )
    with pytest.raises(CallFailedError, match=r"rank 1 of 2: FloatingPointError: loss is nan"):
        future.result()


def test_what_cannot_be_distributed_fails_the_call(scheduler: Scheduler) -> None:
    def start() -> Mapping[int, Any]:
        raise ValueError("3 rows cannot be split into 4 parts")

    task = Task(
        name=CallName("actor.forward", "actor", "log_probs", 4),
        devices=frozenset(),
        inputs=(),
        start=start,
        finish=lambda replies: None,
    )
    with pytest.raises(CallFailedError, match=r"actor\.log_probs: 3 rows cannot be split"):
        scheduler.submit(task).result()


def test_a_call_that_takes_too_long_names_the_ranks_and_where_they_are(
    scheduler: Scheduler,
) -> None:
    hand = Hand()
    future = hand.call(scheduler, "actor.train_step", 0, ranks=3, timeout_seconds=0.3)
    hand.open["actor.train_step"][0].set_result(reply())
    hand.open["actor.train_step"][2].set_result(reply())
    with pytest.raises(CallTimeoutError) as caught:
        future.result()
    assert caught.value.ranks == (1,)
    assert "did not come back from rank 1 of 3 within 0.3 s" in str(caught.value)
    assert 'rank 1: is busy in File "a.py", line 1' in str(caught.value)


def test_a_reply_that_comes_while_deadlines_are_checked_does_no_harm(
    scheduler: Scheduler,
) -> None:
    hand = Hand()
    hand.call(scheduler, "actor.train_step", 0, ranks=3, timeout_seconds=0.0)
    (task,) = scheduler._running

    class Arrived(tuple[int, Reply]):
        """While it is looked at, a thread of Ray brings another."""

        def __iter__(self) -> Any:
            task.arrived.append((1, reply()))
            return super().__iter__()

    task.arrived.append(Arrived((0, reply())))
    with pytest.raises(CallTimeoutError) as caught:
        scheduler.wait()
    assert caught.value.ranks == (1, 2)


def test_a_scheduler_without_calls_needs_no_end() -> None:
    before = set(threading.enumerate())
    scheduler = Scheduler()
    assert set(threading.enumerate()) == before
    assert scheduler.derive(lambda: 5).result() == 5
    (thread,) = set(threading.enumerate()) - before
    scheduler.close()
    assert not thread.is_alive()
    Scheduler().close()


def test_waiting_can_be_cancelled() -> None:
    cancel = threading.Event()

    def check() -> None:
        if cancel.is_set():
            raise RunCancelledError("cancelled")

    scheduler = Scheduler(check)
    hand = Hand()
    future = hand.call(scheduler, "actor.generate", 0)
    threading.Timer(0.2, cancel.set).start()
    started = time.monotonic()
    with pytest.raises(RunCancelledError):
        future.result()
    assert time.monotonic() - started < 2
    scheduler.close()
