"""Predicted against measured seconds as a picture, in SVG: it needs no library, and diffs."""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.loop.runs import Outcome

SIDE, MARGIN = 480, 60
"""Of the picture, in pixels."""
KINDS = {
    "generate": "#1f77b4",
    "forward": "#2ca02c",
    "train": "#ff7f0e",
    "iteration": "#000000",
}
BAND = 0.2
"""Half-width of the band around equality."""


def draw(path: Path, outcomes: Sequence[Outcome]) -> None:
    """A point for each call and each iteration, on logarithmic axes."""
    points = list(_points(outcomes))
    values = [value for _, _, measured, predicted in points for value in (measured, predicted)]
    axis = _Axis(floor(5 * log10(min(values))) / 5, ceil(5 * log10(max(values))) / 5)
    parts = [*_frame(axis), *(_circle(axis, *point) for point in points), *_legend()]
    size = f'width="{SIDE}" height="{SIDE}" viewBox="0 0 {SIDE} {SIDE}"'
    style = 'font-family="sans-serif" font-size="12"'
    text = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>', *parts, "</svg>", ""]
    path.write_text("\n".join(text), encoding="utf-8")


def _points(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, str, float, float]]:
    """(kind, title, measured, predicted)."""
    for each in outcomes:
        on_devices = {call.id for call in each.plan.calls if call.copy_id is not None}
        for call in each.report.calls:
            found, predicted = call.seconds.measured, each.predicted(call.id)
            if call.id in on_devices and predicted and found is not None:
                yield call.kind, f"{each.variant.name}: {call.id}", found.median, predicted
        yield "iteration", f"{each.variant.name}", each.measured, each.plan.iteration_seconds


class _Axis:
    """Both axes: decades to pixels."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def at(self, seconds: float) -> float:
        """Pixels from where the axis begins."""
        share = (log10(seconds) - self.low) / (self.high - self.low)
        return share * (SIDE - 2 * MARGIN)

    def place(self, measured: float, predicted: float) -> tuple[float, float]:
        """x and y in the picture."""
        return MARGIN + self.at(measured), SIDE - MARGIN - self.at(predicted)

    def ticks(self) -> Iterator[float]:
        """1, 2 and 5 of each decade."""
        for decade in range(floor(self.low), ceil(self.high) + 1):
            for digit in (1, 2, 5):
                if self.low <= log10(digit) + decade <= self.high:
                    yield digit * 10.0**decade


def _frame(axis: _Axis) -> Iterator[str]:
    least, most = 10**axis.low, 10**axis.high
    edges = [axis.place(least, least), axis.place(most, most)]
    inside = SIDE - 2 * MARGIN
    clip = f'<rect x="{MARGIN}" y="{MARGIN}" width="{inside}" height="{inside}"/>'
    yield f'<rect width="{SIDE}" height="{SIDE}" fill="white"/>'
    yield f'<clipPath id="inside">{clip}</clipPath>'
    corners = [
        axis.place(seconds, seconds * (1 + band))
        for seconds, band in ((least, BAND), (most, BAND), (most, -BAND), (least, -BAND))
    ]
    shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    yield f'<polygon points="{shape}" fill="#dddddd" clip-path="url(#inside)"/>'
    (x, y), (x2, y2) = edges
    yield f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#888888"/>'
    yield clip.replace("/>", ' fill="none" stroke="black"/>')
    for seconds in axis.ticks():
        x, y = axis.place(seconds, seconds)
        below = SIDE - MARGIN + 16
        yield f'<text x="{x:.1f}" y="{below}" text-anchor="middle">{seconds:g}</text>'
        yield f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{seconds:g}</text>'
    middle = SIDE / 2
    yield f'<text x="{middle}" y="{SIDE - 14}" text-anchor="middle">measured, seconds</text>'
    turned = f'transform="rotate(-90 16 {middle})"'
    yield f'<text x="16" y="{middle}" text-anchor="middle" {turned}>predicted, seconds</text>'


def _circle(axis: _Axis, kind: str, title: str, measured: float, predicted: float) -> str:
    x, y = axis.place(measured, predicted)
    radius = 5 if kind == "iteration" else 3
    told = escape(f"{title}: {predicted:.3f} s predicted, {measured:.3f} s measured")
    shape = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{KINDS[kind]}" fill-opacity="0.7"'
    return f"<circle {shape}><title>{told}</title></circle>"


def _legend() -> Iterator[str]:
    for number, (kind, colour) in enumerate(KINDS.items()):
        x, y = MARGIN + 14, MARGIN + 18 + 18 * number
        yield f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colour}"/>'
        yield f'<text x="{x + 10}" y="{y}">{kind}</text>'
    y = MARGIN + 18 + 18 * len(KINDS)
    yield f'<text x="{MARGIN + 8}" y="{y}">grey: ±{BAND:.0%}</text>'
