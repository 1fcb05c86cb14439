"""Safe parsing of untrusted JSON and YAML files: limits on size, depth and number of items, no duplicate keys.

Every JSON and YAML file of the package is read here. Errors name the file and position, and are raised before parsing
costs much time or memory.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from meristem.config.errors import MeristemError, RecipeError

MAX_DIGITS = 40
"""Maximum digits of an integer; transformers writes 10³⁰ for "no limit"."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
FILE_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, kw_only=True)
class ParseLimits:
    """Limits on the size and structure of a file."""

    max_bytes: int
    """Maximum size in bytes."""
    max_items: int
    """Maximum number of brackets and commas (in YAML also lines): each may become an object many times its size."""
    max_objects: int = 1 << 17
    """Maximum number of opening braces in JSON, the most expensive items."""
    max_depth: int = 64


CONFIG_LIMITS = ParseLimits(max_bytes=16 << 20, max_items=1 << 20)
"""Limits for metadata: configurations, manifests, states, indices, headers."""
TOKENIZER_LIMITS = ParseLimits(max_bytes=64 << 20, max_items=1 << 22)
"""Limits for tokenizers; the largest published ones are below 40 MB."""
RECIPE_LIMITS = ParseLimits(max_bytes=1 << 20, max_items=1 << 17, max_depth=32)
"""Limits for YAML, which takes about 50 µs per item."""


class InvalidContentError(ValueError):
    """Invalid content; the message does not name the file."""


# ---------------------------------------------------------------- files


def read_bytes(path: Path, max_bytes: int = CONFIG_LIMITS.max_bytes) -> bytes:
    """The bytes of a regular file of limited size; never blocks on a pipe or device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise MeristemError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise MeristemError(f"{str(path)!r} is not a valid file name") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise MeristemError(f"{path}: is {FILE_KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}, not a file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(max_bytes + 1) if status.st_size <= max_bytes else b""
    if (num_bytes := max(len(data), status.st_size)) > max_bytes:
        raise MeristemError(
            f"{path}: {num_bytes / 1e6:.0f} MB is too large for {path.name} (limit {max_bytes >> 20} MiB)"
        )
    return data


def read_text(path: Path, max_bytes: int = CONFIG_LIMITS.max_bytes) -> str:
    """The text of a UTF-8 file."""
    try:
        return read_bytes(path, max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MeristemError(f"{path}: not UTF-8 text at byte {error.start}") from None


def read_json(path: Path, limits: ParseLimits = CONFIG_LIMITS) -> Any:
    """The value in a JSON file."""
    return parse_json(read_text(path, limits.max_bytes), str(path), limits)


def read_json_object(path: Path, limits: ParseLimits = CONFIG_LIMITS) -> dict[str, Any]:
    """The object in a JSON file."""
    value = read_json(path, limits)
    if not isinstance(value, dict):
        raise MeristemError(f"{path}: expected a JSON object")
    return value


# ---------------------------------------------------------------- JSON


def parse_json(text: str | bytes, location: str, limits: ParseLimits = CONFIG_LIMITS) -> Any:
    """The value of a JSON text; errors start with `location`."""
    try:
        return parse_strict_json(text, limits)
    except ValueError as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise MeristemError(f"{location}{line}: not JSON ({error})") from None


def parse_strict_json(text: str | bytes, limits: ParseLimits = CONFIG_LIMITS) -> Any:
    """The value of a JSON text; raises ValueError for duplicate keys, NaN, infinities or lone surrogates."""
    decoded = text if isinstance(text, str) else text.decode("utf-8-sig")
    if len(decoded) > limits.max_bytes:
        raise InvalidContentError(f"{len(decoded):,} characters are too many (limit {limits.max_bytes:,})")
    if (num_items := sum(map(decoded.count, ",[{"))) > limits.max_items:
        raise InvalidContentError(f"{num_items:,} items are too many (limit {limits.max_items:,})")
    if (num_objects := decoded.count("{")) > limits.max_objects:
        raise InvalidContentError(f"{num_objects:,} objects are too many (limit {limits.max_objects:,})")
    try:
        value = json.loads(
            decoded,
            object_pairs_hook=_refuse_duplicate_keys,
            parse_int=_parse_int,
            parse_float=_parse_float,
            parse_constant=_refuse_constant,
        )
    except RecursionError:
        raise InvalidContentError(f"nested deeper than {limits.max_depth} levels") from None
    _check_depth(value, limits.max_depth)
    if SURROGATE.search(decoded):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidContentError("invalid Unicode (a lone surrogate)") from None
    return value


def parse_json_line(line: str | bytes) -> Any:
    """The value of one JSON line, NaN and infinities allowed; raises ValueError if it is invalid."""
    try:
        return json.loads(line)
    except RecursionError:
        raise InvalidContentError("nested too deeply") from None


def to_json(
    value: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None, ascii_only: bool = False
) -> str:
    """A value as strictly valid JSON: null for NaN and infinities; `default` as in `json.dumps`."""
    dumps = partial(json.dumps, ensure_ascii=ascii_only, indent=indent, allow_nan=False, default=default)
    try:
        return dumps(value)
    except ValueError:  # NaN or infinity, which is rare: only then is the whole value searched
        return dumps(without_nan(value))


def to_json_bytes(value: Any) -> bytes:
    """`to_json` as UTF-8, with a replacement for lone surrogates."""
    return to_json(value).encode("utf-8", "replace")


def json_parts(value: Any, scalars: int = 1024) -> Iterator[str]:
    """The text of `to_json` in parts of about so many numbers and texts: writing one part takes well under a
    millisecond, while one call for all of a large value holds the interpreter lock until it is done."""
    if isinstance(value, dict) and _weight(value) > scalars:
        for number, (key, item) in enumerate(value.items()):
            yield f"{', ' if number else '{'}{to_json(str(key))}: "
            yield from json_parts(item, scalars)
        yield "}"
    elif isinstance(value, list | tuple) and _weight(value) > scalars:
        step = scalars // _heaviest(value)
        for start in range(0, len(value), max(1, step)):
            yield ", " if start else "["
            if step:
                yield to_json(value[start : start + step])[1:-1]
            else:
                yield from json_parts(value[start], scalars)
        yield "]"
    else:
        yield to_json(value)


def _weight(value: Any) -> int:
    """About how many numbers and texts there are in a value."""
    if isinstance(value, dict):
        return 1 + sum(map(_weight, value.values()))
    return 1 + len(value) * _heaviest(value) if isinstance(value, list | tuple) and value else 1


def _heaviest(values: Sequence[Any]) -> int:
    """About how many numbers and texts there are in each of several values; many of them are taken to be alike."""
    return max(map(_weight, values[:32]))


def without_nan(value: Any) -> Any:
    """The same data with None for NaN and infinities."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        seen: set[str] = set()
        duplicate = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # it adds
        raise InvalidContentError(f"duplicate key {_shorten(duplicate)} in one object")
    return mapping


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise InvalidContentError(f"a number with {len(digits):,} digits is too long")
    return int(digits)


