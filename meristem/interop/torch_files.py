"""torch's own files, read without unpickling: of the pickle inside only what makes named tensors is understood.

A pickle is a small program. torch.load runs it; here it is taken apart by `pickletools`, which runs nothing, and its
dozen harmless instructions are followed by hand. Whatever asks for anything else is refused with its name.
"""

from __future__ import annotations

import pickletools
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from meristem.errors import MeristemError

OLD = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")
"""How files begin that torch wrote before 2020: a pickle of a number of its own."""
LARGEST = 64 << 20
"""Bytes of the pickle, which holds names and shapes but no numbers."""
KINDS = {
    "FloatStorage": torch.float32, "DoubleStorage": torch.float64, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip
DICT, TENSOR, PARAMETER = (
    "collections.OrderedDict",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_parameter",
)
KNOWN = {DICT, TENSOR, PARAMETER, *(f"torch.{name}" for name in KINDS)}
PLAIN: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple,
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
}  # fmt: skip
VALUES = {"BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
          "BINSTRING", "SHORT_BINSTRING", "UNICODE"}  # fmt: skip
MARK = object()


class Asks(Exception):
    """What a pickle asks for, and does not get."""


@dataclass(frozen=True)
class Known:
    """The name of one of the few things that a file of tensors needs."""

    name: str


@dataclass(frozen=True)
class Stored:
    """Numbers of one type that lie in the file."""

    kind: torch.dtype
    key: str
    numel: int


def read(path: Path) -> dict[str, Tensor]:
    """The named tensors of a file, mapped into memory."""
    try:
        found = _zipped(path) if zipfile.is_zipfile(path) else _old(path)
    except Asks as name:
        raise _refused(path, f"it asks for {name}") from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError, OSError,
            NotImplementedError, RuntimeError, struct.error, zipfile.BadZipFile):  # fmt: skip
        raise _refused(path, "it is damaged, or no file of torch's") from None
    if not isinstance(found, dict) or not all(isinstance(n, str) and isinstance(t, Tensor) for n, t in found.items()):
        raise MeristemError(f"{path}: holds something else than named tensors")
    return found


def _refused(path: Path, why: str) -> MeristemError:
    return MeristemError(f"{path}: not readable as plain tensors, and nothing else in it is run: {why}")


def _zipped(path: Path) -> Any:
    """Since 2020: an archive of the pickle and of each storage, none of them compressed."""
    whole = np.memmap(path, np.uint8, mode="c")
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        (name,) = [name for name in members if name.endswith("/data.pkl")]
        prefix = name.removesuffix("data.pkl")

        def place(member: zipfile.ZipInfo) -> tuple[int, int]:
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError("compressed")
            sizes = struct.unpack_from("<HH", whole[member.header_offset : member.header_offset + 30].tobytes(), 26)
            return member.header_offset + 30 + sum(sizes), member.file_size

        def bytes_of(stored: Stored) -> Any:
            start, size = place(members[f"{prefix}data/{stored.key}"])
            return whole[start : start + size]

        if f"{prefix}byteorder" in members and archive.read(f"{prefix}byteorder") != b"little":
            raise ValueError("the bytes of another kind of machine")
        start, size = place(members[name])
        if size > LARGEST:
            raise ValueError("too many names")
        return _follow(BytesIO(whole[start : start + size].tobytes()), bytes_of)


def _old(path: Path) -> Any:
    """Before 2020: pickles one after the other, then the storages in the order that the last one names."""
    with path.open("rb") as file:
        if file.read(len(OLD)) != OLD:
            raise ValueError("not torch's")
        _follow(file), _follow(file)  # the format's number, and what machine wrote it
        start, sizes, places = file.tell(), dict[str, int](), dict[str, int]()
        _follow(file, lambda stored: sizes.setdefault(stored.key, stored.numel * stored.kind.itemsize), shapes=True)
        keys, at = _follow(file), file.tell()
        whole = np.memmap(path, np.uint8, mode="c")
        for key in keys:
            places[key] = at + 8
            at += 8 + sizes[key]
        file.seek(start)
        return _follow(file, lambda stored: whole[places[stored.key] : places[stored.key] + sizes[stored.key]])


