"""The placement problem as plain numbers: what search, baselines and tests share.

It knows neither models nor GPU types nor a solver. Copies choose an option and an aligned range of
GPUs; calls choose an option that belongs to one of their copies' options.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from automap.planner.layout import RangeRelation


@dataclass(frozen=True, slots=True)
class PoolSlice:
    """A pool on the axis: GPUs first_gpu … first_gpu + num_gpus − 1, kept-free ones excluded."""

    name: str
    first_gpu: int
    num_gpus: int
    gpus_per_node: int
    capacity_bytes: int
    """Usable bytes of one GPU."""
    host_bytes: int
    """Usable host bytes per GPU."""
    price_per_gpu_second: float


@dataclass(frozen=True, slots=True)
class CopyOption:
    """One way to lay a copy over `num_gpus` GPUs of a pool."""

    pool: int
    num_gpus: int
    resident_bytes: int
    """Per GPU, through the whole iteration."""
    host_bytes: int
    """Per GPU, on its node's host."""
    sync_seconds: float
    """A home's time to send, a shadow's to receive, its part of a weight sync; 0 without one."""
    row: int
    """Row of the layout in the caller's table."""


@dataclass(frozen=True, slots=True)
class CopyChoice:
    """One set of a model's weights: a home (always there) or a shadow (there if a call uses it)."""

    id: str
    role: str
    shadow_of: int | None
    """Index of the home for a shadow; None for a home."""
    options: Sequence[CopyOption]


@dataclass(frozen=True, slots=True)
class Tail:
    """A call goes on with the first `num_gpus` of its range alone, and frees the others."""

    num_gpus: int
    main_phase_seconds: float
    """Seconds from the start of the call in which it holds all GPUs of its range."""


@dataclass(frozen=True, slots=True)
class CallOption:
    """One way to run a call on an option of one of its copies."""

    copy: int
    copy_option: int
    seconds: float
    transient_bytes: int
    """Per GPU, beyond what copies hold, while the call runs."""
    row: int
    """Row of the setting in the caller's table."""
    chunk_ready_seconds: tuple[float, ...] = ()
    """Seconds until each chunk but the last is out, rising; empty where nothing is streamed."""
    tail: "Tail | None" = None

    def held(self, num_gpus: int) -> "list[tuple[int, float]]":
        """(GPUs, seconds) of the rectangles that the call takes on a range of so many GPUs."""
        if self.tail is None:
            return [(num_gpus, self.seconds)]
        main_phase = self.tail.main_phase_seconds
        return [(num_gpus, main_phase), (self.tail.num_gpus, self.seconds - main_phase)]


@dataclass(frozen=True, slots=True)
class CallChoice:
    """A call; without options it takes `fixed_seconds` and no GPU."""

    id: str
    options: Sequence[CallOption]
    fixed_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Precedence:
    """Call `target` starts after call `source` of `distance` iterations earlier has ended.

    Where `chunks` are given, it takes the source's output in so many parts as they come, unless the
    two share a GPU: it may start before the source ends (`lag_seconds`).
    """

    source: int
    target: int
    distance: int
    chunks: int = 0

    @property
    def streamed(self) -> bool:
        """True where the target need not wait for the source's end."""
        return self.chunks > 0


@dataclass(frozen=True, slots=True)
class WeightSyncChoice:
    """Home → shadow once per iteration: after `train` of `distance` iterations earlier."""

    home: int
    shadow: int
    train: int
    distance: int
    bucket_bytes: int
    """Transient bytes per GPU on both sides."""


