"""MurmurHash64A of a text with seed 1: how spaCy numbers its strings."""

from __future__ import annotations

MULTIPLIER = 0xC6A4A7935BD1E995
SHIFT = 47
MASK = (1 << 64) - 1
SEED = 1


def hash_text(text: str) -> int:
    """The 64-bit hash of a text's UTF-8 bytes; 0 for an empty text."""
    if not text:
        return 0
    data = text.encode("utf-8", "surrogatepass")
    value = SEED ^ (len(data) * MULTIPLIER & MASK)
    end_of_blocks = len(data) // 8 * 8
    for start in range(0, end_of_blocks, 8):
        block = int.from_bytes(data[start : start + 8], "little") * MULTIPLIER & MASK
        block = (block ^ block >> SHIFT) * MULTIPLIER & MASK
        value = (value ^ block) * MULTIPLIER & MASK
    if rest := data[end_of_blocks:]:
        value = (value ^ int.from_bytes(rest, "little")) * MULTIPLIER & MASK
    value = (value ^ value >> SHIFT) * MULTIPLIER & MASK
    return value ^ value >> SHIFT