def _parse_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidContentError(f"{_shorten(digits)} is out of range")
    return number


def _refuse_constant(name: str) -> float:
    raise InvalidContentError(f"{name} is not a valid number")


def _check_depth(value: Any, max_depth: int) -> None:
    level = [value]
    for _ in range(max_depth):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise InvalidContentError(f"nested deeper than {max_depth} levels")


# ---------------------------------------------------------------- YAML


def read_yaml(path: Path, limits: ParseLimits = RECIPE_LIMITS) -> Any:
    """The plain data in a YAML file (a recipe)."""
    try:
        return parse_yaml(read_text(path, limits.max_bytes), limits)
    except MeristemError as error:
        raise RecipeError(str(error)) from None
    except ValueError as error:
        raise RecipeError(f"{path}: not valid YAML: {error}") from None


def parse_yaml(text: str, limits: ParseLimits = RECIPE_LIMITS) -> Any:
    """The plain data of a YAML text; raises ValueError for object tags, duplicate keys or exploding aliases."""
    if (num_items := sum(map(text.count, ",[{\n"))) > limits.max_items:
        raise InvalidContentError(f"{num_items:,} items are too many (limit {limits.max_items:,})")
    try:
        loader = _StrictLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if (expanded_items := _expanded_size(node, {}, limits.max_depth)) > limits.max_items:
            raise InvalidContentError(
                f"its aliases expand to {expanded_items:,} items, which are too many (limit {limits.max_items:,})"
            )
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise InvalidContentError(str(error)) from None
    except RecursionError:
        raise InvalidContentError(f"nested deeper than {limits.max_depth} levels") from None
    except (
        OverflowError,
        AttributeError,
    ) as error:  # odd numbers, dates and tags that PyYAML's constructors do not handle
        raise InvalidContentError(str(error)) from None


class _StrictLoader(yaml.SafeLoader):
    """A safe loader without duplicate keys, and with limited nesting of brackets while scanning."""

    def fetch_flow_collection_start(self, token_class: Any) -> None:
        """Scan an opening bracket; PyYAML would scan to the last of them before it fails."""
        if self.flow_level > RECIPE_LIMITS.max_depth:
            raise RecursionError
        super().fetch_flow_collection_start(token_class)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping; keys are compared as written, before merge keys (<<) are applied."""
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"duplicate key {_shorten(key.value)} in one mapping", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
for _first in "-+0123456789":
    # YAML 1.1 parses 12:30 as 750, in time quadratic in its length; here it stays a string
    _StrictLoader.add_implicit_resolver("tag:yaml.org,2002:str", _BASE_60, [_first])
    _StrictLoader.yaml_implicit_resolvers[_first].insert(0, _StrictLoader.yaml_implicit_resolvers[_first].pop())


def _expanded_size(node: Any, sizes: dict[int, int], depth: int) -> int:
    """The number of items of a node with all aliases expanded."""
    if depth < 0:
        raise InvalidContentError("nested too deeply, or an alias that contains itself")
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in sizes:
        children = (
            node.value if isinstance(node, yaml.SequenceNode) else [child for pair in node.value for child in pair]
        )
        sizes[id(node)] = 1 + sum(_expanded_size(child, sizes, depth - 1) for child in children)
    return sizes[id(node)]


def _shorten(word: str) -> str:
    return repr(word if len(word) <= 40 else f"{word[:40]}…")
