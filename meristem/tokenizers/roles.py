"""Which tokens are special, and what each is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BRACKETED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # BERT's names, ids 0 to 4
ANGLED = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # RoBERTa's names and order, ids 0 to 4
ENDOFTEXT = "<|endoftext|>"  # GPT-2 begins and ends a text with the same token
SENTINEL = "<extra_id_{}>"  # T5's names for what stands in place of a span
MASK = "[MASK]"  # what a person writes, whatever the tokenizer calls it


@dataclass(frozen=True)
class Roles:
    """The ids of the special tokens by what they are for; None where a tokenizer has no such token."""

    pad: int | None
    unknown: int | None
    start: int | None
    end: int | None
    mask: int | None


def roles(find: Callable[[str], int | None]) -> Roles:
    """Find each role under its usual names."""

    def first(*names: str) -> int | None:
        return next((found for name in names if (found := find(name)) is not None), None)

    return Roles(
        pad=first("[PAD]", "<pad>"),
        unknown=first("[UNK]", "<unk>"),
        start=first("[CLS]", "<s>", ENDOFTEXT),
        end=first("[SEP]", "</s>", ENDOFTEXT),
        mask=first("[MASK]", "<mask>"),
    )
