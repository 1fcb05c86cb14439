"""Tensors to and from `.safetensors` files, streamed: a save needs no second copy of the model in memory."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from meristem import bounded
from meristem.checkpoint import disk
from meristem.errors import MeristemError

KINDS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.complex64: "C64", torch.bool: "BOOL",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
}  # fmt: skip

_CONVERT = "If you trust where it came from, convert it to safetensors first"
PICKLED = frozenset({".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt"})


def aliases(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Tied names → the first name of the same tensor; views that merely overlap are not tied."""
    first: dict[tuple[object, ...], str] = {}
    tied = {}
    for name, tensor in tensors.items():
        if tensor.numel():
            place = (tensor.device, tensor.dtype, tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
            if (stored := first.setdefault(place, name)) != name:
                tied[name] = stored
    return tied


def encode(tensors: Mapping[str, Tensor], notes: Mapping[str, str] | None = None) -> Iterator[memoryview | bytes]:
    """The bytes of a safetensors file: a JSON header padded to eight bytes, perhaps with notes, then every tensor."""
    for name, tensor in tensors.items():
        if tensor.dtype not in KINDS:
            raise MeristemError(f"{name}: tensors of {tensor.dtype} cannot be saved; convert it to another type")
    # Widest elements first keeps every tensor aligned when the file is mapped into memory.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    ends = accumulate((tensor.numel() * tensor.element_size() for _, tensor in ordered), initial=0)
    header = bounded.to_json({
        **({"__metadata__": dict(notes)} if notes else {}),
        **{
            name: {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
            for (name, tensor), place in zip(ordered, pairwise(ends), strict=True)
        },
    }, ascii_only=True).encode()  # fmt: skip
    header += b" " * (-len(header) % 8)
    yield len(header).to_bytes(8, "little") + header
    for _, tensor in ordered:
        memory = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        for start in range(0, len(memory), disk.CHUNK):
            yield memory[start : start + disk.CHUNK]


def names(path: Path) -> frozenset[str]:
    """The names a file holds."""
    with opened(path) as file:
        return frozenset(file.keys())


def decode(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, in memory of their own: the file may change or go afterwards."""
    with opened(path) as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  # it is no mapping


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A safetensors file; whatever is something else is refused unread."""
    try:
        check_header(path)
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:  # torch, which maps the file: RuntimeError
        raise MeristemError(f"{path.name} {what_else(path) or f'is no safetensors file ({error})'}") from None


def check_header(path: Path) -> None:
    """Refuse what the library would take too long over, or let pass: a header is small, and names each tensor once."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or not 2 <= length <= size - 8:
            raise ValueError(f"its header would have {length:,} bytes, and the file has {size:,}")
        if length > bounded.SMALL.size:
            raise ValueError(f"its header has {length:,} bytes, at most {bounded.SMALL.size:,} are read")
        header = bounded.strict(file.read(length), bounded.SMALL)
    if not isinstance(header, dict):
        raise ValueError("its header is no object")


def pickles(folder: Path) -> list[str]:
    """What is said about each file in a folder that could run code when loaded the usual way."""
    return [f"{path.name} {what_else(path) or 'is no safetensors file'}"
            for path in sorted(folder.iterdir()) if path.suffix in PICKLED and path.is_file()]


def what_else(path: Path) -> str | None:
    """What the first bytes of a file say it is, if that is a known danger."""
    try:
        with disk.regular(path) as file:
            start = os.read(file, 9)
    except OSError:
        return None
    # A safetensors file may begin like a pickle (a header of 640 bytes does), but its ninth byte opens the header.
    if re.match(b"\x80[\x02-\x05]", start) and start[8:] != b"{":
        return f"is a pickle, which can run code: it was not opened. {_CONVERT}"
    if start.startswith(b"PK\x03\x04"):
        return f"is a zip archive as torch.save writes it, which can run code: it was not opened. {_CONVERT}"
    return None
