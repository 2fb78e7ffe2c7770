"""Groups of workers in real processes: protocols, order, overlap, and all that goes wrong."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
import ray
import torch
import torch.distributed as dist

from automap.executor.batch import Batch
from automap.executor.errors import CallFailedError, CallTimeoutError, WorkerDiedError
from automap.executor.layout import GenerationLayout, RankLayout
from automap.executor.runtime.group import WorkerGroup, call_together
from automap.executor.runtime.placement import DevicePool, DeviceRange, reserve
from automap.executor.runtime.process_sets import ProcessSet, end_local
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.workers.process import Identity, ProcessContext, start_ticks
from automap.executor.workers.protocols import Layout, by_rows, transfer
from automap.executor.workers.row_references import Rows, fetch, inline, put
from tests.executor.local_ray import local_ray

pytestmark = pytest.mark.many_processes

POOLS = {"cpu": DevicePool("cpu", gpus_per_node=8, resource="CPU")}
FOUR = DeviceRange("cpu", 0, 4)
INSIDE = DeviceRange("cpu", 1, 1)
"""A device that also FOUR lies on."""
BESIDE = DeviceRange("cpu", 4, 1)
TWO_BY_TWO = RankLayout(tensor_parallel_size=2, data_parallel_size=2)
STAGES = RankLayout(pipeline_parallel_size=2, data_parallel_size=2)
REGROUPED = GenerationLayout(TWO_BY_TWO, tensor_parallel_size=1)
BLOCK_BYTES = 64
ODD_RANKS = by_rows(
    "ODD_RANKS", part=lambda layout, rank: rank % 2, collected=lambda layout: [0, 1]
)


class Worker:
    """Says which rows it saw, and waits, raises or dies on demand."""

    def __init__(self, context: ProcessContext) -> None:
        self.rank = context.rank
        self.context = context

    def seen(self, rows: Batch) -> Batch:
        ranks = torch.full((rows.num_rows,), self.rank)
        return Batch({"number": rows["number"], "rank": ranks})

    three_d = transfer("3D")(seen)

    @transfer("3D_ALL_MICRO_DP")
    def micro(self, rows: Batch) -> Batch:
        return self.seen(rows)

    @transfer("DP")
    def data(self, rows: Batch) -> Batch:
        return self.seen(rows)

    @transfer("PP_AS_DP")
    def stages_as_data(self, rows: Batch) -> Batch:
        return self.seen(rows)

    @transfer("3D_PP_ONLY")
    def of_stages(self, name: str) -> str:
        return f"{name}{self.rank}"

    @transfer("ONE_TO_ALL")
    def everywhere(self, value: int, *, factor: int = 1) -> int:
        return value * factor + self.rank

    @transfer("RANK_ZERO")
    def first(self, value: object) -> object:
        return self.rank, value

    @transfer("RANK_ZERO")
    def twice(self, rows: Batch) -> Batch:
        if rows.num_rows > 5:
            raise KeyError("a row too many")
        return Batch({"number": rows.tensor("number") * 2, "rank": self.seen(rows)["rank"]})

    @transfer("ALL_TO_ALL")
    def own(self, value: int) -> int:
        return value * 10 + self.rank

    @transfer(ODD_RANKS)
    def odd(self, rows: Batch) -> Batch:
        return self.seen(rows)

    @transfer("ONE_TO_ALL")
    def sum_of_ranks(self) -> int:
        total = torch.tensor(self.rank)
        dist.all_reduce(total)
        return int(total)

    @transfer("ONE_TO_ALL")
    def sleep(self, seconds: float) -> None:
        self.context.measured["asked_for"] = seconds
        time.sleep(seconds)

    @transfer("ONE_TO_ALL")
    def sleep_on(self, rank: int, seconds: float) -> None:
        if self.rank == rank:
            time.sleep(seconds)
        dist.barrier()

    @transfer("ONE_TO_ALL")
    def fail_on(self, rank: int) -> None:
        if self.rank == rank:
            raise KeyError("column advantages")

    @transfer("ONE_TO_ALL")
    def unpicklable(self) -> object:
        return threading.Lock()

    @transfer("ONE_TO_ALL")
    def pid(self) -> int:
        return os.getpid()

    def not_declared(self) -> None: ...


@dataclass
class Running:
    sets: dict[DeviceRange, ProcessSet]
    schedulers: list[Scheduler]

    def scheduler(self) -> Scheduler:
        self.schedulers.append(Scheduler())
        return self.schedulers[-1]

    def group(
        self,
        where: DeviceRange,
        layout: Layout,
        scheduler: Scheduler | None = None,
        timeout_seconds: float = 60.0,
    ) -> WorkerGroup:
        return WorkerGroup(
            "actor",
            Worker,
            self.sets[where],
            layout,
            scheduler or self.scheduler(),
            timeout_seconds=timeout_seconds,
        )


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with local_ray():
        ranges = [FOUR, INSIDE, BESIDE]
        reservation = reserve(ranges, POOLS, timeout_seconds=30)
        sets = {
            each: ProcessSet.on_devices(each, reservation, run_id="test", block_bytes=BLOCK_BYTES)
            for each in ranges
        }
        for each in sets.values():
            each.join(timeout_seconds=300, collective_timeout_seconds=120)
        made = Running(sets, [])
        scheduler = made.scheduler()
        for each, count in ((FOUR, 4), (INSIDE, 1), (BESIDE, 1)):
            group = made.group(each, RankLayout(data_parallel_size=count), scheduler)
            group.build(Worker, timeout_seconds=60)
        scheduler.wait()
        yield made
        for each in made.schedulers:
            each.close()


def numbers(count: int) -> Rows:
    return put(Batch({"number": torch.arange(count)}), block_bytes=BLOCK_BYTES)


@pytest.mark.slow
def test_the_processes_of_a_set_are_a_world(running: Running) -> None:
    assert running.group(FOUR, TWO_BY_TWO).sum_of_ranks().result() == [6, 6, 6, 6]
    assert running.group(BESIDE, RankLayout()).sum_of_ranks().result() == [0]


@pytest.mark.parametrize(
    ("method", "layout", "ranks"),
    [
        ("three_d", TWO_BY_TWO, [0, 0, 0, 0, 2, 2, 2]),
        ("three_d", STAGES, [2, 2, 2, 2, 3, 3, 3]),
        ("three_d", RankLayout(tensor_parallel_size=4), [0] * 7),
        ("micro", REGROUPED, [0, 0, 1, 1, 2, 2, 3]),
        ("micro", TWO_BY_TWO, [0, 0, 0, 0, 2, 2, 2]),
        ("data", RankLayout(data_parallel_size=4), [0, 0, 1, 1, 2, 2, 3]),
        ("stages_as_data", STAGES, [0, 0, 2, 2, 1, 1, 3]),
        ("odd", TWO_BY_TWO, [0, 0, 0, 0, 1, 1, 1]),
    ],
)
def test_rows_go_where_the_protocol_says(
    running: Running, method: str, layout: Layout, ranks: list[int]
) -> None:
    """Which rank's answer comes back for each of seven rows; written by hand."""
    result = fetch(getattr(running.group(FOUR, layout), method)(numbers(7)).result())
    assert result.tensor("number").tolist() == list(range(7))
    assert result.tensor("rank").tolist() == ranks


