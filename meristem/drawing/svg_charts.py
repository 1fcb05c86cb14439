"""Line charts and histograms as SVG for the reports: no scripts, colors from CSS, values as tooltips."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from meristem.drawing.html_page import render_template

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
    return render_template(
        "line_chart.svg",
        area=area,
        label=label,
        x_label=x_label,
        y_ticks=[{"y": area.y_position(value), "text": text} for value, text in ticks(*area.y_range)],
        x_ticks=list(_x_ticks(area, x_ticks)),
        curves=[_curve_pixels(area, line) for line in drawn_lines],
        strips=list(_tooltip_strips(area, drawn_lines, x_label, x_ticks)),
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
    return f"{value:.2g}" if abs(value) >= 1e6 or digits > 4 else f"{value:,.{digits}f}"


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


def _x_ticks(area: PlotArea, x_ticks: Ticks) -> Iterator[dict[str, Any]]:
    """The ticks of the x axis with their positions."""
    for value, text in x_ticks or [tick for tick in ticks(*area.x_range, 5) if tick[0] == int(tick[0])]:
        x, edge = area.x_position(value), area.width - area.right
        yield {"x": x, "text": text, "anchor": "end" if x > edge - 14 and len(text) > 2 else "middle"}


def _curve_pixels(area: PlotArea, line: ChartLine) -> dict[str, Any]:
    """A line in coordinates of the chart; a single point is drawn as a dot."""
    pixels = [(area.x_position(x), area.y_position(y)) for x, y in line.points]
    return {"css_class": line.css_class, "pixels": pixels, "markers": line.markers or len(pixels) == 1}


def _tooltip_strips(
    area: PlotArea, lines: Sequence[ChartLine], x_label: str, x_ticks: Ticks
) -> Iterator[dict[str, Any]]:
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
        yield {"left": left, "width": max(0.0, right - left), "tooltip": "\n".join(tooltip)}


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
        (count / max(1, sum(set_counts)) for set_counts in counts.values() for count in set_counts), default=1.0
    )
    return render_template(
        "histograms.svg",
        area=area,
        label=label,
        row_height=row_height,
        histograms=[
            {
                "name": name,
                "base": row_height * (index + 1),
                "bars": list(_bars(area, name, counts[name], (row_height - 24) / max_share)),
                **_mean_position(area, values),
            }
            for index, (name, values) in enumerate(sets)
        ],
        x_ticks=[{"x": area.x_position(value), "text": text} for value, text in ticks(low, high, 6)],
    )


def _bin_counts(values: Sequence[float], low: float, high: float) -> list[int]:
    counts = [0] * NUM_BINS
    for value in values:
        counts[min(NUM_BINS - 1, max(0, int(NUM_BINS * (value - low) / (high - low))))] += 1
    return counts


def _bars(area: PlotArea, name: str, counts: Sequence[int], scale: float) -> Iterator[dict[str, Any]]:
    """The bars of a histogram that are not empty."""
    (low, high), total = area.x_range, max(1, sum(counts))
    for index, count in enumerate(counts):
        if not count:
            continue
        start, end = (low + (high - low) * (index + offset) / NUM_BINS for offset in (0, 1))
        left, right = area.x_position(start), area.x_position(end)
        tooltip = f"{name}: {count:,} of {total:,} texts from {start:.3g} to {end:.3g}"
        height = max(1.0, scale * count / total)
        yield {"x": left + 0.75, "width": right - left - 1.5, "height": height, "tooltip": tooltip}


def _mean_position(area: PlotArea, values: Sequence[float]) -> dict[str, Any]:
    """The mean of the values and where it is marked."""
    if not values:
        return {"mean": None}
    mean = math.fsum(values) / len(values)
    return {"mean": mean, "mean_x": area.x_position(min(area.x_range[1], max(area.x_range[0], mean)))}
