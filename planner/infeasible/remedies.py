"""The smallest changes with which an impossible job becomes possible, one of each kind."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from math import inf, isqrt

from automap.planner.cost.memory import NO_MARGIN
from automap.planner.errors import NoSolutionInTimeError, Reason, SpecError
from automap.planner.infeasible.changes import (
    NO_PROFILES,
    Change,
    across_nodes,
    adapters,
    another_framework,
    keeping_free,
    larger_gpus,
    more_nodes,
    nothing_kept_free,
    optimizer_on_host,
    permissions,
    pools_of,
    riskier,
    shorter_response,
    smaller_rollout,
    with_nodes,
)
from automap.planner.infeasible.memory import least_need
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.search import (
    SearchSpace,
    Tables,
    fits_in_memory,
    price_candidates,
    shares_candidates,
)
from automap.planner.spec import JobSpec, PoolSpec

MOST_NODES = 4096
"""Larger pools are not proposed."""
SHORTEST_RESPONSE = 64
ROUND_BITS = 7
"""Bits that a proposed length keeps after its first: it is within 1 % of the longest that fits."""


def remedies(spec: JobSpec, probe: "FeasibilityProbe") -> list[Reason]:
    """Every kind of change that makes the job possible by itself, with its smallest amount.

    Where none does, one reason that says so, and what two, or several, together would do.
    """
    found = [remedy_of(change) for change in probe.single_changes(spec)]
    return found or [_untried() if probe.overdue else _together(probe, spec)]


def _untried() -> Reason:
    """The answer where the time for remedies ended before any was found."""
    return Reason(
        summary="no change makes it fit that was tried in the time for this; not all were tried",
        remedy="use more or larger GPUs; `automap plan --explain-infeasible` looks longer",
    )


def least_risk(spec: JobSpec, probe: "FeasibilityProbe") -> tuple[list[Reason], list[Change]]:
    """Where the margin of memory alone keeps a job from fitting: that, and what would allow it."""
    change = probe.smallest_risk(spec)
    if change is None:
        return [], []
    needed = change.spec.search.max_out_of_memory_probability or 0.0
    allowed = resolve(spec).max_out_of_memory_probability
    summary = (
        f"no placement runs out of memory with a chance of less than {100 * needed:.0f} %, and at "
        f"most {100 * allowed:g} % is allowed"
    )
    return [Reason(summary=summary, remedy=change.text)], [change]


def remedy_of(change: Change) -> Reason:
    """A change as what would make the job possible."""
    return Reason(summary=f"it would fit if you {change.text}", remedy=change.text)


def _fewest_bits(spec: JobSpec) -> list[Change]:
    return smaller_rollout(spec)[-1:]


def _together(probe: "FeasibilityProbe", spec: JobSpec) -> Reason:
    """No single change helps: the first two that do together, or else all."""
    alone = (
        "no single change makes it fit: neither what the constraints forbid, nor groups across "
        f"nodes, larger GPUs, up to {MOST_NODES} nodes, rollouts in fewer bits, adapters, or "
        f"responses of at most {SHORTEST_RESPONSE} tokens"
    )
    everything = probe.all_changes(spec)
    if everything is None and probe.overdue:
        return Reason(summary=f"{alone}; whether these do together was not shown in time")
    if everything is None:
        return Reason(summary=f"{alone}; nor do these together")
    pair = next(probe.pairs(spec), None)
    return Reason(
        summary=f"{alone}; {'two together do' if pair else 'together they do'}",
        remedy=(pair or everything).text,
    )


def _sound(changes: Iterable[Change]) -> list[Change]:
    """Changes after which the job is still one: its target may refuse adapters, for instance."""
    found = []
    for each in changes:
        with suppress(SpecError):
            resolve(each.spec)
            found.append(each)
    return found


KINDS = (permissions, across_nodes, optimizer_on_host, nothing_kept_free, _fewest_bits, adapters)
"""What is changed all at once, before there are more nodes."""


class FeasibilityProbe:
    """Whether changed specs fit, and the smallest changes with which they do.

    `suspect` is the id of a call that did not fit even alone: it is priced first, as it decides
    quickly, until another call does not fit. `over_bytes` is how much memory a GPU of the unchanged
    job lacks at least. After `deadline`, of time.process_time, what is known by then is proposed,
    if only roughly the smallest. GPUs of another type have their profile in `profiles`.
    """

    def __init__(
        self,
        suspect: str | None = None,
        *,
        over_bytes: int = 0,
        deadline: float = inf,
        profiles: Mapping[str, str] = NO_PROFILES,
    ) -> None:
        self.suspect, self.over_bytes, self.deadline = suspect, over_bytes, deadline
        self.profiles = profiles
        self._cut = False
        """True once the time ended in the midst of a pricing."""

    @property
    def overdue(self) -> bool:
        """True when nothing more should be tried."""
        return self._cut or time.process_time() > self.deadline

    def single_changes(self, spec: JobSpec) -> Iterator[Change]:
        """The changes that help by themselves, first what people do first."""
        kinds: list[Callable[[JobSpec], Iterator[Change]]] = [
            lambda spec: self._that_fit(permissions(spec)),
            lambda spec: self._that_fit(across_nodes(spec)),
            lambda spec: islice(self._that_fit(another_framework(spec)), 1),
            lambda spec: self._that_fit(optimizer_on_host(spec)),
            self._larger_gpus,
            self._more_gpus,
            lambda spec: islice(self._that_fit(smaller_rollout(spec)), 1),
            self._fewer_kept_free,
            lambda spec: self._that_fit(adapters(spec)),
            self.shorter_responses,
        ]
        for changes in kinds:
            if not self.overdue:
                yield from changes(spec)

    def _that_fit(self, changes: list[Change]) -> Iterator[Change]:
        return (each for each in changes if self.fits(each.spec))

    def smallest_risk(self, spec: JobSpec) -> Change | None:
        """The least chance of running out of memory, in whole percents, with which it fits."""
        low = 100 * resolve(spec).max_out_of_memory_probability
        high = round(100 * NO_MARGIN)
        if low >= high or not self.fits(riskier(spec, high).spec):
            return None
        while high - low > 1 and not self.overdue:
            middle = int(low + high) // 2
            if self.fits(riskier(spec, middle).spec):
                high = middle
            else:
                low = middle
        return riskier(spec, high)

    def pairs(self, spec: JobSpec) -> Iterator[Change]:
        """Two changes that help together; for where none does alone."""
        # What a GPU lacks is known of the unchanged job only.
        probe = FeasibilityProbe(self.suspect, deadline=self.deadline, profiles=self.profiles)
        seen: set[frozenset[str]] = set()
        firsts = [
            *permissions(spec),
            *across_nodes(spec),
            *optimizer_on_host(spec),
            *nothing_kept_free(spec),
            *smaller_rollout(spec),
            *adapters(spec),
        ]
        for first in _sound(firsts):
            for second in probe.single_changes(first.spec):
                both = frozenset((first.text, second.text))
                if both not in seen:
                    seen.add(both)
                    yield _joined([first, second])

    def all_changes(self, spec: JobSpec) -> Change | None:
        """All at once, without and with more nodes; None where that does not help either."""
        changes: list[Change] = []
        for kind in KINDS:
            while found := _sound(kind(changes[-1].spec if changes else spec)):
                changes.append(found[0])
        if not changes or not self.fits(changes[-1].spec):
            grown = next(self._more_gpus(changes[-1].spec if changes else spec), None)
            if grown is None:
                return None
            changes.append(grown)
        return _joined(changes)

    def fits(self, spec: JobSpec) -> bool:
        """True when some placement is shown to fit in the time that is left.

        A spec that contradicts itself fits nowhere.
        """
        if self.overdue:
            return False
        try:
            job = resolve(spec)
        except SpecError:
            return False
        if self._excess(job) is not None:
            return False
        tables = self._priced(job)
        return tables is not None and _fit_together(job, tables)

    def _excess(self, job: Job) -> int | None:
        """By how many bytes the suspect does not fit alone; None: it does."""
        calls = [call for call in job.dataflow.calls if call.id == self.suspect]
        need = least_need(job, calls[0]) if calls else None
        return need.over_bytes if need is not None and need.over_bytes > 0 else None

    def _priced(self, job: Job) -> Tables | None:
        """The leanest candidates; None, and a new suspect, where a call has none that fits.

        None also where the time is over before all are priced.
        """
        left = self.deadline - time.process_time()
        try:
            tables = price_candidates(job, lean=True, deadline=time.perf_counter() + left)
        except NoSolutionInTimeError:
            self._cut = True
            return None
        served = {table.call for table in tables.calls if len(table)}
        for number, call in enumerate(job.dataflow.calls):
            if call.model is not None and number not in served:
                self.suspect = call.id
                return None
        return tables

    def _fewer_kept_free(self, spec: JobSpec) -> Iterator[Change]:
        """The most GPUs that can stay free, pool by pool, the others as they are."""
        for pool, kept in spec.constraints.keep_free_gpus.items():
            if not kept or not self.fits(keeping_free(spec, pool, 0).spec):
                continue
            low, high = 0, kept
            while high - low > 1 and not self.overdue:
                middle = (low + high) // 2
                if self.fits(keeping_free(spec, pool, middle).spec):
                    low = middle
                else:
                    high = middle
            yield keeping_free(spec, pool, low)

    def shorter_responses(self, spec: JobSpec) -> Iterator[Change]:
        """The longest maximum response that fits, by bisection; none where none above 64 does.

        Of round numbers only, the same whatever the maximum of the job is.
        """
        low, high = SHORTEST_RESPONSE, spec.workload.response_length.max_tokens
        if low >= high or not self.fits(shorter_response(spec, low).spec):
            return
        while (above := low + _round_step(low)) < high and not self.overdue:
            # The geometric mean: from ten million tokens to a few hundred in eight steps.
            middle = isqrt(low * high)
            middle = max(middle - middle % _round_step(middle), above)
            if self.fits(shorter_response(spec, middle).spec):
                low = middle
            else:
                high = middle
        yield shorter_response(spec, low)

    def _larger_gpus(self, spec: JobSpec) -> Iterator[Change]:
        """The type of GPU with the least memory that suffices, pool by pool."""
        for pool in pools_of(spec):
            changes = [
                change
                for change, extra_bytes in larger_gpus(spec, pool, self.profiles)
                if extra_bytes >= self.over_bytes
            ]
            if not changes or self.overdue:
                continue
            if self.fits(changes[0].spec):
                yield changes[0]
                continue
            if not self.fits(changes[-1].spec):
                continue
            below, enough = 0, len(changes) - 1
            while enough - below > 1 and not self.overdue:
                middle = (below + enough) // 2
                if self.fits(changes[middle].spec):
                    enough = middle
                else:
                    below = middle
            yield changes[enough]

    def _more_gpus(self, spec: JobSpec) -> Iterator[Change]:
        """The fewest nodes with which the job fits, for every pool; the other pools stay."""
        for pool in pools_of(spec):
            nodes = self._fewest_nodes(spec, pool)
            if nodes is not None:
                yield more_nodes(spec, pool, nodes)

    def _fewest_nodes(self, spec: JobSpec, pool: PoolSpec) -> int | None:
        """Doubled until it fits, then bisected; None where that leads nowhere."""
        low, high = pool.num_nodes, 2 * pool.num_nodes
        seen: dict[str | None, int] = {}
        while not self.overdue:
            job, call = resolve(with_nodes(spec, pool, high)), self.suspect
            excess = self._excess(job)
            tables = self._priced(job) if excess is None else None
            if tables is not None and _fit_together(job, tables):
                return self._fewest_between(spec, pool, low, (high, job, tables))
            if high > MOST_NODES // 2:
                return None
            if excess is not None:
                # A GPU's share at best halves with every doubling: it nears 2 × over − before.
                if call in seen and 2 * excess >= seen[call]:
                    return None
                seen[call] = excess
            low, high = high, 2 * high
        return None

    def _fewest_between(
        self, spec: JobSpec, pool: PoolSpec, low: int, enough: tuple[int, Job, Tables]
    ) -> int:
        """The fewest nodes above `low`, where it does not fit, up to `enough`, where it does.

        The candidates of the larger cluster are priced: with the same on fewer nodes they serve.
        """
        high, larger, priced = enough
        while high - low > 1 and not self.overdue:
            middle = (low + high) // 2
            job = resolve(with_nodes(spec, pool, middle))
            tables = priced if shares_candidates(larger, job) else self._priced(job)
            if tables is not None and _fit_together(job, tables):
                high = middle
            else:
                low = middle
        return high


def _round_step(tokens: int) -> int:
    """Between the round lengths about this one: a power of two, which falls as they do."""
    return max(SHORTEST_RESPONSE, 1 << max(tokens.bit_length() - 1 - ROUND_BITS, 0))


def _fit_together(job: Job, tables: Tables) -> bool:
    return fits_in_memory(SearchSpace.of(job, tables))


def _joined(changes: list[Change]) -> Change:
    """Changes of which each was made on top of the one before."""
    return Change(
        kinds=tuple(kind for change in changes for kind in change.kinds),
        text=", and ".join(change.text for change in changes),
        spec=changes[-1].spec,
    )
