import pytest
import tokenizers as library

from meristem.tokenizers.spelling import Bytes, Joined, Marked, Spaced, Stream


def write(spelling, tokens):
    stream = Stream(spelling, tokens, frozenset())
    return "".join(map(stream.push, range(len(tokens)))) + stream.finish()


@pytest.mark.parametrize(("tokens", "text"), [
    (["un", "##afford", "##able", "!", "Yes", "?"], "unaffordable! Yes?"),
    (["don", "'", "t", ",", "he", "said", "."], "don't, he said."),
    (["你", "好", "，", "世", "界", "。"], "你好，世界。"),
    (["在", "GitHub", "上", "see", "2", "boats"], "在GitHub上see 2 boats"),
    (["##", "1"], "## 1"),
])
def test_spaced(tokens, text):
    assert write(Spaced(), tokens) == text


def test_spaced_agrees_with_berts_decoder_on_english():
    tokens = ["The", "old", "garden", "##er", "was", "there", ",", "was", "he", "?", "(", "No", "!", ")", "-", "."]
    assert write(Spaced(), tokens) == library.decoders.WordPiece().decode(tokens)


def test_every_byte_has_its_character():
    spelling = Bytes()
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    assert sorted(spelling.spell(character, None) for character in alphabet) == [bytes([byte]) for byte in range(256)]
    assert write(spelling, ["Ġthe", "Ċ", "ä½", "ł"]) == " the\n你"
    assert write(spelling, ["<｜end｜>"]) == "<｜end｜>"


def test_marked():
    assert write(Marked(), ["▁The", "▁old", "er", "▁", "<0xE4>", "<0xBD>", "<0xA0>"]) == "The older 你"
    assert write(Joined(), list("a b\n")) == "a b\n"
