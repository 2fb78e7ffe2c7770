"""Numbers as a person reads them."""

import unicodedata

from automap.planner.plan import Interval
from automap.planner.spec import SearchSpec
from automap.planner.units import GIB

_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of control, direction, surrogate and line-breaking characters."""


def seconds(value: float) -> str:
    """Three or four significant digits: 0.0120, 4.56, 131.2, 2,310."""
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.1f}"
    if value >= 1:
        return f"{value:.2f}"
    return f"{value:#.3g}" if value else "0"


def interval(value: float, bounds: Interval | None) -> str:
    """Seconds with their interval: 12.30 s (10.90–13.90); without one where none is known."""
    if bounds is None:
        return f"{seconds(value)} s"
    return f"{seconds(value)} s ({seconds(bounds.low)}–{seconds(bounds.high)})"


def duration(value: float) -> str:
    """A long time in its two largest units: 14 h 35 min."""
    if value < 60:
        return f"{seconds(value)} s"
    minutes, remainder = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {remainder} s"
    hours, minutes = divmod(round(value / 60), 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(round(value / 3600), 24)
    return f"{days} days {hours} h"


def gib(num_bytes: int) -> str:
    """Bytes as GiB with one decimal, without the unit; small amounts keep two digits."""
    value = num_bytes / GIB
    return f"{value:.1f}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def count(value: float) -> str:
    """A whole number with thousands separators."""
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """Something per second: a whole number from ten on, below three significant digits."""
    return count(value) if value >= 10 else seconds(value)


def number_of(value: int, noun: str) -> str:
    """A count with its noun: 1 iteration, 400 iterations."""
    return f"{value:,} {noun}" + ("" if value == 1 else "s")


def price(value: float) -> str:
    """Price units or GPU hours: two decimals, none above ten thousand, more below 0.01."""
    if value >= 10_000:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if value >= 0.01 or value == 0 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share of one as a percentage; never 0 % for what is more than nothing."""
    value = 100 * share
    if 0 < value < 1:
        return "<1%"
    return f"{value:.0f}%"


def gap(relative_gap: float) -> str:
    """A relative gap, exact zeros as such, and what nobody could measure as a limit."""
    value = 100 * relative_gap
    if 0 < value < 0.01:
        return "below 0.01%"
    return "0%" if value == 0 else f"{value:.2g}%"


def chance(probability: float) -> str:
    """A chance in percent; one that nobody would notice as a limit."""
    return f"{100 * probability:.2g} %" if probability >= 0.001 else "below 0.1 %"


def gpu_range(pool: str, *, first_gpu: int, num_gpus: int) -> str:
    """A range of a pool's GPUs: a100[0-127]."""
    return f"{pool}[{gpu_numbers(first_gpu=first_gpu, num_gpus=num_gpus)}]"


def objective_text(search: SearchSpec, value: float) -> str:
    """A value of what is minimised, with its unit."""
    match search.objective:
        case "throughput":
            return f"{seconds(value)} s per iteration"
        case "fewest_gpus":
            return number_of(round(value), "GPU")
        case _:
            return price(value)


def gpu_numbers(*, first_gpu: int, num_gpus: int) -> str:
    """A range of GPUs: 0-127."""
    last = first_gpu + num_gpus - 1
    return f"{first_gpu}" if num_gpus == 1 else f"{first_gpu}-{last}"


def printable(text: str) -> str:
    """The text with control characters escaped, so that none can steer the terminal."""
    return "".join(
        character
        if character == "\n" or unicodedata.category(character) not in _STEERING
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
