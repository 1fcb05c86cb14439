"""Tokens as a person reads them: nothing of a text is lost, and every mark is what it stands for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.tokenizers.labels import SPLIT, labels
from meristem.tokenizers.spelling import Bytes, Closed
from meristem.tokenizers.tokenizer import Tokenizer


def read(found: list[str]) -> str:
    """Labels put together: pieces of one character count once, signs are spaces again."""
    out = ""
    for label in found:
        inside = label.removeprefix(SPLIT)
        out += inside[1:] if label.startswith(SPLIT) else inside
        out = out.removesuffix(SPLIT)
    return out.replace("␣", " ").replace("⏎", "\n").replace("⇥", "\t")


def test_labels_read_as_the_text(trained: dict[str, Tokenizer]) -> None:
    text = "The old gardener planted 苹果树."
    found = {kind: tokenizer.labels(tokenizer.encode(text).ids) for kind, tokenizer in trained.items()}
    assert read(found["bpe"]) == read(found["characters"]) == text
    assert read(found["unigram"]) == f" {text}"  # its words begin with a space, the first too
    assert "".join(label.removeprefix("##") for label in found["wordpiece"]) == text.replace(" ", "")
    unseen = trained["wordpiece"].labels(trained["wordpiece"].encode("gardenerer").ids)
    assert len(unseen) > 1 and all(label.startswith("##") for label in unseen[1:])
    assert found["words"][:2] == ["The", "old"]
    assert not any(mark in label for some in found.values() for label in some for mark in "Ġ▁ ")


def test_special_tokens_keep_their_names(tokenizer: Tokenizer) -> None:
    assert tokenizer.mask is not None
    found = tokenizer.labels(tokenizer.encode("the [MASK] sat", special=True).ids)
    assert tokenizer.token(tokenizer.mask) in found
    assert tokenizer.labels([]) == []


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="␣⏎⇥…\r\u3000"), max_size=12))
def test_bytes_become_the_characters_they_are_part_of(text: str) -> None:
    names = {byte: name for name, byte in Bytes()._byte.items()}
    found = labels([names[byte] for byte in text.encode()], [False] * len(text.encode()), Bytes())
    assert read(found) == text
    assert all(len(label.strip(SPLIT)) == 1 for label in found)


def test_a_character_in_pieces_is_shown_in_each() -> None:
    names = {byte: name for name, byte in Bytes()._byte.items()}
    head, tail = ("".join(names[byte] for byte in some) for some in ("a安".encode()[:2], "a安".encode()[2:]))
    assert labels([head, tail], [False, False], Bytes()) == ["a安…", "…安"]
    assert labels([head, "<s>"], [False, True], Bytes()) == ["a\ufffd", "<s>"]  # what never ends is no character


def test_the_end_of_a_word_is_the_space_after_it() -> None:
    assert labels(["gar", "den</w>", ".</w>"], [False] * 3, Closed()) == ["gar", "den␣", ".␣"]


def test_pieces_are_text_and_never_marks(trained: dict[str, Tokenizer]) -> None:
    text = "The old gardener planted 苹果树."
    for kind, tokenizer in trained.items():
        ids = tokenizer.encode(text).ids
        pieces = tokenizer.pieces(ids)
        assert not any(mark in piece for piece in pieces for mark in "Ġ▁␣"), kind
        assert read(pieces).removeprefix(" ") == read(tokenizer.labels(ids)).removeprefix(" ")
    bpe = trained["bpe"]
    spaced = next(number for number in range(bpe.size) if bpe.token(number).startswith("Ġt"))
    assert bpe.piece(spaced) == " " + bpe.token(spaced)[1:]
    assert bpe.piece_bytes(spaced) == bpe.piece(spaced).encode()
    cut = next(number for number in range(bpe.size) if bpe.piece_bytes(number) == b"\xe4")
    assert bpe.piece(cut) == "bytes:\\xe4"
    assert len({bpe.piece(number) for number in range(bpe.size)}) == bpe.size  # none is mistaken for another
    assert bpe.end is not None and bpe.piece(bpe.end) == bpe.token(bpe.end)
    assert any(trained["wordpiece"].piece(number).startswith("##") for number in range(trained["wordpiece"].size))
