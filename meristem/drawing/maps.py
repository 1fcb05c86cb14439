"""Heat maps with tokens at their sides: one large, or all heads small on one scale; sizes follow how many tokens.

Everything is laid out in inches from the top left, so that a figure is drawn once and a cell's place is known.
"""

# L layers, H heads, Q queries, K keys

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from meristem.drawing.attended import Floats, Seen
from meristem.drawing.curves import INK
from meristem.drawing.hovering import Map
from meristem.drawing.page import shortened, visible

COLOURS = "magma_r"
"""Even steps for the eye, and darker means more on paper too; its pale end is drawn towards white."""
PALE = 0.15
DPI = 144
NUMBERED = 14
"""Rows and columns up to which a cell is wide enough for its number."""
SHORT = 24
"""Queries up to which one row may set the scale."""
LONGEST = 18
"""Characters of a label; of a longer one the middle is left out."""
TITLE = 9.0
"""Points of the title."""
NARROWEST = 5.0
"""Inches that a title needs."""
LINE, EDGE, BAR = 0.17, 0.12, 0.75
"""Inches of a line of the title, of what is left free around everything, and of a scale with its numbers."""


class Sheet:
    """A figure with its title, on which parts are placed by inches from the left and from below the title."""

    def __init__(self, wide: float, high: float, title: Sequence[str]) -> None:
        from matplotlib.figure import Figure

        self.top = EDGE + LINE * len(title)
        self.wide, self.high = wide, high + self.top + EDGE
        self.figure: Any = Figure(figsize=(self.wide, self.high), dpi=DPI)
        lines = "\n".join(_fitting(line, (wide - 2 * EDGE) * 72 / TITLE) for line in title)
        self.text(wide / 2, EDGE - self.top, lines, size=TITLE, va="top", linespacing=1.35)

    def axis(self, left: float, down: float, wide: float, high: float) -> Any:
        """A part of the sheet to draw in."""
        bottom = self.high - self.top - down - high
        return self.figure.add_axes((left / self.wide, bottom / self.high, wide / self.wide, high / self.high))

    def text(self, left: float, down: float, text: str, *, size: float, **told: Any) -> None:
        """Words, centred at a place."""
        place = left / self.wide, 1 - (self.top + down) / self.high
        self.figure.text(*place, text, **{"ha": "center", "va": "center", "color": INK, "fontsize": size, **told})

    def bar(self, image: Any, left: float, down: float, high: float, *, beyond: bool) -> None:
        """The scale of an image, as high as 60 % of it; an arrow says that there are weights above its end."""
        place = self.axis(left, down + 0.2 * high, 0.13, 0.6 * high)
        bar = self.figure.colorbar(image, cax=place, extend="max" if beyond else "neither")
        bar.ax.tick_params(labelsize=7, color=INK, labelcolor=INK)
        bar.outline.set(edgecolor=INK, linewidth=0.4)


def _width(text: str) -> float:
    """About how wide a text is, in points of its size: ideographs are square."""
    return sum(1.0 if ord(one) > 0x2E7F else 0.68 for one in text)


def _fitting(line: str, most: float) -> str:
    """A line of the title in so many points of its size, its middle left out where it is longer."""
    wide = _width(line)
    return line if wide <= most else shortened(line, int(len(line) * most / wide))


def alone(seen: Seen, matrix: Floats, title: Sequence[str]) -> tuple[Any, list[Map]]:
    """One map with its labels."""
    size = _cell(seen, most=10.5)
    wide, high = _room(seen, size)
    sheet = Sheet(max(wide, NARROWEST), high, title)
    return sheet.figure, [_heat(sheet, seen, matrix, size, left=max(0.0, NARROWEST - wide) / 2)]