def _follow(file: IO[bytes], bytes_of: Callable[[Stored], Any] | None = None, *, shapes: bool = False) -> Any:
    """What the instructions of a pickle make, up to its end; with `shapes`, storages are only looked at."""
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for opcode, told, _ in pickletools.genops(file):
        name = opcode.name
        if name in VALUES:
            stack.append(told)
        elif name in PLAIN:
            stack.append(PLAIN[name]())
        elif name == "MARK":
            stack.append(MARK)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[told] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[told])
        elif name == "GLOBAL":
            stack.append(_known(str(told)))
        elif name == "BINPERSID":
            stack.append(_stored(stack.pop()))
        elif name == "REDUCE":
            given = stack.pop()
            stack.append(_made(stack.pop().name, given, bytes_of, shapes))
        elif name == "STOP":
            return stack.pop()
        elif name != "PROTO":
            _gather(name, stack)
    raise ValueError("no end")


def _gather(name: str, stack: list[Any]) -> None:
    """Instructions that put values together."""
    if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
        stack[-int(name[-1]) :] = [tuple(stack[-int(name[-1]) :])]
    elif name in ("TUPLE", "SETITEMS", "APPENDS"):
        at = len(stack) - 1 - stack[::-1].index(MARK)
        inside = stack[at + 1 :]
        del stack[at:]
        if name == "TUPLE":
            stack.append(tuple(inside))
        elif name == "APPENDS":
            stack[-1].extend(inside)
        else:
            stack[-1].update(zip(inside[::2], inside[1::2], strict=True))
    elif name == "SETITEM":
        key, value = stack[-2:]
        del stack[-2:]
        stack[-1][key] = value
    elif name == "APPEND":
        value = stack.pop()
        stack[-1].append(value)
    elif name == "BUILD":
        stack.pop()  # notes beside a state dict, such as its version
    else:
        raise Asks(f"the instruction {name}")


def _known(told: str) -> Known:
    name = told.replace(" ", ".", 1)
    if name not in KNOWN:
        raise Asks(name.removeprefix("__builtin__.").removeprefix("builtins."))
    return Known(name)


def _stored(told: tuple[Any, ...]) -> Stored:
    kind, key, numel = told[1].name.removeprefix("torch."), told[2], told[4]
    if told[0] != "storage" or type(numel) is not int or numel < 0 or not isinstance(key, str):
        raise ValueError("no storage")
    return Stored(KINDS[kind], key, numel)


def _made(name: str, given: tuple[Any, ...], bytes_of: Callable[[Stored], Any] | None, shapes: bool) -> Any:
    if name == DICT:
        return dict(*given)
    if name == PARAMETER:
        return given[0]
    if name != TENSOR or bytes_of is None:
        raise Asks(name)
    stored, offset, size, stride = given[:4]
    numbers = bytes_of(stored)
    return None if shapes else _tensor(numbers, stored, offset, size, stride)


def _tensor(numbers: Any, stored: Stored, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """A tensor inside its storage; one that would reach out of it, or show an entry twice, is refused."""
    whole = all(type(number) is int and number >= 0 for number in (offset, *size, *stride))
    if not whole or len(numbers) != stored.numel * stored.kind.itemsize:
        raise ValueError("sizes that do not fit")
    last = offset + sum((many - 1) * step for many, step in zip(size, stride, strict=True))
    entries: int = prod(map(int, size))
    if entries > stored.numel or (entries and last >= stored.numel):
        raise ValueError("a tensor beyond its storage")
    if not entries:
        return torch.zeros(size, dtype=stored.kind)
    return torch.from_numpy(np.asarray(numbers)).view(stored.kind).as_strided(size, stride, offset)
