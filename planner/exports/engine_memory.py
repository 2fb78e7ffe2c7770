"""Bytes on a GPU of the engine that generates, as a framework has it, and of what is beside it."""

from dataclasses import replace

from automap.planner.cost.pricing import Pricing
from automap.planner.exports.subject import Subject, overlap
from automap.planner.layout import GenerationLayouts
from automap.planner.plan.runs_with import layout_row
from automap.planner.plan.types import CallPlan


def start_bytes(subject: Subject, call: CallPlan) -> int:
    """Bytes on a GPU once the engine of a generation has its cache, with what stays there."""
    [copy] = [each for each in subject.plan.copies if each.id == call.copy_id]
    stays = sum(each.resident_bytes for each in subject.plan.copies if overlap(each, copy))
    # A shadow's weights are its own bytes, which stay.
    shadow = copy.kind == "shadow"
    weights = call.bytes_by_kind.weights if shadow else engine_weights(subject, call)
    return stays + weights + buffer_bytes(call) + (call.kv_cache_bytes or 0)


def engine_weights(subject: Subject, call: CallPlan) -> int:
    """Bytes on a GPU of the weights that the engine of a generation reads.

    A plan that was made for other software may count only what its engines have beyond the weights
    that train, where the framework's have all of them.
    """
    job, target, planned = subject.job, subject.target, call.bytes_by_kind.weights
    if subject.apart:
        return planned or subject.rollout.bytes_by_kind.weights
    home = subject.rollout
    of = next(
        each for each in job.dataflow.calls if (each.role, each.kind) == (home.role, call.kind)
    )
    pool, pricing = subject.pool(home), Pricing(replace(job, target=target))
    if pricing.has_own_weights(of, pool) == Pricing(job).has_own_weights(of, pool):
        return planned
    row = layout_row(home.layout, home.offload)
    _, weights = pricing.reshard(of, pool, row, engine_layouts(call))
    return int(weights[0])


def buffer_bytes(call: CallPlan) -> int:
    """Bytes on a GPU of the engine of a generation beside its weights and its cache."""
    kinds = call.bytes_by_kind
    return kinds.total - kinds.weights - kinds.kv_cache


def engine_layouts(call: CallPlan) -> GenerationLayouts:
    """The sizes of the engine of a generation, as columns of one row."""
    assert call.parallelism is not None, "a generation has a layout"
    return GenerationLayouts.of(layout_row(call.parallelism, "none"))
