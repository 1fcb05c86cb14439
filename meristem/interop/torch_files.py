"""torch's own weight files (.bin, .pt), read without unpickling: only what builds named tensors is interpreted.

A pickle is a small program. torch.load runs it; here it is parsed with `pickletools`, which executes nothing, and its
dozen harmless opcodes are interpreted. Anything else is refused by name.
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

from meristem.config.errors import MeristemError

LEGACY_MAGIC = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")
"""The first bytes of files that torch wrote before 2020: a pickled magic number."""
MAX_PICKLE_BYTES = 64 << 20
"""Maximum bytes of the pickle, which has names and shapes but no values."""
STORAGE_DTYPES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
DICT = "collections.OrderedDict"
TENSOR, PARAMETER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
ALLOWED_GLOBALS = {DICT, TENSOR, PARAMETER, *(f"torch.{name}" for name in STORAGE_DTYPES)}
CONSTANT_OPCODES: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}
VALUE_OPCODES = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "BINSTRING", "SHORT_BINSTRING", "UNICODE",
}  # fmt: skip
DAMAGE_ERRORS = (
    ValueError, LookupError, TypeError, AttributeError, OverflowError, OSError, RuntimeError, struct.error,
    zipfile.BadZipFile,
)  # fmt: skip
"""What reading a damaged file may raise."""
MARK = object()


class UnsupportedPickle(Exception):
    """A pickle opcode or global that is not allowed."""


@dataclass(frozen=True)
class AllowedGlobal:
    """One of the few globals that a file of tensors needs."""

    name: str


@dataclass(frozen=True)
class StorageRef:
    """A typed storage in the file."""

    dtype: torch.dtype
    key: str
    numel: int


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The named tensors of a file, memory-mapped."""
    tensors = read_object(path)
    if not isinstance(tensors, dict) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in tensors.items()
    ):
        raise MeristemError(f"{path}: contains something other than named tensors")
    return tensors


def read_object(path: Path) -> Any:
    """The dictionaries, lists, numbers, texts and tensors of a file, memory-mapped; anything else is refused."""
    return _read(path, lambda: _read_zip(path) if zipfile.is_zipfile(path) else _read_legacy(path))


def read_restricted_pickle(path: Path) -> Any:
    """The dictionaries, lists, numbers and texts of a plain pickle; anything else is refused."""

    def read() -> Any:
        with path.open("rb") as file:
            return _interpret_pickle(BytesIO(file.read(MAX_PICKLE_BYTES)))

    return _read(path, read)


def _read(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except UnsupportedPickle as name:
        raise _unreadable_error(path, f"it needs {name}") from None
    except DAMAGE_ERRORS:
        raise _unreadable_error(path, "it is damaged, or not a torch file") from None


def _unreadable_error(path: Path, reason: str) -> MeristemError:
    return MeristemError(f"{path}: not readable as plain tensors, and nothing else in it is executed: {reason}")


def _read_zip(path: Path) -> Any:
    """Files since 2020: an uncompressed zip of the pickle and of each storage."""
    file_bytes = np.memmap(path, np.uint8, mode="c")
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        (name,) = [name for name in members if name.endswith("/data.pkl")]
        prefix = name.removesuffix("data.pkl")

        def data_range(member: zipfile.ZipInfo) -> tuple[int, int]:
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError("compressed")
            sizes = struct.unpack_from(
                "<HH", file_bytes[member.header_offset : member.header_offset + 30].tobytes(), 26
            )
            return member.header_offset + 30 + sum(sizes), member.file_size

        def read_storage(storage: StorageRef) -> Any:
            start, size = data_range(members[f"{prefix}data/{storage.key}"])
            return file_bytes[start : start + size]

        if f"{prefix}byteorder" in members and archive.read(f"{prefix}byteorder") != b"little":
            raise ValueError("another byte order")
        start, size = data_range(members[name])
        if size > MAX_PICKLE_BYTES:
            raise ValueError("too many names")
        return _interpret_pickle(BytesIO(file_bytes[start : start + size].tobytes()), read_storage)


def _read_legacy(path: Path) -> Any:
    """Files before 2020: consecutive pickles, then the storages in the order listed by the last one."""
    with path.open("rb") as file:
        if file.read(len(LEGACY_MAGIC)) != LEGACY_MAGIC:
            raise ValueError("not torch's")
        _interpret_pickle(file), _interpret_pickle(file)  # the protocol version, and system information
        start, sizes, offsets = file.tell(), dict[str, int](), dict[str, int]()
        _interpret_pickle(
            file,
            lambda storage: sizes.setdefault(storage.key, storage.numel * storage.dtype.itemsize),
            shapes_only=True,
        )
        keys, offset = _interpret_pickle(file), file.tell()
        file_bytes = np.memmap(path, np.uint8, mode="c")
        for key in keys:
            offsets[key] = offset + 8
            offset += 8 + sizes[key]
        file.seek(start)
        return _interpret_pickle(
            file, lambda storage: file_bytes[offsets[storage.key] : offsets[storage.key] + sizes[storage.key]]
        )


def _interpret_pickle(
    file: IO[bytes], read_storage: Callable[[StorageRef], Any] | None = None, *, shapes_only: bool = False
) -> Any:
    """The object that a pickle builds; with `shapes_only`, storages are not read."""
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for opcode, argument, _ in pickletools.genops(file):
        name = opcode.name
        if name in VALUE_OPCODES:
            stack.append(argument)
        elif name in CONSTANT_OPCODES:
            stack.append(CONSTANT_OPCODES[name]())
        elif name == "MARK":
            stack.append(MARK)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[argument])
        elif name == "GLOBAL":
            stack.append(_allowed_global(str(argument)))
        elif name == "BINPERSID":
            stack.append(_storage_ref(stack.pop()))
        elif name == "REDUCE":
            args = stack.pop()
            stack.append(_rebuild(stack.pop().name, args, read_storage, shapes_only))
        elif name == "STOP":
            return stack.pop()
        elif name not in ("PROTO", "FRAME"):
            _apply_collection(name, stack)
    raise ValueError("no end")