@dataclass(frozen=True, slots=True)
class FormChoice:
    """A way in which copies share GPUs."""

    colocate: frozenset[tuple[int, int]]
    """Pairs of copies on the same range."""
    separate: frozenset[tuple[int, int]]
    """Pairs of copies on disjoint ranges."""
    apart: bool
    """Whatever a shadow can run is run there; otherwise there is no shadow."""
    offloads: tuple[tuple[int, frozenset[int]], ...]
    """(number of a copy, codes of what may be on the host) where that depends on the form."""

    def holds(self, other: "FormChoice") -> bool:
        """Whether it has all placements of another one."""
        return (
            (self.apart, self.offloads) == (other.apart, other.offloads)
            and self.colocate <= other.colocate
            and self.separate <= other.separate
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything that a placement and its schedule depend on."""

    pools: tuple[PoolSlice, ...]
    copies: tuple[CopyChoice, ...]
    calls: tuple[CallChoice, ...]
    precedences: tuple[Precedence, ...]
    syncs: tuple[WeightSyncChoice, ...] = ()
    barrier: bool = True
    """True: every call of an iteration ends before the next iteration begins."""
    colocate: tuple[tuple[int, int], ...] = ()
    """Pairs of copies on the same range."""
    separate: tuple[tuple[int, int], ...] = ()
    """Pairs of copies on disjoint ranges."""
    ranges: RangeRelation = "any"
    """How two ranges may share GPUs."""
    forms: tuple[FormChoice, ...] = ()
    """Ways to share GPUs of which a placement has one; each is searched by itself. None: any."""

    @property
    def num_gpus(self) -> int:
        """Length of the GPU axis up to the last usable GPU."""
        return max(pool.first_gpu + pool.num_gpus for pool in self.pools)


@dataclass(frozen=True, slots=True)
class Range:
    """GPUs first … first + count − 1 on the axis."""

    first: int
    count: int

    @property
    def end(self) -> int:
        """One past the last GPU."""
        return self.first + self.count

    def overlaps(self, other: "Range") -> bool:
        """True when the two share a GPU."""
        return self.first < other.end and other.first < self.end

    def relates(self, other: "Range", relation: RangeRelation) -> bool:
        """True when the two share GPUs only as the relation allows."""
        if relation == "any" or self == other or not self.overlaps(other):
            return True
        inner, outer = sorted((self, other), key=lambda span: span.count)
        return relation == "nested" and outer.first <= inner.first and inner.end <= outer.end


@dataclass(frozen=True, slots=True)
class Assignment:
    """A placement: what every copy and call chose, and where the copies lie."""

    copy_options: tuple[int | None, ...]
    """Per copy its option; None for an absent shadow."""
    first_gpus: tuple[int | None, ...]
    call_options: tuple[int | None, ...]
    """Per call its option; None for a call without GPUs."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Start seconds (phase when cyclic) and stage of every call and sync; `None`: no such sync."""

    period: float
    call_starts: tuple[float, ...]
    call_stages: tuple[int, ...]
    sync_starts: tuple[float | None, ...]
    sync_stages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """An assignment with its schedule."""

    assignment: Assignment
    timing: Timing


def copy_range(problem: Problem, assignment: Assignment, copy: int) -> Range | None:
    """The GPUs that a copy lies on; None for an absent shadow."""
    option = assignment.copy_options[copy]
    first = assignment.first_gpus[copy]
    if option is None or first is None:
        return None
    return Range(first, problem.copies[copy].options[option].num_gpus)


def chosen(problem: Problem, assignment: Assignment, call: int) -> CallOption | None:
    """The option that a call runs with; None for a call without GPUs."""
    option = assignment.call_options[call]
    return None if option is None else problem.calls[call].options[option]


def sync_seconds(problem: Problem, assignment: Assignment, sync: WeightSyncChoice) -> float | None:
    """Duration of a weight sync: the slower of its two sides; None where there is no shadow."""
    home, shadow = assignment.copy_options[sync.home], assignment.copy_options[sync.shadow]
    if home is None or shadow is None:
        return None
    return max(
        problem.copies[sync.home].options[home].sync_seconds,
        problem.copies[sync.shadow].options[shadow].sync_seconds,
    )


def lag_seconds(problem: Problem, assignment: Assignment, edge: Precedence) -> float:
    """Least seconds from the start of an edge's source to the start of its target.

    Of K chunks the k-th is out after r_k seconds (the last at the source's end), and the target
    takes d/K seconds for each, one after another. If it starts no earlier than r_k − (k − 1)·d/K
    for every k, no chunk is late. Whole microseconds, rounded up, like prices.
    """
    source = call_seconds(problem, assignment, edge.source)
    if not edge.streamed:
        return source
    option = chosen(problem, assignment, edge.source)
    assert option is not None, "only a generation is streamed, and it takes GPUs"
    each = call_seconds(problem, assignment, edge.target) / edge.chunks
    late = max(ready - k * each for k, ready in enumerate((*option.chunk_ready_seconds, source)))
    return math.ceil(1e6 * late - 1e-3) * 1e-6


def call_seconds(problem: Problem, assignment: Assignment, call: int) -> float:
    """Duration of a call under an assignment."""
    option = chosen(problem, assignment, call)
    return problem.calls[call].fixed_seconds if option is None else option.seconds
