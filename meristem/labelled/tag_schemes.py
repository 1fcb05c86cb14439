"""Entity tag schemes: detection of IOB1, BIO, BIOES, BILOU and BMES, and conversion to BIO."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

TAG_PATTERN = re.compile(r"([BIELMSUW])[-_](.+)", re.DOTALL)
END_MARKS = frozenset("ELSUW")
"""Prefixes of the last word of an entity."""
BEGIN_MARKS = frozenset("BSUW")

Tags = tuple[str, ...]


def are_entity_tags(tags: Iterable[str]) -> bool:
    """Whether tags mark entities: each is O or prefix-type, and at least one has a type."""
    entity_tags = set(tags) - {"O"}
    return bool(entity_tags) and all(map(TAG_PATTERN.fullmatch, entity_tags))


def detect_tag_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """The usual name of the scheme of these tags."""
    marks: set[str] = set()
    stray_inside = regular_begin = 0
    for tags in sentences:
        previous_type = ""
        for tag in tags:
            match = TAG_PATTERN.fullmatch(tag)
            entity_type = match[2] if match else ""
            if match:
                marks.add(match[1])
                stray_inside += match[1] == "I" and previous_type != entity_type
                regular_begin += match[1] == "B" and previous_type != entity_type
            previous_type = entity_type
    for scheme_marks, name in (("M", "BMES"), ("LU", "BILOU"), ("ES", "BIOES")):
        if marks & set(scheme_marks):
            return name
    if stray_inside and not regular_begin:
        return "IOB1"
    return "BIO" if not stray_inside else "BIO with entities that start with I"


def to_bio(tags: Sequence[str]) -> Tags:
    """The tags of one sentence in BIO: B at the first word of each entity, I at the others."""
    bio_tags = []
    open_type = ""  # the type of the current entity
    for tag in tags:
        match = TAG_PATTERN.fullmatch(tag)
        if match is None:
            bio_tags.append(tag)
            open_type = ""
            continue
        mark, entity_type = match.groups()
        bio_tags.append(f"{'B' if mark in BEGIN_MARKS or entity_type != open_type else 'I'}-{entity_type}")
        open_type = "" if mark in END_MARKS else entity_type
    return tuple(bio_tags)
