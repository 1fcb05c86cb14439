"""Attention heat maps with token labels: one large map, or all heads as small multiples; sized by number of tokens.

Everything is laid out in inches from the top left, so that a figure is drawn once and cell positions are known.
"""

# L layers, H heads, Q queries, K keys

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from meristem.drawing.attention_record import AttentionWeights, Floats
from meristem.drawing.html_page import replace_control_chars, shorten_middle
from meristem.drawing.svg_tooltips import Heatmap
from meristem.drawing.training_curves import INK_COLOR

COLORMAP = "magma_r"
"""Perceptually uniform, and darker means more in print too; its pale end is blended with white."""
PALE_SHARE = 0.15
DPI = 144
MAX_NUMBERED_CELLS = 14
"""Rows and columns up to which cells are wide enough for numbers."""
MAX_SHORT_QUERIES = 24
"""Queries up to which a single row may set the scale."""
MAX_LABEL_CHARS = 18
"""Longest label in characters; of a longer one the middle is left out."""
TITLE_POINTS = 9.0
"""Font size of the title in points."""
MIN_WIDTH = 5.0
"""Minimum width of a figure in inches, for its title."""
LINE_INCHES, EDGE_INCHES, COLORBAR_INCHES = 0.17, 0.12, 0.75
"""Inches of a title line, of the outer margin, and of a color bar with its numbers."""


class FigureLayout:
    """A figure with a title; parts are placed in inches from the left and from below the title."""

    def __init__(self, width: float, height: float, title: Sequence[str]) -> None:
        from matplotlib.figure import Figure

        self.top = EDGE_INCHES + LINE_INCHES * len(title)
        self.width, self.height = width, height + self.top + EDGE_INCHES
        self.figure: Any = Figure(figsize=(self.width, self.height), dpi=DPI)
        lines = "\n".join(_fit_title_line(line, (width - 2 * EDGE_INCHES) * 72 / TITLE_POINTS) for line in title)
        self.text(width / 2, EDGE_INCHES - self.top, lines, size=TITLE_POINTS, va="top", linespacing=1.35)

    def axis(self, left: float, down: float, width: float, height: float) -> Any:
        """Axes at a position of the figure."""
        bottom = self.height - self.top - down - height
        return self.figure.add_axes((left / self.width, bottom / self.height, width / self.width, height / self.height))

    def text(self, left: float, down: float, text: str, *, size: float, **options: Any) -> None:
        """Text centred at a position."""
        position = left / self.width, 1 - (self.top + down) / self.height
        self.figure.text(
            *position, text, **{"ha": "center", "va": "center", "color": INK_COLOR, "fontsize": size, **options}
        )

    def colorbar(self, image: Any, left: float, down: float, height: float, *, clipped: bool) -> None:
        """The color bar of an image, 60 % of its height; an arrow marks weights above its end."""
        colorbar_axis = self.axis(left, down + 0.2 * height, 0.13, 0.6 * height)
        colorbar = self.figure.colorbar(image, cax=colorbar_axis, extend="max" if clipped else "neither")
        colorbar.ax.tick_params(labelsize=7, color=INK_COLOR, labelcolor=INK_COLOR)
        colorbar.outline.set(edgecolor=INK_COLOR, linewidth=0.4)


def _text_width(text: str) -> float:
    """Approximate width of a text, in units of its font size: ideographs are square."""
    return sum(1.0 if ord(character) > 0x2E7F else 0.68 for character in text)


def _fit_title_line(line: str, max_width: float) -> str:
    """A title line shortened to a width, in units of its font size."""
    width = _text_width(line)
    return line if width <= max_width else shorten_middle(line, int(len(line) * max_width / width))


def single_heatmap(attention: AttentionWeights, matrix: Floats, title: Sequence[str]) -> tuple[Any, list[Heatmap]]:
    """One map with its labels."""
    size = _cell_size(attention, max_inches=10.5)
    width, height = _heatmap_size(attention, size)
    layout = FigureLayout(max(width, MIN_WIDTH), height, title)
    return layout.figure, [_draw_heatmap(layout, attention, matrix, size, left=max(0.0, MIN_WIDTH - width) / 2)]


