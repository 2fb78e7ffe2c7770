"""How much of the devices' time no call takes: of a run's records, and of its plan."""

import pytest

from automap.executor.telemetry.call_records import CallRecord, RecordKind
from benchmarks.asynchronous import WARM_UP, job, measured_idle, planned_idle


def record(
    kind: RecordKind, start: float, end: float, ranks: tuple[int, ...], iteration: int = 1
) -> CallRecord:
    return CallRecord(
        iteration=iteration,
        call_id=kind,
        role="",
        kind=kind,
        method="m",
        start_seconds=start,
        end_seconds=end,
        ranks=ranks,
    )


def test_idle_is_what_no_call_takes_after_the_warm_up() -> None:
    ends = [
        record("iteration", each - 1.0, each, (), number)
        for number, each in enumerate((10.0, 20.0, 30.0, 40.0), start=1)
    ]
    assert WARM_UP == 2
    calls = [
        record("train", 5.0, 25.0, (0,)),  # from second 20: five
        record("generate", 22.0, 32.0, (0, 1)),  # on the first seven more, on the other ten
        record("forward", 23.0, 24.0, (0,)),  # beside what is counted already
        record("train", 38.0, 50.0, (1,)),  # until second 40: two
    ]
    assert measured_idle([*calls, *ends], num_devices=2) == pytest.approx(1 - (12 + 12) / 40)
    assert measured_idle(ends, num_devices=2) == 1.0


def test_a_plan_whose_calls_follow_each_other_is_never_idle_and_one_apart_is() -> None:
    synchronous, _ = job("synchronous", seed=0, iterations=5)
    assert planned_idle(synchronous) == pytest.approx(0.0, abs=1e-4)
    overlapped, _ = job("decoupled_ppo", seed=0, iterations=5)
    assert {copy.num_gpus for copy in overlapped.copies} == {1}
    assert 0.0 < planned_idle(overlapped) < 0.5
