"""What a plan says of a generation that never drains."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from automap.planner.assembly.parts import PricedCall, PricedCopy
from automap.planner.catalogue.hardware import Pool
from automap.planner.check.prices import engine_of, row_of
from automap.planner.cost.generation.continuous import MEAN_BEGIN, ContinuousGeneration
from automap.planner.cost.generation.generate_call import GenerationPhases
from automap.planner.cost.memory import fillable_bytes
from automap.planner.cost.pricing import Pricing
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Job
from automap.planner.layout import GenerationLayouts
from automap.planner.plan.types import ContinuousReport
from automap.planner.spec import MOST_STALENESS

CACHES = 17
"""Sizes of the cache of which the best is taken, where batches are compared with."""
WORTHWHILE_GAIN = 1.01
"""Times as fast as batch by batch below which a plan says that nothing is gained."""


def continuous_report(
    pricing: Pricing, calls: Sequence[PricedCall], copies: Sequence[PricedCopy]
) -> ContinuousReport | None:
    """The steady state of the plan's generation; None where the spec asks for batches."""
    if not pricing.job.spec.search.continuous_rollouts:
        return None
    generating = next(call for call in calls if call.placement.kind == "generate")
    call = next(each for each in pricing.job.dataflow.calls if each.id == generating.placement.id)
    copy = next(each for each in copies if each.placement.id == generating.placement.copy_id)
    pool = copy.pool
    engine, cache = (
        engine_of(generating.placement),
        row_of(generating.placement.kv_cache_bytes or 0),
    )
    admission = pricing.admission(call)
    assert admission is not None, "the spec asks for it"
    flowing = admission.with_one_more() if admission.drains else admission
    steady = pricing.continuous_generation(
        call, pool, engine, kv_cache_bytes=cache, admission=flowing
    )
    assert steady is not None, "it does not drain"
    replicas = int(engine.data_parallel_size[0])
    batches, gain = pricing_by_batches(pricing), 1.0
    running, flight = float(steady.running[0]), float(steady.flight_seconds[0])
    slots = int(steady.slots[0])
    if admission.drains:
        phases = batches.generation_phases(call, pool, engine, kv_cache_bytes=cache)
        running, flight = _mean_of_batch(phases), generating.seconds
        # Responses that begin together have less cached than those in a flow: more of them fit.
        slots = max(slots, math.ceil(running))
    else:
        room = _room_for_cache(pricing, generating, copy)
        least, drained = (
            _at_its_best(each, call, pool, engine, room=room) for each in (pricing, batches)
        )
        gain = drained / least
    staleness, slack = pricing.job.spec.search.staleness, pricing.job.training_slack
    accepted = pricing.workload.num_sequences
    rate = call.num_sequences / generating.seconds
    return ContinuousReport(
        call=call.id,
        training_slack=slack,
        admitted_responses=(staleness + 1) * accepted,
        most_in_flight=(staleness + 1 - slack) * accepted,
        least_in_flight=(staleness - slack) * accepted,
        flight_seconds=flight,
        slots_per_replica=slots,
        running_per_replica=running,
        least_full_staleness=least_full_staleness(pricing.job, steady, replicas=replicas),
        responses_per_second=rate,
        recomputed_tokens=0.0
        if admission.drains
        else float(steady.recomputed_tokens[0]) * replicas,
        seconds=generating.seconds,
        gain=gain,
    )


def _mean_of_batch(phases: GenerationPhases) -> float:
    """Mean number of responses that a replica runs at once, batch by batch."""
    row = phases.timeline.timeline_of[0]
    steps, running = phases.timeline.phases.steps[row], phases.timeline.phases.batch[row]
    return float((steps * running).sum() / steps.sum())


def _at_its_best(
    pricing: Pricing, call: Call, pool: Pool, engine: GenerationLayouts, *, room: int
) -> float:
    """Seconds of a generation with the cache that suits it best, of what there is room for."""
    least, full = (int(limit[0]) for limit in pricing.kv_cache_limits(call, engine))
    most = max(min(full, room), least)
    budgets = np.linspace(least, most, CACHES).astype(np.int64)
    same = engine.take(np.zeros(CACHES, dtype=np.int64))
    priced = pricing.generate(call, pool, same, kv_cache_bytes=budgets)
    return float(priced.seconds.total.min())


def _room_for_cache(pricing: Pricing, call: PricedCall, copy: PricedCopy) -> int:
    """Bytes per GPU that the cache could have beside all else on the GPUs of the generation."""
    probability = pricing.job.max_out_of_memory_probability
    capacity = fillable_bytes(copy.pool, max_out_of_memory_probability=probability)
    beside = call.bytes_by_kind.total - call.bytes_by_kind.kv_cache
    return int(capacity - copy.resident_bytes - beside)


def pricing_by_batches(pricing: Pricing) -> Pricing:
    """The cost model of the same job whose generations drain."""
    search = pricing.job.spec.search.model_copy(
        update={"continuous_rollouts": False, "keep_cache_at_sync": None}
    )
    spec = pricing.job.spec.model_copy(update={"search": search})
    return replace(pricing, job=replace(pricing.job, spec=spec))


def least_full_staleness(job: Job, steady: ContinuousGeneration, *, replicas: int) -> int | None:
    """The least staleness that holds up no replica; None: more than a spec may ask for.

    As many are always in flight as keep every replica full, and where batches wait for the longest
    response, it ends before it is too old.
    """
    batches = float(steady.needed[0]) * replicas / job.spec.workload.num_sequences
    flight = float(steady.flight_seconds[0] / steady.flow_seconds[0])
    rules = job.target.continuous
    assert rules is not None, "its software generates without batches"
    waits = rules.waits_for_oldest
    for staleness in range(1, MOST_STALENESS + 1):
        room = staleness - rules.training_slack(staleness)
        if room >= batches - 1e-9 and not (waits and room + MEAN_BEGIN < flight - 1e-9):
            return staleness
    return None


def continuous_lines(job: Job, report: ContinuousReport | None) -> Iterator[str]:
    """What to know before such a plan is used, each line with its place in the spec."""
    if report is None:
        return
    staleness, rules = job.spec.search.staleness, job.target.continuous
    waits, least = rules is None or rules.waits_for_oldest, report.least_full_staleness
    if least is None or least > staleness:
        enough = "no staleness keeps" if least is None else f"staleness {least} keeps"
        yield (
            f"search.staleness: with {staleness} a replica runs {report.running_per_replica:.0f} "
            f"of the {report.slots_per_replica} responses that it could at once"
            f"{', and batches may wait for their longest response' if waits else ''}; {enough} it "
            "full"
        )
    span = report.training_slack + report.flight_seconds / report.seconds
    if not waits and math.ceil(span) > staleness:
        yield (
            f"search.staleness: {job.target.name} bounds by {staleness} how many responses are in "
            f"flight, not how old one gets: the longest of an iteration began about "
            f"{math.ceil(span)} iterations before it is trained on"
        )
    if not report.least_in_flight:
        yield (
            f"search.continuous_rollouts: gains nothing here: with a staleness of {staleness} "
            f"nothing is in flight beside the batch in training, so {report.call} drains; 2 or "
            "more let it flow"
        )
    elif report.gain < WORTHWHILE_GAIN:
        yield (
            f"search.continuous_rollouts: gains nothing here: on the same GPUs {report.call} is "
            f"{report.gain:.2f} times as fast as batch by batch (lengths are nearly equal, or too "
            "few responses may be in flight)"
        )
