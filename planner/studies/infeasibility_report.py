"""What makes an impossible job possible: every change that helps, each with its plan."""

import time
from collections.abc import Callable, Iterator, Mapping

from automap.planner.errors import InfeasibleError, NoSolutionInTimeError, Reason
from automap.planner.infeasible.changes import (
    NO_PROFILES,
    Change,
    ChangeKind,
    faster_gpus,
    more_nodes,
    pools_of,
    with_nodes,
)
from automap.planner.infeasible.reasons import diagnose
from automap.planner.infeasible.remedies import FeasibilityProbe, least_risk
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec, PoolSpec, need_spec
from automap.planner.studies.result import ExplainedInfeasibleError, Refusal, Remedy

HARDWARE: tuple[ChangeKind, ...] = ("gpu", "nodes")
LEARNING: tuple[ChangeKind, ...] = ("response_length", "adapters")
"""Kinds of change that alter what is learnt, not only how."""
MOST_DOUBLINGS = 6
"""How often a pool's nodes are doubled to meet a target of time."""

Tell = Callable[[str], None]


def make_plan_or_explain(
    spec: JobSpec, *, profiles: Mapping[str, str] = NO_PROFILES, tell: Tell = lambda _: None
) -> Plan:
    """make_plan; with `search.explain_infeasible` plans of what would make the job possible.

    Where other GPUs would, their profile is that of their type in `profiles`.

    Raises:
        SpecError, NoSolutionInTimeError: as make_plan.
        ExplainedInfeasibleError: no placement fits, or the strategy has none.
    """
    need_spec(spec)
    if not spec.search.explain_infeasible:
        return make_plan(spec)
    try:
        return make_plan(spec, explain=lambda _: [])
    except InfeasibleError as error:
        refusal = explain_refusal(spec, profiles=profiles, tell=tell)
        if spec.search.strategy is not None:  # whose own reason is the first
            reasons = [*error.reasons[:1], *refusal.reasons]
            refusal = refusal.model_copy(update={"reasons": reasons})
        raise ExplainedInfeasibleError(refusal) from None


def explain_refusal(
    spec: JobSpec,
    *,
    limit_seconds: float | None = None,
    profiles: Mapping[str, str] = NO_PROFILES,
    tell: Tell = lambda _: None,
) -> Refusal:
    """Why an infeasible job fits nowhere, and plans of the smallest changes with which it would.

    Each change is planned, and only those are remedies that have a plan; where no single change
    helps, two together are tried. After `limit_seconds` of processor time (default: the spec's time
    limit) nothing more is tried or planned. GPUs of another type have their profile in `profiles`;
    `tell` hears how far it is.

    Raises:
        SpecError: as make_plan.
    """
    limit = spec.search.time_limit_seconds if limit_seconds is None else limit_seconds
    report = _Report(spec, time.process_time() + limit, profiles, tell)
    reasons = report.run()
    return Refusal(
        reasons=reasons,
        remedies=sorted(report.remedies, key=_rank),
        untried=report.untried,
    )


class _Report:
    """The remedies found so far."""

    def __init__(
        self, spec: JobSpec, deadline: float, profiles: Mapping[str, str], tell: Tell
    ) -> None:
        self.spec, self.profiles, self.tell = spec, profiles, tell
        self.probe = FeasibilityProbe(deadline=deadline, profiles=profiles)
        self.remedies: list[Remedy] = []
        self.untried: list[str] = []

    def run(self) -> list[Reason]:
        """Find them; the reasons why they are needed."""
        if self.spec.search.strategy is not None and self._without_strategy():
            return []
        self.tell("finding the cause")
        found = diagnose(resolve(self.spec))
        self.probe.suspect, self.probe.over_bytes = found.suspect, found.over_bytes
        if found.reachable_seconds is not None:
            self._faster(found.reachable_seconds)
            return found.reasons
        margin, changes = least_risk(self.spec, self.probe)
        self._plan_each(iter(changes))
        self._plan_each(self.probe.single_changes(self.spec))
        if not self.remedies and not self.untried:
            self._plan_each(self.probe.pairs(self.spec))
        if not self.remedies and not self.untried:
            everything = self.probe.all_changes(self.spec)
            self._plan_each(iter([everything] if everything else []))
        return [*margin, *found.reasons]

    def _plan_each(self, changes: Iterator[Change]) -> None:
        for change in changes:
            self._plan(change)

    def _plan(self, change: Change) -> bool:
        """Plan a change; True: it is a remedy."""
        if self.probe.overdue:
            self.untried.append(change.text)
            return False
        self.tell(f"planning: {change.text}")
        try:
            plan = make_plan(change.spec, explain=lambda _: [])
        except InfeasibleError:
            return False
        except NoSolutionInTimeError:
            self.untried.append(change.text)
            return False
        self.remedies.append(Remedy(kinds=list(change.kinds), change=change.text, plan=plan))
        return True

    def _without_strategy(self) -> bool:
        search = self.spec.search.model_copy(update={"strategy": None})
        self.spec = self.spec.model_copy(update={"search": search})
        return self._plan(Change(("strategy",), "leave out search.strategy", self.spec))

    def _faster(self, reachable_seconds: float) -> None:
        """Everything fits, but too slowly: a later target, more nodes, or faster GPUs."""
        text = f"raise search.target_iteration_seconds to {reachable_seconds:.3f}"
        search = self.spec.search.model_copy(update={"target_iteration_seconds": reachable_seconds})
        later = self.spec.model_copy(update={"search": search})
        self._plan(Change(("target",), text, later))
        for pool in pools_of(self.spec):
            self._enough_nodes(pool)
            self._fast_enough(pool)

    def _enough_nodes(self, pool: PoolSpec) -> None:
        """Nodes doubled until the target is met; then as many as the fewest GPUs need."""
        for doublings in range(1, MOST_DOUBLINGS + 1):
            nodes = pool.num_nodes * 2**doublings
            if self.probe.overdue:
                return
            self.tell(f"trying {nodes} nodes in pool {pool.name}")
            try:
                plan = make_plan(with_nodes(self.spec, pool, nodes), explain=lambda _: [])
            except (InfeasibleError, NoSolutionInTimeError):
                continue
            self._plan(more_nodes(self.spec, pool, _nodes_in(plan, pool)))
            return

    def _fast_enough(self, pool: PoolSpec) -> None:
        """The GPU with the least arithmetic that meets the target on as many nodes."""
        for change in faster_gpus(self.spec, pool, self.profiles):
            if self.probe.overdue or self._plan(change):
                return


def _nodes_in(plan: Plan, pool: PoolSpec) -> int:
    """Nodes of a pool up to the last that a plan touches, and no fewer than there are."""
    per_node = next(p.gpus_per_node for p in resolve(plan.spec).pools if p.name == pool.name)
    ends = [copy.first_gpu + copy.num_gpus for copy in plan.copies if copy.pool == pool.name]
    return max(pool.num_nodes, -(-max(ends, default=0) // per_node))


def _rank(remedy: Remedy) -> tuple[int, int, float]:
    """How little it changes, then the price of a million tokens."""
    kinds = remedy.kinds
    severity = 2 if set(kinds) & set(LEARNING) else 1 if set(kinds) & set(HARDWARE) else 0
    return len(kinds), severity, remedy.plan.price_per_million_tokens
