"""Schemes in which entities are written word by word, and all of them as BIO."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MARKED = re.compile(r"([BIELMSUW])[-_](.+)", re.DOTALL)
ENDS = frozenset("ELSUW")
"""Marks after which an entity is over."""
BEGINS = frozenset("BSUW")

Tags = tuple[str, ...]


def entities(tags: Iterable[str]) -> bool:
    """Whether tags mark entities: each is O or a mark with a type, and one at least has a type."""
    kinds = set(tags) - {"O"}
    return bool(kinds) and all(map(MARKED.fullmatch, kinds))


def scheme(sentences: Iterable[Sequence[str]]) -> str:
    """What people call the scheme of these tags."""
    marks: set[str] = set()
    stray = plain = 0
    for tags in sentences:
        before = ""
        for tag in tags:
            found = MARKED.fullmatch(tag)
            kind = found[2] if found else ""
            if found:
                marks.add(found[1])
                stray += found[1] == "I" and before != kind
                plain += found[1] == "B" and before != kind
            before = kind
    for signs, name in (("M", "BMES"), ("LU", "BILOU"), ("ES", "BIOES")):
        if marks & set(signs):
            return name
    if stray and not plain:
        return "IOB1"
    return "BIO" if not stray else "BIO with entities that begin with I"


def bio(tags: Sequence[str]) -> Tags:
    """One sentence's tags with B at the first word of every entity and I at its others."""
    out = []
    before = ""  # the type of the entity that is open
    for tag in tags:
        found = MARKED.fullmatch(tag)
        if found is None:
            out.append(tag)
            before = ""
            continue
        mark, kind = found.groups()
        out.append(f"{'B' if mark in BEGINS or kind != before else 'I'}-{kind}")
        before = "" if mark in ENDS else kind
    return tuple(out)
