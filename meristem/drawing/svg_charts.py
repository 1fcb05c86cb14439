"""Line charts and histograms as SVG for the reports: no scripts, colors from CSS, values as tooltips."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from meristem.drawing.html_page import escape_html

Point = tuple[float, float]
Ticks = Sequence[tuple[float, str]]

MAX_POINTS = 160
"""Points of a line, at most; more are averaged in groups."""
MAX_TOOLTIPS = 60
"""Tooltips along a chart, at most."""
NUM_BINS = 24
TAIL_SHARE = 0.01
"""The share of values on each side that may lie outside a histogram's range; they count in its outermost bars."""


@dataclass(frozen=True, kw_only=True)
class ChartLine:
    """One curve of a chart."""

    name: str
    css_class: str
    """CSS class: train, held, target, before, after."""
    points: Sequence[Point]
    markers: bool = False


@dataclass(frozen=True, kw_only=True)
class PlotArea:
    """The mapping from values to coordinates of a chart."""

    x_range: Point
    y_range: Point
    width: float
    height: float
    left: float = 44.0
    right: float = 10.0
    top: float = 12.0
    bottom: float = 38.0

    def x_position(self, value: float) -> float:
        """x coordinate of a value, from the left."""
        share = (value - self.x_range[0]) / (self.x_range[1] - self.x_range[0])
        return self.left + share * (self.width - self.left - self.right)

    def y_position(self, value: float) -> float:
        """y coordinate of a value, from the top."""
        share = (value - self.y_range[0]) / (self.y_range[1] - self.y_range[0])
        return self.height - self.bottom - share * (self.height - self.top - self.bottom)


def line_chart(
    lines: Sequence[ChartLine],
    *,
    label: str,
    width: float = 320,
    height: float = 184,
    x_label: str = "step",
    x_ticks: Ticks = (),
) -> str:
    """Lines over one x axis, with ticks at `x_ticks` or at round numbers; empty where there is nothing to draw."""
    drawn_lines = [_downsample(line) for line in lines]
    points = [point for line in drawn_lines for point in line.points]
    if not points:
        return ""
    x, y = (x for x, _ in points), (y for _, y in points)
    area = PlotArea(x_range=_padded_range(x, 0.0), y_range=_padded_range(y, 0.08), width=width, height=height)
    return "".join(
        [
            f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape_html(label)}">',
            *_axes(area, x_ticks, x_label),
            *(_render_line(area, line) for line in drawn_lines),
            *_tooltip_strips(area, drawn_lines, x_label, x_ticks),
            "</svg>",
        ]
    )


def ticks(low: float, high: float, max_ticks: int = 4) -> list[tuple[float, str]]:
    """Round numbers in a range, with their labels."""
    raw_step = (high - low) / max_ticks
    magnitude = 10.0 ** math.floor(math.log10(raw_step))
    step = next(magnitude * times for times in (1, 2, 2.5, 5, 10) if magnitude * times >= raw_step * 0.999)
    digits = max(0, -math.floor(math.log10(step) + 1e-9) + (step / magnitude == 2.5))
    numbers = [count * step for count in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return [(value, _format_tick(value, digits)) for value in numbers]


def _format_tick(value: float, digits: int) -> str:
    """A short tick label."""
    value = 0.0 if abs(value) < 0.5 * 10.0**-digits else value  # no -0
    return f"{value:.0e}" if abs(value) >= 1e6 or digits > 4 else f"{value:,.{digits}f}"


def _padded_range(values: Iterable[float], share: float) -> Point:
    """The range of the values with padding; never empty."""
    finite = list(values)
    low, high = min(finite), max(finite)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-3):
        padding = max(0.1 * abs(low), 1e-3)
        return low - padding, high + padding
    return low - share * (high - low), high + share * (high - low)


def _downsample(line: ChartLine) -> ChartLine:
    """The finite points of a line, averaged down to `MAX_POINTS`."""
    finite = [(x, y) for x, y in line.points if math.isfinite(x) and math.isfinite(y)]
    group_size = math.ceil(len(finite) / MAX_POINTS) or 1
    groups = [finite[start : start + group_size] for start in range(0, len(finite), group_size)]
    points = [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]
    return ChartLine(name=line.name, css_class=line.css_class, points=points, markers=line.markers)


def _axes(area: PlotArea, x_ticks: Ticks, x_label: str) -> Iterator[str]:
    for value, text in ticks(*area.y_range):
        y = area.y_position(value)
        yield f'<line class="grid" x1="{area.left:g}" x2="{area.width - area.right:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{area.left - 6:g}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    for value, text in x_ticks or [tick for tick in ticks(*area.x_range, 5) if tick[0] == int(tick[0])]:
        x, edge = area.x_position(value), area.width - area.right
        anchor = "end" if x > edge - 14 and len(text) > 2 else "middle"
        yield f'<text x="{x:.1f}" y="{area.height - 20:g}" text-anchor="{anchor}">{escape_html(text)}</text>'
    middle = (area.left + area.width - area.right) / 2
    label = f'<text class="axis" x="{middle:g}" y="{area.height - 4:g}" text-anchor="middle">'
    yield f"{label}{escape_html(x_label)}</text>"


