"""Caption attention plot: the image once per generated word, bright where the model attends (Xu et al. 2015)."""

# P pixels of a side, R rows of patches and as many columns, Q words

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.drawing.attention_record import AttentionWeights, Floats, ImageArray
from meristem.drawing.heatmaps import EDGE_INCHES, FigureLayout
from meristem.drawing.html_page import replace_control_chars
from meristem.drawing.training_curves import INK_COLOR

MAX_COLUMNS = 6
"""Images per row."""
IMAGE_INCHES, LABEL_INCHES = 1.35, 0.26
"""Size of an image, and of the word above it."""
MIN_BRIGHTNESS = 0.25
"""Brightness of patches without attention."""
RING_COLOR = "#ffffff"


def caption_attention_figure(
    image: ImageArray, attention: AttentionWeights, matrix: Floats, title: Sequence[str]
) -> Any:
    """The image itself, then one per word; all on one scale."""
    num_panels, max_weight = 1 + len(attention.queries), float(matrix.max()) or 1.0
    num_columns = min(MAX_COLUMNS, num_panels)
    num_rows = math.ceil(num_panels / num_columns)
    width = max(5.4, num_columns * (IMAGE_INCHES + EDGE_INCHES) + EDGE_INCHES)
    height = num_rows * (IMAGE_INCHES + LABEL_INCHES)
    layout = FigureLayout(width, height + 0.3, title)
    for index in range(num_panels):
        row, column = divmod(index, num_columns)
        left = column * (IMAGE_INCHES + EDGE_INCHES) + EDGE_INCHES
        top = row * (IMAGE_INCHES + LABEL_INCHES) + LABEL_INCHES
        axis = layout.axis(left, top, IMAGE_INCHES, IMAGE_INCHES)
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set(color=INK_COLOR, linewidth=0.4)
        if index == 0:
            axis.imshow(image, interpolation="nearest")
            continue
        weights = matrix[index - 1]
        axis.imshow(apply_brightness(image, weights / max_weight), interpolation="nearest")
        _outline_top_patch(axis, len(image), weights)
        axis.set_title(replace_control_chars(attention.queries[index - 1]), fontsize=9, color=INK_COLOR, pad=3)
    note = f"the brightest patch has {max_weight:.0%} of its word's attention; each word's top patch is outlined"
    layout.text(width / 2, height + 0.18, note, size=7)
    return layout.figure


def apply_brightness(image: ImageArray, brightness: Floats) -> NDArray[np.uint8]:
    """[P, P, 3] the image with the brightness of each patch scaled, from 0 to 1."""
    side = math.isqrt(len(brightness))
    patch = len(image) // side
    grid = np.kron(brightness.reshape(side, side), np.ones((patch, patch), np.float32))
    factor = (MIN_BRIGHTNESS + (1 - MIN_BRIGHTNESS) * np.sqrt(grid))[..., None]  # square root: perceived brightness
    return np.asarray(np.round(image * factor), np.uint8)


def _outline_top_patch(axis: Any, pixels: int, weights: Floats) -> None:
    """Outline the patch with the highest weight."""
    from matplotlib.patches import Rectangle

    side = math.isqrt(len(weights))
    row, column = divmod(int(weights.argmax()), side)
    patch = pixels // side
    corner = (column * patch - 0.5, row * patch - 0.5)
    axis.add_patch(Rectangle(corner, patch, patch, fill=False, edgecolor=RING_COLOR, linewidth=1.4))
