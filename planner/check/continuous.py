"""Rules on a generation that never drains: its own GPUs, its admission, and Little's law.

What is in flight, what is finished and what is trained on are counted here from the spec, and the
responses that an engine holds from the moments of their lengths; the search's flow is not used.
"""

import math
from collections.abc import Iterator

import numpy as np

from automap.planner.check.prices import engine_of
from automap.planner.check.subject import Subject, agrees, span_of, tolerance_seconds
from automap.planner.cost.constants import CACHE_BLOCK_TOKENS
from automap.planner.cost.generation.kv_cache import kv_bytes_per_token
from automap.planner.cost.rollout_engines import ENGINES
from automap.planner.plan.types import CallPlan, ContinuousReport

SPARE_DEVIATIONS = 2.0
ROUNDING = 1e-6
LITTLE = 0.05
"""Share by which Little's law may miss a flow that is interpolated between followed ones."""


def wrong_continuous(subject: Subject) -> Iterator[str]:
    """Everything that a plan with continuous rollouts does or states wrongly."""
    report = subject.plan.continuous
    wanted = bool(subject.job.spec.search.continuous_rollouts)
    if (report is not None) != wanted:
        has = "states" if report is not None else "does not state"
        yield f"the plan {has} a steady state, but search.continuous_rollouts is {wanted}"
    yield from rollouts_on_other_gpus(subject)
    if report is None:
        return
    calls = [call for call in subject.plan.calls if call.kind == "generate"]
    if [call.id for call in calls] != [report.call]:
        yield f"the steady state is of {report.call}, which is not the one call that generates"
        return
    yield from _admission_follows(subject, report)
    yield from _flow_is_possible(subject, report, calls[0])
    yield from _staleness_is_enough(subject, report, calls[0])


def rollouts_on_other_gpus(subject: Subject) -> Iterator[str]:
    """Continuous generations on a home, or on GPUs that another copy has a part of."""
    if not subject.job.spec.search.continuous_rollouts:
        return
    for call, copy in subject.placed_calls():
        if call.kind != "generate":
            continue
        if copy.kind == "home":
            yield (
                f"call {call.id} is on the GPUs of its home {copy.id}, but with "
                "search.continuous_rollouts it never leaves them to another call"
            )
        for other in subject.plan.copies:
            if other.id != copy.id and span_of(other).shares_gpus(span_of(copy)):
                yield (
                    f"copies {copy.id} and {other.id} share GPUs, but with "
                    f"search.continuous_rollouts {call.id} never leaves them to another call"
                )


def _admission_follows(subject: Subject, report: ContinuousReport) -> Iterator[str]:
    """At most (staleness + 1) batches admitted, of which training may hold `training_slack`."""
    staleness = subject.job.spec.search.staleness
    batch, slack = subject.job.spec.workload.num_sequences, report.training_slack
    if not 1 <= slack <= staleness:
        yield f"training_slack is {slack}, but staleness {staleness} allows 1 to {staleness}"
    longest = max((e.distance for e in subject.flow.edges if e.target == report.call), default=0)
    if longest != slack + 1:
        yield f"weights come {longest} iterations later, but a slack of {slack} needs {slack + 1}"
    expected = {
        "admitted_responses": (staleness + 1) * batch,
        "most_in_flight": (staleness + 1 - slack) * batch,
        "least_in_flight": (staleness - slack) * batch,
    }
    for name, value in expected.items():
        if getattr(report, name) != value:
            yield f"{name} is {getattr(report, name)}, but the staleness bound gives {value}"


def _flow_is_possible(subject: Subject, report: ContinuousReport, call: CallPlan) -> Iterator[str]:
    """No more runs than the engine, its cache and the admission hold; rate and seconds agree."""
    # Batch by batch an engine runs what its cache holds of responses that begin together.
    drains = subject.job.spec.search.staleness == report.training_slack
    held = math.inf if drains else _held(subject, call)
    if report.slots_per_replica > held + ROUNDING:
        yield f"slots_per_replica is {report.slots_per_replica}, but a replica holds {held:.0f}"
    replicas = int(engine_of(call).data_parallel_size[0])
    most = min(float(report.slots_per_replica), report.most_in_flight / replicas)
    if report.running_per_replica > most * (1 + ROUNDING):
        yield f"running_per_replica is {report.running_per_replica:.6g}, more than {most:.6g}"
    seconds = call.end_seconds - call.start_seconds
    made = report.responses_per_second * seconds
    if not math.isclose(made, subject.calls[call.id].num_sequences, rel_tol=ROUNDING):
        yield (
            f"{report.responses_per_second:.6g} responses a second for {seconds:.6f} s make "
            f"{made:.6g}, not {subject.calls[call.id].num_sequences}"
        )
    if not agrees(report.seconds, seconds):
        yield f"the steady state takes {report.seconds:.6f} s, but the call {seconds:.6f} s"


