"""Rules on intervals: each follows from the plan's own spreads, its prices and its order.

The spreads are those that the plan was made with: fitted anew later, they do not make it wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import erfc, expm1, hypot, inf, isclose, log, sqrt

from automap.planner.check.prices import Prices, engine_of, row_of
from automap.planner.check.subject import Subject, agrees
from automap.planner.check.time import Schedule, least_period
from automap.planner.cost.estimates import SecondsColumns
from automap.planner.cost.intervals import NORMAL_SIGMAS, SEEN
from automap.planner.cost.pricing import Pricing
from automap.planner.plan.types import CallPlan, Interval
from automap.planner.spec import WorkloadSpec

HOST_WORK = "host work of RL frameworks"


def wrong_intervals(subject: Subject, schedule: Schedule, prices: Prices) -> Iterator[str]:
    """Every interval that is missing, or that does not follow."""
    plan, spreads = subject.plan, subject.plan.provenance.spreads
    if not spreads and not any(_stated(subject)):  # of a version that knew none
        return
    rules = _Rules(subject, prices, subject.pricing)
    unknown = sorted(kind for kind in rules.kinds() if not 0 <= spreads.get(kind, -1.0) < inf)
    if unknown:
        for kind in unknown:
            yield f"provenance.spreads has {spreads.get(kind)} for {kind}, but needs a number >= 0"
        return
    seconds = {call.id: rules.seconds_of(call) for call in plan.calls}
    for call in plan.calls:
        yield from _differs(f"call {call.id}", call.seconds_interval, seconds[call.id])
        peak = None if call.copy_id is None else rules.around(call.peak_bytes, "memory")
        yield from _differs(f"the peak of call {call.id}", call.peak_bytes_interval, peak)
    yield from _out_of_memory(subject, rules)
    syncs = [rules.around(e.price_seconds, rules.transfer) for e in schedule.events[len(seconds) :]]
    iteration = _iteration(schedule, [*seconds.values(), *syncs])
    if iteration is not None:
        yield from _differs("iteration_seconds", plan.iteration_seconds_interval, iteration)


@dataclass(frozen=True, slots=True)
class _Rules:
    subject: Subject
    prices: Prices
    pricing: Pricing

    @property
    def transfer(self) -> str:
        """Kind of quantity of a weight sync."""
        return "transfer across nodes" if self.pricing.multi_node else "transfer in a node"

    @property
    def transition(self) -> str:
        """Kind of quantity of a reshard and of what moves to and from the host for a call."""
        if self.tells_host_work and self.pricing.system.host_copy_bytes_per_second is not None:
            return HOST_WORK
        return self.transfer

    def kind(self, call: CallPlan) -> str:
        """Kind of quantity of a call's seconds; scoring runs the products of training."""
        role = self.subject.calls[call.id].model
        assert role is not None, "a function has no kind"
        model = self.subject.job.models[role]
        pool = self.subject.pool_of(self.subject.copies[call.copy_id or ""])
        if pool.gpu.generation in ("cdna3", "cdna4"):
            return "calls on GPUs without tables"
        mixture = "experts" if model.architecture.num_experts else "dense"
        workload = self.pricing.workload
        if call.kind == "generate":
            four_bits = workload.rollout_precision in ("int4", "nvfp4", "mxfp4")
            name, software = f"generation, {mixture}", str(workload.rollout_engine)
            name += ", 4-bit" if four_bits else ""
        else:
            low = model.trainable and workload.training_precision == "fp8"
            name, software = f"training, {mixture}, {8 if low else 16}-bit", _stack(workload)
        measured = SEEN.get(software, frozenset())
        if f"{pool.gpu.generation}, {mixture}" in measured or not self._tells_unseen:
            return name
        return f"{name}, unseen"

    @property
    def tells_host_work(self) -> bool:
        """Whether the plan's version had a kind for what software does on the host."""
        return HOST_WORK in self.subject.plan.provenance.spreads

    @property
    def _tells_unseen(self) -> bool:
        """Whether the plan's version had kinds for software that nobody measured there."""
        return any(kind.endswith(", unseen") for kind in self.subject.plan.provenance.spreads)

    def kinds(self) -> set[str]:
        """All kinds of quantity that the plan's intervals are made of."""
        calls = {self.kind(call) for call, _ in self.subject.placed_calls()}
        return {*calls, "memory", self.transfer}

    def around(self, estimate: float, kind: str) -> Interval:
        below, above = self._widths(estimate, kind)
        return Interval(low=estimate - below, high=estimate + above)

    def seconds_of(self, call: CallPlan) -> Interval:
        """Interval of a call's seconds.

        Work and transfer are at their bounds at once; what lengths do by chance is independent.
        """
        price = self.prices.calls[call.id]
        if price.estimates is None:
            return Interval(low=price.seconds, high=price.seconds)
        moved = min(float(price.estimates.seconds.transition[0]), price.seconds)
        on_host = min(self._on_host(call, price.estimates.seconds), price.seconds - moved)
        widths = [
            self._widths(price.seconds - moved - on_host, self.kind(call)),
            self._widths(moved, self.transition),
        ]
        if on_host:
            widths.append(self._widths(on_host, HOST_WORK))
        chance = NORMAL_SIGMAS * self._deviation(call)
        below, above = (hypot(sum(side), chance) for side in zip(*widths, strict=True))
        return Interval(low=max(price.seconds - below, 0.0), high=price.seconds + above)

    def out_of_memory(self, call: CallPlan) -> float:
        """Chance that the peak exceeds what is usable, the interval of 80 % being its middle."""
        deviation = self.subject.plan.provenance.spreads["memory"] / NORMAL_SIGMAS
        if min(call.peak_bytes, call.capacity_bytes, deviation) <= 0:
            return float(call.peak_bytes > call.capacity_bytes)
        room = log(call.capacity_bytes) - log(call.peak_bytes)
        return erfc(room / (deviation * sqrt(2))) / 2

    def _widths(self, estimate: float, kind: str) -> tuple[float, float]:
        """Distances of the bounds below and above an estimate."""
        spread = self.subject.plan.provenance.spreads[kind]
        return -estimate * expm1(-spread), estimate * expm1(spread)

    def _on_host(self, call: CallPlan, parts: SecondsColumns) -> float:
        """Seconds of the framework's driver in a call, and of an optimizer on the host."""
        if not self.tells_host_work:
            return 0.0
        pool = self.subject.pool_of(self.subject.copies[call.copy_id or ""])
        driven = sum(self.pricing.driver_seconds(self.subject.calls[call.id], pool))
        updates = self.subject.job.spec.workload.optimizer_cpu_offload
        return driven + (float(parts.optimizer[0]) if updates else 0.0)

    def _deviation(self, call: CallPlan) -> float:
        if call.kind != "generate" or call.copy_id is None:
            return 0.0
        pool, cache = self.subject.pool_of(self.subject.copies[call.copy_id]), call.kv_cache_bytes
        found = self.pricing.generation_deviation(
            self.subject.calls[call.id], pool, engine_of(call), kv_cache_bytes=row_of(cache or 0)
        )
        return float(found[0])


