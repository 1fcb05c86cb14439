"""Random changes of parsed JSON or YAML: one value, at any depth, becomes another or is gone.

All choices are drawn with `random()` alone, so that later choices do not follow the sizes of earlier content.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 3, 2**31, 2**63, -(2**63), 10**30, 1e308, -1e308, 0.5, "", "x", "x" * 5000,
    "../..", "/etc/passwd", [], {}, [[]], [1, 2], {"x": 1}, ["a", None], "\u0000", "\x1b[2J", "none", "1epoch", "https://example.invalid",
)  # fmt: skip
"""What stands in the place of a value."""


def pick(items: Sequence[Item], rng: random.Random) -> Item:
    """One of them."""
    return items[int(rng.random() * len(items))]


def replace_value(content: Any, rng: random.Random) -> str:
    """Put another value, or nothing, in the place of a random one; its dotted place."""
    key_path: list[str] = []
    while True:
        key = pick(list(content) if isinstance(content, dict) else range(len(content)), rng)
        key_path.append(str(key))
        inner = content[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.9:
            content = inner
            continue
        if rng.random() < 0.15:
            del content[key]
            return f"{'.'.join(key_path)} is gone"
        content[key] = pick([value for value in VALUES if type(value) is not type(inner) or value != inner], rng)
        return f"{'.'.join(key_path)} = {content[key]!r:.60}"
