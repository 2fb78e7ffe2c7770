"""A placement that changes step by step: its simulated seconds, and whether it fits.

What a copy chose is an option and a range; what its calls chose follows from that: the fastest
settings that fit into what all copies leave free.
"""

from dataclasses import dataclass
from itertools import combinations

from automap.planner.search.model.problem import Assignment, Problem, Range
from automap.planner.search.strategies.placing import aligned_firsts
from automap.planner.search.strategies.simulation import (
    Graph,
    Spans,
    overlaps,
    sharing,
    simulated_seconds,
)
from automap.planner.units import MIB

MEMORY_PENALTY = 3.0
"""The factor on the seconds of a placement that does not fit in memory."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run a call on an option of a copy."""

    seconds: float
    transient: int
    number: int


@dataclass(slots=True)
class State:
    """Per copy its option and first GPU (None: an absent shadow), per call the copy it runs on."""

    options: list[int | None]
    firsts: list[int]
    runs_on: list[int | None]

    def copy(self) -> "State":
        """A copy of the state, which can be changed without changing this one."""
        return State(list(self.options), list(self.firsts), list(self.runs_on))


@dataclass(frozen=True, slots=True)
class Valued:
    """The value of a state: its seconds, and whether it fits in memory."""

    seconds: float
    """Simulated seconds of an iteration, times MEMORY_PENALTY where it does not fit."""
    fits: bool
    call_options: tuple[int | None, ...]


class Placements:
    """A problem's options in the form in which single placements are valued quickly."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.graph = Graph.of(problem)
        self.settings = [_settings(problem, call) for call in range(len(problem.calls))]
        """Per call: (copy, option) → settings, fastest first, each with fewer bytes."""
        self.firsts: dict[tuple[int, int], list[int]] = {}
        """Per pool and size: aligned first GPUs."""
        self.sizes = [
            [(o.num_gpus, -(-o.resident_bytes // MIB), -(-o.host_bytes // MIB)) for o in c.options]
            for c in problem.copies
        ]
        for copy in problem.copies:
            for option in copy.options:
                key = (option.pool, option.num_gpus)
                if key not in self.firsts:
                    self.firsts[key] = aligned_firsts(problem.pools[option.pool], option.num_gpus)

    def starts(self, copy: int, option: int) -> list[int]:
        """The first GPUs that an option of a copy may have."""
        choice = self.problem.copies[copy].options[option]
        return self.firsts[choice.pool, choice.num_gpus]

    def valued(self, state: State) -> Valued | None:
        """The state's seconds; None where a call cannot run on the option of its copy."""
        spans = self._spans(state)
        free, fits = self._free(state, spans)
        durations: list[float] = []
        taken: list[int | None] = []
        for call, choice in enumerate(self.problem.calls):
            copy = state.runs_on[call]
            if copy is None:
                durations.append(choice.fixed_seconds)
                taken.append(None)
                continue
            option = state.options[copy]
            assert option is not None, "a copy that runs a call is there"
            settings = self.settings[call].get((copy, option))
            if settings is None:
                return None
            setting = next((s for s in settings if s.transient <= free[copy]), None)
            if setting is None:
                setting, fits = settings[0], False
            durations.append(setting.seconds)
            taken.append(setting.number)
        nodes: list[tuple[int, ...]] = [() if copy is None else (copy,) for copy in state.runs_on]
        for sync in self.problem.syncs:
            home, shadow = state.options[sync.home], state.options[sync.shadow]
            durations.append(
                0.0
                if shadow is None or home is None
                else max(
                    self.problem.copies[sync.home].options[home].sync_seconds,
                    self.problem.copies[sync.shadow].options[shadow].sync_seconds,
                )
            )
            nodes.append(() if shadow is None else (sync.home, sync.shadow))
        overlapping = overlaps(spans)
        busy = sharing(nodes, overlapping)
        seconds = simulated_seconds(self.graph, durations, busy)
        fits = fits and self._pairs_hold(spans, overlapping)
        return Valued(seconds if fits else MEMORY_PENALTY * seconds, fits, tuple(taken))

    def assignment(self, state: State, valued: Valued) -> Assignment:
        """The state with what its calls chose."""
        firsts = tuple(
            None if option is None else first
            for option, first in zip(state.options, state.firsts, strict=True)
        )
        return Assignment(tuple(state.options), firsts, valued.call_options)

    def _spans(self, state: State) -> Spans:
        """Per copy (first GPU, one past the last)."""
        return [
            None if option is None else (first, first + sizes[option][0])
            for option, first, sizes in zip(state.options, state.firsts, self.sizes, strict=True)
        ]

    def _free(self, state: State, spans: Spans) -> tuple[list[int], bool]:
        """(MiB that calls on each copy may use, whether residents and weight syncs fit).

        Residents change only where a range begins, so only those GPUs are looked at.
        """
        free, fits = [0] * len(spans), True
        held = {
            point: self._held(state, spans, point)
            for point in {span[0] for span in spans if span is not None}
        }
        for copy, span in enumerate(spans):
            option = state.options[copy]
            if span is None or option is None:
                continue
            pool = self.problem.pools[self.problem.copies[copy].options[option].pool]
            here = [at for point, at in held.items() if span[0] <= point < span[1]]
            free[copy] = pool.capacity_bytes // MIB - max(at.resident for at in here)
            syncs = max(at.resident + at.buckets for at in here)
            hosts = max(at.host for at in here)
            fits &= syncs <= pool.capacity_bytes // MIB and hosts <= pool.host_bytes // MIB
        return free, fits

    def _held(self, state: State, spans: Spans, gpu: int) -> "_Held":
        resident = host = buckets = 0
        for sizes, option, span in zip(self.sizes, state.options, spans, strict=True):
            if option is not None and span is not None and span[0] <= gpu < span[1]:
                resident += sizes[option][1]
                host += sizes[option][2]
        for sync in self.problem.syncs:
            if spans[sync.shadow] is not None:
                sides = (spans[sync.home], spans[sync.shadow])
                on = sum(span is not None and span[0] <= gpu < span[1] for span in sides)
                buckets = max(buckets, on * -(-sync.bucket_bytes // MIB))
        return _Held(resident, host, buckets)

    def _pairs_hold(self, spans: Spans, overlapping: list[list[bool]]) -> bool:
        problem = self.problem
        ranges = [None if span is None else Range(span[0], span[1] - span[0]) for span in spans]
        return (
            all(spans[one] == spans[other] for one, other in problem.colocate)
            and not any(overlapping[one][other] for one, other in problem.separate)
            and all(
                one.relates(other, problem.ranges)
                for one, other in combinations(filter(None, ranges), 2)
            )
        )


@dataclass(frozen=True, slots=True)
class _Held:
    """MiB on one GPU: of copies, of its share of the host, and of the largest weight sync."""

    resident: int
    host: int
    buckets: int


def _settings(problem: Problem, call: int) -> dict[tuple[int, int], list[Setting]]:
    """Settings that no other of the same copy and option beats in seconds and bytes."""
    found: dict[tuple[int, int], list[Setting]] = {}
    numbered = sorted(
        enumerate(problem.calls[call].options),
        key=lambda each: (each[1].seconds, each[1].transient_bytes),
    )
    for number, option in numbered:
        settings = found.setdefault((option.copy, option.copy_option), [])
        transient = -(-option.transient_bytes // MIB)
        if not settings or transient < settings[-1].transient:
            settings.append(Setting(option.seconds, transient, number))
    return found