def _stack(workload: WorkloadSpec) -> str:
    return workload.training_stack or "megatron-core"


def _out_of_memory(subject: Subject, rules: _Rules) -> Iterator[str]:
    """Chances of running out of memory that do not follow, or exceed what the spec allows."""
    plan, job = subject.plan, subject.job
    if plan.out_of_memory_probability is None:  # of a version before there was a margin
        return
    chances = {call.id: rules.out_of_memory(call) for call, _ in subject.placed_calls()}
    largest = max(chances.values(), default=0.0)
    stated = {call.id: call.out_of_memory_probability for call in plan.calls}
    for name, found, expected in (
        ("the plan", plan.out_of_memory_probability, largest),
        *((f"call {call}", stated[call], chances.get(call)) for call in stated),
    ):
        if found is None or expected is None:
            follows = found == expected
        else:
            follows = isclose(found, expected, rel_tol=1e-6)
        if not follows:
            yield f"{name} states a chance of {found} to run out of memory, but it is {expected}"
    if plan.search.status == "given" and plan.search.strategy is None:
        return  # a placement of the caller's own: the capacity alone binds it
    allowed = job.max_out_of_memory_probability
    if largest > allowed + 1e-9:
        yield (
            f"the chance to run out of memory is {largest:.6g}, but "
            f"search.max_out_of_memory_probability allows {allowed:g}"
        )


def _stated(subject: Subject) -> Iterator[Interval | None]:
    yield subject.plan.iteration_seconds_interval
    for call in subject.plan.calls:
        yield from (call.seconds_interval, call.peak_bytes_interval)


def _iteration(schedule: Schedule, events: list[Interval]) -> Interval | None:
    """The least period with all events at their lower, and at their upper bounds."""
    ends = [
        least_period(
            replace(
                schedule,
                events=[
                    replace(event, price_seconds=seconds)
                    for event, seconds in zip(schedule.events, side, strict=True)
                ],
            )
        )
        for side in ([one.low for one in events], [one.high for one in events])
    ]
    if ends[0] is None or ends[1] is None:  # no order at all: a rule on time says so
        return None
    return Interval(low=ends[0], high=ends[1])


def _differs(name: str, found: Interval | None, expected: Interval | None) -> Iterator[str]:
    if found is None or expected is None:
        follows = found == expected
    else:
        follows = agrees(found.low, expected.low) and agrees(found.high, expected.high)
    if not follows:
        yield f"the interval of {name} is {_text(found)}, but it should be {_text(expected)}"


def _text(interval: Interval | None) -> str:
    return "missing" if interval is None else f"{interval.low:.6g} to {interval.high:.6g}"
