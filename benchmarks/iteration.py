"""What the controller adds to an iteration: against its calls made bare in the same processes.

    python -m benchmarks.iteration [--examples ppo grpo] [--times 1 8] [--repeat 10]

iteration    One iteration of a tiny example on the real engines, as `Controller.iterate` runs it;
             also with `times` as many prompts, because what is added does not grow with them.
bare calls   The calls of models and reward functions that this very iteration made, once more, one
             after the other: the same methods of the same workers in the same processes, with the
             same inputs, which are there already. A call takes what its busiest rank takes.
             Target: the iteration takes at most 1.15 times their sum.
Ray calls    The same as the caller sees it: with the way there and back, and their inputs.

Iterations and bare calls alternate, so a busy machine slows both alike; figures are medians, and
the ratio is that of the medians. The second table says where an iteration's further time goes:

in processes   Fetching and storing rows, and what else makes a call longer there than when bare.
there, back    From the controller to the busiest rank and back; less what a call that waits in its
               processes behind another saves of it.
numeric steps  While a numeric step runs and no call of a model or function.
nothing runs   The controller itself, between the calls.
overlap        Of calls at the same time, which bare ones are not; less time, so negative.

Below it, divided by the calls of models (each optimizer step is one): by how much calls, those of
functions too, are longer than their work, and what lies between two. Plans on cores have these
(planner/cost/constants.py).
"""

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from rich.console import Console
from rich.table import Table

from automap.executor.runtime.controller import Controller
from automap.executor.runtime.finished_calls import FinishedCall, FinishedIteration
from automap.executor.runtime.group import WorkerGroup
from automap.executor.settings import FunctionSettings
from automap.executor.workers.cpu_workers import FunctionWorker
from automap.executor.workers.model_worker import ModelWorker
from automap.executor.workers.process import Packed, WorkerFactory, unpacked
from automap.executor.workers.protocols import Call
from benchmarks.tiny_jobs import controller_of, local_ray, prompts_of, tiny_job

TARGET = 1.15
WARM_UP = 2


class _Bare:
    """A worker that says how long one of its methods takes by itself."""

    def bare(self, method: str, *args: object, **kwargs: object) -> float:
        start = time.perf_counter()
        getattr(self, method)(*args, **kwargs)
        return time.perf_counter() - start


class _BareModel(_Bare, ModelWorker): ...


class _BareFunction(_Bare, FunctionWorker): ...


def _bare_function(function: FunctionSettings) -> WorkerFactory:
    return lambda context: _BareFunction(function.path)


class _Recorder:
    """Stands in a group for one of its processes, and keeps what that is called with."""

    def __init__(self, process: Any, rank: int, calls: "list[list[tuple[Any, Packed]]]") -> None:
        self._process, self._rank, self._calls = process, rank, calls

    @property
    def call(self) -> "_Recorder":
        return self

    def remote(self, order: Packed) -> Any:
        """Of `call`; every protocol here calls all ranks, rank 0 first."""
        if self._rank == 0:
            self._calls.append([])
        self._calls[-1].append((self._process, order))
        return self._process.call.remote(order)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)


class _Replay:
    """The calls of an iteration, to be made again."""

    def __init__(self, controller: Controller) -> None:
        self._calls: list[list[tuple[Any, Packed]]] = []
        for group in (*controller.groups.values(), *controller.functions.values()):
            self._listen_to(group)
        for role, group in controller.functions.items():
            group.build(_bare_function(controller.settings.functions[role]), timeout_seconds=60)
        controller.scheduler.wait()
        controller.scheduler.take_records()

    def _listen_to(self, group: WorkerGroup) -> None:
        processes = tuple(
            _Recorder(process, rank, self._calls)
            for rank, process in enumerate(group.processes.processes)
        )
        group.processes = replace(group.processes, processes=processes)

    def run(self) -> tuple[dict[str, float], float]:
        """Seconds of the calls by role and method, and as the caller sees them all.

        The calls are then forgotten.
        """
        calls = list(self._calls)
        self._calls.clear()
        seconds: dict[str, float] = defaultdict(float)
        begun = time.perf_counter()
        for call in calls:
            role, method, _, _ = unpacked(call[0][1])
            seconds[f"{role}.{method}"] += max(_bare_seconds(call))
        return seconds, time.perf_counter() - begun


def _bare_seconds(call: Sequence[tuple[Any, Packed]]) -> list[float]:
    """Of every rank."""
    references = []
    for process, order in call:
        role, method, given, _ = unpacked(order)
        again = Call((method, *given.args), given.kwargs)
        references.append(process.call.remote((role, "bare", again, True)))
    replies = [unpacked(each) for each in ray.get(references)]
    failed = [each.failure.traceback for each in replies if each.failure is not None]
    if failed:
        raise RuntimeError(failed[0])
    return [each.value for each in replies]


