"""What a study is: cases to place, and a report on their outcomes beside what is published."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.reproduction.cases import Case, Outcome
from benchmarks.reproduction.published import Hardware

Key = tuple[str | int, ...]
Outcomes = Mapping[Key, Mapping[str, Outcome]]

TOLERANCE = 0.25
"""A predicted number agrees with the published one within this share of it."""


@dataclass(frozen=True)
class Claim:
    """One published finding, the prediction, and whether they agree."""

    what: str
    published: str
    predicted: str
    agrees: bool
    points: tuple[int, int] | None = None
    """How many of how many points agree, where the finding is one of several."""

    @property
    def agreeing(self) -> tuple[int, int]:
        """(points that agree, points)."""
        return self.points or (int(self.agrees), 1)


@dataclass(frozen=True)
class Report:
    """What a study contributes to the document."""

    values: Mapping[str, str]
    """By the names in braces of its text."""
    claims: Sequence[Claim]
    pictures: Mapping[str, str] = field(default_factory=dict)
    """File name → SVG."""


@dataclass(frozen=True)
class Study:
    """A section of the document; `texts/NAME.md` is its prose."""

    name: str
    title: str
    source: str
    cases: Mapping[Key, Case]
    report: Callable[[Outcomes], Report]
    hardware: Hardware


def number_claim(
    what: str, published: float, predicted: float, shown: Callable[[float], str]
) -> Claim:
    """A number beside another, with how far the prediction is off."""
    off = predicted / published - 1
    words = f"{shown(predicted)} ({percent(off, sign=True)})"
    return Claim(what, shown(published), words, abs(off) <= TOLERANCE)


def counted_claim(what: str, published: str, agreeing: Sequence[bool], nouns: str) -> Claim:
    """A finding at several points: it agrees where it does at all of them."""
    words = f"the same at {sum(agreeing)} of {len(agreeing)} {nouns}"
    points = sum(agreeing), len(agreeing)
    return Claim(what, published, words, all(agreeing), points)


def percent(share: float, *, sign: bool = False) -> str:
    """A share in whole per cent; below one in tenths."""
    digits = 0 if abs(share) >= 0.0995 else 1
    return f"{100 * share:{'+' if sign else ''}.{digits}f} %"


def times(ratio: float) -> str:
    """A ratio."""
    return f"{ratio:.2f}×"


def seconds(value: float) -> str:
    """Seconds with three digits or so."""
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{digits}f} s"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; columns of numbers to the right."""
    left = {n for n in range(len(header)) if not all(_is_number(row[n]) for row in rows)}
    rule = [":---" if n in left else "---:" for n in range(len(header))]
    lines = [header, rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _is_number(cell: str) -> bool:
    return cell.strip("*").lstrip("+-–")[:1].isdigit() or cell in ("", "–")
