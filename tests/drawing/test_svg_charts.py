"""SVG charts: round ticks, lines within the plot area, histograms that count every value once."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.drawing.svg_charts import MAX_POINTS, MAX_TOOLTIPS, NUM_BINS, ChartLine, histograms, line_chart, ticks

NUMBERS = st.floats(-1e100, 1e100, allow_nan=False)


def test_ticks_are_round() -> None:
    assert [label for _, label in ticks(0, 1)] == ["0.00", "0.25", "0.50", "0.75", "1.00"]
    assert [label for _, label in ticks(-3.2, 9.1)] == ["0", "5"]
    assert [label for _, label in ticks(-0.03, 0.05)] == ["-0.02", "0.00", "0.02", "0.04"]
    assert [label for _, label in ticks(0, 45_000)] == ["0", "20,000", "40,000"]


@given(st.lists(st.tuples(st.integers(0, 10**6), NUMBERS), min_size=1, max_size=40))
@settings(max_examples=60)
def test_a_line_stays_in_its_plot_area(points: list[tuple[int, float]]) -> None:
    line = ChartLine(name="x", css_class="train", points=[(float(x), y) for x, y in sorted(points)], markers=True)
    svg = line_chart([line], label="x")
    points_drawn = [tuple(map(float, coordinates)) for coordinates in re.findall(r'cx="([^"]+)" cy="([^"]+)"', svg)]
    assert len(points_drawn) == len(points)
    assert all(0 <= x <= 320 and 0 <= y <= 170 for x, y in points_drawn)
    assert "nan" not in svg and "inf" not in svg


@given(st.lists(NUMBERS, max_size=300), st.lists(NUMBERS, max_size=300))
@settings(max_examples=60)
def test_every_value_is_in_one_bar(before: list[float], after: list[float]) -> None:
    svg = histograms([("before", before), ("after", after)], label="x")
    for name, values in (("before", before), ("after", after)):
        counts = [int(count.replace(",", "")) for count in re.findall(rf"<title>{name}: ([\d,]+) of", svg)]
        assert sum(counts) == len(values) and len(counts) <= NUM_BINS


def test_long_lines_become_means() -> None:
    line = ChartLine(name="x", css_class="train", points=[(float(n), float(n % 2)) for n in range(10_000)])
    svg = line_chart([line], label="x")
    (points,) = re.findall(r'points="([^"]*)"', svg)
    assert len(points.split()) <= MAX_POINTS
    assert svg.count('class="strip"') <= MAX_TOOLTIPS
    assert all(abs(float(tooltip_x) - 0.5) < 0.02 for tooltip_x in re.findall(r"\nx ([\d.]+)<", svg))


def test_nothing_to_draw_is_nothing() -> None:
    assert line_chart([ChartLine(name="x", css_class="train", points=[(1.0, float("nan"))])], label="x") == ""
    assert line_chart([], label="x") == "" and histograms([("before", [])], label="x") == ""
