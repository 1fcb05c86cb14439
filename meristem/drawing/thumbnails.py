"""Thumbnails: pixels as PNG data URIs, so that a page shows pictures without any other file."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

from numpy.typing import NDArray

SIDE = 96
"""Pixels of a thumbnail's side."""
PREFIX = "data:image/png;base64,"


def png_data_uri(pixels: NDArray[Any]) -> str:
    """Pixels [side, side, 3] of bytes as a data URI; empty where Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        return ""
    file = BytesIO()
    Image.fromarray(pixels).save(file, format="PNG", optimize=True)
    return PREFIX + base64.b64encode(file.getvalue()).decode()
