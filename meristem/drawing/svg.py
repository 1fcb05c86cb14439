"""Curves and histograms as SVG for a page of ours: no scripts, colours from its style, numbers where one points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from meristem.drawing.page import escaped

Point = tuple[float, float]
Ticks = Sequence[tuple[float, str]]

DRAWN = 160
"""Points of a line at the most; where there are more, each is the mean of some."""
STRIPS = 60
"""Places along a chart that tell their numbers when they are pointed at."""
BARS = 24
OUTSIDE = 0.01
"""The share of values on each side that may lie beyond a histogram's edges, and counts in its outermost bars."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve of a chart."""

    name: str
    kind: str
    """Its class in the style: train, held, target, before, after."""
    points: Sequence[Point]
    dots: bool = False


@dataclass(frozen=True, kw_only=True)
class Room:
    """Where a chart's numbers lie on its paper."""

    x: Point
    y: Point
    width: float
    height: float
    left: float = 44.0
    right: float = 10.0
    top: float = 12.0
    bottom: float = 38.0

    def across(self, value: float) -> float:
        """From the left, in units of the paper."""
        share = (value - self.x[0]) / (self.x[1] - self.x[0])
        return self.left + share * (self.width - self.left - self.right)

    def down(self, value: float) -> float:
        """From the top, in units of the paper."""
        share = (value - self.y[0]) / (self.y[1] - self.y[0])
        return self.height - self.bottom - share * (self.height - self.top - self.bottom)


def chart(
    lines: Sequence[Line], *, label: str, width: float = 320, height: float = 184, unit: str = "step", at: Ticks = ()
) -> str:
    """Lines over one axis, marked `at` some places or at round numbers; empty where there is nothing to draw."""
    kept = [_thinned(line) for line in lines]
    points = [point for line in kept for point in line.points]
    if not points:
        return ""
    x, y = (x for x, _ in points), (y for _, y in points)
    room = Room(x=_padded(x, 0.0), y=_padded(y, 0.08), width=width, height=height)
    return "".join(
        [
            f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escaped(label)}">',
            *_axes(room, at, unit),
            *(_line(room, line) for line in kept),
            *_strips(room, kept, unit, at),
            "</svg>",
        ]
    )


def ticks(low: float, high: float, most: int = 4) -> list[tuple[float, str]]:
    """Round numbers between two others, and how they are written."""
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * times for times in (1, 2, 2.5, 5, 10) if size * times >= rough * 0.999)
    digits = max(0, -math.floor(math.log10(step) + 1e-9) + (step / size == 2.5))
    numbers = [count * step for count in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return [(value, _written(value, digits)) for value in numbers]


def _written(value: float, digits: int) -> str:
    """Short enough to stand beside an axis."""
    value = 0.0 if abs(value) < 0.5 * 10.0**-digits else value  # no -0
    return f"{value:.0e}" if abs(value) >= 1e6 or digits > 4 else f"{value:,.{digits}f}"


def _padded(values: Iterable[float], share: float) -> Point:
    """The smallest and the largest with some room around them; never the same."""
    some = list(values)
    low, high = min(some), max(some)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-3):
        reach = max(0.1 * abs(low), 1e-3)
        return low - reach, high + reach
    return low - share * (high - low), high + share * (high - low)


def _thinned(line: Line) -> Line:
    """A line of what can be drawn, with few enough points."""
    there = [(x, y) for x, y in line.points if math.isfinite(x) and math.isfinite(y)]
    size = math.ceil(len(there) / DRAWN) or 1
    groups = [there[at : at + size] for at in range(0, len(there), size)]
    points = [(sum(x for x, _ in some) / len(some), sum(y for _, y in some) / len(some)) for some in groups]
    return Line(name=line.name, kind=line.kind, points=points, dots=line.dots)


def _axes(room: Room, at: Ticks, unit: str) -> Iterator[str]:
    for value, told in ticks(*room.y):
        y = room.down(value)
        yield f'<line class="grid" x1="{room.left:g}" x2="{room.width - room.right:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{room.left - 6:g}" y="{y + 4:.1f}" text-anchor="end">{told}</text>'
    for value, told in at or [one for one in ticks(*room.x, 5) if one[0] == int(one[0])]:
        x, edge = room.across(value), room.width - room.right
        anchor = "end" if x > edge - 14 and len(told) > 2 else "middle"
        yield f'<text x="{x:.1f}" y="{room.height - 20:g}" text-anchor="{anchor}">{escaped(told)}</text>'
    middle = (room.left + room.width - room.right) / 2
    yield f'<text class="axis" x="{middle:g}" y="{room.height - 4:g}" text-anchor="middle">{escaped(unit)}</text>'


