"""Text cleaning steps."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.corpus.clean import cleaning
from meristem.corpus.clean.cleaning import cleaning_steps
from meristem.corpus.document import Document, Drop
from meristem.corpus.settings import CorpusSettings

LINE = cleaning_steps(CorpusSettings())


def cleaned(text: str, line=LINE) -> str | Drop:
    item: Document | Drop = Document(text, "f:1")
    for step in line:
        if isinstance(item, Drop):
            return item
        item = step(item)
    return item if isinstance(item, Drop) else item.text


@pytest.mark.parametrize(
    ("raw", "clear"),
    [
        ("plain text", "plain text"),
        ("nul\0 bell\x07 delete\x7f", "nul bell delete"),
        ("c1\x80\x9f mark\ufeff half\ud800 none\uffff", "c1 mark half none"),
        ("tab\tstays\nand newlines", "tab\tstays\nand newlines"),
        ("a\r\nb\rc\x0bd\x0ce\x85f\u2028g\u2029h", "a\nb\nc\nd\ne\nf\ng\nh"),
        ("cafe\u0301", "café"),
        ("  around  \n", "around"),
        ("end \nof\t\nlines\u3000\nhere\xa0\nand \t there", "end\nof\nlines\nhere\nand \t there"),
        ("family 👨‍👩‍👧 and می‌خواهم", "family 👨‍👩‍👧 and می‌خواهم"),
        ("春眠不觉晓，\n处处闻啼鸟。", "春眠不觉晓，\n处处闻啼鸟。"),
        ("un cafÃ© trÃ¨s sucrÃ©", "un café très sucré"),
        ("donâ€™t", "don’t"),
        ("São João, Ângela, Ñandú, ÁRVORE", "São João, Ângela, Ñandú, ÁRVORE"),
    ],
)
def test_cleaning(raw, clear):
    assert cleaned(raw) == clear


@pytest.mark.parametrize("text", ["白日依山尽，黄河入海流。", "Съешь же ещё этих мягких булок", "“Elle était là”"])
def test_text_decoded_wrongly_is_mended(text):
    import ftfy  # noqa: F401  # knows the codec that is lenient the way old programs are

    assert cleaned(text.encode().decode("sloppy-windows-1252")) == text


def test_what_is_left_empty_or_short_is_dropped():
    assert cleaned(" \n\t ") == Drop("empty")
    assert cleaned("\0\ufeff") == Drop("empty")
    assert cleaned("four", cleaning_steps(CorpusSettings(min_characters=5))) == Drop("too short")
    assert cleaned("fiver", cleaning_steps(CorpusSettings(min_characters=5))) == "fiver"


def test_an_untouched_document_is_the_same_object():
    for text in ("plain text\nof two lines", "白日依山尽", "café"):
        document = Document(text, "f:1")
        assert all(step(document) is document for step in LINE)


def test_without_ftfy_garbled_text_is_left_alone(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ftfy", None)
    cleaning._load_ftfy.cache_clear()
    try:
        assert cleaned("cafÃ©") == "cafÃ©"
    finally:
        cleaning._load_ftfy.cache_clear()


@given(st.text(alphabet=st.characters(codec=None), max_size=60))
def test_any_text_comes_out_storable_and_stays_as_it_is(text):
    cleaned_once = cleaned(text)
    if isinstance(cleaned_once, Drop):
        assert cleaned_once.reason == "empty"
    else:
        assert cleaned_once.encode() and unicodedata.is_normalized("NFC", cleaned_once)
        assert "\r" not in cleaned_once and "\0" not in cleaned_once and cleaned_once == cleaned_once.strip()


def test_long_runs_of_spaces_take_no_time():
    text = "x" + " " * 900_000 + "y\n" + " " * 90_000 + "z"
    assert cleaned(text) == text
