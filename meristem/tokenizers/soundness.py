"""What a tokenizer.json may ask for: ids that are its own, few steps, and patterns that end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from meristem.errors import MeristemError

HIGHEST = 1 << 24
"""Of all ids; the library walks through every number up to the highest."""
GAPS = 1 << 16
"""Ids that no token has, beside three for each token that there is."""
STEPS = 256
"""Normalisers, cuts and decoders together; published tokenizers have a dozen."""
PATTERN = 16_384
"""Characters of a pattern."""
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_PIECE = re.compile(r"\\[pPxk]\{[^}]*\}|\\.|\(\?[a-zA-Z<>!=:#-]*|[*+?]|\{\d*,?\d*\}|.", re.DOTALL)


def check(description: dict[str, Any], place: str) -> None:
    """Refuse what would cost time or memory without end, or give one id to two tokens."""
    _refuse_ids(description, place)
    steps = [one for part in PARTS for one in _inside(description.get(part))]
    if len(steps) > STEPS:
        raise MeristemError(f"{place}: {len(steps):,} steps to cut a text; no tokenizer has more than {STEPS}")
    for step in steps:
        pattern = step.get("Regex")
        if isinstance(pattern, str) and (len(pattern) > PATTERN or explodes(pattern)):
            shown = pattern if len(pattern) < 80 else f"{pattern[:80]}…"
            raise MeristemError(
                f"{place}: the pattern {shown!r} may take forever on some text: it repeats what repeats; "
                "write it without a repetition inside another"
            )


def check_unknown(description: dict[str, Any], place: str) -> None:
    """Refuse a vocabulary that has no token for what it does not know, and needs one."""
    model = description["model"]
    unknown, vocabulary = model.get("unk_token"), model.get("vocab")
    if model.get("type") in ("WordPiece", "WordLevel") and isinstance(vocabulary, dict) and unknown not in vocabulary:
        raise MeristemError(f"{place}: its unknown token {unknown!r:.60} is not in its vocabulary")


def _refuse_ids(description: dict[str, Any], place: str) -> None:
    vocabulary, added = description["model"].get("vocab"), description.get("added_tokens")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    ids = [number for number in ids if isinstance(number, int)]
    later = {token.get("content"): token.get("id") for token in added or () if isinstance(token, dict)}
    every = {*ids, *(number for number in later.values() if isinstance(number, int))}
    if (highest := max(every, default=0)) > HIGHEST or highest > 4 * len(every) + GAPS:
        raise MeristemError(f"{place}: its ids reach {highest}, and it has {len(every):,} tokens")
    if len(set(ids)) < len(ids) or len(set(map(str, later.values()))) < len(later):
        raise MeristemError(f"{place}: two of its tokens have the same id")


def _inside(node: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a part of the description that is a step or a pattern."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if "type" in one or "Regex" in one:
                yield one
            waiting += [value for key, value in one.items() if key != "special_tokens"]
        elif isinstance(one, list):
            waiting += one


def explodes(pattern: str) -> bool:
    """Whether a repeated group holds a repetition or a choice: matching may then try exponentially many ways."""
    varies, last = [False], False  # of each open group, and of what a repetition would repeat
    pieces = [match[0] for match in _PIECE.finditer(pattern)]
    at = 0
    while at < len(pieces):
        piece = pieces[at]
        if piece == "[":
            at, last = _class_end(pieces, at), False
        elif piece.startswith("("):
            varies.append(False)
        elif piece == ")" and len(varies) > 1:
            last = varies.pop()
            varies[-1] |= last
        elif piece == "|":
            varies[-1], last = True, False
        elif piece[0] in "*+?" or re.fullmatch(r"\{(\d+,?\d*|,\d+)\}", piece):
            if last and _many(piece):
                return True
            varies[-1] |= re.fullmatch(r"\{\d+\}", piece) is None
            at += pieces[at + 1 : at + 2] in (["?"], ["+"])  # lazy, or possessive
        else:
            last = False
        at += 1
    return False


def _many(piece: str) -> bool:
    """Whether a repetition may be long."""
    return piece in "*+" or (piece[0] == "{" and (piece.endswith(",}") or int(re.findall(r"\d+", piece)[-1]) > 8))


def _class_end(pieces: list[str], at: int) -> int:
    """Where the brackets close that open here; a class may hold others."""
    depth = 0
    for place in range(at, len(pieces)):
        depth += (pieces[place] == "[") - (pieces[place] == "]")
        if depth == 0:
            return place
    return len(pieces)