def _parts(iteration: FinishedIteration, bare: Mapping[str, float]) -> dict[str, float]:
    """What an iteration's seconds are made of; they add up to them."""
    steps = [call for call in iteration.calls if call.name.role == "numerics"]
    calls = [call for call in iteration.calls if call.name.role != "numerics"]
    covered, any_covered = _covered(calls), _covered([*calls, *steps])
    in_processes = sum(_busiest(call) for call in calls)
    whole = sum(call.seconds for call in calls)
    return {
        "bare calls": sum(bare.values()),
        "in processes": in_processes - sum(bare.values()),
        "there, back": whole - in_processes,
        "numeric steps": any_covered - covered,
        "nothing runs": iteration.seconds - any_covered,
        "overlap": covered - whole,
    }


def _busiest(call: FinishedCall) -> float:
    return max(rank.seconds for rank in call.ranks)


def _covered(calls: Iterable[FinishedCall]) -> float:
    """Seconds in which at least one of the calls is under way."""
    covered, until = 0.0, 0.0
    for call in sorted(calls, key=lambda each: each.started):
        covered += max(0.0, call.ended - max(call.started, until))
        until = max(until, call.ended)
    return covered


def _by_name(iteration: FinishedIteration) -> dict[str, float]:
    """Seconds from start to end by role and method."""
    seconds: dict[str, float] = defaultdict(float)
    for call in iteration.calls:
        seconds[f"{call.name.role}.{call.name.method}"] += call.seconds
    return seconds


@dataclass(frozen=True, slots=True)
class _Measured:
    """One iteration, and its calls bare."""

    seconds: float
    parts: dict[str, float]
    calls: dict[str, float]
    bare: dict[str, float]
    ray_calls: float
    num_calls: int
    """Of models; one that trains makes one for each optimizer step."""

    @property
    def added_in_calls(self) -> float:
        """Seconds by which a call is longer than its work."""
        return (self.parts["in processes"] + self.parts["there, back"]) / self.num_calls

    @property
    def added_between(self) -> float:
        """Seconds from a call to the next."""
        return (self.parts["numeric steps"] + self.parts["nothing runs"]) / self.num_calls


def measure(example: str, times: int, repeat: int) -> list[_Measured]:
    """Iterations and bare calls in turn; the first ones are not counted."""

    def more_prompts(document: dict[str, Any]) -> None:
        document["workload"]["prompts_per_iteration"] *= times

    plan, settings = tiny_job(example, change=more_prompts)
    measured = []
    with local_ray(plan), controller_of(plan, settings, worker=_BareModel) as controller:
        prompts, replay = prompts_of(plan, settings), _Replay(controller)
        for number in range(1, WARM_UP + repeat + 1):
            iteration = controller.iterate(number, prompts)
            bare, ray_calls = replay.run()
            parts, calls = _parts(iteration, bare), _by_name(iteration)
            models = {setup.role for setup in controller.setups.values()}
            num_calls = sum(call.name.role in models for call in iteration.calls)
            measured.append(_Measured(iteration.seconds, parts, calls, bare, ray_calls, num_calls))
    return measured[WARM_UP:]


def _medians(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in each) for name in each[0]}


def show(name: str, measured: Sequence[_Measured], console: Console) -> None:
    """The ratio; the parts of an iteration; every call beside its bare one."""
    whole = statistics.median(each.seconds for each in measured)
    bare = statistics.median(sum(each.bare.values()) for each in measured)
    ray_calls = statistics.median(each.ray_calls for each in measured)
    totals = Table(name, "median ms", "iteration ×", "target")
    totals.add_row("iteration", f"{1e3 * whole:.0f}", "", "")
    totals.add_row("bare calls", f"{1e3 * bare:.0f}", f"{whole / bare:.3f}", f"≤ {TARGET:g}")
    totals.add_row("Ray calls", f"{1e3 * ray_calls:.0f}", f"{whole / ray_calls:.3f}", "")
    console.print(totals)
    parts = Table("where an iteration's time goes", "median ms", "of the bare calls")
    for part, seconds in _medians([each.parts for each in measured]).items():
        parts.add_row(part, f"{1e3 * seconds:.1f}", f"{seconds / bare:.1%}")
    console.print(parts)
    in_calls = statistics.median(each.added_in_calls for each in measured)
    between = statistics.median(each.added_between for each in measured)
    console.print(
        f"{measured[0].num_calls} calls of models: {1e3 * in_calls:.1f} ms in each beside its "
        f"work, {1e3 * between:.1f} ms between two"
    )
    calls = Table("call", "median ms", "bare ms")
    bare_calls = _medians([each.bare for each in measured])
    for call, seconds in _medians([each.calls for each in measured]).items():
        alone = f"{1e3 * bare_calls[call]:.1f}" if call in bare_calls else ""
        calls.add_row(call, f"{1e3 * seconds:.1f}", alone)
    console.print(calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--examples", nargs="+", default=["ppo", "grpo"])
    parser.add_argument("--times", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--repeat", type=int, default=10)
    given = parser.parse_args()
    for example in given.examples:
        for times in given.times:
            name = example if times == 1 else f"{example}, {times} times the prompts"
            show(name, measure(example, times, given.repeat), Console())


if __name__ == "__main__":
    main()