def test_other_protocols(running: Running) -> None:
    group = running.group(FOUR, STAGES)
    assert group.everywhere(5, factor=100).result() == [500, 501, 502, 503]
    assert group.own([1, 2, 3, 4]).result() == [10, 21, 32, 43]
    assert group.first("x").result() == (0, "x")
    assert group.of_stages("stage").result() == ["stage0", "stage2"]


def test_results_are_passed_on_as_futures(running: Running) -> None:
    scheduler = running.scheduler()
    group = running.group(FOUR, TWO_BY_TWO, scheduler)
    other = running.group(BESIDE, RankLayout(), scheduler)
    seen = group.three_d(numbers(4))
    again = other.data(seen.map(lambda rows: rows.take([3, 0])))
    assert fetch(again.result()).tensor("number").tolist() == [3, 0]


def test_each_rank_fetches_its_blocks_and_collected_ranks_alone_store(running: Running) -> None:
    scheduler = running.scheduler()
    running.group(FOUR, TWO_BY_TWO, scheduler).three_d(numbers(32)).result()
    (call,) = scheduler.take_records()
    assert [each.fetched_blocks for each in call.ranks] == [2, 2, 2, 2]  # of four
    assert [each.fetched_bytes for each in call.ranks] == [128] * 4
    assert [each.put_bytes for each in call.ranks] == [256, 0, 256, 0]
    assert call.num_rows == 32


def interval(scheduler: Scheduler) -> dict[str, tuple[float, float]]:
    """Of each call, by the ranks' own clocks."""
    return {
        call.name.id: (
            min(each.started_at for each in call.ranks),
            max(each.started_at + each.seconds for each in call.ranks),
        )
        for call in scheduler.take_records()
    }


