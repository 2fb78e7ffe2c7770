"""Does a running job still behave as planned? Calls and lengths that have drifted, and what to do."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from planner.calibration import Observed
from planner.result import Plan

THRESHOLD = 0.15
"""Relative deviation from the plan that suggests another one; RLinf's."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class CallDrift(_Model):
    """A call that takes other than planned."""

    call: str
    predicted_seconds: float
    measured_seconds: float

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_seconds / self.predicted_seconds


class Drift(_Model):
    """How far a run is from its plan."""

    threshold: float
    predicted_seconds: float
    """Of an iteration."""
    measured_seconds: float
    calls: list[CallDrift]
    """Those beyond the threshold; what costs most seconds first."""
    planned_response_tokens: float
    measured_response_tokens: float | None = None
    """Mean response length; None: the run does not say."""
    replan: bool
    """Whether the iteration, or the lengths, are beyond the threshold."""

    @property
    def lengths_drifted(self) -> bool:
        """Responses are of other lengths than the plan assumes."""
        found = self.measured_response_tokens
        return found is not None and _beyond(self.planned_response_tokens, found, self.threshold)


def drift(
    plan: Plan,
    observed: Sequence[Observed],
    *,
    iteration_seconds: float,
    response_tokens: float | None = None,
    threshold: float = THRESHOLD,
) -> Drift:
    """Measured beside planned: the iteration, its calls, and the lengths of responses."""
    predicted = {call.id: call.end_seconds - call.start_seconds for call in plan.calls}
    calls = [
        CallDrift(
            call=each.call, predicted_seconds=predicted[each.call], measured_seconds=each.seconds
        )
        for each in observed
        if predicted.get(each.call) and _beyond(predicted[each.call], each.seconds, threshold)
    ]
    calls.sort(key=lambda each: -abs(each.measured_seconds - each.predicted_seconds))
    tokens = plan.spec.workload.response_length.mean_tokens
    beyond = _beyond(plan.iteration_seconds, iteration_seconds, threshold)
    longer = response_tokens is not None and _beyond(tokens, response_tokens, threshold)
    return Drift(
        threshold=threshold,
        predicted_seconds=plan.iteration_seconds,
        measured_seconds=iteration_seconds,
        calls=calls,
        planned_response_tokens=tokens,
        measured_response_tokens=response_tokens,
        replan=beyond or longer,
    )


def _beyond(predicted: float, measured: float, threshold: float) -> bool:
    return abs(measured - predicted) > threshold * predicted


def in_words(found: Drift) -> list[str]:
    """What has drifted, line by line, and the way to a better plan; empty if nothing has."""
    if not found.replan:
        return []
    lines = [
        f"an iteration takes {found.measured_seconds:.3g} s, "
        f"{found.measured_seconds / found.predicted_seconds:.2f} times what was planned "
        f"({found.predicted_seconds:.3g} s)"
    ]
    if found.lengths_drifted:
        assert found.measured_response_tokens is not None
        lines.append(
            f"responses have {found.measured_response_tokens:.4g} tokens in the mean, planned were "
            f"{found.planned_response_tokens:.4g}"
        )
    lines += [
        f"{each.call} takes {each.measured_seconds:.3g} s, {each.ratio:.2f} times what was planned"
        for each in found.calls
    ]
    return lines
