"""Does a run still behave as planned? Calls and lengths that have drifted from the plan."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

THRESHOLD = 0.15
"""Relative deviation from the plan that suggests another one; RLinf's."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Deviation(_Model):
    """A quantity as planned and as measured."""

    planned: float
    measured: float

    @property
    def ratio(self) -> float:
        """Measured over planned."""
        return self.measured / self.planned

    def beyond(self, threshold: float) -> bool:
        """Whether it deviates by more than a share of what was planned."""
        return abs(self.measured - self.planned) > threshold * self.planned


class Drift(_Model):
    """How far a run is from its plan."""

    threshold: float
    iteration_seconds: Deviation
    calls: dict[str, Deviation] = {}
    """Seconds of those beyond the threshold, the largest difference first."""
    response_tokens: Deviation | None = None
    """Mean length of a response; None: the run does not say."""
    replan: bool
    """Whether the iteration, or the lengths, are beyond it: another plan may be better."""


def drift(
    iteration_seconds: Deviation,
    calls: Mapping[str, Deviation],
    *,
    response_tokens: Deviation | None = None,
    threshold: float = THRESHOLD,
) -> Drift:
    """What of a run is beyond the threshold."""
    beyond = {name: each for name, each in calls.items() if each.beyond(threshold)}
    largest = sorted(beyond, key=lambda name: -abs(beyond[name].measured - beyond[name].planned))
    lengths = response_tokens is not None and response_tokens.beyond(threshold)
    return Drift(
        threshold=threshold,
        iteration_seconds=iteration_seconds,
        calls={name: beyond[name] for name in largest},
        response_tokens=response_tokens,
        replan=iteration_seconds.beyond(threshold) or lengths,
    )


def in_words(found: Drift) -> list[str]:
    """What has drifted, line by line; nothing if no other plan is called for."""
    if not found.replan:
        return []
    lines = [f"an iteration takes {_seconds(found.iteration_seconds)}"]
    tokens = found.response_tokens
    if tokens is not None and tokens.beyond(found.threshold):
        lines.append(
            f"responses have {tokens.measured:.4g} tokens in the mean, {tokens.ratio:.2f} times "
            f"the {tokens.planned:.4g} that were planned"
        )
    return lines + [f"{name} takes {_seconds(each)}" for name, each in found.calls.items()]


def _seconds(each: Deviation) -> str:
    return (
        f"{each.measured:.3g} s, {each.ratio:.2f} times the {each.planned:.3g} s that were planned"
    )
