"""How far measured values lie from estimates: one spread per kind of quantity.

An interval of 80 % goes from estimate ÷ e^spread to estimate × e^spread. The spreads are fitted by
`python -m benchmarks.fit_intervals TABLE...` on published measurements: a spread is the
|ln(measured ÷ predicted)| that four fifths of the rows of its kind do not exceed, each source (or
model on a GPU type) with the square root of its rows as weight.
"""

from math import erfc, exp, log, sqrt
from statistics import NormalDist
from typing import Literal

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.weight_formats import BLOCK_FORMATS

Kind = Literal[
    "training, dense, 16-bit",
    "training, dense, 8-bit",
    "training, experts, 16-bit",
    "training, experts, 8-bit",
    "generation, dense",
    "generation, experts",
    "generation, dense, 4-bit",
    "generation, experts, 4-bit",
    "calls on GPUs without tables",
    "memory",
    "transfer in a node",
    "transfer across nodes",
]

COVERAGE = 0.8
"""Share of measured values that an interval is to hold."""
NORMAL_SIGMAS = 1.2816
"""Standard deviations to either side of the mean that hold COVERAGE of a normal distribution."""

SPREADS: dict[Kind, float] = {
    "training, dense, 16-bit": 0.07,
    "training, dense, 8-bit": 0.11,
    "training, experts, 16-bit": 0.62,
    "training, experts, 8-bit": 0.12,
    "generation, dense": 0.1,
    "generation, experts": 0.34,
    "generation, dense, 4-bit": 0.24,
    "generation, experts, 4-bit": 0.43,
    "calls on GPUs without tables": 0.7,
    "memory": 0.09,
    "transfer in a node": 0.29,
    "transfer across nodes": 0.36,
}
"""|ln(measured ÷ estimate)| that COVERAGE of the published rows of a kind do not exceed. No row is
of a GPU without tables of its vendor: that spread is chosen, a factor of two either way."""


def call_kind(
    kind: str, architecture: ModelArchitecture, product_precision: str, *, assumed: bool = False
) -> Kind:
    """The kind of quantity that the seconds of a call are; of a generation by its weights' format.

    `assumed`: on a GPU for which another vendor's stands in.
    Nobody publishes scoring alone; it runs the same products as training in the same software.
    """
    if assumed:
        return "calls on GPUs without tables"
    if kind == "generate" and product_precision in BLOCK_FORMATS:
        dense = not architecture.num_experts
        return "generation, dense, 4-bit" if dense else "generation, experts, 4-bit"
    if kind == "generate":
        return "generation, experts" if architecture.num_experts else "generation, dense"
    if product_precision == "fp8":
        return "training, experts, 8-bit" if architecture.num_experts else "training, dense, 8-bit"
    return "training, experts, 16-bit" if architecture.num_experts else "training, dense, 16-bit"


def transfer_kind(*, multi_node: bool) -> Kind:
    """The kind of quantity that the seconds of a reshard, a reload or a weight sync are."""
    return "transfer across nodes" if multi_node else "transfer in a node"


def bounds(estimate: float, kind: Kind) -> tuple[float, float]:
    """(low, high) of the interval around an estimate."""
    factor = exp(SPREADS[kind])
    return estimate / factor, estimate * factor


def exceedance_probability(estimate: float, limit: float, kind: Kind) -> float:
    """Chance that the measured value is above a limit.

    It is log-normal about the estimate, and the interval of `bounds` its middle COVERAGE: a limit
    at the interval's upper end is exceeded with a chance of 10 %.
    """
    if min(estimate, limit, SPREADS[kind]) <= 0:
        return float(estimate > limit)
    sigmas = log(limit / estimate) * NORMAL_SIGMAS / SPREADS[kind]
    return erfc(sigmas / sqrt(2)) / 2


def largest_estimate(limit: float, kind: Kind, *, probability: float) -> float:
    """The estimate that exceeds a limit with this chance, above 0 and below 1."""
    return limit * exp(NormalDist().inv_cdf(probability) * SPREADS[kind] / NORMAL_SIGMAS)


def call_bounds(
    seconds: float, *, kind: Kind, transition_seconds: float, multi_node: bool, deviation: float
) -> tuple[float, float]:
    """(low, high) seconds of a call.

    The errors of its parts are taken to go together, so their bounds add. What lengths do from
    iteration to iteration (`deviation`, a standard deviation) is independent of them: the two
    half-widths add in squares.
    """
    transfer = transfer_kind(multi_node=multi_node)
    work, moved = bounds(seconds - transition_seconds, kind), bounds(transition_seconds, transfer)
    chance = NORMAL_SIGMAS * deviation
    below = ((seconds - work[0] - moved[0]) ** 2 + chance**2) ** 0.5
    above = ((work[1] + moved[1] - seconds) ** 2 + chance**2) ** 0.5
    return max(seconds - below, 0.0), seconds + above
