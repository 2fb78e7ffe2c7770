"""How far measured values lie from estimates: one spread per kind of quantity.

An interval of 80 % goes from estimate ÷ e^spread to estimate × e^spread. The spreads are those of
runs that had no part in any fit (`python -m benchmarks.fit_intervals TABLE...`): each group of
runs, mostly a project, is predicted by constants fitted to the others, and a spread is the
|ln(measured ÷ predicted)| that four fifths of the rows of a group, on average over the groups, do
not exceed. Software on a GPU generation, or with a kind of model, of which nobody measured it has a
wider one, of runs whose whole generation or kind had no part.
"""

from collections.abc import Iterable, Mapping
from math import erfc, exp, hypot, log, sqrt
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
    "host work of RL frameworks",
    "training, dense, 16-bit, unseen",
    "training, dense, 8-bit, unseen",
    "training, experts, 16-bit, unseen",
    "training, experts, 8-bit, unseen",
    "generation, dense, unseen",
    "generation, experts, unseen",
    "generation, dense, 4-bit, unseen",
    "generation, experts, 4-bit, unseen",
]

COVERAGE = 0.8
"""Share of measured values that an interval is to hold."""
NORMAL_SIGMAS = 1.2816
"""Standard deviations to either side of the mean that hold COVERAGE of a normal distribution."""

HOST_WORK: Kind = "host work of RL frameworks"

SPREADS: dict[Kind, float] = {
    "training, dense, 16-bit": 0.2,
    "training, dense, 8-bit": 0.16,
    "training, experts, 16-bit": 1.04,
    "training, experts, 8-bit": 0.24,
    "generation, dense": 0.14,
    "generation, experts": 0.53,
    "generation, dense, 4-bit": 0.27,
    "generation, experts, 4-bit": 1.03,
    "calls on GPUs without tables": 0.7,
    "memory": 0.09,
    "transfer in a node": 0.39,
    "transfer across nodes": 0.16,
    HOST_WORK: 0.9,
    "training, dense, 16-bit, unseen": 0.2,
    "training, dense, 8-bit, unseen": 0.19,
    "training, experts, 16-bit, unseen": 1.06,
    "training, experts, 8-bit, unseen": 0.24,
    "generation, dense, unseen": 0.15,
    "generation, experts, unseen": 0.53,
    "generation, dense, 4-bit, unseen": 0.27,
    "generation, experts, 4-bit, unseen": 1.03,
}
"""|ln(measured ÷ estimate)| that COVERAGE of the published rows of a kind do not exceed. No row is
of a GPU without tables of its vendor: that spread is chosen, a factor of two either way. Nor does
one take what lies around an RL framework's calls apart: that one is of the prior with which it is
fitted, a factor of two at one standard deviation (`python -m benchmarks.fit_rlhf`)."""


_MEGATRON = frozenset(
    {
        "hopper, dense",
        "blackwell, dense",
        "blackwell, experts",
        "blackwell-ultra, dense",
        "blackwell-ultra, experts",
    }
)
_FSDP = frozenset({"ampere, dense", "hopper, dense"})
SEEN: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("megatron-core", "nemo-rl", "verl-megatron", "automap-megatron"), _MEGATRON),
    **dict.fromkeys(("fsdp", "transformers", "verl", "transformers-filled", "automap-fsdp"), _FSDP),
    "fsdp-eager": frozenset({"hopper, dense"}),
    "megatron-2021": frozenset({"volta, dense", "ampere, dense"}),
    "megatron-2022": frozenset({"ampere, dense"}),
    "megatron-deepspeed": frozenset({"ampere, dense"}),
    "vllm": frozenset(
        {"hopper, dense", "hopper, experts", "blackwell, dense", "blackwell, experts"}
    ),
    "sglang": frozenset({"hopper, dense", "hopper, experts", "blackwell, experts"}),
    "trtllm": frozenset(
        {"hopper, dense", "hopper, experts", "blackwell, dense", "blackwell, experts"}
    ),
}
"""Stack or engine → GPU generations and kinds of model of which published rows have its seconds."""


def is_seen(software: str, generation: str, *, experts: bool) -> bool:
    """Whether published rows have the seconds of this stack or engine on this GPU generation."""
    return f"{generation}, {'experts' if experts else 'dense'}" in SEEN.get(software, frozenset())


def call_kind(
    kind: str,
    architecture: ModelArchitecture,
    product_precision: str,
    *,
    assumed: bool = False,
    seen: bool = True,
) -> Kind:
    """The kind of quantity that the seconds of a call are; of a generation by its weights' format.

    `assumed`: on a GPU for which another vendor's stands in. `seen`: as `is_seen` tells.
    Nobody publishes scoring alone; it runs the same products as training in the same software.
    """
    if assumed:
        return "calls on GPUs without tables"
    mixture = "experts" if architecture.num_experts else "dense"
    if kind == "generate":
        name = f"generation, {mixture}"
        name += ", 4-bit" if product_precision in BLOCK_FORMATS else ""
    else:
        name = f"training, {mixture}, {8 if product_precision == 'fp8' else 16}-bit"
    return kind_named(name if seen else f"{name}, unseen")


def kind_named(name: str) -> Kind:
    """The kind of this name.

    Raises:
        ValueError: there is none.
    """
    found = next((kind for kind in SPREADS if kind == name), None)
    if found is None:
        raise ValueError(f"no kind of quantity is called {name!r}")
    return found


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


def call_bounds(parts: Iterable[tuple[float, Kind]], *, deviation: float) -> tuple[float, float]:
    """(low, high) seconds of a call of these parts: seconds, and the kind of quantity they are.

    The errors of its parts are taken to go together, so their bounds add. What lengths do from
    iteration to iteration (`deviation`, a standard deviation) is independent of them: the two
    half-widths add in squares.
    """
    ends = [(seconds, *bounds(seconds, kind)) for seconds, kind in parts]
    seconds, low, high = (sum(each) for each in zip(*ends, strict=True))
    chance = NORMAL_SIGMAS * deviation
    below, above = hypot(seconds - low, chance), hypot(high - seconds, chance)
    return max(seconds - below, 0.0), seconds + above
