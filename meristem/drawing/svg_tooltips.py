"""SVG heat maps with tooltips: a title on each cell, which browsers show on hover."""

from __future__ import annotations

import html
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from meristem.drawing.attention_record import Floats
from meristem.drawing.html_page import replace_control_chars

MAX_CELLS = 64 * 64
"""Largest map with tooltips: beyond it the file would be too large."""
POINTS_PER_INCH = 72


@dataclass(frozen=True, kw_only=True)
class Heatmap:
    """A heat map in a figure, with the labels of its rows and columns."""

    axis: Any
    matrix: Floats
    queries: Sequence[str]
    keys: Sequence[str]


def svg_with_tooltips(figure: Any, heatmaps: Sequence[Heatmap]) -> str:
    """The figure as SVG; the heat map stays one image, with transparent cells on top."""
    figure.set_dpi(POINTS_PER_INCH)  # SVG units are points
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    cells = "".join(
        cell for heatmap in heatmaps if heatmap.matrix.size <= MAX_CELLS for cell in _tooltip_cells(figure, heatmap)
    )
    drawing, end, rest = buffer.getvalue().rpartition("</svg>")
    return f'{drawing}<g fill="transparent">\n{cells}</g>\n{end}{rest}' if cells else buffer.getvalue()


def _tooltip_cells(figure: Any, heatmap: Heatmap) -> Iterator[str]:
    height = figure.get_figheight() * POINTS_PER_INCH
    to_pixels = heatmap.axis.transData.transform
    for row, (query, weights) in enumerate(zip(heatmap.queries, heatmap.matrix.tolist(), strict=True)):
        for column, (key, weight) in enumerate(zip(heatmap.keys, weights, strict=True)):
            left, top = to_pixels((column - 0.5, row - 0.5))
            right, bottom = to_pixels((column + 0.5, row + 0.5))
            tooltip = html.escape(replace_control_chars(f"{query} → {key}: {weight:.4f}"))
            yield (
                f'<rect x="{left:.2f}" y="{height - top:.2f}" width="{right - left:.2f}" '
                f'height="{top - bottom:.2f}"><title>{tooltip}</title></rect>\n'
            )
