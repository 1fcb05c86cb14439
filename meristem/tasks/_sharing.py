"""How two texts share the room of one row."""

from __future__ import annotations


def shares(first: int, second: int, room: int) -> tuple[int, int]:
    """Tokens of each text that are kept: the longer one gives way until both fit, as the tokenizers library does."""
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (room - shorter, shorter) if first > second else (shorter, room - shorter)