def test_disjoint_sets_overlap_and_sets_that_share_a_device_do_not(running: Running) -> None:
    scheduler = running.scheduler()
    for name, where, layout in [
        ("four", FOUR, TWO_BY_TWO),
        ("inside", INSIDE, RankLayout()),
        ("beside", BESIDE, RankLayout()),
        ("again", FOUR, TWO_BY_TWO),
    ]:
        running.group(where, layout, scheduler).call("sleep", (0.4,), call_id=name)
    scheduler.wait()
    spans = interval(scheduler)
    assert spans["beside"][0] < spans["four"][1]
    assert spans["four"][0] < spans["beside"][1]
    assert spans["four"][1] <= spans["inside"][0]
    assert spans["inside"][1] <= spans["again"][0]


def test_processes_keep_the_order_in_which_they_are_called(running: Running) -> None:
    scheduler = running.scheduler()
    group = running.group(FOUR, TWO_BY_TWO, scheduler)
    for number in range(6):
        group.call("sleep_on", (number % 4, 0.05), call_id=str(number))
    scheduler.wait()
    calls = scheduler.take_records()
    assert [call.name.id for call in calls] == ["0", "1", "2", "3", "4", "5"]
    for rank in range(4):
        spans = [(call.ranks[rank].started_at, call.ranks[rank].seconds) for call in calls]
        ends = [begun + seconds for begun, seconds in spans]
        assert all(end <= begun for end, (begun, _) in zip(ends, spans[1:], strict=False))
    for before, after in pairwise(calls):
        assert before.ended <= after.started <= after.ended


def test_what_a_method_measures_is_in_the_record(running: Running) -> None:
    scheduler = running.scheduler()
    running.group(BESIDE, RankLayout(), scheduler).sleep(0.05).result()
    (call,) = scheduler.take_records()
    assert call.worst("asked_for") == 0.05
    assert call.worst("peak_memory") > 2**20
    assert 0.05 <= call.ranks[0].seconds <= call.seconds


def test_a_call_on_two_groups_is_one_call(running: Running) -> None:
    scheduler = running.scheduler()
    four = running.group(FOUR, TWO_BY_TWO, scheduler)
    beside = running.group(BESIDE, RankLayout(), scheduler)
    future = call_together(
        scheduler,
        [(four, "everywhere", (10,)), (beside, "everywhere", (20,))],
        call_id="actor.sync",
        timeout_seconds=30,
    )
    assert future.result() == [[10, 11, 12, 13], [20]]
    (call,) = scheduler.take_records()
    assert len(call.devices) == len(call.ranks) == 5


HERE = Worker(ProcessContext(99, 1, "here"))
"""A worker in this process."""


@pytest.mark.parametrize("stored", [False, True])
def test_rows_that_are_here_need_no_process(running: Running, stored: bool) -> None:
    scheduler = running.scheduler()
    group = running.group(BESIDE, RankLayout(), scheduler)
    batch = Batch({"number": torch.arange(3)})  # two columns of so many rows are less than a block
    rows = put(batch, inline_bytes=0) if stored else put(batch)
    given = group.twice(rows)
    again = fetch(group.call("twice", (given,), call_id="again", here=HERE).result())
    assert again.tensor("number").tolist() == [0, 4, 8]
    assert set(again.tensor("rank").tolist()) == {99}
    of_store = fetch(group.call("twice", (rows,), here=HERE).result())
    assert set(of_store.tensor("rank").tolist()) == {0 if stored else 99}
    first, second, _ = scheduler.take_records()
    assert (second.name.id, second.num_rows, len(second.ranks)) == ("again", 3, 1)
    assert first.ended <= second.started <= second.ended
    assert second.ranks[0].fetched_bytes == first.ranks[0].put_bytes


def test_a_call_here_is_recorded_although_its_process_is_busy(running: Running) -> None:
    scheduler = running.scheduler()
    group = running.group(BESIDE, RankLayout(), scheduler)
    slow = group.sleep(0.3)
    rows = put(Batch({"number": torch.arange(3)}))
    assert fetch(group.call("twice", (rows,), here=HERE).result()).num_rows == 3
    slow.result()
    calls = {call.name.method: call for call in scheduler.take_records()}
    assert calls["twice"].started <= calls["twice"].ended < calls["sleep"].ended


def test_many_rows_go_to_a_process(running: Running) -> None:
    scheduler = running.scheduler()
    group = running.group(BESIDE, RankLayout(), scheduler)
    rows = Rows.concatenate([inline(Batch({"number": torch.arange(20_000)})).slice(0, 1)] * 2)
    assert (rows.is_inline, rows.inline_bytes) == (True, 160_000)
    more = Rows.concatenate([rows, inline(Batch({"number": torch.arange(20_000)})).slice(0, 1)])
    for given, rank in ((rows, 99), (more, 0)):
        seen = fetch(group.call("twice", (given,), here=HERE).result())
        assert set(seen.tensor("rank").tolist()) == {rank}