def overview_figure(
    attention: AttentionWeights, grid: Floats, mean: Floats, title: Sequence[str], *, first_layer: int = 1
) -> tuple[Any, list[Heatmap]]:
    """The mean map with labels, and beside it every head [L, H, Q, K] of the layers from `first_layer` on."""
    size = _cell_size(attention, max_inches=7.5)
    width, height = _heatmap_size(attention, size)
    layers, heads = grid.shape[:2]
    side = min(2.0, max(0.45, height / layers - 0.12), 12.0 / max(layers, heads))
    grid_width, grid_height = _grid_size(grid, side)
    layout = FigureLayout(max(width + grid_width, MIN_WIDTH), max(height, grid_height), title)
    heatmap = _draw_heatmap(layout, attention, mean, size, down=max(0.0, grid_height - height) / 2)
    _draw_panels(layout, grid, side, left=width, down=max(0.0, height - grid_height) / 2, first_layer=first_layer)
    return layout.figure, [heatmap]


def head_grid(grid: Floats, title: Sequence[str], *, first_layer: int = 1) -> Any:
    """Every head [L, H, Q, K] of the layers from `first_layer` on, as small multiples."""
    side = min(1.5, 12.0 / max(grid.shape[:2]))
    grid_width, grid_height = _grid_size(grid, side)
    layout = FigureLayout(max(grid_width, MIN_WIDTH), grid_height, title)
    _draw_panels(layout, grid, side, left=max(0.0, MIN_WIDTH - grid_width) / 2, down=0.0, first_layer=first_layer)
    return layout.figure


@cache
def _colormap() -> Any:
    """From white for zero, through perceptually uniform steps, to black."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    steps = np.linspace(0.0, 1.0, 256)
    share = np.minimum(1.0, steps / PALE_SHARE)[:, None]
    return ListedColormap(share * matplotlib.colormaps[COLORMAP](steps) + (1 - share))


def _scale_max(weights: Floats) -> float:
    """Upper end of the scale: the highest weight or, in long texts, the 90 % quantile of the row maxima."""
    peaks = weights.max(-1)
    scale_max = float(peaks.max() if peaks.shape[-1] <= MAX_SHORT_QUERIES else np.quantile(peaks, 0.9))
    return scale_max or 1.0


# ------------------------------------------------------------ all heads

ROW_LABEL_INCHES, COLUMN_LABEL_INCHES, PANEL_GAP = 0.45, 0.3, 0.1
"""Inches for layer labels, for head labels, and between two panels."""


def _panel_size(grid: Floats, side: float) -> tuple[float, float]:
    """Width and height of a panel, given the longer side."""
    rows, columns = grid.shape[2:]
    return side * max(0.1, min(1.0, columns / rows)), side * max(0.1, min(1.0, rows / columns))


def _grid_size(grid: Floats, side: float) -> tuple[float, float]:
    """Inches of all panels with labels and color bar."""
    (layers, heads), (width, height) = grid.shape[:2], _panel_size(grid, side)
    return ROW_LABEL_INCHES + heads * (
        width + PANEL_GAP
    ) + COLORBAR_INCHES + EDGE_INCHES, COLUMN_LABEL_INCHES + layers * (height + PANEL_GAP)


def _draw_panels(
    layout: FigureLayout, grid: Floats, side: float, *, left: float, down: float, first_layer: int
) -> None:
    """One row per layer, one column per head; all on one axis, which draws faster than one for each."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    (layers, heads), (width, height), scale_max = grid.shape[:2], _panel_size(grid, side), _scale_max(grid)
    grid_width, grid_height = heads * (width + PANEL_GAP), layers * (height + PANEL_GAP)
    axis = layout.axis(left + ROW_LABEL_INCHES, down + COLUMN_LABEL_INCHES, grid_width, grid_height)
    frames, image = [], None
    interpolation = "nearest" if height * DPI >= grid.shape[2] and width * DPI >= grid.shape[3] else None
    for layer, row in enumerate(grid):
        y = layer * (height + PANEL_GAP)
        layout.text(
            left + ROW_LABEL_INCHES - 0.14,
            down + COLUMN_LABEL_INCHES + y + height / 2,
            f"layer {first_layer + layer}",
            size=7,
            rotation=90,
        )
        for head, weights in enumerate(row):
            x = head * (width + PANEL_GAP)
            extent = (x, x + width, y + height, y)
            image = axis.imshow(
                weights, cmap=_colormap(), vmin=0, vmax=scale_max, extent=extent, interpolation=interpolation
            )
            frames.append(Rectangle((x, y), width, height))
    for head in range(heads):
        x = left + ROW_LABEL_INCHES + head * (width + PANEL_GAP) + width / 2
        layout.text(x, down + COLUMN_LABEL_INCHES - 0.12, f"head {head + 1}" if width > 0.5 else f"{head + 1}", size=7)
    axis.add_collection(PatchCollection(frames, facecolor="none", edgecolor=INK_COLOR, linewidth=0.4))
    axis.set(xlim=(0, grid_width), ylim=(grid_height, 0), aspect="auto")
    axis.axis("off")
    layout.colorbar(
        image,
        left + ROW_LABEL_INCHES + grid_width + 0.02,
        down + COLUMN_LABEL_INCHES,
        grid_height - PANEL_GAP,
        clipped=bool(grid.max() > scale_max),
    )


