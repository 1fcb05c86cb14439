"""Thumbnails: images as PNG data URIs, so that a page needs no other file."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

from numpy.typing import NDArray

THUMBNAIL_SIZE = 96
"""Height and width of a thumbnail in pixels."""
DATA_URI_PREFIX = "data:image/png;base64,"


def png_data_uri(pixels: NDArray[Any]) -> str:
    """Pixels [side, side, 3] of uint8 as a data URI; empty where Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        return ""
    file = BytesIO()
    Image.fromarray(pixels).save(file, format="PNG", optimize=True)
    return DATA_URI_PREFIX + base64.b64encode(file.getvalue()).decode()
