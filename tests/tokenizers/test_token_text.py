"""Human-readable token labels: they lose nothing of a text, and markers become the text they represent."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.tokenizers.token_bytes import ByteLevelSpelling, WordEndSpelling
from meristem.tokenizers.token_text import PARTIAL_CHARACTER, display_labels, token_texts
from meristem.tokenizers.tokenizer import Tokenizer


def join_labels(labels: list[str]) -> str:
    """Labels put together: pieces of one character count once, signs are spaces again."""
    out = ""
    for label in labels:
        inside = label.removeprefix(PARTIAL_CHARACTER)
        out += inside[1:] if label.startswith(PARTIAL_CHARACTER) else inside
        out = out.removesuffix(PARTIAL_CHARACTER)
    return out.replace("␣", " ").replace("⏎", "\n").replace("⇥", "\t")


def test_labels_give_the_text(trained: dict[str, Tokenizer]) -> None:
    text = "The old gardener planted 苹果树."
    labels_by_kind = {kind: tokenizer.display_labels(tokenizer.encode(text).ids) for kind, tokenizer in trained.items()}
    assert join_labels(labels_by_kind["bpe"]) == join_labels(labels_by_kind["characters"]) == text
    assert join_labels(labels_by_kind["unigram"]) == f" {text}"  # its words begin with a space, the first too
    assert "".join(label.removeprefix("##") for label in labels_by_kind["wordpiece"]) == text.replace(" ", "")
    unseen = trained["wordpiece"].display_labels(trained["wordpiece"].encode("gardenerer").ids)
    assert len(unseen) > 1 and all(label.startswith("##") for label in unseen[1:])
    assert labels_by_kind["words"][:2] == ["The", "old"]
    assert not any(mark in label for labels in labels_by_kind.values() for label in labels for mark in "Ġ▁ ")


def test_special_tokens_keep_their_names(tokenizer: Tokenizer) -> None:
    assert tokenizer.mask is not None
    labels = tokenizer.display_labels(tokenizer.encode("the [MASK] sat", special=True).ids)
    assert tokenizer.id_to_token(tokenizer.mask) in labels
    assert tokenizer.display_labels([]) == []


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="␣⏎⇥…\r\u3000"), max_size=12))
def test_bytes_become_the_characters_they_are_part_of(text: str) -> None:
    names = {byte: name for name, byte in ByteLevelSpelling()._byte_of_character.items()}
    labels = display_labels([names[byte] for byte in text.encode()], [False] * len(text.encode()), ByteLevelSpelling())
    assert join_labels(labels) == text
    assert all(len(label.strip(PARTIAL_CHARACTER)) == 1 for label in labels)


def test_a_character_in_pieces_is_shown_in_each() -> None:
    names = {byte: name for name, byte in ByteLevelSpelling()._byte_of_character.items()}
    head, tail = (
        "".join(names[byte] for byte in part_bytes) for part_bytes in ("a安".encode()[:2], "a安".encode()[2:])
    )
    assert display_labels([head, tail], [False, False], ByteLevelSpelling()) == ["a安…", "…安"]
    assert display_labels([head, "<s>"], [False, True], ByteLevelSpelling()) == [
        "a\ufffd",
        "<s>",
    ]  # what never ends is no character


def test_the_end_of_a_word_is_the_space_after_it() -> None:
    assert display_labels(["gar", "den</w>", ".</w>"], [False] * 3, WordEndSpelling()) == ["gar", "den␣", ".␣"]


def test_token_texts_have_no_markers(trained: dict[str, Tokenizer]) -> None:
    text = "The old gardener planted 苹果树."
    for kind, tokenizer in trained.items():
        ids = tokenizer.encode(text).ids
        pieces = tokenizer.token_texts(ids)
        assert not any(mark in piece for piece in pieces for mark in "Ġ▁␣"), kind
        assert join_labels(pieces).removeprefix(" ") == join_labels(tokenizer.display_labels(ids)).removeprefix(" ")
    bpe = trained["bpe"]
    spaced = next(number for number in range(bpe.vocab_size) if bpe.id_to_token(number).startswith("Ġt"))
    assert bpe.token_text(spaced) == " " + bpe.id_to_token(spaced)[1:]
    assert bpe.token_bytes(spaced) == bpe.token_text(spaced).encode()
    cut = next(number for number in range(bpe.vocab_size) if bpe.token_bytes(number) == b"\xe4")
    assert bpe.token_text(cut) == "bytes:\\xe4"
    assert (
        len({bpe.token_text(number) for number in range(bpe.vocab_size)}) == bpe.vocab_size
    )  # none is mistaken for another
    assert bpe.end is not None and bpe.token_text(bpe.end) == bpe.id_to_token(bpe.end)
    assert any(
        trained["wordpiece"].token_text(number).startswith("##") for number in range(trained["wordpiece"].vocab_size)
    )


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_pieces_by_table_are_those_of_the_whole_text(trained: dict[str, Tokenizer], text: str) -> None:
    for tokenizer in trained.values():
        ids = tokenizer.encode(text).ids.tolist()
        special = [bool(tokenizer.special_mask[number]) for number in ids]
        names = [tokenizer.id_to_token(number) for number in ids]
        assert tokenizer.token_texts(ids) == token_texts(names, special, tokenizer._spelling)
        assert [ids.tolist() for ids in tokenizer.ids_each([text, ""])] == [ids, []]
        assert tokenizer.count(text) == len(ids)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40), st.integers(0, 40))
def test_a_stream_after_a_text_goes_on_as_one_that_read_it(
    trained: dict[str, Tokenizer], text: str, split: int
) -> None:
    for tokenizer in trained.values():
        ids = tokenizer.encode(text).ids.tolist()
        full_decoder = tokenizer.stream_decoder()
        for token in ids[:split]:
            full_decoder.push(token)
        behind = tokenizer.stream_decoder(after=ids[:split])
        assert [behind.push(token) for token in ids[split:]] == [full_decoder.push(token) for token in ids[split:]]
        assert behind.finish() == full_decoder.finish()


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40), st.integers(1, 12))
def test_a_text_cut_to_a_limit_begins_as_the_whole(trained: dict[str, Tokenizer], text: str, limit: int) -> None:
    for tokenizer in trained.values():
        for special in (False, True):
            encoded = tokenizer.encode(text, special=special)
            cut = tokenizer.encode(text, special=special, max_tokens=limit)
            assert cut.ids.tolist() == encoded.ids[:limit].tolist()
            assert cut.offsets.tolist() == encoded.offsets[:limit].tolist()
            assert cut.left_out == max(0, len(encoded.ids) - limit)
