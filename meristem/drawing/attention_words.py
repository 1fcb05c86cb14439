"""A caption word by word, each beside the picture as the model saw it then: bright where it looked."""

# P pixels of a side, R rows of patches and as many columns, Q words

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.drawing.attended import Floats, Picture, Seen
from meristem.drawing.curves import INK
from meristem.drawing.maps import EDGE, Sheet
from meristem.drawing.page import visible

ACROSS = 6
"""Pictures in a line."""
SIDE, WORD = 1.35, 0.26
"""Inches of one, and of the word above it."""
DARKEST = 0.25
"""What is left of the light where the model did not look."""
RING = "#ffffff"


def words(picture: Picture, seen: Seen, matrix: Floats, title: Sequence[str]) -> Any:
    """The picture itself, then one for each word; all on one scale."""
    number, most = 1 + len(seen.queries), float(matrix.max()) or 1.0
    across = min(ACROSS, number)
    down = math.ceil(number / across)
    wide, high = max(5.4, across * (SIDE + EDGE) + EDGE), down * (SIDE + WORD)
    sheet = Sheet(wide, high + 0.3, title)
    for place in range(number):
        left, below = place % across * (SIDE + EDGE) + EDGE, place // across * (SIDE + WORD) + WORD
        axis = sheet.axis(left, below, SIDE, SIDE)
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set(color=INK, linewidth=0.4)
        if place == 0:
            axis.imshow(picture, interpolation="nearest")
            continue
        weights = matrix[place - 1]
        axis.imshow(lit(picture, weights / most), interpolation="nearest")
        _ring(axis, len(picture), weights)
        axis.set_title(visible(seen.queries[place - 1]), fontsize=9, color=INK, pad=3)
    note = f"the brightest patch has {most:.0%} of its word's attention; each word's own is framed"
    sheet.text(wide / 2, high + 0.18, note, size=7)
    return sheet.figure


def lit(picture: Picture, light: Floats) -> NDArray[np.uint8]:
    """[P, P, 3] the picture with so much light on each of its patches, from 0 to 1."""
    side = math.isqrt(len(light))
    patch = len(picture) // side
    grid = np.kron(light.reshape(side, side), np.ones((patch, patch), np.float32))
    shade = (DARKEST + (1 - DARKEST) * np.sqrt(grid))[..., None]  # roots, as the eye weighs light
    return np.asarray(np.round(picture * shade), np.uint8)


def _ring(axis: Any, pixels: int, weights: Floats) -> None:
    """A frame around the patch that has most."""
    from matplotlib.patches import Rectangle

    side = math.isqrt(len(weights))
    row, column = divmod(int(weights.argmax()), side)
    patch = pixels // side
    corner = (column * patch - 0.5, row * patch - 0.5)
    axis.add_patch(Rectangle(corner, patch, patch, fill=False, edgecolor=RING, linewidth=1.4))