def overview(seen: Seen, grid: Floats, mean: Floats, title: Sequence[str], *, first: int = 1) -> tuple[Any, list[Map]]:
    """The mean with its labels, and beside it every head [L, H, Q, K] of the layers from the first on."""
    size = _cell(seen, most=7.5)
    wide, high = _room(seen, size)
    layers, heads = grid.shape[:2]
    side = min(2.0, max(0.45, high / layers - 0.12), 12.0 / max(layers, heads))
    across, down = _spread(grid, side)
    sheet = Sheet(max(wide + across, NARROWEST), max(high, down), title)
    found = _heat(sheet, seen, mean, size, down=max(0.0, down - high) / 2)
    _panels(sheet, grid, side, left=wide, down=max(0.0, high - down) / 2, first=first)
    return sheet.figure, [found]


def small(grid: Floats, title: Sequence[str], *, first: int = 1) -> Any:
    """Every head [L, H, Q, K] of the layers from the first on, as small multiples."""
    side = min(1.5, 12.0 / max(grid.shape[:2]))
    across, down = _spread(grid, side)
    sheet = Sheet(max(across, NARROWEST), down, title)
    _panels(sheet, grid, side, left=max(0.0, NARROWEST - across) / 2, down=0.0, first=first)
    return sheet.figure


@cache
def _colours() -> Any:
    """From white, where nothing is seen, through even steps to black."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    steps = np.linspace(0.0, 1.0, 256)
    share = np.minimum(1.0, steps / PALE)[:, None]
    return ListedColormap(share * matplotlib.colormaps[COLOURS](steps) + (1 - share))


def _most(weights: Floats) -> float:
    """Where the scale ends: at the highest weight or, in long texts, where nine rows of ten stay below."""
    peaks = weights.max(-1)
    found = float(peaks.max() if peaks.shape[-1] <= SHORT else np.quantile(peaks, 0.9))
    return found or 1.0


# ------------------------------------------------------------ all heads

BESIDE, ABOVE, GAP = 0.45, 0.3, 0.1
"""Inches for the numbers of layers, for those of heads, and between two panels."""


def _panel(grid: Floats, side: float) -> tuple[float, float]:
    """Width and height of a panel whose longer side is given."""
    rows, columns = grid.shape[2:]
    return side * max(0.1, min(1.0, columns / rows)), side * max(0.1, min(1.0, rows / columns))


def _spread(grid: Floats, side: float) -> tuple[float, float]:
    """Inches of all panels with their numbers and their scale."""
    (layers, heads), (wide, high) = grid.shape[:2], _panel(grid, side)
    return BESIDE + heads * (wide + GAP) + BAR + EDGE, ABOVE + layers * (high + GAP)


def _panels(sheet: Sheet, grid: Floats, side: float, *, left: float, down: float, first: int) -> None:
    """A row for each layer, a column for each head; all on one axis, which draws faster than one for each."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    (layers, heads), (wide, high), most = grid.shape[:2], _panel(grid, side), _most(grid)
    across, tall = heads * (wide + GAP), layers * (high + GAP)
    axis, frames, image = sheet.axis(left + BESIDE, down + ABOVE, across, tall), [], None
    sharp = "nearest" if high * DPI >= grid.shape[2] and wide * DPI >= grid.shape[3] else None
    for layer, row in enumerate(grid):
        y = layer * (high + GAP)
        sheet.text(left + BESIDE - 0.14, down + ABOVE + y + high / 2, f"layer {first + layer}", size=7, rotation=90)
        for head, weights in enumerate(row):
            x = head * (wide + GAP)
            place = (x, x + wide, y + high, y)
            image = axis.imshow(weights, cmap=_colours(), vmin=0, vmax=most, extent=place, interpolation=sharp)
            frames.append(Rectangle((x, y), wide, high))
    for head in range(heads):
        x = left + BESIDE + head * (wide + GAP) + wide / 2
        sheet.text(x, down + ABOVE - 0.12, f"head {head + 1}" if wide > 0.5 else f"{head + 1}", size=7)
    axis.add_collection(PatchCollection(frames, facecolor="none", edgecolor=INK, linewidth=0.4))
    axis.set(xlim=(0, across), ylim=(tall, 0), aspect="auto")
    axis.axis("off")
    sheet.bar(image, left + BESIDE + across + 0.02, down + ABOVE, tall - GAP, beyond=bool(grid.max() > most))


