"""Texts in their frames: one and two of them, for every way a backbone reads."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers.processors import TemplateProcessing

from meristem.errors import MeristemError
from meristem.store.letters import LETTERS, TEXT_BEGINS, TEXT_ENDS
from meristem.tasks._reader import MARKS, Framed, Reader, marked
from meristem.tokenizers import reading
from meristem.tokenizers.tokenizer import Tokenizer


def framed(reader: Reader, *texts: str) -> Framed:
    return reader.frame(*reader.encode(texts))


def named(reader: Reader, row: Framed, part: str = "tokens") -> str:
    return " ".join(reader.tokenizer.token(int(token)) for token in row.inputs[part])


def with_template(tokenizer: Tokenizer, single: str, pair: str) -> Tokenizer:
    """As a published tokenizer.json brings a frame of its own."""
    library = reading.library(tokenizer.text, "tokenizer.json")
    special = [(name, tokenizer.id(name)) for name in ("[CLS]", "[SEP]")]
    library.post_processor = TemplateProcessing(single, pair, special)
    return Tokenizer(library.to_str())


def test_an_encoder_reads_as_bert_does(tokenizer: Tokenizer) -> None:
    reader = Reader(tokenizer, "bidirectional", 32)
    one, two = framed(reader, "the tree"), framed(reader, "the tree", "a tree .")
    assert named(reader, one).split()[0] == "[CLS]" and named(reader, one).split()[-1] == "[SEP]"
    assert (one.starts, one.summary) == ((1,), 0)
    words = named(reader, two).split()
    assert [n for n, word in enumerate(words) if word == "[SEP]"] == [two.starts[1] - 1, len(words) - 1]
    assert two.inputs["segments"].tolist() == [0] * two.starts[1] + [1] * (len(words) - two.starts[1])


@pytest.mark.parametrize(("single", "pair", "expected", "summary"), [
    ("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]", "[CLS] A [SEP] [SEP] B [SEP]", 0),  # RoBERTa
    ("$A [SEP] [CLS]", "$A [SEP] $B:1 [SEP]:1 [CLS]:2", "A [SEP] B [SEP] [CLS]", -1),  # XLNet
])  # fmt: skip
def test_a_frame_that_a_tokenizer_brings_is_used(
    tokenizer: Tokenizer, single: str, pair: str, expected: str, summary: int
) -> None:
    reader = Reader(with_template(tokenizer, single, pair), "bidirectional", 32)
    row = framed(reader, "the", "tree")
    assert named(reader, row) == expected.replace("A", "the").replace("B", "tree")
    assert row.summary == summary % len(row.inputs["tokens"])
    kinds = row.inputs["segments"]
    assert kinds[row.starts[0]] == 0 and kinds[row.starts[1]] == int(":1" in pair)


def test_a_causal_model_reads_between_three_new_marks(tokenizer: Tokenizer) -> None:
    own = marked(tokenizer)
    assert own.size == tokenizer.size + 3
    assert [own.id(mark) for mark in MARKS] == [tokenizer.size, tokenizer.size + 1, tokenizer.size + 2]
    reader = Reader(own, "causal", 32)
    start, delimiter, extract = MARKS
    assert named(reader, framed(reader, "the tree")) == f"{start} the tree {extract}"
    row = framed(reader, "the tree", "a tree")
    assert named(reader, row) == f"{start} the tree {delimiter} a tree {extract}"
    assert row.summary == len(row.inputs["tokens"]) - 1 and "segments" not in row.inputs
    assert (own.start, own.end, own.pad, own.mask) == (tokenizer.start, tokenizer.end, tokenizer.pad, tokenizer.mask)
    assert own.encode(f"{start} x").ids.tolist()[0] != own.id(start)  # written in a text it is only letters


def test_both_sides_of_a_decoder_read_the_text(tokenizer: Tokenizer) -> None:
    reader = Reader(tokenizer, "encoder_decoder", 32, begin=(3, 2))
    row = framed(reader, "the old tree")
    source, tokens = row.inputs["source"], row.inputs["tokens"]
    assert tokens.tolist() == [3, *source.tolist()[:-1]]  # moved by one, as BART reads, however its targets begin
    assert row.summary == len(tokens) - 1


def test_letters_are_those_of_the_text_and_not_of_the_vocabulary(tokenizer: Tokenizer) -> None:
    reader = Reader(tokenizer, "both_directions", 32)
    row = framed(reader, "the Zyx", "né")
    letters = row.inputs["characters"]
    assert letters.shape == (len(row.inputs["tokens"]), LETTERS)
    unknown = row.starts[0] + 1
    assert row.inputs["tokens"][unknown] == tokenizer.unknown
    assert bytes(letters[unknown][1:4].astype(np.uint8)) == b"Zyx"
    assert bytes(letters[row.starts[1]][1:4].astype(np.uint8)) == "né".encode()
    assert letters[0][1] == TEXT_BEGINS and letters[-1][1] == TEXT_ENDS


@pytest.mark.parametrize("way", ["bidirectional", "causal", "encoder_decoder"])
def test_what_fits_fills_the_row_exactly(tokenizer: Tokenizer, way: str) -> None:
    reader = Reader(marked(tokenizer) if way == "causal" else tokenizer, way, 12)  # type: ignore[arg-type]  # one of the ways
    (text,) = reader.encode(["the old tree sold a tree " * 9])
    one = reader.frame(text.cut(0, reader.room()))
    two = reader.frame(text.cut(0, 2), text.cut(2, reader.room(2)))
    assert len(one.inputs["tokens"]) == len(two.inputs["tokens"]) == 12


def test_a_row_without_room_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(MeristemError, match="leaves no room for text beside 3 special tokens"):
        Reader(tokenizer, "bidirectional", 3).room(2)
