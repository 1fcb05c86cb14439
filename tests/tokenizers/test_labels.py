"""Tokens as a person reads them: nothing of a text is lost, and every mark is what it stands for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.tokenizers.labels import SPLIT, labels, pieces
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


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_pieces_by_table_are_those_of_the_whole_text(trained: dict[str, Tokenizer], text: str) -> None:
    for tokenizer in trained.values():
        ids = tokenizer.encode(text).ids.tolist()
        special = [bool(tokenizer.specials[number]) for number in ids]
        names = [tokenizer.token(number) for number in ids]
        assert tokenizer.pieces(ids) == pieces(names, special, tokenizer._spelling)
        assert [one.tolist() for one in tokenizer.ids_each([text, ""])] == [ids, []]
        assert tokenizer.count(text) == len(ids)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40), st.integers(0, 40))
def test_a_stream_after_a_text_goes_on_as_one_that_read_it(trained: dict[str, Tokenizer], text: str, at: int) -> None:
    for tokenizer in trained.values():
        ids = tokenizer.encode(text).ids.tolist()
        whole = tokenizer.stream()
        for token in ids[:at]:
            whole.push(token)
        behind = tokenizer.stream(after=ids[:at])
        assert [behind.push(token) for token in ids[at:]] == [whole.push(token) for token in ids[at:]]
        assert behind.finish() == whole.finish()


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40), st.integers(1, 12))
def test_a_text_cut_to_a_limit_begins_as_the_whole(trained: dict[str, Tokenizer], text: str, limit: int) -> None:
    for tokenizer in trained.values():
        for special in (False, True):
            whole = tokenizer.encode(text, special=special)
            cut = tokenizer.encode(text, special=special, limit=limit)
            assert cut.ids.tolist() == whole.ids[:limit].tolist()
            assert cut.offsets.tolist() == whole.offsets[:limit].tolist()
            assert cut.left_out == max(0, len(whole.ids) - limit)
