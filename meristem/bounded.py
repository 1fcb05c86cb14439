"""Files that strangers may have written, read within bounds: how large, how deep, of how many parts, nothing twice.

Every JSON and YAML file of the package is read here. What is refused is named with its place, and refused before
it costs time or memory.
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

from meristem.errors import MeristemError, RecipeError

DIGITS = 40
"""Of a whole number; transformers writes 10³⁰ for "no limit"."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much of a file is believed."""

    size: int
    """Bytes."""
    parts: int
    """Brackets and commas (in YAML also lines): each may become something many times its size in memory."""
    objects: int = 1 << 17
    """Opening braces of JSON, which cost most of all."""
    depth: int = 64


SMALL = Bounds(size=16 << 20, parts=1 << 20)
"""What describes something else: configurations, manifests, states, indices, headers."""
WORDS = Bounds(size=64 << 20, parts=1 << 22)
"""Tokenizers; the largest published ones stay under 40 MB."""
RECIPE = Bounds(size=1 << 20, parts=1 << 17, depth=32)
"""YAML, which takes some 50 µs a part."""


class Refused(ValueError):
    """What is wrong with a text, without its place."""


# ---------------------------------------------------------------- files


def content(path: Path, size: int = SMALL.size) -> bytes:
    """The bytes of a regular file, unless there are too many; a pipe or a device is never waited for."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise MeristemError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise MeristemError(f"{str(path)!r} is no name of a file") from None
    told = os.fstat(file)
    if not stat.S_ISREG(told.st_mode):
        os.close(file)
        raise MeristemError(f"{path}: is {KINDS.get(stat.S_IFMT(told.st_mode), 'something else')}, not a file")
    with os.fdopen(file, "rb") as opened:
        found = opened.read(size + 1) if told.st_size <= size else b""
    if (large := max(len(found), told.st_size)) > size:
        raise MeristemError(f"{path}: {large / 1e6:.0f} MB is too large for {path.name} (limit {size >> 20} MiB)")
    return found


def text(path: Path, size: int = SMALL.size) -> str:
    """A file of UTF-8 text."""
    try:
        return content(path, size).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MeristemError(f"{path}: not UTF-8 text at byte {error.start}") from None


def read_json(path: Path, bounds: Bounds = SMALL) -> Any:
    """The value in a JSON file."""
    return json_in(text(path, bounds.size), str(path), bounds)


def read_mapping(path: Path, bounds: Bounds = SMALL) -> dict[str, Any]:
    """The object in a JSON file."""
    found = read_json(path, bounds)
    if not isinstance(found, dict):
        raise MeristemError(f"{path}: expected a JSON object")
    return found


# ---------------------------------------------------------------- JSON


def json_in(written: str | bytes, place: str, bounds: Bounds = SMALL) -> Any:
    """The value a JSON text holds; `place` stands before whatever is said about it."""
    try:
        return strict(written, bounds)
    except ValueError as error:
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise MeristemError(f"{place}{where}: not JSON ({error})") from None


def strict(written: str | bytes, bounds: Bounds = SMALL) -> Any:
    """One value with every key once, every number finite and every character whole, or a ValueError."""
    plain = written if isinstance(written, str) else written.decode("utf-8-sig")
    if len(plain) > bounds.size:
        raise Refused(f"{len(plain):,} characters, at most {bounds.size:,} are read")
    if (parts := sum(map(plain.count, ",[{"))) > bounds.parts:
        raise Refused(f"{parts:,} parts, at most {bounds.parts:,} are read")
    if (objects := plain.count("{")) > bounds.objects:
        raise Refused(f"{objects:,} objects, at most {bounds.objects:,} are read")
    try:
        found = json.loads(
            plain, object_pairs_hook=_once, parse_int=_whole, parse_float=_finite, parse_constant=_constant
        )
    except RecursionError:
        raise Refused(f"nested deeper than {bounds.depth} levels") from None
    _refuse_depth(found, bounds.depth)
    if SURROGATE.search(plain):
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Refused("half a character (a lone surrogate)") from None
    return found


def row(line: str | bytes) -> Any:
    """One line of data: as JSON has it, numbers that are none included, or a ValueError."""
    try:
        return json.loads(line)
    except RecursionError:
        raise Refused("nested too deeply") from None


def to_json(value: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None,
            ascii_only: bool = False) -> str:  # fmt: skip
    """A value as JSON that every reader takes: null for NaN and infinities; `default` as `json.dumps` has it."""
    dumps = partial(json.dumps, ensure_ascii=ascii_only, indent=indent, allow_nan=False, default=default)
    try:
        return dumps(value)
    except ValueError:  # some number is none, which is rare: only then is everything looked through
        return dumps(without_nan(value))


def json_parts(value: Any, scalars: int = 1024) -> Iterator[str]:
    """The text of `to_json` in parts of about so many numbers and texts: writing one part takes well under a
    millisecond, while one call for all of a large value holds the interpreter lock until it is done."""
    if isinstance(value, dict) and _weight(value) > scalars:
        for number, (key, one) in enumerate(value.items()):
            yield f"{', ' if number else '{'}{to_json(str(key))}: "
            yield from json_parts(one, scalars)
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
    """The same data with None for every number that is not finite."""
    if isinstance(value, dict):
        return {key: without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # it adds
        raise Refused(f"{_short(twice)} stands twice in one object")
    return found


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise Refused(f"a number of {len(digits):,} digits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise Refused(f"{_short(digits)} is beyond every number that is kept")
    return number


def _constant(name: str) -> float:
    raise Refused(f"{name} is no number")


def _refuse_depth(found: Any, most: int) -> None:
    level = [found]
    for _ in range(most):
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise Refused(f"nested deeper than {most} levels")


# ---------------------------------------------------------------- YAML


def read_yaml(path: Path, bounds: Bounds = RECIPE) -> Any:
    """The plain data in a YAML file, which is a recipe."""
    try:
        return yaml_in(text(path, bounds.size), bounds)
    except MeristemError as error:
        raise RecipeError(str(error)) from None
    except ValueError as error:
        raise RecipeError(f"{path}: not readable as YAML: {error}") from None


def yaml_in(written: str, bounds: Bounds = RECIPE) -> Any:
    """The plain data a YAML text holds, or a ValueError: no tags that make objects, no key twice, nothing endless."""
    if (parts := sum(map(written.count, ",[{\n"))) > bounds.parts:
        raise Refused(f"{parts:,} parts, at most {bounds.parts:,} are read")
    try:
        loader = _Loader(written)
        node = loader.get_single_node()
        if node is None:
            return None
        if (many := _expanded(node, {}, bounds.depth)) > bounds.parts:
            raise Refused(f"its aliases unfold into {many:,} parts, at most {bounds.parts:,} are read")
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise Refused(str(error)) from None
    except RecursionError:
        raise Refused(f"nested deeper than {bounds.depth} levels") from None
    except (OverflowError, AttributeError) as error:  # odd numbers, dates and tags that its constructors do not foresee
        raise Refused(str(error)) from None


class _Loader(yaml.SafeLoader):
    """Plain data, no key twice, and no brackets without end: it would read ahead to the last of them."""

    def fetch_flow_collection_start(self, token_class: Any) -> None:
        """An opening bracket."""
        if self.flow_level > RECIPE.depth:
            raise RecursionError
        super().fetch_flow_collection_start(token_class)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping; keys are compared as they are written, before what is merged into it joins them."""
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{_short(key.value)} stands twice in one mapping", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
for _first in "-+0123456789":
    # YAML 1.1 reads 12:30 as 750, in time that grows with the square of its length; here it is the text it looks like
    _Loader.add_implicit_resolver("tag:yaml.org,2002:str", _BASE_60, [_first])
    _Loader.yaml_implicit_resolvers[_first].insert(0, _Loader.yaml_implicit_resolvers[_first].pop())


def _expanded(node: Any, known: dict[int, int], depth: int) -> int:
    """How many parts a node has when each alias is written out."""
    if depth < 0:
        raise Refused("nested too deeply, or an alias that holds itself")
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        inside = node.value if isinstance(node, yaml.SequenceNode) else [one for pair in node.value for one in pair]
        known[id(node)] = 1 + sum(_expanded(one, known, depth - 1) for one in inside)
    return known[id(node)]


def _short(word: str) -> str:
    return repr(word if len(word) <= 40 else f"{word[:40]}…")