def test_what_fails_here_is_blamed_as_elsewhere(running: Running) -> None:
    group = running.group(BESIDE, RankLayout())
    future = group.call("twice", (put(Batch({"number": torch.arange(6)})),), here=HERE)
    with pytest.raises(CallFailedError) as caught:
        future.result()
    assert (caught.value.role, caught.value.method) == ("actor", "twice")
    assert "its only rank: KeyError: 'a row too many'" in str(caught.value)
    assert "in twice" in str(caught.value)


def test_methods_without_a_protocol_are_refused(running: Running) -> None:
    group = running.group(BESIDE, RankLayout())
    with pytest.raises(TypeError, match="declares no protocol"):
        group.not_declared()
    with pytest.raises(AttributeError, match="has no method 'absent'"):
        group.absent()
    with pytest.raises(ValueError, match="layout has 4 ranks, but there are 1"):
        running.group(BESIDE, TWO_BY_TWO)


def test_fewer_rows_than_ranks_are_refused_by_name(running: Running) -> None:
    with pytest.raises(CallFailedError, match=r"actor.data: .*argument 0: 3 rows cannot be split"):
        running.group(FOUR, RankLayout(data_parallel_size=4)).data(numbers(3)).result()


def test_an_exception_comes_back_with_rank_and_traceback(running: Running) -> None:
    future = running.group(FOUR, TWO_BY_TWO).fail_on(2)
    with pytest.raises(CallFailedError) as caught:
        future.result()
    assert (caught.value.role, caught.value.method) == ("actor", "fail_on")
    assert caught.value.ranks == (2,)
    assert "rank 2 of 4: KeyError: 'column advantages'" in str(caught.value)
    assert "in fail_on" in str(caught.value)


def test_a_result_that_cannot_travel_is_a_failed_call(running: Running) -> None:
    with pytest.raises(CallFailedError, match=r"(?s)gave no reply.*cannot pickle"):
        running.group(BESIDE, RankLayout()).unpicklable().result()


@pytest.mark.slow
def test_a_rank_that_hangs_is_told_from_those_that_wait_for_it(running: Running) -> None:
    future = running.group(FOUR, TWO_BY_TWO, timeout_seconds=1.0).sleep_on(3, 4.0)
    with pytest.raises(CallTimeoutError) as caught:
        future.result()
    assert (caught.value.role, caught.value.method) == ("actor", "sleep_on")
    places = dict(line.strip().split(": ", 1) for line in str(caught.value).splitlines()[1:])
    assert set(places) == {"rank 0", "rank 1", "rank 2", "rank 3"}
    assert all("waits for other ranks" in places[f"rank {rank}"] for rank in range(3))
    assert "is busy in" in places["rank 3"]
    assert "sleep_on" in places["rank 3"]
    time.sleep(3.5)  # the processes serve further tests


def test_a_stopped_process_is_found(running: Running) -> None:
    (pid,) = running.group(BESIDE, RankLayout()).pid().result()
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(CallTimeoutError, match="does not answer at all"):
            running.group(BESIDE, RankLayout(), timeout_seconds=0.5).pid().result()
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_process_that_ends_as_it_is_killed_is_no_error(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is seen and gone a moment later; another, that does not go by itself, is killed."""
    stays, goes = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    node = ray.get_runtime_context().get_node_id()
    identities = [Identity(node, each.pid, start_ticks(each.pid) or 0) for each in (goes, stays)]
    goes.kill()
    goes.wait()
    ticks = {each.pid: each.start_ticks for each in identities}
    monkeypatch.setattr("automap.executor.runtime.process_sets.start_ticks", ticks.get)
    end_local(identities, timeout_seconds=0)
    assert stays.wait(10) == -signal.SIGKILL


@pytest.mark.slow
def test_a_killed_process_ends_the_call_at_once(running: Running) -> None:
    pids = running.group(FOUR, TWO_BY_TWO).pid().result()
    future = running.group(FOUR, TWO_BY_TWO).sleep_on(1, 30.0)
    threading.Timer(0.5, lambda: os.kill(pids[1], signal.SIGKILL)).start()
    started = time.monotonic()
    with pytest.raises(WorkerDiedError) as caught:
        future.result()
    assert time.monotonic() - started < 10
    assert caught.value.ranks == (1,)
    assert "rank 1 of 4 ended during actor.sleep_on" in str(caught.value)
    with pytest.raises(WorkerDiedError, match=r"rank 1 of 4 ended during actor.pid"):
        running.group(FOUR, TWO_BY_TWO).pid().result()
