"""Language identification."""

import json
from collections import Counter
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.config.errors import MeristemError, RecipeError
from meristem.config.validation import build_settings
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.clean.language_id import KNOWN_LANGUAGES, identify_language, language_step
from meristem.corpus.clean.word_split import STOP_WORDS
from meristem.corpus.document import Document, Drop
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings

GOLDEN = [
    line.split("\t")
    for line in (Path(__file__).parents[1] / "golden" / "languages.tsv").read_text(encoding="utf-8").splitlines()
]


def test_single_sentences_are_told_apart():
    right = Counter(language for language, text in GOLDEN if identify_language(text).language == language)
    counts = Counter(identify_language(text).language for _, text in GOLDEN)
    total = Counter(language for language, _ in GOLDEN)
    assert min(total.values()) >= 10
    assert right.total() >= 0.99 * total.total()
    assert all(right[language] >= 9 for language in total)  # none is bought by the others
    wrong = sum(counts[language] - right[language] for language in counts if language)
    assert wrong <= 0.01 * total.total()  # where it is not sure, it says so


@pytest.mark.parametrize("language", sorted({language for language, _ in GOLDEN}))
def test_a_paragraph_is_enough(language):
    text = " ".join(text for code, text in GOLDEN if code == language)
    assert identify_language(text).language == language
    assert 0.5 < identify_language(text).probability <= 1.0


@pytest.mark.parametrize("text", ["", " ", "12345", "!?", "xyzzy", "OK", "ABC-123", "qwrt zxcv", "🙂🙂🙂"])
def test_nothing_is_said_where_nothing_is_clear(text):
    assert identify_language(text).language == ""


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The word 春 means spring, and 夏 means summer, and they are on the wall of the house.", "en"),
        ("我们用 Python 和 PyTorch 来训练模型，效果很好。", "zh"),
        ("彼はParisに行きました。", "ja"),
        ("Слово house означает дом, и это все знают.", "ru"),
    ],
)
def test_a_few_foreign_words_change_nothing(text, language):
    assert identify_language(text).language == language


def test_the_middle_of_a_long_text_counts_too():
    english, german = ([text for code, text in GOLDEN if code == language] for language in ("en", "de"))
    assert identify_language("\n".join(english[:4] + german * 20)).language == "de"


def test_documents_learn_their_language_and_others_are_dropped():
    english, german = Document(GOLDEN[0][1], "f:1"), Document("Das ist nicht der Hund, den wir gesehen haben.", "f:2")
    note = language_step(None)
    assert note(english).language == "en" and note(german).language == "de"
    assert note(note(english)) == note(english)
    only = language_step(("en", "zh"))
    assert only(english).language == "en"
    assert only(german) == Drop("another language: de")
    assert only(Document("12345", "f:3")) == Drop("another language: not clear")


@given(st.text(max_size=200))
def test_any_text_has_an_answer(text):
    identified = identify_language(text)
    assert identified.language in KNOWN_LANGUAGES | {""} and 0.0 <= identified.probability <= 1.0


def test_three_words_are_mostly_enough_and_seldom_wrong():
    short = [(language, " ".join(text.split()[:3])) for language, text in GOLDEN if language not in ("zh", "ja", "th")]
    answers = [identify_language(text).language for _, text in short]
    assert sum(answer == language for answer, (language, _) in zip(answers, short, strict=True)) >= 0.8 * len(short)
    assert sum(answer not in ("", code) for answer, (code, _) in zip(answers, short, strict=True)) <= 0.03 * len(short)


@pytest.mark.parametrize(
    ("text", "language"),
    [("你好", "zh"), ("こんにちは", "ja"), ("안녕하세요", "ko"), ("東京へ行く", "ja"), ("สวัสดี", "th")],
)
def test_a_few_characters_of_a_script_are_enough(text, language):
    assert identify_language(text).language == language


def test_answers_do_not_depend_on_other_users_of_the_library():
    import py3langid

    py3langid.set_languages(["fr", "it"])
    try:
        assert identify_language(GOLDEN[0][1]).language == "en"
    finally:
        py3langid.set_languages(None)


def test_another_version_of_the_library_makes_other_documents(monkeypatch):
    plain, filtered = CorpusSettings(source="a.txt"), CorpusSettings(source="a.txt", languages=("en",))
    before = plain.cache_key_fields(), filtered.cache_key_fields()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "99.0")
    assert plain.cache_key_fields() == before[0]
    assert filtered.cache_key_fields() != before[1]


def test_without_the_library_the_extra_is_named(monkeypatch):
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    with pytest.raises(MeristemError, match=r'needs py3langid: pip install "meristem-lm\[clean\]"'):
        CorpusSettings(source="a.txt", quality=True).cache_key_fields()


def test_stop_words_are_of_known_languages():
    assert STOP_WORDS.keys() <= KNOWN_LANGUAGES
    assert all(len(words) >= 16 for words in STOP_WORDS.values() if words is not STOP_WORDS["en"])


def test_settings_take_one_or_several_known_codes():
    def codes(value):
        return build_settings(CorpusSettings, {"languages": value}, "corpus").languages

    assert codes("en") == ("en",) and codes(["en", "zh"]) == ("en", "zh") and codes(None) is None
    assert codes([False, "sv"]) == ("no", "sv")  # YAML reads `no` as a switch
    with pytest.raises(RecipeError, match="did you mean en"):
        codes("eng")
    with pytest.raises(RecipeError, match=r"\[no\] for Norwegian"):
        codes(False)


def test_the_account_of_a_corpus_of_several_languages(read_corpus, tmp_path: Path, monkeypatch):
    for name in ("a", "b"):
        lines = [json.dumps({"text": f"{text} {name}"}) for language, text in GOLDEN if language in ("en", "de", "zh")]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr("meristem.corpus.pipeline.MIN_POOL_BYTES", 1)
    single_documents, single_account = read_corpus(tmp_path, languages=["en", "zh"], processes=1)
    parallel_documents, parallel_account = read_corpus(tmp_path, languages=["en", "zh"], processes=2)
    assert single_account.languages == {"en": 20, "zh": 20} and single_account.dropped == {"another language: de": 20}
    assert single_documents == parallel_documents and single_account == parallel_account


def test_both_sides_of_a_pair_must_be_wanted(read_corpus, tmp_path: Path):
    texts_by_language = [
        [text for language, text in GOLDEN if language == wanted_language] for wanted_language in ("en", "de")
    ]
    lines = [json.dumps({"en": a, "de": b}) for a, b in zip(*texts_by_language, strict=True)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))

    def account(*languages: str) -> CorpusAccount:
        settings = CorpusSettings(source=str(tmp_path / "pairs.jsonl"), text="en", target="de", languages=languages)
        corpus_reader = CorpusReader(settings)
        assert len(list(corpus_reader)) == 10
        return corpus_reader.account

    assert account("en", "de", "fr").languages == {"en-de": 10}
    with pytest.raises(MeristemError, match="another language: de"):
        account("en")