def _line(room: Room, line: Line) -> str:
    places = [(room.across(x), room.down(y)) for x, y in line.points]
    told = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    drawn = f'<polyline class="curve {line.kind}" points="{told}"/>'
    if line.dots or len(places) == 1:
        drawn += "".join(f'<circle class="dot {line.kind}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in places)
    return drawn


def _strips(room: Room, lines: Sequence[Line], unit: str, at: Ticks) -> Iterator[str]:
    """Upright strips that tell the numbers of their place."""
    named = dict(at)
    xs = sorted({x for line in lines for x, _ in line.points if line.kind != "target"})
    size = math.ceil(len(xs) / STRIPS) or 1
    groups = [xs[start : start + size] for start in range(0, len(xs), size)]
    borders = [(one[-1] + other[0]) / 2 for one, other in itertools.pairwise(groups)]
    edges = [room.x[0], *borders, room.x[1]]
    for place, group in enumerate(groups):
        told = [f"{unit} {named.get(group[-1]) or f'{group[-1]:.0f}'}"]
        for line in lines:
            near = [y for x, y in line.points if group[0] <= x <= group[-1] or line.kind == "target"]
            if near:
                told.append(f"{line.name} {sum(near) / len(near):.4g}")
        left, right = room.across(edges[place]), room.across(edges[place + 1])
        yield (
            f'<rect class="strip" x="{left:.1f}" y="{room.top:g}" width="{max(0.0, right - left):.1f}" '
            f'height="{room.height - room.top - room.bottom:g}"><title>{escaped(chr(10).join(told))}</title></rect>'
        )


def histograms(sets: Sequence[tuple[str, Sequence[float]]], *, label: str, width: float = 660) -> str:
    """One histogram under the other over the same axis, each with its mean; the name of a set is its class."""
    some = sorted(value for _, values in sets for value in values)
    if not some:
        return ""
    beyond = int(OUTSIDE * len(some))
    low, high = _padded(some[beyond : len(some) - beyond], 0.0)
    each, bottom = 92.0, 24.0
    height = each * len(sets) + bottom
    room = Room(x=(low, high), y=(0.0, 1.0), width=width, height=height, left=60.0)
    counts = {name: _counts(values, low, high) for name, values in sets}
    most = max((count / max(1, sum(some)) for some in counts.values() for count in some), default=1.0)
    drawn = [f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escaped(label)}">']
    for place, (name, values) in enumerate(sets):
        base = each * (place + 1)
        drawn += [f'<text class="told" x="0" y="{base - 4:g}">{escaped(name)}</text>']
        drawn += _bars(room, name, counts[name], base, (each - 24) / most)
        if values:
            drawn.append(_mean(room, name, math.fsum(values) / len(values), base, each))
    for value, told in ticks(low, high, 6):
        drawn.append(f'<text x="{room.across(value):.1f}" y="{height - 6:g}" text-anchor="middle">{told}</text>')
    return "".join([*drawn, "</svg>"])


def _counts(values: Sequence[float], low: float, high: float) -> list[int]:
    counts = [0] * BARS
    for value in values:
        counts[min(BARS - 1, max(0, int(BARS * (value - low) / (high - low))))] += 1
    return counts


def _bars(room: Room, name: str, counts: Sequence[int], base: float, scale: float) -> Iterator[str]:
    (low, high), whole = room.x, max(1, sum(counts))
    for place, count in enumerate(counts):
        if not count:
            continue
        start, end = (low + (high - low) * (place + more) / BARS for more in (0, 1))
        left, right, tall = room.across(start), room.across(end), max(1.0, scale * count / whole)
        told = f"{name}: {count:,} of {whole:,} texts from {start:.3g} to {end:.3g}"
        yield (
            f'<rect class="column {escaped(name)}" x="{left + 0.75:.1f}" y="{base - tall:.1f}" '
            f'width="{right - left - 1.5:.1f}" height="{tall:.1f}"><title>{escaped(told)}</title></rect>'
        )
    yield (f'<line class="ground" x1="{room.left:g}" x2="{room.width - room.right:g}" y1="{base:g}" y2="{base:g}"/>')


def _mean(room: Room, name: str, value: float, base: float, each: float) -> str:
    x = room.across(min(room.x[1], max(room.x[0], value)))
    left = x > room.width * 0.8
    return (
        f'<line class="mean" x1="{x:.1f}" x2="{x:.1f}" y1="{base - each + 8:.1f}" y2="{base:g}"/>'
        f'<text class="told" x="{x - 5 if left else x + 5:.1f}" y="{base - each + 17:.1f}" '
        f'text-anchor="{"end" if left else "start"}">mean {value:.3g}</text>'
    )
