"""The subject of the check's rules: a plan beside its job, looked up by name."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.pricing import Pricing
from automap.planner.dataflow.graph import Call, Dataflow, with_staleness
from automap.planner.job.job import Job
from automap.planner.plan.types import CallPlan, CopyPlan, Plan, WeightSync

TOLERANCE_SECONDS = 1e-6
TOLERANCE_RELATIVE = 1e-9


def tolerance_seconds(*seconds: float) -> float:
    """Seconds by which two times may differ by rounding: a microsecond and 1e-9 of the larger."""
    return TOLERANCE_SECONDS + TOLERANCE_RELATIVE * max(abs(value) for value in seconds)


def agrees(found: float, expected: float) -> bool:
    """True when two times are equal but for rounding; never for a NaN."""
    return abs(found - expected) <= tolerance_seconds(found, expected)


@dataclass(frozen=True, slots=True)
class Span:
    """GPUs first … end − 1 of one pool, counted from the pool's first."""

    pool: str
    first: int
    end: int

    def shares_gpus(self, other: "Span") -> bool:
        """True when a GPU lies in both."""
        return self.pool == other.pool and self.first < other.end and other.first < self.end

    def __str__(self) -> str:
        return f"{self.pool}[{self.first}:{self.end}]"


@dataclass(frozen=True)
class Subject:
    """A plan whose references hold (automap.planner.check.structure), and the job it is for."""

    job: Job
    plan: Plan

    @cached_property
    def pools(self) -> dict[str, Pool]:
        """The job's pools by name."""
        return {pool.name: pool for pool in self.job.pools}

    @cached_property
    def copies(self) -> dict[str, CopyPlan]:
        """The plan's copies by id."""
        return {copy.id: copy for copy in self.plan.copies}

    @cached_property
    def flow(self) -> Dataflow:
        """The dataflow with the staleness that the spec allows."""
        return with_staleness(self.job.dataflow, self.job.training_slack)

    @cached_property
    def calls(self) -> dict[str, Call]:
        """Calls of the dataflow by id."""
        return {call.id: call for call in self.flow.calls}

    @cached_property
    def nodes_touched(self) -> dict[str, set[int]]:
        """Nodes with a GPU of some copy, by pool."""
        nodes: dict[str, set[int]] = {name: set() for name in self.pools}
        for copy in self.plan.copies:
            per_node = self.pool_of(copy).gpus_per_node
            last = copy.first_gpu + copy.num_gpus - 1
            nodes[copy.pool] |= set(range(copy.first_gpu // per_node, last // per_node + 1))
        return nodes

    @cached_property
    def pricing(self) -> Pricing:
        """The cost model of the job, for a placement that lies where the plan does."""
        return Pricing(self.job, one_node=sum(map(len, self.nodes_touched.values())) == 1)

    def homes(self) -> dict[str, CopyPlan]:
        """Homes by role."""
        return {copy.role: copy for copy in self.plan.copies if copy.kind == "home"}

    def placed_calls(self) -> Iterator[tuple[CallPlan, CopyPlan]]:
        """Calls that take GPUs, with their copies; a reward function takes none."""
        for call in self.plan.calls:
            if call.copy_id is not None:
                yield call, self.copies[call.copy_id]

    def sync_sides(self, sync: WeightSync) -> tuple[CopyPlan, CopyPlan]:
        """(home, shadow) of a weight sync."""
        return self.copies[sync.source_copy], self.copies[sync.target_copy]

    def pool_of(self, copy: CopyPlan) -> Pool:
        """The pool that a copy lies in."""
        return self.pools[copy.pool]


def span_of(copy: CopyPlan) -> Span:
    """The GPUs of a copy."""
    return Span(copy.pool, copy.first_gpu, copy.first_gpu + copy.num_gpus)


def sync_name(sync: WeightSync) -> str:
    """What a weight sync is called in a violation."""
    return f"weight sync {sync.source_copy} → {sync.target_copy}"
