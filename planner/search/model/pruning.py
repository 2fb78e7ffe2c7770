"""Sound pruning: drop options that are dominated, or that cannot beat a known solution.

What stays contains an optimal solution: an option goes only if (a) its bound exceeds the period of
a known solution, or (b) another option of the same copy, pool and size is at least as good in
everything that any constraint reads.
"""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from automap.planner.layout import FloatArray
from automap.planner.search.model.bounds import Bounds, CallMinimum
from automap.planner.search.model.problem import Assignment, CallOption, CopyOption, Problem
from automap.planner.search.model.variables import bytes_to_mib

SLACK = 1e-9
"""Relative slack of comparisons with the incumbent, so that equal plans survive."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """A smaller problem and where its options come from."""

    problem: Problem
    copy_rows: tuple[tuple[int, ...], ...]
    """Per copy: index of each remaining option in the original problem."""
    call_rows: tuple[tuple[int, ...], ...]
    hopeless: bool
    """True when a call lost all its options: no solution is as short as the upper bound."""

    def original(self, assignment: Assignment) -> Assignment:
        """An assignment of the pruned problem in the terms of the original."""
        return Assignment(
            tuple(_mapped(self.copy_rows, assignment.copy_options)),
            assignment.first_gpus,
            tuple(_mapped(self.call_rows, assignment.call_options)),
        )


def _mapped(rows: tuple[tuple[int, ...], ...], options: tuple[int | None, ...]) -> list[int | None]:
    return [
        None if option is None else of[option] for of, option in zip(rows, options, strict=True)
    ]


def prune(problem: Problem, *, upper_bound_seconds: float | None) -> Pruned:
    """Drop what cannot be in any solution with a period of at most the upper bound."""
    work = _Work(problem)
    if upper_bound_seconds is not None:
        work.drop_slow(upper_bound_seconds * (1 + SLACK))
    work.forget_loose_memory()
    work.drop_dominated()
    return work.result()


@dataclass(frozen=True, slots=True)
class _Measured:
    """Options of a call in the terms of its bounds."""

    numbers: list[int]
    """Index of each."""
    seconds: FloatArray
    weights: FloatArray
    """[option, weight]"""

    def among(self, options: dict[int, CallOption]) -> "_Measured":
        """The options that remain of these."""
        left = [place for place, number in enumerate(self.numbers) if number in options]
        if len(left) == len(self.numbers):
            return self
        numbers = [self.numbers[place] for place in left]
        return _Measured(numbers, self.seconds[left], self.weights[left])


class _Work:
    """The options that remain, as sets of indices, while pruning goes on."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.bounds = Bounds(problem)
        self.copies = [dict(enumerate(copy.options)) for copy in problem.copies]
        self.calls = [dict(enumerate(call.options)) for call in problem.calls]
        self.on: list[dict[int, list[int]]] = []
        """Per copy: its calls with options on it and nowhere else are `bound` to it."""
        self._drop_orphans()

    def _users(self, copy: int) -> list[int]:
        """Calls that can only run on this copy."""
        return [
            call
            for call, options in enumerate(self.calls)
            if options and all(option.copy == copy for option in options.values())
        ]

    def _settings(self) -> dict[tuple[int, int], dict[int, list[int]]]:
        """(copy, copy option) → call → its options there."""
        settings: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for call, options in enumerate(self.calls):
            for index, option in options.items():
                settings[option.copy, option.copy_option][call].append(index)
        return settings

    def _drop_orphans(self) -> None:
        """A copy option must serve every call that has no other copy; call options need a copy."""
        while True:
            settings = self._settings()
            before = sum(map(len, self.copies))
            for copy, options in enumerate(self.copies):
                users = self._users(copy)
                shadow = self.problem.copies[copy].shadow_of is not None
                for index in list(options):
                    served = settings[copy, index]
                    if any(user not in served for user in users) or (shadow and not served):
                        del options[index]
            for call_options in self.calls:
                for index, option in list(call_options.items()):
                    if option.copy_option not in self.copies[option.copy]:
                        del call_options[index]
            if sum(map(len, self.copies)) == before:
                return

    def drop_slow(self, limit: float) -> None:
        """Drop call options and copy options whose bound exceeds the limit, until none does."""
        measured = [
            _Measured([*options], *self.bounds.measured(call, [*options.values()]))
            for call, options in enumerate(self.calls)
        ]
        while all(self.calls[c] or not call.options for c, call in enumerate(self.problem.calls)):
            before = sum(map(len, self.calls)) + sum(map(len, self.copies))
            measured = [
                each.among(options) for each, options in zip(measured, self.calls, strict=True)
            ]
            minima = [
                self.bounds.least(call, each.seconds, each.weights)
                for call, each in enumerate(measured)
            ]
            self._drop_slow_calls(measured, minima, limit)
            self._drop_slow_copies(minima, limit)
            self._drop_orphans()
            if sum(map(len, self.calls)) + sum(map(len, self.copies)) == before:
                return

    def _drop_slow_calls(
        self, measured: list["_Measured"], minima: list[CallMinimum], limit: float
    ) -> None:
        offsets = self.bounds.offsets(minima)
        for options, each, offset in zip(self.calls, measured, offsets, strict=True):
            slow = each.seconds + offset.seconds > limit
            slow |= (each.weights + np.array(offset.weights) > limit).any(axis=1)
            for number in np.flatnonzero(slow).tolist():
                del options[each.numbers[number]]

    def _drop_slow_copies(self, minima: list[CallMinimum], limit: float) -> None:
        """A copy's own calls run one after another; if a path has them all, so does its rest."""
        settings = self._settings()
        for copy, options in enumerate(self.copies):
            users = self._users(copy)
            rest = self.bounds.joint_offset(minima, users) if users else None
            for index in list(options):
                served = settings[copy, index]
                if not users or any(not served[user] for user in users):
                    continue
                load = sum(
                    min(self.bounds.busy_seconds(user, self.calls[user][j]) for j in served[user])
                    for user in users
                )
                if load + (rest or 0.0) > limit:
                    del options[index]

    def forget_loose_memory(self) -> None:
        """Bytes that no other choice could ever make matter count as 0: more options are equal."""
        capacity = min(pool.capacity_bytes for pool in self.problem.pools)
        residents = [
            max((option.resident_bytes for option in options.values()), default=0)
            for options in self.copies
        ]
        largest = sum(residents) + len(residents) * 2**20
        for settings in self.calls:
            for index, setting in settings.items():
                if largest + setting.transient_bytes + 2**20 <= capacity:
                    settings[index] = replace(setting, transient_bytes=0)
        transients = [
            option.transient_bytes for options in self.calls for option in options.values()
        ]
        buckets = [2 * sync.bucket_bytes for sync in self.problem.syncs]
        loose = capacity - max([*transients, *buckets], default=0)
        host = sum(
            max((option.host_bytes for option in options.values()), default=0) + 2**20
            for options in self.copies
        )
        loose_host = host <= min(pool.host_bytes for pool in self.problem.pools)
        for copy, options in enumerate(self.copies):
            others = largest - residents[copy]
            for index, option in options.items():
                if others + option.resident_bytes <= loose:
                    option = replace(option, resident_bytes=0)
                if loose_host:
                    option = replace(option, host_bytes=0)
                options[index] = option

    def drop_dominated(self) -> None:
        """Pareto: first the settings of every copy option, then the copy options of one size."""
        settings = self._settings()
        for served in settings.values():
            for call, indices in served.items():
                for index in set(indices) - set(self._front(call, indices)):
                    del self.calls[call][index]
        settings = self._settings()
        for copy, options in enumerate(self.copies):
            groups: dict[tuple[int, int], list[int]] = defaultdict(list)
            for index, option in options.items():
                groups[option.pool, option.num_gpus].append(index)
            for group in groups.values():
                self._drop_dominated_copies(copy, group, settings)
        self._drop_orphans()

    def _front(self, call: int, indices: list[int]) -> list[int]:
        """Settings that no other one beats in seconds and bytes; of equal ones the first.

        Seconds are those of the end, and of each chunk before it.
        """
        options: dict[int, CallOption] = self.calls[call]
        front: list[int] = []
        for index in sorted(
            indices, key=lambda i: (options[i].seconds, options[i].transient_bytes, i)
        ):
            mine = options[index]
            if not any(
                options[other].transient_bytes <= mine.transient_bytes
                and _holds_less(options[other], mine)
                for other in front
            ):
                front.append(index)
        return front

    def _drop_dominated_copies(
        self,
        copy: int,
        group: list[int],
        settings: dict[tuple[int, int], dict[int, list[int]]],
    ) -> None:
        options = self.copies[copy]
        calls = sorted({call for index in group for call in settings[copy, index]})
        fronts = {
            index: [
                [
                    (
                        self.calls[call][j].seconds,
                        _peak(options[index], self.calls[call][j]),
                        self.calls[call][j],
                    )
                    for j in settings[copy, index].get(call, [])
                    if j in self.calls[call]
                ]
                for call in calls
            ]
            for index in group
        }
        kept: list[int] = []
        for index in sorted(group, key=lambda i: _rank(options[i], fronts[i])):
            if not any(
                _dominates(options[other], fronts[other], options[index], fronts[index])
                for other in kept
            ):
                kept.append(index)
        for index in set(group) - set(kept):
            del options[index]

    def result(self) -> Pruned:
        """The remaining options as a problem of their own."""
        copy_rows = tuple(tuple(sorted(options)) for options in self.copies)
        call_rows = tuple(tuple(sorted(options)) for options in self.calls)
        position = [{row: new for new, row in enumerate(rows)} for rows in copy_rows]
        copies = tuple(
            replace(copy, options=tuple(options[row] for row in rows))
            for copy, options, rows in zip(self.problem.copies, self.copies, copy_rows, strict=True)
        )
        calls = tuple(
            replace(call, options=tuple(_moved(options[row], position) for row in rows))
            for call, options, rows in zip(self.problem.calls, self.calls, call_rows, strict=True)
        )
        hopeless = any(
            call.options and not rows
            for call, rows in zip(self.problem.calls, call_rows, strict=True)
        )
        pruned = replace(self.problem, copies=copies, calls=calls)
        return Pruned(pruned, copy_rows, call_rows, hopeless)


