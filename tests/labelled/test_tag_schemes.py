"""Tag schemes: every scheme of entity tags is converted to BIO, and plain tags are unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.labelled.tag_schemes import are_entity_tags, detect_tag_scheme, to_bio

SENTENCE = [("PER", 2), ("PER", 1), ("", 1), ("LOC", 3), ("", 2), ("ORG", 1), ("LOC", 1)]
"""Entities and gaps by type and length: neighbours of one type, of two types, and alone."""


def tag_sentence(spans: list[tuple[str, int]], kind: str) -> list[str]:
    out: list[str] = []
    before = ""
    for name, size in spans:
        if not name:
            out += ["O"] * size
        elif kind == "IOB1":
            out += [f"{'B' if before == name else 'I'}-{name}", *[f"I-{name}"] * (size - 1)]
        else:
            single_mark, first, inner, last = {
                "BIO": ("B", "B", "I", "I"),
                "BIOES": ("S", "B", "I", "E"),
                "BILOU": ("U", "B", "I", "L"),
                "BMES": ("S", "B", "M", "E"),
            }[kind]
            marks = [single_mark] if size == 1 else [first, *[inner] * (size - 2), last]
            out += [f"{mark}-{name}" for mark in marks]
        before = name
    return out


@pytest.mark.parametrize("kind", ["BIO", "IOB1", "BIOES", "BILOU", "BMES"])
def test_every_scheme_becomes_bio(kind):
    tags = tag_sentence(SENTENCE, kind)
    assert are_entity_tags(tags)
    assert detect_tag_scheme([tags]) == kind
    assert list(to_bio(tags)) == tag_sentence(SENTENCE, "BIO")


spans = st.lists(st.tuples(st.sampled_from(["", "A", "B-C"]), st.integers(1, 4)), max_size=8)


@given(spans=spans, kind=st.sampled_from(["BIO", "IOB1", "BIOES", "BILOU", "BMES"]))
def test_any_sentence_in_any_scheme(spans, kind):
    assert list(to_bio(tag_sentence(spans, kind))) == tag_sentence(spans, "BIO")
    assert to_bio(to_bio(tag_sentence(spans, kind))) == to_bio(tag_sentence(spans, kind))


def test_plain_tags_are_no_entities():
    assert not are_entity_tags(["NOUN", "PRP$", "-LRB-", "O"])
    assert not are_entity_tags(["O", "O"])
    assert not are_entity_tags(["B-PER", "VERB"])
    assert are_entity_tags(["B_PER", "O"]) and to_bio(["I_PER", "I_PER"]) == ("B-PER", "I-PER")


def test_after_its_end_an_entity_begins_anew():
    assert to_bio(["B-X", "E-X", "I-X", "S-X", "L-X"]) == ("B-X", "I-X", "B-X", "B-X", "B-X")
