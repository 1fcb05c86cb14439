"""Safetensors files, written as a stream (no second copy of the model in memory) and read without pickle."""

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

from meristem.checkpoint import disk
from meristem.config.errors import MeristemError
from meristem.utils import untrusted_files

DTYPE_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.complex64: "C64", torch.bool: "BOOL",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
}  # fmt: skip

_CONVERT_ADVICE = "If you trust where it came from, convert it to safetensors first"
PICKLE_SUFFIXES = frozenset({".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt"})


def find_aliases(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Tied name → first name of the same tensor; views that merely overlap are not tied."""
    first_names: dict[tuple[object, ...], str] = {}
    aliases = {}
    for name, tensor in tensors.items():
        if tensor.numel():
            storage_key = (tensor.device, tensor.dtype, tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
            if (first_name := first_names.setdefault(storage_key, name)) != name:
                aliases[name] = first_name
    return aliases


def encode_safetensors(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Iterator[memoryview | bytes]:
    """The bytes of a safetensors file: a JSON header padded to eight bytes (metadata optional), then every tensor."""
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPE_NAMES:
            raise MeristemError(f"{name}: tensors of {tensor.dtype} cannot be saved; convert it to another type")
    # Widest elements first keeps every tensor aligned when the file is mapped into memory.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    offsets = accumulate((tensor.numel() * tensor.element_size() for _, tensor in ordered), initial=0)
    header = untrusted_files.to_json({
        **({"__metadata__": dict(metadata)} if metadata else {}),
        **{
            name: {"dtype": DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": data_offsets}
            for (name, tensor), data_offsets in zip(ordered, pairwise(offsets), strict=True)
        },
    }, ascii_only=True).encode()  # fmt: skip
    header += b" " * (-len(header) % 8)
    yield len(header).to_bytes(8, "little") + header
    for _, tensor in ordered:
        data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        for start in range(0, len(data), disk.CHUNK):
            yield data[start : start + disk.CHUNK]


def read_names(path: Path) -> frozenset[str]:
    """Names of the tensors in a file."""
    with open_safetensors(path) as file:
        return frozenset(file.keys())


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, copied into memory: the file may change or be deleted afterwards."""
    with open_safetensors(path) as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  # it is no mapping


@contextmanager
def open_safetensors(path: Path) -> Iterator[Any]:
    """Open a safetensors file; any other file is refused unread."""
    try:
        check_header(path)
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:  # torch, which maps the file: RuntimeError
        raise MeristemError(
            f"{path.name} {describe_unsafe_file(path) or f'is not a safetensors file ({error})'}"
        ) from None


def check_header(path: Path) -> None:
    """Raise for a header that the library parses too slowly or accepts wrongly: too large, or duplicate names."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or not 2 <= length <= size - 8:
            raise ValueError(f"its header would have {length:,} bytes, and the file has {size:,}")
        if length > untrusted_files.CONFIG_LIMITS.max_bytes:
            raise ValueError(
                f"its header has {length:,} bytes, at most {untrusted_files.CONFIG_LIMITS.max_bytes:,} are read"
            )
        header = untrusted_files.parse_strict_json(file.read(length), untrusted_files.CONFIG_LIMITS)
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")


def unsafe_files(folder: Path) -> list[str]:
    """A message for each file in a folder that could run code when loaded with torch.load or pickle."""
    return [
        f"{path.name} {describe_unsafe_file(path) or 'is not a safetensors file'}"
        for path in sorted(folder.iterdir())
        if path.suffix in PICKLE_SUFFIXES and path.is_file()
    ]


def describe_unsafe_file(path: Path) -> str | None:
    """Message for a file whose first bytes are those of a pickle or a torch.save archive; None for any other."""
    try:
        with disk.open_regular(path) as fd:
            first_bytes = os.read(fd, 9)
    except OSError:
        return None
    # A safetensors file may start like a pickle (one with a header of 640 bytes does), but its ninth byte is "{".
    if re.match(b"\x80[\x02-\x05]", first_bytes) and first_bytes[8:] != b"{":
        return f"is a pickle, which can run code: it was not opened. {_CONVERT_ADVICE}"
    if first_bytes.startswith(b"PK\x03\x04"):
        return f"is a zip archive as torch.save writes it, which can run code: it was not opened. {_CONVERT_ADVICE}"
    return None