def _moved(option: CallOption, position: list[dict[int, int]]) -> CallOption:
    return replace(option, copy_option=position[option.copy][option.copy_option])


Front = list[list[tuple[float, int, CallOption]]]
"""Per call: (seconds, resident + transient MiB, setting) of the settings left."""


def _holds_less(one: CallOption, other: CallOption) -> bool:
    """Every chunk is out as early, and no GPU held longer, by settings that end no later."""
    if any(
        mine > theirs
        for mine, theirs in zip(one.chunk_ready_seconds, other.chunk_ready_seconds, strict=True)
    ):
        return False
    if other.tail is None:
        return True
    if one.tail is None:
        return one.seconds <= other.tail.main_phase_seconds
    return (
        one.tail.num_gpus <= other.tail.num_gpus
        and one.tail.main_phase_seconds <= other.tail.main_phase_seconds
    )


def _peak(copy: CopyOption, call: CallOption) -> int:
    """MiB of a copy while its call runs: what the call's Cumulative sees of the two."""
    return bytes_to_mib(copy.resident_bytes) + bytes_to_mib(call.transient_bytes)


def _rank(option: CopyOption, front: Front) -> tuple[float, int, int]:
    fastest = sum(min((seconds for seconds, *_ in call), default=0.0) for call in front)
    return (fastest, option.resident_bytes, option.host_bytes)


def _dominates(one: CopyOption, front: Front, other: CopyOption, other_front: Front) -> bool:
    """Every setting of `other` has one of `one` that is as fast and peaks no higher.

    While a call of the copy runs, only resident + transient counts; while others run, resident.
    """
    if (
        one.resident_bytes > other.resident_bytes
        or one.host_bytes > other.host_bytes
        or one.sync_seconds > other.sync_seconds
    ):
        return False
    return all(
        any(s <= seconds and m <= peak and _holds_less(o, setting) for s, m, o in mine)
        for mine, theirs in zip(front, other_front, strict=True)
        for seconds, peak, setting in theirs
    )
