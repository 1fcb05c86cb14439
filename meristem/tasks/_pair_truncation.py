"""Truncation of text pairs (longest first)."""

from __future__ import annotations


def truncate_pair(first: int, second: int, max_tokens: int) -> tuple[int, int]:
    """Tokens kept of each text: the longer one is truncated first, as in the tokenizers library."""
    if first + second <= max_tokens:
        return first, second
    shorter = min(first, second, max_tokens // 2)
    return (max_tokens - shorter, shorter) if first > second else (shorter, max_tokens - shorter)