# ------------------------------------------------------------ one map


def _cell_size(attention: AttentionWeights, max_inches: float) -> float:
    """Cell size in inches: large enough to read where there are few, small where there are many."""
    return min(0.42, max_inches / max(len(attention.queries), len(attention.keys)))


def _label_points(size: float) -> float:
    """Font size of labels for a cell size in inches."""
    return min(9.0, max(5.0, size * 72 * 0.62))


def _max_label_width(labels: Sequence[str]) -> float:
    """In units of the font size."""
    return max((_text_width(label[:MAX_LABEL_CHARS]) for label in labels), default=1.0)


def _labels_fit(attention: AttentionWeights, size: float) -> bool:
    """Whether every label fits over its column without rotation."""
    return _max_label_width(attention.keys) * _label_points(size) < size * 72


def _margins(attention: AttentionWeights, size: float) -> tuple[float, float]:
    """Inches for labels on the left and at the top."""
    left_margin, top_margin = (
        _max_label_width(labels) * _label_points(size) / 72 + 0.12 for labels in (attention.queries, attention.keys)
    )
    return EDGE_INCHES + left_margin, 0.3 if _labels_fit(attention, size) else EDGE_INCHES + top_margin


def _heatmap_size(attention: AttentionWeights, size: float) -> tuple[float, float]:
    """Inches of a map with labels and color bar."""
    left_margin, top_margin = _margins(attention, size)
    return left_margin + len(attention.keys) * size + EDGE_INCHES + COLORBAR_INCHES, max(
        1.6, top_margin + len(attention.queries) * size
    )


def _draw_heatmap(
    layout: FigureLayout,
    attention: AttentionWeights,
    matrix: Floats,
    size: float,
    *,
    left: float = 0.0,
    down: float = 0.0,
) -> Heatmap:
    """Draw queries as rows and keys as columns; labels are thinned where they would overlap."""
    left_margin, top_margin = _margins(attention, size)
    width, height = len(attention.keys) * size, len(attention.queries) * size
    axis, scale_max = layout.axis(left + left_margin, down + top_margin, width, height), _scale_max(matrix)
    image = axis.imshow(matrix, cmap=_colormap(), vmin=0.0, vmax=scale_max, aspect="auto")
    points = _label_points(size)
    step = max(1, math.ceil(points * 1.15 / (size * 72)))
    keys, queries = _format_labels(attention.keys), _format_labels(attention.queries)
    axis.xaxis.tick_top()
    rotation: dict[str, Any] = {} if _labels_fit(attention, size) else {"rotation": 90, "ha": "center", "va": "bottom"}
    axis.set_xticks(range(0, len(keys), step), keys[::step], fontsize=points, color=INK_COLOR, **rotation)
    axis.set_yticks(range(0, len(queries), step), queries[::step], fontsize=points, color=INK_COLOR)
    axis.tick_params(length=2, width=0.4, color=INK_COLOR)
    axis.spines[:].set(color=INK_COLOR, linewidth=0.4)
    if max(matrix.shape) <= MAX_NUMBERED_CELLS:
        _draw_cell_numbers(axis, matrix)
    if (memory_length := len(attention.keys) - len(attention.queries)) > 0 and attention.supports_rollout:
        axis.axvline(memory_length - 0.5, color=INK_COLOR, linewidth=1.0)  # keys left of the line are segment memory
    layout.colorbar(
        image,
        left + left_margin + width + EDGE_INCHES,
        down + top_margin,
        max(height, 1.2),
        clipped=bool(matrix.max() > scale_max),
    )
    return Heatmap(axis=axis, matrix=matrix, queries=attention.queries, keys=attention.keys)


def _format_labels(labels: Sequence[str]) -> list[str]:
    return [
        replace_control_chars(label) if len(label) <= MAX_LABEL_CHARS else shorten_middle(label, MAX_LABEL_CHARS)
        for label in labels
    ]


def _draw_cell_numbers(axis: Any, matrix: Floats) -> None:
    """Percentages in the cells, light on dark; those that round to zero are left out."""
    max_weight = float(matrix.max()) or 1.0
    for row, weights in enumerate(matrix):
        for column, weight in enumerate(weights.tolist()):
            if weight >= 0.005:
                color = "white" if weight > 0.55 * max_weight else INK_COLOR
                axis.text(column, row, f"{100 * weight:.0f}", ha="center", va="center", fontsize=6.5, color=color)
