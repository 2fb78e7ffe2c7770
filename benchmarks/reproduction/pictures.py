"""Small charts as SVG: text that can be compared line by line, and the same on every machine."""

from collections.abc import Collection, Mapping, Sequence
from xml.sax.saxutils import escape

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#a463f2")
WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 46, 62
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def bars(
    title: str,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    unit: str,
) -> str:
    """Groups of bars, one per series; None leaves a gap."""
    axis = _Axis.up_to(max(v for values in series.values() for v in values if v is not None))
    slot = (WIDTH - LEFT - RIGHT) / len(groups)
    width = 0.8 * slot / len(series)
    parts = axis.drawn(unit)
    for number, values in enumerate(series.values()):
        for group, value in enumerate(values):
            if value is not None:
                x = LEFT + group * slot + 0.1 * slot + number * width
                y = axis.y(value)
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                    f'height="{axis.y(0) - y:.1f}" fill="{COLOURS[number]}"/>'
                )
    centres = [LEFT + (group + 0.5) * slot for group in range(len(groups))]
    return _svg(title, parts, _labels(centres, groups), list(series))


def lines(
    title: str,
    points: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    unit: str,
    *,
    dashed: Collection[str] = (),
) -> str:
    """A line per series over equally spaced points; None breaks it."""
    axis = _Axis.up_to(max(v for values in series.values() for v in values if v is not None))
    step = (WIDTH - LEFT - RIGHT) / len(points)
    centres = [LEFT + (n + 0.5) * step for n in range(len(points))]
    parts = axis.drawn(unit)
    for number, (name, values) in enumerate(series.items()):
        colour = COLOURS[number]
        dash = ' stroke-dasharray="5 3"' if name in dashed else ""
        run: list[str] = []
        for x, value in zip([*centres, 0.0], [*values, None], strict=True):
            if value is not None:
                run.append(f"{x:.1f},{axis.y(value):.1f}")
                parts.append(
                    f'<circle cx="{x:.1f}" cy="{axis.y(value):.1f}" r="3" fill="{colour}"/>'
                )
            elif run:
                parts.append(
                    f'<polyline points="{" ".join(run)}" fill="none" stroke="{colour}" '
                    f'stroke-width="2"{dash}/>'
                )
                run = []
    return _svg(title, parts, _labels(centres, points), list(series))


class _Axis:
    """From 0 to a round number at or above the largest value."""

    def __init__(self, step: float, count: int) -> None:
        self.step, self.count = step, count

    @classmethod
    def up_to(cls, largest: float) -> "_Axis":
        """Four to eight steps of a round size."""
        power = 10.0 ** len(str(int(largest / 4))) / 10 if largest >= 4 else 0.1
        step = next(s * power for s in STEPS if s * power * 8 >= largest)
        count = 1
        while step * count < largest:
            count += 1
        return cls(step, count)

    def y(self, value: float) -> float:
        """Where a value lies."""
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / (self.step * self.count)

    def drawn(self, unit: str) -> list[str]:
        """Grid lines with their values, and what they count."""
        parts = []
        for number in range(self.count + 1):
            value = number * self.step
            y = self.y(value)
            parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        parts.append(f'<text x="{LEFT - 44}" y="{TOP - 10}">{escape(unit)}</text>')
        return parts


def _labels(centres: Sequence[float], names: Sequence[str]) -> list[str]:
    y = HEIGHT - BOTTOM + 16
    return [
        f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{escape(name)}</text>'
        for x, name in zip(centres, names, strict=True)
    ]


def _svg(title: str, parts: list[str], labels: list[str], series: list[str]) -> str:
    legend, x, y = [], float(LEFT), HEIGHT - 24
    for number, name in enumerate(series):
        wide = 24 + 6.4 * len(name)
        if x + wide > WIDTH:
            x, y = float(LEFT), y + 15
        legend.append(
            f'<rect x="{x:.0f}" y="{y - 9}" width="10" height="10" '
            f'fill="{COLOURS[number]}"/>'
            f'<text x="{x + 14:.0f}" y="{y}">{escape(name)}</text>'
        )
        x += wide
    heading = f'<text x="{WIDTH / 2}" y="16" text-anchor="middle" font-weight="bold">'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="11" fill="#333">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f"{heading}{escape(title)}</text>",
            *parts,
            *labels,
            *legend,
            "</svg>\n",
        ]
    )
