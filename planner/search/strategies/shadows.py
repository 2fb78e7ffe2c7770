"""Rollouts on a second copy of the weights: the shadow is placed like a model of its own."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from automap.planner.search.model.problem import (
    Assignment,
    CallChoice,
    CallOption,
    Problem,
    sync_seconds,
)
from automap.planner.search.strategies.placing import DoesNotFit


@dataclass(frozen=True, slots=True)
class Part:
    """A problem with fewer call options, and where they come from; copy options are all there."""

    problem: Problem
    numbers: tuple[tuple[int, ...], ...]
    """Per call: index of each remaining option in the original problem."""

    def original(self, assignment: Assignment) -> Assignment:
        """An assignment of this part in the terms of the original problem."""
        calls = tuple(
            None if option is None else numbers[option]
            for option, numbers in zip(assignment.call_options, self.numbers, strict=True)
        )
        return replace(assignment, call_options=calls)


def part_of(problem: Problem, keep: Callable[[int, CallOption], bool]) -> Part:
    """The problem with the options (of a call) that `keep` wants."""
    numbers = tuple(
        tuple(i for i, option in enumerate(call.options) if keep(number, option))
        for number, call in enumerate(problem.calls)
    )
    calls = tuple(
        CallChoice(call.id, tuple(call.options[i] for i in kept), call.fixed_seconds)
        for call, kept in zip(problem.calls, numbers, strict=True)
    )
    return Part(replace(problem, calls=calls), numbers)


def shadows_of(problem: Problem) -> dict[int, int]:
    """The copies that can only generate, and the home of each; those that may be placed at all."""
    return {
        number: copy.shadow_of
        for number, copy in enumerate(problem.copies)
        if copy.shadow_of is not None and copy.options
    }


def rollouts_apart(problem: Problem, *, strategy: str) -> Part:
    """The problem in which rollouts run on shadows alone, and shadows count as models.

    Raises:
        DoesNotFit: there is no shadow.
    """
    shadows = shadows_of(problem)
    if not shadows:
        raise DoesNotFit(
            f"{strategy} generates on a second copy of the weights, and the job can have only 1: "
            "its constraints allow no shadow copies, or none fits"
        )
    moved = {
        number
        for number, call in enumerate(problem.calls)
        if any(option.copy in shadows for option in call.options)
    }
    part = part_of(problem, lambda call, option: call not in moved or option.copy in shadows)
    copies = tuple(
        replace(copy, shadow_of=None) if number in shadows else copy
        for number, copy in enumerate(problem.copies)
    )
    calls = tuple(_with_buckets(problem, call) for call in part.problem.calls)
    return replace(part, problem=replace(part.problem, copies=copies, calls=calls, syncs=()))


def _with_buckets(problem: Problem, call: CallChoice) -> CallChoice:
    """The call with at least the bytes that the weight sync of its copy takes at another time."""
    buckets: dict[int, int] = {}
    for sync in problem.syncs:
        for copy in (sync.home, sync.shadow):
            buckets[copy] = max(buckets.get(copy, 0), sync.bucket_bytes)
    options = tuple(
        replace(o, transient_bytes=max(o.transient_bytes, buckets.get(o.copy, 0)))
        for o in call.options
    )
    return replace(call, options=options)


def weight_sync_seconds(problem: Problem, assignment: Assignment) -> float:
    """Seconds of all weight syncs that an assignment has, one after another."""
    return sum(sync_seconds(problem, assignment, sync) or 0.0 for sync in problem.syncs)