# ------------------------------------------------------------ one map


def _cell(seen: Seen, most: float) -> float:
    """Inches of a cell: wide enough to read where there are few, narrow where there are many."""
    return min(0.42, most / max(len(seen.queries), len(seen.keys)))


def _points(size: float) -> float:
    """Points of a label beside cells of so many inches."""
    return min(9.0, max(5.0, size * 72 * 0.62))


def _widest(labels: Sequence[str]) -> float:
    """In points of their size."""
    return max((_width(label[:LONGEST]) for label in labels), default=1.0)


def _upright(seen: Seen, size: float) -> bool:
    """Whether every label fits over its column as it is."""
    return _widest(seen.keys) * _points(size) < size * 72


def _margins(seen: Seen, size: float) -> tuple[float, float]:
    """Inches for labels at the left and at the top."""
    beside, above = (_widest(some) * _points(size) / 72 + 0.12 for some in (seen.queries, seen.keys))
    return EDGE + beside, 0.3 if _upright(seen, size) else EDGE + above


def _room(seen: Seen, size: float) -> tuple[float, float]:
    """Inches of a map with its labels and its scale."""
    beside, above = _margins(seen, size)
    return beside + len(seen.keys) * size + EDGE + BAR, max(1.6, above + len(seen.queries) * size)


def _heat(sheet: Sheet, seen: Seen, matrix: Floats, size: float, *, left: float = 0.0, down: float = 0.0) -> Map:
    """Rows look at columns; labels are thinned where they would touch."""
    beside, above = _margins(seen, size)
    wide, high = len(seen.keys) * size, len(seen.queries) * size
    axis, most = sheet.axis(left + beside, down + above, wide, high), _most(matrix)
    image = axis.imshow(matrix, cmap=_colours(), vmin=0.0, vmax=most, aspect="auto")
    points = _points(size)
    step = max(1, math.ceil(points * 1.15 / (size * 72)))
    keys, queries = _labels(seen.keys), _labels(seen.queries)
    axis.xaxis.tick_top()
    turned: dict[str, Any] = {} if _upright(seen, size) else {"rotation": 90, "ha": "center", "va": "bottom"}
    axis.set_xticks(range(0, len(keys), step), keys[::step], fontsize=points, color=INK, **turned)
    axis.set_yticks(range(0, len(queries), step), queries[::step], fontsize=points, color=INK)
    axis.tick_params(length=2, width=0.4, color=INK)
    axis.spines[:].set(color=INK, linewidth=0.4)
    if max(matrix.shape) <= NUMBERED:
        _numbers(axis, matrix)
    if (before := len(seen.keys) - len(seen.queries)) > 0 and seen.rolls:
        axis.axvline(before - 0.5, color=INK, linewidth=1.0)  # what is remembered stands left of the line
    sheet.bar(image, left + beside + wide + EDGE, down + above, max(high, 1.2), beyond=bool(matrix.max() > most))
    return Map(axis=axis, matrix=matrix, queries=seen.queries, keys=seen.keys)


def _labels(labels: Sequence[str]) -> list[str]:
    return [visible(one) if len(one) <= LONGEST else shortened(one, LONGEST) for one in labels]


def _numbers(axis: Any, matrix: Floats) -> None:
    """Hundredths in the cells, light on dark; those that round to nothing are left out."""
    most = float(matrix.max()) or 1.0
    for row, weights in enumerate(matrix):
        for column, weight in enumerate(weights.tolist()):
            if weight >= 0.005:
                ink = "white" if weight > 0.55 * most else INK
                axis.text(column, row, f"{100 * weight:.0f}", ha="center", va="center", fontsize=6.5, color=ink)