def _render_line(area: PlotArea, line: ChartLine) -> str:
    pixels = [(area.x_position(x), area.y_position(y)) for x, y in line.points]
    coordinates = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
    markup = f'<polyline class="curve {line.css_class}" points="{coordinates}"/>'
    if line.markers or len(pixels) == 1:
        markup += "".join(
            f'<circle class="dot {line.css_class}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in pixels
        )
    return markup


def _tooltip_strips(area: PlotArea, lines: Sequence[ChartLine], x_label: str, x_ticks: Ticks) -> Iterator[str]:
    """Transparent vertical strips with the values at their position as tooltips."""
    tick_labels = dict(x_ticks)
    x_values = sorted({x for line in lines for x, _ in line.points if line.css_class != "target"})
    group_size = math.ceil(len(x_values) / MAX_TOOLTIPS) or 1
    groups = [x_values[start : start + group_size] for start in range(0, len(x_values), group_size)]
    borders = [(group_a[-1] + group_b[0]) / 2 for group_a, group_b in itertools.pairwise(groups)]
    edges = [area.x_range[0], *borders, area.x_range[1]]
    for index, group in enumerate(groups):
        tooltip = [f"{x_label} {tick_labels.get(group[-1]) or f'{group[-1]:.0f}'}"]
        for line in lines:
            y_values = [y for x, y in line.points if group[0] <= x <= group[-1] or line.css_class == "target"]
            if y_values:
                tooltip.append(f"{line.name} {sum(y_values) / len(y_values):.4g}")
        left, right = area.x_position(edges[index]), area.x_position(edges[index + 1])
        yield (
            f'<rect class="strip" x="{left:.1f}" y="{area.top:g}" width="{max(0.0, right - left):.1f}" '
            f'height="{area.height - area.top - area.bottom:g}">'
            f"<title>{escape_html(chr(10).join(tooltip))}</title></rect>"
        )


def histograms(sets: Sequence[tuple[str, Sequence[float]]], *, label: str, width: float = 660) -> str:
    """Histograms below each other over the same x axis, each with its mean; the name of a set is its CSS class."""
    values_sorted = sorted(value for _, values in sets for value in values)
    if not values_sorted:
        return ""
    num_tail = int(TAIL_SHARE * len(values_sorted))
    low, high = _padded_range(values_sorted[num_tail : len(values_sorted) - num_tail], 0.0)
    row_height, bottom = 92.0, 24.0
    height = row_height * len(sets) + bottom
    area = PlotArea(x_range=(low, high), y_range=(0.0, 1.0), width=width, height=height, left=60.0)
    counts = {name: _bin_counts(values, low, high) for name, values in sets}
    max_share = max(
        (count / max(1, sum(set_counts)) for set_counts in counts.values() for count in set_counts),
        default=1.0,
    )
    parts = [f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape_html(label)}">']
    for index, (name, values) in enumerate(sets):
        base = row_height * (index + 1)
        parts += [f'<text class="told" x="0" y="{base - 4:g}">{escape_html(name)}</text>']
        parts += _render_bars(area, name, counts[name], base, (row_height - 24) / max_share)
        if values:
            parts.append(_mean_marker(area, name, math.fsum(values) / len(values), base, row_height))
    for value, text in ticks(low, high, 6):
        parts.append(f'<text x="{area.x_position(value):.1f}" y="{height - 6:g}" text-anchor="middle">{text}</text>')
    return "".join([*parts, "</svg>"])


def _bin_counts(values: Sequence[float], low: float, high: float) -> list[int]:
    counts = [0] * NUM_BINS
    for value in values:
        counts[min(NUM_BINS - 1, max(0, int(NUM_BINS * (value - low) / (high - low))))] += 1
    return counts


def _render_bars(area: PlotArea, name: str, counts: Sequence[int], base: float, scale: float) -> Iterator[str]:
    (low, high), total = area.x_range, max(1, sum(counts))
    for index, count in enumerate(counts):
        if not count:
            continue
        start, end = (low + (high - low) * (index + offset) / NUM_BINS for offset in (0, 1))
        left, right, height = area.x_position(start), area.x_position(end), max(1.0, scale * count / total)
        tooltip = f"{name}: {count:,} of {total:,} texts from {start:.3g} to {end:.3g}"
        yield (
            f'<rect class="column {escape_html(name)}" x="{left + 0.75:.1f}" y="{base - height:.1f}" '
            f'width="{right - left - 1.5:.1f}" height="{height:.1f}"><title>{escape_html(tooltip)}</title></rect>'
        )
    yield (f'<line class="ground" x1="{area.left:g}" x2="{area.width - area.right:g}" y1="{base:g}" y2="{base:g}"/>')


def _mean_marker(area: PlotArea, name: str, value: float, base: float, row_height: float) -> str:
    x = area.x_position(min(area.x_range[1], max(area.x_range[0], value)))
    label_left = x > area.width * 0.8
    return (
        f'<line class="mean" x1="{x:.1f}" x2="{x:.1f}" y1="{base - row_height + 8:.1f}" y2="{base:g}"/>'
        f'<text class="told" x="{x - 5 if label_left else x + 5:.1f}" y="{base - row_height + 17:.1f}" '
        f'text-anchor="{"end" if label_left else "start"}">mean {value:.3g}</text>'
    )
