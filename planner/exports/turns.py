"""Limits of trainers whose models work in turn, and are on the host while others do."""

from collections.abc import Iterator
from itertools import combinations

from automap.planner.exports.batches import micro_batches
from automap.planner.exports.reasons import Broken
from automap.planner.exports.subject import Subject
from automap.planner.plan.forms import form_refusals
from automap.planner.plan.types import CallPlan
from automap.planner.targets.tables import TARGETS

TOLERANCE = 1e-6
"""Share of an iteration by which calls may overlap: seconds are rounded."""


def turn_refusals(subject: Subject) -> Iterator[Broken]:
    """Why a trainer that has one model work after another cannot run a plan."""
    yield from _forms(subject)
    yield from _overlaps(subject)
    yield from _updates(subject)
    if subject.engine == "megatron" and "critic" in subject.homes:
        yield Broken("megatron_critic", "critic", "the engine is megatron")
    yield from _batches(subject)


def _forms(subject: Subject) -> Iterator[Broken]:
    target = next((t for t in TARGETS.values() if t.name == subject.framework.target), None)
    # DeepSpeed's forms are refused pair by pair.
    if target is None or subject.engine == "zero":
        return
    for told in form_refusals(subject.job, subject.plan.placement(), target):
        yield Broken("forms", "plan", told)


def _overlaps(subject: Subject) -> Iterator[Broken]:
    """Models at work at the same time, also in the next iteration, where iterations overlap."""
    at_work = [c for c in subject.plan.calls if c.kind != "generate" and c.copy_id is not None]
    for one, other in combinations(at_work, 2):
        if _meet(one, other, subject.plan.iteration_seconds):
            yield Broken("in_turn", other.id, f"it works while {one.id} does")


def _meet(one: CallPlan, other: CallPlan, period: float) -> bool:
    after = (other.start_seconds - one.start_seconds) % period
    first, second = (call.end_seconds - call.start_seconds for call in (one, other))
    slack = TOLERANCE * period
    return after < first - slack or after + second > period + slack


def _updates(subject: Subject) -> Iterator[Broken]:
    spec = subject.job.spec
    workload, updates = spec.workload, spec.workload.updates_per_epoch
    if workload.old_log_probs == "rollout" and workload.kl == "reward":
        yield Broken("reward_kl", "job", "old_log_probs is rollout, and kl reward")
    if spec.search.staleness and updates > 1:
        yield Broken("stale_updates", "job", f"updates_per_epoch is {updates}, and rollouts stale")


def _batches(subject: Subject) -> Iterator[Broken]:
    sequences = subject.job.spec.workload.num_sequences
    reference = subject.homes.get("reference")
    if reference is not None and sequences % reference.layout.data_parallel_size:
        ranks = reference.layout.data_parallel_size
        yield Broken("scored_divide", "reference", f"{sequences} sequences on {ranks} data ranks")
    for copy in subject.trainers:
        found = micro_batches(subject, copy)
        sizes = {found.train_tokens, found.forward_tokens} - {None}
        if found.dynamic and len(sizes) > 1 and not subject.states_budget(copy.role):
            told = f"{found.train_sequences} and {found.forward_sequences}"
            why = f"micro-batches of {told} sequences have different numbers of tokens"
            yield Broken("one_budget", copy.role, why)
