"""Lower bounds on the period from the least seconds and the least weights of each call.

At any moment the calls that run lie on disjoint GPUs of a pool with N GPUs. So for every dual
feasible function f (Σ n_i ≤ N implies Σ f(n_i) ≤ 1) the weighted lengths Σ f(n_k) d_k of calls that
must all run inside a stretch of time are at most that stretch. f(n) = n/N is the area bound; with

    f_q(n) = n/N where (q + 1) n/N is whole, else ⌊(q + 1) n/N⌋ / q

f_1 says that calls on more than half of the pool run one after another (Fekete and Schepers 2001).
Whole options can be thrown away before the solver sees them: whatever an option leads to, its
period is at least the bound with the option's own values and the least values of all other calls.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from automap.planner.layout import FloatArray, IntArray
from automap.planner.search.model.problem import CallOption, CopyOption, Precedence, Problem

FUNCTIONS = (0, 1, 2, 3)
"""0 is the area bound, q ≥ 1 is f_q."""


def dual_feasible_weight(function: int, count: int, total: int) -> int:
    """f(count) × total × max(function, 1) as a whole number; see the module's head."""
    scale = max(function, 1)
    if function == 0 or (function + 1) * count % total == 0:
        return count * scale
    return total * ((function + 1) * count // total)


Weights = tuple[float, ...]
"""Seconds × f(n), one per (pool, function) and one for n over all GPUs."""


@dataclass(frozen=True, slots=True)
class CallMinimum:
    """The least a call can take, over some of its options."""

    seconds: float
    """On a path; with the weight sync where nothing else can come before the call."""
    weights: Weights


class Bounds:
    """Bounds for one problem.

    `uses` are the (call, copy) that some option has, where the problem has no options itself.
    """

    def __init__(self, problem: Problem, uses: Iterable[tuple[int, int]] | None = None) -> None:
        self.problem = problem
        self.calls = range(len(problem.calls))
        self.uses = sorted(_uses(problem) if uses is None else uses)
        self._copy_options: dict[tuple[int, int], CopyOption] = {}

    @cached_property
    def following(self) -> list[set[int]]:
        """For every call the calls that start after its end within the iteration.

        A streamed target may start before its source ends. It starts and ends later than the
        source does, so what precedes the source precedes it, and what follows it follows the
        source.
        """
        following: list[set[int]] = [set() for _ in self.calls]
        for edge in self.problem.precedences:
            if edge.distance == 0 and not edge.streamed:
                following[edge.source].add(edge.target)
        for _ in self.calls:
            for call in self.calls:
                for after in list(following[call]):
                    following[call] |= following[after] | self._streamed_targets[after]
                for target in self._streamed_targets[call]:
                    following[call] |= following[target]
        return following

    @cached_property
    def _streamed_targets(self) -> list[set[int]]:
        """For every call the calls that take what it makes in chunks."""
        targets: list[set[int]] = [set() for _ in self.calls]
        for edge in self._streams:
            targets[edge.source].add(edge.target)
        return targets

    @cached_property
    def _streams(self) -> list[Precedence]:
        return [e for e in self.problem.precedences if e.streamed and e.distance == 0]

    @cached_property
    def order(self) -> list[int]:
        """The calls in topological order."""
        streamed = {edge.target for edge in self._streams}
        return sorted(self.calls, key=lambda call: (-len(self.following[call]), call in streamed))

    @cached_property
    def _numbers(self) -> dict[tuple[int | None, int | None], int]:
        """(u, v) → number of the stretch from the end of u (None: 0) to the start of v (None: P).

        Only those with a call inside; the whole period is the first.
        """
        return {key: number for number, key in enumerate(self.stretches)}

    @cached_property
    def stretches(self) -> dict[tuple[int | None, int | None], list[int]]:
        """(u, v) → the calls that must run inside the stretch."""
        after = self.following
        before = [{u for u in self.calls if v in after[u]} for v in self.calls]
        inside: dict[tuple[int | None, int | None], set[int]] = {(None, None): {*self.calls}}
        for u in self.calls:
            inside |= {(None, u): before[u], (u, None): after[u]}
            inside |= {(u, v): after[u] & before[v] for v in after[u]}
        return {key: sorted(calls) for key, calls in inside.items() if calls}

    @cached_property
    def _members(self) -> FloatArray:
        """[stretch, call] 1 where the call runs inside the stretch."""
        members = np.zeros((len(self.stretches), len(self.calls)))
        for row, calls in enumerate(self.stretches.values()):
            members[row, calls] = 1.0
        return members

    @cached_property
    def _gpus(self) -> int:
        return sum(pool.num_gpus for pool in self.problem.pools)

    def weights(self, call: int, option: CallOption) -> Weights:
        """The weights of one option; 0 in the pools that it does not use."""
        copy = self._copy_option(option)
        (count, seconds), *tail = option.held(copy.num_gpus)
        seconds += self.busy_seconds(call, option) - option.seconds
        whole = tuple(share * seconds for share in self.shares(copy.pool, count))
        for fewer, rest in tail:
            shares = self.shares(copy.pool, fewer)
            whole = tuple(w + share * rest for w, share in zip(whole, shares, strict=True))
        return whole

    def seconds(self, call: int, option: CallOption) -> float:
        """Seconds of an option, and of the weight sync that must come first on its shadow.

        Where the call has no predecessor, nothing but the sync can come before it.
        """
        synced = self.is_source[call] and self._sync_seconds(option)
        return option.seconds + (synced or 0.0)

    def busy_seconds(self, call: int, option: CallOption) -> float:
        """Seconds that a call keeps its GPUs busy with an option, for sums over calls.

        A shadow's weight sync is counted by one of its source calls alone, so that no sum has it
        twice.
        """
        synced = self.counts_sync(call, option.copy) and self._sync_seconds(option)
        return option.seconds + (synced or 0.0)

    def counts_sync(self, call: int, copy: int) -> bool:
        """True for the first of the source calls that may run on a shadow."""
        return self._sync_counters.get(copy) == call

    @cached_property
    def _sync_counters(self) -> dict[int, int]:
        first: dict[int, int] = {}
        for call, copy in self.uses:
            if self.is_source[call] and self.problem.copies[copy].shadow_of is not None:
                first.setdefault(copy, call)
        return first

    def _sync_seconds(self, option: CallOption) -> float:
        if self.problem.copies[option.copy].shadow_of is None:
            return 0.0
        return self._copy_option(option).sync_seconds

    def _copy_option(self, option: CallOption) -> CopyOption:
        """The option of its copy; kept, as columns make a new one each time."""
        key = (option.copy, option.copy_option)
        if key not in self._copy_options:
            self._copy_options[key] = self.problem.copies[option.copy].options[option.copy_option]
        return self._copy_options[key]

    @cached_property
    def is_source(self) -> list[bool]:
        """Per call: it waits for no other call of the iteration."""
        targets = {edge.target for edge in self.problem.precedences if edge.distance == 0}
        return [call not in targets for call in self.calls]

    def shares(self, pool: int, count: int) -> Weights:
        """Weights of one second on `count` GPUs of a pool."""
        key = (pool, count)
        if key not in self._share_cache:
            shares = [count / self._gpus]
            for index, slice_ in enumerate(self.problem.pools):
                for q in FUNCTIONS:
                    whole = dual_feasible_weight(q, count, slice_.num_gpus)
                    scale = slice_.num_gpus * max(q, 1)
                    shares.append(whole / scale if index == pool else 0.0)
            self._share_cache[key] = tuple(shares)
        return self._share_cache[key]

    def shares_of(self, pools: IntArray, counts: IntArray) -> FloatArray:
        """[range, weight] `shares` of many ranges, given as columns."""
        columns = [counts / self._gpus]
        for index, slice_ in enumerate(self.problem.pools):
            total = slice_.num_gpus
            for q in FUNCTIONS:
                exact = (q + 1) * counts % total == 0 if q else np.True_
                scale = max(q, 1)
                whole = np.where(exact, counts * scale, total * ((q + 1) * counts // total))
                columns.append(np.where(pools == index, whole / (total * scale), 0.0))
        return np.stack(columns, axis=1)

    @cached_property
    def _share_cache(self) -> dict[tuple[int, int], tuple[float, ...]]:
        return {}

    def minimum(self, call: int, options: list[CallOption]) -> CallMinimum:
        """Componentwise least over options; a call without options takes its fixed time."""
        return self.least(call, *self.measured(call, options))

    def measured(self, call: int, options: list[CallOption]) -> tuple[FloatArray, FloatArray]:
        """([option] seconds, [option, weight] weights)."""
        seconds = [self.seconds(call, option) for option in options]
        weights = [self.weights(call, option) for option in options]
        return np.array(seconds), np.array(weights).reshape(len(options), self._num_weights)

    def least(self, call: int, seconds: FloatArray, weights: FloatArray) -> CallMinimum:
        """`minimum` of options that are measured."""
        if not self.problem.calls[call].options:
            fixed = self.problem.calls[call].fixed_seconds
            return CallMinimum(fixed, (0.0,) * self._num_weights)
        return CallMinimum(float(seconds.min()), tuple(weights.min(axis=0).tolist()))

    @cached_property
    def _num_weights(self) -> int:
        return 1 + len(self.problem.pools) * len(FUNCTIONS)

    def offsets(self, minima: Sequence[CallMinimum]) -> list[CallMinimum]:
        """Per call what every choice for it has in common.

        The bound is at least seconds + offsets.seconds and, for every weight, weight +
        offsets.weight: it is a maximum of sums in which a call occurs at most once, so a huge
        value in one place isolates the rest of its sum. All places of all calls are tried at once.
        """
        seconds, weights = _columns(minima)
        calls, places = len(minima), 1 + weights.shape[1]
        huge = 16.0 * (1.0 + float(seconds.sum()))
        trial_seconds = np.tile(seconds, (calls, places, 1))
        trial_weights = np.tile(weights, (calls, places, 1, 1))
        for call in range(calls):
            trial_seconds[call, :, call] = 0.0
            trial_weights[call, :, call] = 0.0
            trial_seconds[call, 0, call] = huge
            for place in range(1, places):
                trial_weights[call, place, call, place - 1] = huge
        rest = self._periods(
            trial_seconds.reshape(-1, calls), trial_weights.reshape(-1, calls, places - 1)
        )
        return [
            CallMinimum(row[0], tuple(row[1:]))
            for row in (rest.reshape(calls, places) - huge).tolist()
        ]

    def joint_offset(self, minima: Sequence[CallMinimum], calls: list[int]) -> float | None:
        """What a path through all of `calls` takes besides them; None where there is none."""
        huge = 16.0 * (1.0 + sum(minimum.seconds for minimum in minima))
        trial = [*minima]
        for call in calls:
            trial[call] = CallMinimum(huge, (0.0,) * len(minima[call].weights))
        rest = self.period(trial) - huge * len(calls)
        return rest if rest > -0.25 * huge else None

    def period(self, minima: Sequence[CallMinimum]) -> float:
        """A lower bound on the period when every call takes at least its minimum."""
        seconds, weights = _columns(minima)
        return float(self._periods(seconds[None], weights[None])[0])

    def _periods(self, seconds: FloatArray, weights: FloatArray) -> FloatArray:
        """[trial] bounds for [trial, call] seconds and [trial, call, weight] weights."""
        if not self.problem.barrier:
            whole = weights.sum(axis=1).max(axis=1)
            return self._cyclic(seconds, whole)
        lengths = np.tensordot(weights, self._members, axes=(1, 1)).max(axis=1)
        """[trial, stretch] least time in which calls that must all run inside can run."""
        number = self._numbers
        starts = self._starts(seconds, lengths)
        period: FloatArray = lengths[:, number[None, None]]
        for u in self.calls:
            end = starts[:, u] + seconds[:, u]
            if (u, None) in number:
                end = end + lengths[:, number[u, None]]
            period = np.maximum(period, end)
        for edge in self._streams:
            period = np.maximum(period, self._last_chunk(edge, starts, seconds))
        return period

    def _starts(self, seconds: FloatArray, lengths: FloatArray) -> FloatArray:
        """[trial, call] the earliest starts."""
        number = self._numbers
        starts = np.zeros_like(seconds)
        for v in self.order:
            if (None, v) in number:
                starts[:, v] = lengths[:, number[None, v]]
            for u in self.calls:
                if v in self.following[u]:
                    end = starts[:, u] + seconds[:, u]
                    if (u, v) in number:
                        end = end + lengths[:, number[u, v]]
                    starts[:, v] = np.maximum(starts[:, v], end)
            for start in self._after_streams(v, starts, seconds):
                starts[:, v] = np.maximum(starts[:, v], start)
        return starts

    def _after_streams(
        self, call: int, starts: FloatArray, seconds: FloatArray
    ) -> list[FloatArray]:
        """[trial] seconds before which a call cannot start for the sake of streamed edges."""
        return [starts[:, edge.source] for edge in self._streams if edge.target == call] + [
            self._last_chunk(edge, starts, seconds)
            for edge in self._streams
            if call in self.following[edge.target]
        ]

    @staticmethod
    def _last_chunk(edge: Precedence, starts: FloatArray, seconds: FloatArray) -> FloatArray:
        """[trial] A streamed target ends a chunk after its source at the earliest."""
        chunk = seconds[:, edge.target] / edge.chunks
        return np.asarray(starts[:, edge.source] + seconds[:, edge.source] + chunk)

    def _cyclic(self, seconds: FloatArray, whole: FloatArray) -> FloatArray:
        """Area, the longest call, and the cycles through one edge to a later iteration."""
        bound: FloatArray = np.maximum(whole, seconds.max(axis=1))
        longest = self._longest(seconds)
        shadows = {i for i, copy in enumerate(self.problem.copies) if copy.shadow_of is not None}
        synced = {call for call, copy in self.uses if copy in shadows and self.is_source[call]}
        syncs = {(sync.train, sync.distance) for sync in self.problem.syncs}
        for edge in self.problem.precedences:
            path = longest.get((edge.target, edge.source))
            # A path that starts with a sync is a cycle only behind the training it waits for.
            closed = edge.target not in synced or (edge.source, edge.distance) in syncs
            if edge.distance > 0 and path is not None and closed:
                bound = np.maximum(bound, path / edge.distance)
        return bound

    def _longest(self, seconds: FloatArray) -> dict[tuple[int, int], FloatArray]:
        """[trial] longest path u → v at distance 0, both ends included.

        Of a streamed target one chunk counts.
        """
        longest = {(u, u): seconds[:, u] for u in self.calls}
        for u in self.calls:
            for v in self.order:
                for edge in self.problem.precedences:
                    known = longest.get((u, edge.source))
                    if edge.distance == 0 and edge.target == v and known is not None:
                        length = known + seconds[:, v] / max(edge.chunks, 1)
                        longest[u, v] = np.maximum(longest.get((u, v), length), length)
        return longest


def _columns(minima: Sequence[CallMinimum]) -> tuple[FloatArray, FloatArray]:
    """([call] seconds, [call, weight] weights)."""
    return (
        np.array([minimum.seconds for minimum in minima]),
        np.array([minimum.weights for minimum in minima]),
    )


def _uses(problem: Problem) -> set[tuple[int, int]]:
    """Every (call, copy) that some option has."""
    return {(c, option.copy) for c, call in enumerate(problem.calls) for option in call.options}
