"""An SVG whose cells tell their numbers: a title on each, which browsers show under the pointer."""

from __future__ import annotations

import html
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from meristem.drawing.attended import Floats
from meristem.drawing.page import visible

MOST = 64 * 64
"""Cells of a map that get a title: above it the file would be larger than the picture is worth."""
POINTS = 72


@dataclass(frozen=True, kw_only=True)
class Map:
    """A heat map in a figure, and what its cells are."""

    axis: Any
    matrix: Floats
    queries: Sequence[str]
    keys: Sequence[str]


def with_values(figure: Any, maps: Sequence[Map]) -> str:
    """The figure as SVG; the picture itself stays one image, and clear cells lie over it."""
    figure.set_dpi(POINTS)  # an SVG is measured in points
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    cells = "".join(cell for one in maps if one.matrix.size <= MOST for cell in _cells(figure, one))
    drawing, end, rest = written.getvalue().rpartition("</svg>")
    return f'{drawing}<g fill="transparent">\n{cells}</g>\n{end}{rest}' if cells else written.getvalue()


def _cells(figure: Any, given: Map) -> Iterator[str]:
    height = figure.get_figheight() * POINTS
    place = given.axis.transData.transform
    for row, (query, weights) in enumerate(zip(given.queries, given.matrix.tolist(), strict=True)):
        for column, (key, weight) in enumerate(zip(given.keys, weights, strict=True)):
            left, top = place((column - 0.5, row - 0.5))
            right, bottom = place((column + 0.5, row + 0.5))
            told = html.escape(visible(f"{query} → {key}: {weight:.4f}"))
            yield (
                f'<rect x="{left:.2f}" y="{height - top:.2f}" width="{right - left:.2f}" '
                f'height="{top - bottom:.2f}"><title>{told}</title></rect>\n'
            )
