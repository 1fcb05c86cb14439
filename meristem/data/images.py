"""Images of captioned documents: checked when the corpus is read, loaded and resized when the dataset is built."""

from __future__ import annotations

import hashlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem import samples
from meristem.config.errors import MeristemError
from meristem.utils import untrusted_files
from meristem.utils.optional_packages import require_module

CHECK_PIXELS = 32
"""Minimum side, in pixels, at which a check decodes: a JPEG need not be decoded in full to be validated."""

MAX_IMAGE_BYTES = 64 << 20
"""Maximum size of an image file."""

MAX_PIXELS = 1 << 26
"""Maximum number of decoded pixels: 192 MiB of memory, however small the file."""

IMAGE_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
"""Pillow supports forty more, and for one of them it would start another program."""

BUILTIN_REFERENCE = "builtin"


class ImageError(Exception):
    """Why a file cannot be used as an image."""


def image_reference(path: Path) -> str:
    """The reference to an image in a document: a digest of its bytes, then its path."""
    data = _read_image_bytes(path)
    _open_image(data, CHECK_PIXELS)
    return f"{hashlib.blake2b(data, digest_size=16).hexdigest()} {path}"


def load_image_file(path: Path, size: int) -> NDArray[np.uint8]:
    """The image in a file as [size, size, 3] pixels."""
    try:
        return load_image(image_reference(path), size)
    except ImageError as reason:
        raise MeristemError(f"{path}: {reason}") from None


def decode_image(data: bytes, size: int, *, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """The image in these bytes as [size, size, 3] pixels."""
    try:
        return np.asarray(_open_image(data, size, max_pixels).resize((size, size)), np.uint8)
    except ImageError as reason:
        raise MeristemError(
            f"the image: {reason}; send a {', '.join(IMAGE_FORMATS[:-1])} or {IMAGE_FORMATS[-1]}"
        ) from None


def is_builtin_image(name: str) -> bool:
    """Whether an image name refers to a built-in sample rather than to a file."""
    return name.endswith(f" {BUILTIN_REFERENCE}")


def load_named_image(name: str, size: int) -> NDArray[np.uint8]:
    """An image by its path or its built-in name, as [size, size, 3] pixels."""
    return load_image(name, size) if is_builtin_image(name) else load_image_file(Path(name), size)


def builtin_image_reference(sample: str) -> str:
    """The reference to an image drawn by a built-in sample."""
    return f"{sample} {BUILTIN_REFERENCE}"


def load_image(reference: str, size: int) -> NDArray[np.uint8]:
    """The image of a reference as [size, size, 3] RGB pixels."""
    digest, _, path = reference.partition(" ")
    if path == BUILTIN_REFERENCE:
        return samples.draw_image(digest, size)
    try:
        data = _read_image_bytes(Path(path))
        if hashlib.blake2b(data, digest_size=16).hexdigest() != digest:
            raise ImageError("its contents have changed")
        return np.asarray(_open_image(data, size).resize((size, size)), np.uint8)
    except ImageError as reason:
        raise MeristemError(f"{path}: {reason}; images changed while they were read; run again") from None


def _read_image_bytes(path: Path) -> bytes:
    if not path.is_file():
        raise ImageError("image missing")
    try:
        return untrusted_files.read_bytes(path, MAX_IMAGE_BYTES)
    except MeristemError as error:
        raise ImageError(str(error).removeprefix(f"{path}: ")) from None


def _open_image(data: bytes, size: int, max_pixels: int = MAX_PIXELS) -> Any:
    """All pixels as RGB, upright, with transparency on white."""
    require_module("PIL", "reading images", "draw", package="Pillow")
    from PIL import Image, ImageOps

    try:
        with Image.open(BytesIO(data), formats=IMAGE_FORMATS) as opened:
            opened.draft("RGB", (size, size))  # a JPEG can be decoded at an eighth of its size
            if opened.width * opened.height > max_pixels:
                raise ImageError(f"an image of {opened.width:,} × {opened.height:,} pixels, which are too many")
            upright = ImageOps.exif_transpose(opened)
            if upright.has_transparency_data:
                rgba = upright.convert("RGBA")
                upright = Image.new("RGBA", rgba.size, "white")
                upright.alpha_composite(rgba)
            return upright.convert("RGB")
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageError("not an image, or a damaged one") from None