def _held(subject: Subject, call: CallPlan) -> float:
    """Responses that a replica holds: n·c + 2·√(n·v) tokens, by bisection, and the engine's limit.

    c and v are mean and variance of what a response in flight has cached. At a random time one of
    L tokens is met with a chance proportional to L, at an age that is uniform up to L.
    """
    workload, job = subject.job.spec.workload, subject.job
    lengths, mass = workload.response_length.distribution()
    met = lengths * mass / float(lengths @ mass)
    mean = float(met @ lengths) / 2.0
    variance = max(float(met @ lengths**2) / 3.0 - mean**2, 0.0)
    mean += workload.prompt_length.mean_tokens + CACHE_BLOCK_TOKENS / 2
    each = kv_bytes_per_token(
        job.models[call.role],
        engine_of(call),
        tokens=mean,
        precision=workload.rollout_cache_precision,
    )
    tokens = (call.kv_cache_bytes or 0) / int(each[0])
    low, high = 1.0, max(tokens / mean, 1.0)
    for _ in range(64):
        middle = (low + high) / 2.0
        fits = middle * mean + SPARE_DEVIATIONS * math.sqrt(middle * variance) <= tokens
        low, high = (middle, high) if fits else (low, middle)
    limits = [ENGINES[workload.rollout_engine].max_sequences, job.target.rollout.max_sequences]
    return min([math.floor(low + ROUNDING), *(limit for limit in limits if limit is not None)])


def _staleness_is_enough(
    subject: Subject, report: ContinuousReport, call: CallPlan
) -> Iterator[str]:
    """No response is too old where batches wait, and the stated least staleness is the least.

    By Little's law the mean response is in flight for what is in flight over the rate, the longest
    of a batch for as much more as it is longer. Where batches wait for it, only that they wait long
    enough can be said.
    """
    workload, staleness = subject.job.spec.workload, subject.job.spec.search.staleness
    rules, seconds = subject.job.target.continuous, report.seconds
    if rules is None:
        yield f"{subject.job.target.name} has no generation without batches"
        return
    # A response begins anywhere while a batch fills: half of it is left in the mean.
    room = staleness - report.training_slack + 0.5
    allowed, rounding = room * seconds, room * tolerance_seconds(seconds)
    if staleness == report.training_slack:
        return  # it drains
    held = rules.waits_for_oldest
    if held and report.flight_seconds > allowed + rounding:
        yield (
            f"the longest response is in flight for {report.flight_seconds:.6g} s, but staleness "
            f"{staleness} leaves it {allowed:.6g} s"
        )
    if workload.environment_seconds_per_turn:
        return  # how long an environment keeps what is in flight only the price knows
    waits = held and report.flight_seconds > allowed - rounding
    mean, longest, group = (
        _mean_longest(subject, number)
        for number in (1, subject.calls[call.id].num_sequences, workload.responses_per_prompt)
    )
    replicas = int(engine_of(call).data_parallel_size[0])
    flight = longest / mean * report.running_per_replica * replicas / report.responses_per_second
    if not waits and not math.isclose(flight, report.flight_seconds, rel_tol=LITTLE):
        yield (
            f"the longest response is in flight for {report.flight_seconds:.6g} s, but by what is "
            f"in flight and the rate it is {flight:.6g} s"
        )
    batches = report.slots_per_replica * replicas * group / mean / workload.num_sequences
    stated = report.least_full_staleness

    def is_enough(given: int) -> bool:
        free = given - (1 if rules.trains_one_batch else max(given // 2, 1))
        in_time = not held or free + 0.5 >= report.flight_seconds / seconds
        return free >= batches - ROUNDING and in_time

    if stated is not None and not is_enough(stated) and not waits:
        yield f"staleness {stated} is said to hold up no replica, but {batches:.3f} batches do"
    if stated is not None and stated > 1 and is_enough(stated - 1) and not waits:
        yield f"staleness {stated - 1} holds up no replica, and {stated} is the stated least"


def _mean_longest(subject: Subject, number: int) -> float:
    """Mean length of the longest of so many responses."""
    lengths, mass = subject.job.spec.workload.response_length.distribution()
    below = np.minimum(np.cumsum(mass), 1.0)
    return float(lengths @ np.diff(np.append(0.0, below**number)))
