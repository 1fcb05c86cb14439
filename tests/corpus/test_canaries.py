"""Canaries: drawn by seed, planted into the training split only, counted apart, and no change where there are none."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from meristem.config.errors import MeristemError
from meristem.corpus.canaries.planting import canary_record, draw_canaries, read_canaries
from meristem.corpus.canaries.settings import CanarySettings
from meristem.corpus.canaries.templates import TEMPLATE_SETS, CanaryTemplate
from meristem.corpus.paired_text import PAIR_SEPARATOR
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_keys import corpus_digest
from meristem.dataset import prepare
from meristem.dataset.readable_canaries import check_readable_canaries
from meristem.dataset.settings import DatasetSettings
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.train import train_tokenizer

QUIET = Console(quiet=True)
CANARIES = {"repeats": [1, 5], "per_repeat": 3}
TEXT = "builtin:microworld-en?size=200"


def read(**settings):
    reader = CorpusReader(CorpusSettings.model_validate({"source": TEXT, "processes": 1, **settings}))
    return list(reader), reader.account


@pytest.mark.parametrize("language", TEMPLATE_SETS)
def test_drawn_texts_fit_their_templates_and_are_different(language):
    canaries = draw_canaries(CanarySettings.model_validate({"formats": language, "per_repeat": 40}))
    assert Counter(canary.repeats for canary in canaries) == dict.fromkeys((1, 4, 16, 64, 256), 40)
    assert len({canary.text for canary in canaries}) == len(canaries) == 200
    assert {canary.format for canary in canaries} == set(TEMPLATE_SETS[language])
    for canary in canaries:
        assert canary.text == canary.prefix + canary.secret
        assert canary.secret and "{" not in canary.text


def test_the_number_of_texts_of_a_template():
    assert CanaryTemplate("{digits:6} {letters:2} {hex:1}").space_size == 10**6 * 26**2 * 16
    assert CanaryTemplate("{name}").space_size == CanaryTemplate("密码 {name}").space_size == 64 * 64


def test_digits_are_equally_likely():
    template = CanaryTemplate("code {digits:4}")
    settings = CanarySettings(formats=(template.format,), repeats=(1,), per_repeat=1000)
    digits = Counter("".join(canary.secret for canary in draw_canaries(settings)))
    expected = sum(digits.values()) / 10
    chi_squared = sum((digits[digit] - expected) ** 2 / expected for digit in "0123456789")
    assert len(digits) == 10 and chi_squared < 33.7  # 9 degrees of freedom: p = 1e-4


def test_only_the_training_split_changes():
    plain, plain_account = read()
    planted, account = read(canaries=CANARIES)
    texts = Counter(canary.text for canary in draw_canaries(CanarySettings(**CANARIES)) for _ in range(canary.repeats))
    assert account.planted == texts.total() == 18
    assert Counter(document.text for document in planted if document.text in texts) == texts
    assert {document.split for document in planted if document.text in texts} == {"train"}
    assert [document for document in planted if document.text not in texts] == plain
    account.planted = 0
    assert account == plain_account


def test_copies_stand_apart_at_places_that_follow_from_the_seed():
    texts = {seed: [document.text for document in read(canaries={**CANARIES, "seed": seed})[0]] for seed in (0, 1)}
    assert texts[0] == [document.text for document in read(canaries=CANARIES)[0]]
    places = {
        seed: [
            index
            for index, text in enumerate(seed_texts)
            if text in {canary.text for canary in draw_canaries(CanarySettings(**CANARIES, seed=seed))}
        ]
        for seed, seed_texts in texts.items()
    }
    assert places[0] != places[1]
    assert min(places[0]) < 60 and max(places[0]) > 140  # spread over all documents
    assert sum(after - before == 1 for before, after in zip(places[0], places[0][1:], strict=False)) < 6


def test_the_account_says_so_and_nothing_else_does(tmp_path, read_corpus):
    _, account = read(canaries=CANARIES)
    assert "18 canaries planted" in account.summary()
    assert account.to_dict()["planted"] == 18
    _, plain = read()
    assert "planted" not in plain.to_dict() and "canaries" not in plain.summary()


def test_keys_change_only_with_canaries():
    plain = CorpusSettings(source=TEXT)
    planted = CorpusSettings.model_validate({"source": TEXT, "canaries": True})
    assert "canaries" not in plain.cache_key_fields()
    assert corpus_digest(plain) == corpus_digest(planted.without_canaries) != corpus_digest(planted)


def build(settings, tokenizer=None):
    corpus = CorpusSettings.model_validate({"processes": 1, **settings})
    tokenizer = tokenizer or prepare.prepare_tokenizer(TokenizerSettings(kind="bpe", vocab_size=400), [corpus], QUIET)
    return tokenizer, prepare.prepare_dataset(corpus, tokenizer, DatasetSettings(), keep_words=False, console=QUIET)


def test_the_tokenizer_never_reads_canaries_and_the_shards_do():
    plain_tokenizer, plain = build({"source": TEXT})
    tokenizer, planted = build({"source": TEXT, "canaries": CANARIES})
    assert tokenizer.digest == plain_tokenizer.digest
    assert planted.cache_key != plain.cache_key
    assert planted.dataset.split("train").documents == plain.dataset.split("train").documents + 18
    for split in ("validation", "test"):
        assert planted.dataset.split(split).documents == plain.dataset.split(split).documents
    assert build({"source": TEXT, "canaries": CANARIES})[1].cache_key == planted.cache_key


def test_a_corpus_that_grows_is_built_again_with_its_canaries(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "MAX_QUOTA_DOCUMENTS", 2)  # large enough to be appended to, were it not for canaries
    for name in ("a", "b"):
        text = "\n\n".join(f"{name} document {number} about the number {number * 7}" for number in range(40))
        (tmp_path / f"{name}.txt").write_text(text)
        if name == "a":
            settings = {"source": str(tmp_path), "document": "block", "near_dedup": True, "canaries": CANARIES}
            tokenizer, first = build(settings)
    _, second = build(settings, tokenizer)
    assert second.dataset.split("train").documents > first.dataset.split("train").documents
    decoded = Counter(
        tokenizer.decode(stream.tokens(span.start, span.text_stop).tolist())
        for stream in [second.dataset.split("train")]
        for span in map(stream.document, range(stream.documents))
    )
    for canary in draw_canaries(CanarySettings(**CANARIES)):
        assert decoded[canary.text] == canary.repeats


def test_in_pairs_the_text_before_the_secret_is_the_source():
    planted, account = read(source="builtin:microworld-pairs?size=60", canaries=CANARIES)
    documents = [document for document in planted if document.location == "(canary)"]
    assert len(documents) == account.planted == 18
    secrets = {canary.prefix.strip(): canary.secret for canary in draw_canaries(CanarySettings(**CANARIES))}
    for document in documents:
        source, target = document.text.split(PAIR_SEPARATOR)
        assert secrets[source] == target


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"formats": "code {digit:6}"}, "is not a placeholder"),
        ({"formats": "code {digits:99}"}, "up to 32"),
        ({"formats": "code {digits:2}"}, "100 different texts"),
        ({"formats": "no placeholder"}, "0 different texts"),
        ({"formats": []}, "at least one template"),
        ({"repeats": [0, 4]}, "from 1 to"),
        ({"repeats": [4, 4]}, "different numbers"),
        ({"repeats": []}, "different numbers"),
        ({"per_repeat": 0}, "greater than or equal to 1"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        CorpusSettings.model_validate({"source": TEXT, "canaries": settings})


def test_secrets_without_tokens_are_refused_before_training():
    letters = CanarySettings(formats=("the code of anna is {letters:4}",))
    digits = CanarySettings(formats=("the code of anna is {digits:4}",))
    letters_of_text = np.random.default_rng(0).choice(list("abcdefghijklmnopqrstuvwxyz"), (300, 6))
    texts = ["the code of anna is " + "".join(word) for word in letters_of_text]
    pieces = train_tokenizer(TokenizerSettings(kind="wordpiece", vocab_size=120), texts)
    check_readable_canaries(letters, pieces)
    with pytest.raises(MeristemError, match=r"\{digits:4\}.*tokenizer.kind=bpe"):
        check_readable_canaries(digits, pieces)
    with pytest.raises(MeristemError, match="whole words"):
        check_readable_canaries(letters, train_tokenizer(TokenizerSettings(kind="words", vocab_size=64), texts))
    check_readable_canaries(digits, train_tokenizer(TokenizerSettings(kind="bpe", vocab_size=300), texts))


def test_documents_that_cannot_hold_canaries_are_refused():
    with pytest.raises(ValueError, match="has an image"):
        CorpusSettings.model_validate({"source": "builtin:microworld-pictures", "canaries": True})
    with pytest.raises(ValueError, match="source of the pair"):
        CorpusSettings.model_validate(
            {"source": "builtin:microworld-pairs", "canaries": {"formats": "{letters:8} is my secret"}}
        )


def test_a_record_is_read_as_it_was_written(tmp_path):
    settings = CanarySettings(**CANARIES)
    path = tmp_path / "canaries.json"
    path.write_text(canary_record({"main": settings, "other": settings}), encoding="utf-8")
    canaries = read_canaries(path)
    assert [canary.text for canary in canaries] == [canary.text for canary in draw_canaries(settings)]
    assert {canary.sources for canary in canaries} == {("main", "other")}
    assert all(math.log2(canary.space_size) > 20 for canary in canaries)


@pytest.mark.parametrize(
    "change",
    [
        {"prefix": "Another"},
        {"repeats": 0},
        {"repeats": "many"},
        {"text": 5},
        {"format": "nothing"},
        {"sources": [3]},
        {"repeats": None},
    ],
)
def test_a_changed_record_is_refused_with_its_name(tmp_path: Path, change):
    record = json.loads(canary_record({"main": CanarySettings(**CANARIES)}))
    record["canaries"][1] |= change
    path = tmp_path / "canaries.json"
    path.write_text(json.dumps(record))
    with pytest.raises(MeristemError, match=r"canaries.json: not a record of canaries"):
        read_canaries(path)