def _apply_collection(opcode_name: str, stack: list[Any]) -> None:
    """Opcodes that build collections."""
    if opcode_name in ("TUPLE1", "TUPLE2", "TUPLE3"):
        stack[-int(opcode_name[-1]) :] = [tuple(stack[-int(opcode_name[-1]) :])]
    elif opcode_name in ("TUPLE", "SETITEMS", "APPENDS"):
        mark_index = len(stack) - 1 - stack[::-1].index(MARK)
        items = stack[mark_index + 1 :]
        del stack[mark_index:]
        if opcode_name == "TUPLE":
            stack.append(tuple(items))
        elif opcode_name == "APPENDS":
            stack[-1].extend(items)
        else:
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
    elif opcode_name == "SETITEM":
        key, value = stack[-2:]
        del stack[-2:]
        stack[-1][key] = value
    elif opcode_name == "APPEND":
        value = stack.pop()
        stack[-1].append(value)
    elif opcode_name == "BUILD":
        stack.pop()  # attributes of a state dict, such as its version
    else:
        raise UnsupportedPickle(f"the opcode {opcode_name}")


def _allowed_global(reference: str) -> AllowedGlobal:
    name = reference.replace(" ", ".", 1)
    if name not in ALLOWED_GLOBALS:
        raise UnsupportedPickle(name.removeprefix("__builtin__.").removeprefix("builtins."))
    return AllowedGlobal(name)


def _storage_ref(persistent_id: tuple[Any, ...]) -> StorageRef:
    storage_type, key, numel = persistent_id[1].name.removeprefix("torch."), persistent_id[2], persistent_id[4]
    if persistent_id[0] != "storage" or type(numel) is not int or numel < 0 or not isinstance(key, str):
        raise ValueError("no storage")
    return StorageRef(STORAGE_DTYPES[storage_type], key, numel)


def _rebuild(
    name: str, args: tuple[Any, ...], read_storage: Callable[[StorageRef], Any] | None, shapes_only: bool
) -> Any:
    if name == DICT:
        return dict(*args)
    if name == PARAMETER:
        return args[0]
    if name != TENSOR or read_storage is None:
        raise UnsupportedPickle(name)
    storage, offset, size, stride = args[:4]
    data = read_storage(storage)
    return None if shapes_only else _build_tensor(data, storage, offset, size, stride)


def _build_tensor(
    data: Any, storage: StorageRef, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> Tensor:
    """A tensor in its storage; one that is out of bounds or has overlapping entries is refused."""
    valid_sizes = all(type(number) is int and number >= 0 for number in (offset, *size, *stride))
    if not valid_sizes or len(data) != storage.numel * storage.dtype.itemsize:
        raise ValueError("sizes that do not match")
    last = offset + sum((dim_size - 1) * step for dim_size, step in zip(size, stride, strict=True))
    num_entries: int = prod(map(int, size))
    if num_entries > storage.numel or (num_entries and last >= storage.numel):
        raise ValueError("a tensor beyond its storage")
    if not num_entries:
        return torch.zeros(size, dtype=storage.dtype)
    return torch.from_numpy(np.asarray(data)).view(storage.dtype).as_strided(size, stride, offset)
