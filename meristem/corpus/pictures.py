"""Pictures that documents tell of: checked when the corpus is read, loaded at their size when it is stored."""

from __future__ import annotations

import hashlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem import bounded, samples
from meristem.errors import MeristemError

SMALLEST = 32
"""Pixels a side that a check decodes at the least: a JPEG need not be unpacked whole to be known as sound."""

LARGEST = 64 << 20
"""Bytes of a picture's file."""

MOST_PIXELS = 1 << 26
"""Pixels that are unpacked: 192 MiB of memory, however small the file."""

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
"""Pillow knows forty more, and for one of them it would start another program."""

BUILTIN = "builtin"


class NoPicture(Exception):
    """Why a file gives no picture."""


def reference(path: Path) -> str:
    """How a document names a picture: a digest of its bytes, then where it lies."""
    data = _bytes(path)
    _decoded(data, SMALLEST)
    return f"{hashlib.blake2b(data, digest_size=16).hexdigest()} {path}"


def picture(path: Path, size: int) -> NDArray[np.uint8]:
    """The picture in a file as [size, size, 3] pixels."""
    try:
        return load(reference(path), size)
    except NoPicture as reason:
        raise MeristemError(f"{path}: {reason}") from None


def decoded(data: bytes, size: int, *, most: int = MOST_PIXELS) -> NDArray[np.uint8]:
    """The picture in some bytes as [size, size, 3] pixels."""
    try:
        return np.asarray(_decoded(data, size, most).resize((size, size)), np.uint8)
    except NoPicture as reason:
        raise MeristemError(f"the picture: {reason}; send a {', '.join(FORMATS[:-1])} or {FORMATS[-1]}") from None


def is_builtin(name: str) -> bool:
    """Whether a picture's name refers to a built-in sample rather than to a file."""
    return name.endswith(f" {BUILTIN}")


def pixels(name: str, size: int) -> NDArray[np.uint8]:
    """A picture by the path of its file, or by its built-in name, as [size, size, 3] pixels."""
    return load(name, size) if is_builtin(name) else picture(Path(name), size)


def drawn(sample: str) -> str:
    """The reference of a picture that a built-in sample draws."""
    return f"{sample} {BUILTIN}"


def load(given: str, size: int) -> NDArray[np.uint8]:
    """The picture behind a reference as [size, size, 3] pixels, red, green and blue."""
    content, _, place = given.partition(" ")
    if place == BUILTIN:
        return samples.picture(content, size)
    try:
        data = _bytes(Path(place))
        if hashlib.blake2b(data, digest_size=16).hexdigest() != content:
            raise NoPicture("another picture than a moment ago")
        return np.asarray(_decoded(data, size).resize((size, size)), np.uint8)
    except NoPicture as reason:
        raise MeristemError(f"{place}: {reason}; the pictures changed while they were read, run again") from None


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        raise NoPicture("picture missing")
    try:
        return bounded.content(path, LARGEST)
    except MeristemError as error:
        raise NoPicture(str(error).removeprefix(f"{path}: ")) from None


def _decoded(data: bytes, size: int, most: int = MOST_PIXELS) -> Any:
    """All pixels, upright, on white where the picture lets its ground show through."""
    image, ops = _pillow()
    try:
        with image.open(BytesIO(data), formats=FORMATS) as opened:
            opened.draft("RGB", (size, size))  # a JPEG decodes at an eighth of its size, where that is enough
            if opened.width * opened.height > most:
                raise NoPicture(f"a picture of {opened.width:,} × {opened.height:,} pixels, which are too many")
            upright = ops.exif_transpose(opened)
            if upright.has_transparency_data:
                clear = upright.convert("RGBA")
                upright = image.new("RGBA", clear.size, "white")
                upright.alpha_composite(clear)
            return upright.convert("RGB")
    except (OSError, SyntaxError, ValueError, EOFError, image.DecompressionBombError, image.DecompressionBombWarning):
        raise NoPicture("not a picture, or a damaged one") from None


def _pillow() -> Any:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MeristemError('reading pictures needs Pillow: pip install "meristem[draw]"') from None
    return Image, ImageOps
