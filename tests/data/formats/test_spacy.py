"""spaCy's DocBin, written here in its layout; tests/integrations compares with files that spaCy writes."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from meristem.config.errors import MeristemError
from meristem.data.formats.spacy import BEGIN, ENT_IOB, ENT_TYPE, INSIDE, ORTH, OUTSIDE
from meristem.data.murmur_hash import hash_text
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings

WORDS = [("Ada", BEGIN, "PER"), ("Lovelace", INSIDE, "PER"), ("sailed", OUTSIDE, ""), (".", OUTSIDE, "")]


def doc_bin(**changes: Any) -> bytes:
    rows = [[mark, hash_text(kind), hash_text(word)] for word, mark, kind in WORDS]
    content = {
        "version": "0.1",
        "attrs": [ENT_IOB, ENT_TYPE, ORTH],
        "tokens": np.array(rows, np.uint64).tobytes(),
        "spaces": np.array([True, True, False, False]).tobytes(),
        "lengths": np.array([4], np.int32).tobytes(),
        "strings": ["Ada", "Lovelace", "sailed", ".", "PER"],
        "cats": [{"good": 1.0, "bad": 0.0}],
        "flags": [{"has_unknown_spaces": False}],
    }
    return zlib.compress(msgpack.packb({**content, **changes}))


def test_hashes_are_those_of_spacy() -> None:
    # spaCy's documentation: nlp.vocab.strings["coffee"] and ["I"]
    assert (hash_text("coffee"), hash_text("I"), hash_text("")) == (3197928453018144401, 4690420944186131903, 0)


def test_words_entities_and_categories(tmp_path: Path) -> None:
    (tmp_path / "a.spacy").write_bytes(doc_bin())
    (sample,) = load_samples(str(tmp_path / "a.spacy"), DataSettings(), "words")
    assert sample.gold == ("B-PER", "I-PER", "O", "O")
    assert sample.inputs["text"] == "Ada Lovelace sailed."
    (text,) = load_samples(str(tmp_path / "a.spacy"), DataSettings(), "text")
    assert text.gold == "good"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"plain text", "is not a DocBin"),
        (zlib.compress(b"\xc1"), "is not a DocBin"),
        (zlib.compress(msgpack.packb([1, 2])), "not a DocBin of spaCy 3"),
        (doc_bin(lengths=np.array([9], np.int32).tobytes()), "not as long as its tokens"),
        (doc_bin(spaces=b""), "not a space for each token"),
        (doc_bin(strings=["Ada"]), "#1: its string store lacks the text of"),
        (zlib.compress(b"\0" * (64 << 20)), "unpacks to more than 100 times its size"),
    ],
)
def test_damaged_and_hostile_files_are_one_sentence(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.spacy").write_bytes(content)
    with pytest.raises(MeristemError, match=reason) as error:
        load_samples(str(tmp_path / "a.spacy"), DataSettings(), "words")
    assert "a.spacy" in str(error.value)
