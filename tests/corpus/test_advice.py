"""Advice of the corpus report."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from meristem.config.overrides import apply_overrides
from meristem.config.validation import build_settings
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.clean import quality_filters
from meristem.corpus.report import advice as module
from meristem.corpus.report.advice import Advice, format_share, make_advice
from meristem.corpus.report.sample_trial import SampleFindings, SettingTrial
from meristem.corpus.settings import CorpusSettings

LINE = "We use cookies to give you the best experience on our website."


def account(**counts: Any) -> CorpusAccount:
    account = CorpusAccount(read=1000, kept=1000, characters=2_000_000)
    account.lengths.update({10: 500, 11: 500})
    for name, value in counts.items():
        setattr(account, name, value)
    return account


def advise(
    findings: SampleFindings | None = None, counts: CorpusAccount | None = None, **settings: Any
) -> list[Advice]:
    return make_advice(
        counts or account(), findings or SampleFindings(documents=1000), CorpusSettings(source="x.txt", **settings)
    )


def test_nothing_stands_out_in_an_ordinary_corpus() -> None:
    findings = SampleFindings(
        documents=1000,
        languages=Counter(en=980, de=10, **{"": 10}),
        compared=1000,
        alike=5,
        quality=SettingTrial(affected=320, dropped=Counter({"too few words": 300, "lorem ipsum": 20})),
        boilerplate=SettingTrial(affected=5, removed=Counter({"boilerplate lines": 9})),
    )
    assert advise(findings) == []


@pytest.mark.parametrize(
    ("findings", "setting", "message"),
    [
        (
            SampleFindings(documents=1000, compared=1000, alike=52),
            "corpus.near_dedup=true",
            "52 of 1,000 compared documents",
        ),
        (
            SampleFindings(documents=1000, languages=Counter(en=900, de=70, fr=30)),
            "corpus.languages=[en]",
            "10 % of a sample are not in en: de 7.0 %, fr 3.0 %",
        ),
        (
            SampleFindings(
                documents=500, quality=SettingTrial(dropped=Counter({"too few words": 60, "lorem ipsum": 25}))
            ),
            "corpus.quality=true",
            "17 % of a sample fail quality rules: too few words 12 %, lorem ipsum 5.0 %",
        ),
        (
            SampleFindings(
                documents=1000, boilerplate=SettingTrial(affected=40, removed=Counter({"boilerplate lines": 90}))
            ),
            "corpus.boilerplate=true",
            "4.0 % of a sample contain menus, notices and footers, 90 lines in all",
        ),
        (
            SampleFindings(
                documents=1000, private=SettingTrial(affected=2, removed=Counter({"phone": 1, "e-mail": 3}))
            ),
            "corpus.pii=true",
            "in 2 of 1,000 sampled documents: e-mail 3, phone 1",
        ),
    ],
)
def test_what_a_sample_shows_becomes_a_setting(findings: SampleFindings, setting: str, message: str) -> None:
    (advice,) = advise(findings)
    assert advice.setting == setting
    assert message in advice.finding
    assert advice.effect


def test_a_line_in_many_documents() -> None:
    (advice,) = advise(counts=account(passages=Counter({LINE: 31})))
    assert advice.setting == "corpus.boilerplate=true"
    assert f"3.1 % of the documents: “{LINE}”" in advice.finding
    assert advise(counts=account(passages=Counter({LINE: 29}))) == []
    (advice,) = advise(counts=account(passages=Counter({LINE: 31})), boilerplate=True)
    assert advice.setting == ""


def test_many_short_documents_that_hold_little() -> None:
    (advice,) = advise(counts=account(lengths=Counter({4: 100, 5: 200, 11: 700})))
    assert advice.setting == "corpus.min_characters=128"
    assert "30 % of the documents have fewer than 128 characters, and contain 0.6 % of the text" in advice.finding
    assert advise(counts=account(lengths=Counter({4: 100, 5: 200, 11: 700})), min_characters=128) == []
    lines = account(characters=60_000, lengths=Counter({4: 100, 5: 900}))  # a corpus of short lines is meant so
    assert advise(counts=lines) == []


def test_one_reason_that_drops_most() -> None:
    counts = account(kept=100, dropped=Counter({"another language: de": 800, "empty": 100}))
    (advice,) = advise(counts=counts, languages=("en",))
    assert (advice.setting, "80 %" in advice.finding) == ("corpus.languages=[en,de]", True)
    counts = account(kept=100, dropped=Counter({"too short": 900}))
    assert advise(counts=counts, min_characters=400)[0].setting == "corpus.min_characters=100"
    counts = account(kept=100, dropped=Counter({"too few words": 900}))
    assert advise(counts=counts, quality=True)[0].setting == "corpus.quality.min_words=null"
    counts = account(kept=100, dropped=Counter({"repeated lines": 900}))
    assert advise(counts=counts, quality=True)[0].setting == "corpus.quality=false"
    counts = account(kept=100, dropped=Counter({"another language: not clear": 900}))
    assert advise(counts=counts, quality=True, languages=("en",))[0].setting == ""
    assert advise(counts=account(kept=100, dropped=Counter({"duplicate": 900}))) == []


def test_rules_that_are_named_exist() -> None:
    source = Path(quality_filters.__file__).read_text(encoding="utf-8")
    for reason, rule in module.RULE_SETTINGS.items():
        assert f'"{reason}"' in source
        assert build_settings(
            CorpusSettings, apply_overrides({"corpus": {}}, [f"corpus.quality.{rule}=null"])["corpus"], "corpus"
        )


def test_a_few_huge_documents() -> None:
    (advice,) = advise(counts=account(read=3, kept=3, characters=3_000_000, lengths=Counter({19: 3})))
    assert advice.setting == "corpus.document=block"
    assert "Only 3 documents, of 1,000,000 characters" in advice.finding


def test_wrongly_decoded_text_where_nothing_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    (advice,) = advise(SampleFindings(documents=1000, garbled=7))
    assert advice.setting == 'pip install "meristem-lm[clean]"'
    monkeypatch.setattr(module, "find_spec", lambda _: object())
    assert advise(SampleFindings(documents=1000, garbled=7)) == []


def test_what_was_not_examined_for_want_of_a_library() -> None:
    (advice,) = advise(SampleFindings(documents=1000, not_tried=("personal data",)))
    assert advice.setting == 'pip install "meristem-lm[clean]"' and "personal data" in advice.finding


def test_nothing_is_said_about_a_handful_of_documents() -> None:
    small_account = account(read=5, kept=5, characters=500, lengths=Counter({4: 4, 8: 1}), passages=Counter({LINE: 5}))
    findings = SampleFindings(
        documents=5,
        languages=Counter(en=3, de=2),
        compared=5,
        alike=1,
        quality=SettingTrial(dropped=Counter({"too few words": 4})),
        boilerplate=SettingTrial(affected=3),
    )
    assert advise(findings, small_account) == []


@pytest.mark.parametrize(
    ("part", "total", "formatted"),
    [
        (0, 10, "0 %"),
        (1, 100_000, "0.1 %"),
        (1, 100, "1.0 %"),
        (999, 10_000, "10 %"),
        (10, 10, "100 %"),
        (0, 0, "0 %"),
    ],
)
def test_shares(part: int, total: int, formatted: str) -> None:
    assert format_share(part, total) == formatted
