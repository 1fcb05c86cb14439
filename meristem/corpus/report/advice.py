"""Advice on a corpus: each piece follows from a measured number and names the setting to change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.clean.language_id import KNOWN_LANGUAGES
from meristem.corpus.report.sample_trial import SampleFindings
from meristem.corpus.settings import CorpusSettings
from meristem.drawing.html_page import shorten_middle

MIN_DOCUMENTS = 20
"""Minimum number of documents for a share to mean anything."""

(
    NEAR_DUPLICATE_SHARE,
    LOW_QUALITY_SHARE,
    OTHER_LANGUAGE_SHARE,
    BOILERPLATE_SHARE,
    REPEATED_LINE_SHARE,
    PII_SHARE,
    MOJIBAKE_SHARE,
) = 0.02, 0.05, 0.03, 0.02, 0.03, 0.001, 0.002
"""Shares of documents from which an issue is reported."""

SHORT_DOCUMENT_SHARE, SHORT_TEXT_SHARE, SHORT_LENGTH_LOG2 = 0.2, 0.02, 7
"""Many documents with little of the text, and the log2 of the length up to which documents are short."""

MAIN_LANGUAGE_SHARE, MAX_DROPPED_SHARE = 0.5, 0.3
"""Minimum share of a corpus's main language; maximum share of documents that one rule should drop."""

LARGE_DOCUMENT_CHARS, FEW_DOCUMENTS = 200_000, 100
"""Mean characters of documents that should have been split, and the number of documents that counts as few."""


EXPECTED_REASONS = ("duplicate", "near duplicate", "over the limit", "in the other half", "empty")
"""Reasons that may drop many documents without anything being wrong."""

RULE_SETTINGS = {
    "too few words": "min_words",
    "too many words": "max_words",
    "words too short": "min_mean_word_length",
    "words too long": "max_mean_word_length",
    "too few sentences": "sentences",
    "too many bullet lines": "bullet_lines",
    "too many ellipsis lines": "ellipsis_lines",
    "too few lines end a sentence": "ended_lines",
    "too many short lines": "short_lines",
    "too many line breaks": "line_breaks",
    "too few words with letters": "letter_words",
    "too few stop words": "stop_words",
    "curly brackets": "curly_brackets",
    "lorem ipsum": "lorem_ipsum",
    "javascript notice": "javascript",
}
"""Reasons that belong to exactly one quality rule."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """An issue, and the setting that addresses it."""

    finding: str
    setting: str = ""
    effect: str = ""
    """What the setting does."""


def make_advice(account: CorpusAccount, findings: SampleFindings, settings: CorpusSettings) -> list[Advice]:
    """All advice, most important first; empty if there is none."""
    advisers = (
        _advise_dropped,
        _advise_large_documents,
        _advise_near_duplicates,
        _advise_low_quality,
        _advise_other_languages,
        _advise_boilerplate,
        _advise_pii,
        _advise_short_documents,
        _advise_mojibake,
        _advise_missing_libraries,
    )
    return [item for advise in advisers for item in advise(account, findings, settings)]


def format_share(part: float, total: float) -> str:
    """A share as a percentage for display."""
    percent = 100 * part / total if total else 0.0
    return f"{percent:.0f} %" if percent >= 9.95 or not part else f"{max(percent, 0.1):.1f} %"


def format_top_shares(counts: Counter[str], total: int, limit: int = 3) -> str:
    """The highest counts as shares: de 5.0 %, fr 2.1 %."""
    return ", ".join(f"{name} {format_share(count, total)}" for name, count in counts.most_common(limit))


def _advise_dropped(account: CorpusAccount, findings: SampleFindings, settings: CorpusSettings) -> Iterator[Advice]:
    """Advice on a rule that drops most documents: it rarely suits the text."""
    for reason, count in account.dropped.most_common():
        if count >= max(MAX_DROPPED_SHARE * account.read, MIN_DOCUMENTS) and reason not in EXPECTED_REASONS:
            setting, effect = _setting_to_keep(reason, settings)
            finding = f"{format_share(count, account.read)} of all documents were dropped for one reason: {reason}"
            yield Advice(finding=finding, setting=setting, effect=effect)


def _setting_to_keep(reason: str, settings: CorpusSettings) -> tuple[str, str]:
    """The setting that keeps documents dropped for a reason, and its effect; empty strings if there is none."""
    language = reason.removeprefix("another language: ")
    if language != reason and language in KNOWN_LANGUAGES:
        return f"corpus.languages=[{','.join([*(settings.languages or ()), language])}]", f"keeps {language} as well"
    if reason == "too short":
        return f"corpus.min_characters={max(settings.min_characters // 4, 1)}", "keeps shorter documents"
    if settings.quality and reason in RULE_SETTINGS:
        return f"corpus.quality.{RULE_SETTINGS[reason]}=null", "turns that rule off; or set another limit"
    return ("corpus.quality=false", "keeps them") if settings.quality and language == reason else ("", "")


def _advise_large_documents(
    account: CorpusAccount, findings: SampleFindings, settings: CorpusSettings
) -> Iterator[Advice]:
    if (
        account.kept < FEW_DOCUMENTS
        and account.characters > LARGE_DOCUMENT_CHARS * account.kept > 0
        and settings.document in ("auto", "file")
    ):
        mean_length, plural = account.characters // account.kept, "s" if account.kept > 1 else ""
        yield Advice(
            finding=f"Only {account.kept} document{plural}, of {mean_length:,} characters on average: "
            "little to shuffle and to hold out",
            setting="corpus.document=block",
            effect="makes each block between blank lines a document",
        )


def _advise_near_duplicates(
    account: CorpusAccount, findings: SampleFindings, settings: CorpusSettings
) -> Iterator[Advice]:
    if findings.compared >= MIN_DOCUMENTS and findings.alike >= max(NEAR_DUPLICATE_SHARE * findings.compared, 2):
        yield Advice(
            finding=f"{findings.alike:,} of {findings.compared:,} compared documents are near duplicates of "
            f"another one ({format_share(findings.alike, findings.compared)})",
            setting="corpus.near_dedup=true",
            effect="keeps only the first of each",
        )


def _advise_low_quality(account: CorpusAccount, findings: SampleFindings, settings: CorpusSettings) -> Iterator[Advice]:
    """Advice on quality rules; documents that are only short are left to `_advise_short_documents`."""
    failed = findings.quality.dropped
    if (
        findings.documents >= MIN_DOCUMENTS
        and failed.total() - failed["too few words"] >= LOW_QUALITY_SHARE * findings.documents
    ):
        yield Advice(
            finding=f"{format_share(failed.total(), findings.documents)} of a sample fail quality rules: "
            f"{format_top_shares(failed, findings.documents)}",
            setting="corpus.quality=true",
            effect="drops them; the rules are for web pages, so check what is dropped (--report)",
        )


def _advise_other_languages(
    account: CorpusAccount, findings: SampleFindings, settings: CorpusSettings
) -> Iterator[Advice]:
    known = Counter({name: count for name, count in findings.languages.items() if name})
    if settings.languages or known.total() < MIN_DOCUMENTS:
        return
    ((main, count),) = known.most_common(1)
    others = known.total() - count
    if count >= MAIN_LANGUAGE_SHARE * known.total() and others >= OTHER_LANGUAGE_SHARE * known.total():
        del known[main]
        yield Advice(
            finding=f"{format_share(others, others + count)} of a sample are not in {main}: "
            f"{format_top_shares(known, others + count)}",
            setting=f"corpus.languages=[{main}]",
            effect=f"keeps only {main}",
        )


def _advise_boilerplate(account: CorpusAccount, findings: SampleFindings, settings: CorpusSettings) -> Iterator[Advice]:
    lines = findings.boilerplate.removed.total()
    has_boilerplate = (
        findings.documents >= MIN_DOCUMENTS and findings.boilerplate.affected >= BOILERPLATE_SHARE * findings.documents
    )
    if has_boilerplate:
        yield Advice(
            finding=f"{format_share(findings.boilerplate.affected, findings.documents)} of a sample contain menus, "
            f"notices and footers, {lines:,} lines in all",
            setting="corpus.boilerplate=true",
            effect="removes those lines",
        )
    for line, count in account.passages.most_common(1):
        if not has_boilerplate and account.kept >= MIN_DOCUMENTS and count >= REPEATED_LINE_SHARE * account.kept:
            yield Advice(
                finding=f"One line occurs in {format_share(count, account.kept)} of the documents: "
                f"“{shorten_middle(line, 80)}”",
                **(
                    {}
                    if settings.boilerplate
                    else {
                        "setting": "corpus.boilerplate=true",
                        "effect": "removes it if it is a menu, notice or footer",
                    }
                ),
            )


def _advise_pii(account: CorpusAccount, findings: SampleFindings, settings: CorpusSettings) -> Iterator[Advice]:
    trial = findings.private
    if trial.affected and trial.affected >= PII_SHARE * findings.documents:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in trial.removed.most_common())
        yield Advice(
            finding=f"Personal data in {trial.affected:,} of {findings.documents:,} sampled documents: {kinds}",
            setting="corpus.pii=true",
            effect="replaces it by placeholders such as <email>",
        )


def _advise_short_documents(
    account: CorpusAccount, findings: SampleFindings, settings: CorpusSettings
) -> Iterator[Advice]:
    """Advice on short documents, only if they are many and contain very little of the text."""
    for log2_length in range(SHORT_LENGTH_LOG2, 2, -1):
        below = {length: count for length, count in account.lengths.items() if length < log2_length}
        documents = sum(below.values())
        characters = sum(1.5 * 2**length * count for length, count in below.items())
        is_many = account.kept >= MIN_DOCUMENTS and documents >= SHORT_DOCUMENT_SHARE * account.kept
        if is_many and characters <= SHORT_TEXT_SHARE * account.characters and settings.min_characters < 2**log2_length:
            yield Advice(
                finding=f"{format_share(documents, account.kept)} of the documents have fewer than "
                f"{2**log2_length} characters, and contain {format_share(characters, account.characters)} of the text",
                setting=f"corpus.min_characters={2**log2_length}",
                effect="drops them",
            )
            return


def _advise_mojibake(account: CorpusAccount, findings: SampleFindings, settings: CorpusSettings) -> Iterator[Advice]:
    if findings.garbled and findings.garbled >= MOJIBAKE_SHARE * findings.documents and find_spec("ftfy") is None:
        yield Advice(
            finding=f"{findings.garbled:,} of {findings.documents:,} sampled documents contain text that was decoded "
            "wrongly (Ã© for é)",
            setting='pip install "meristem-lm[clean]"',
            effect="repairs such text from then on",
        )


def _advise_missing_libraries(
    account: CorpusAccount, findings: SampleFindings, settings: CorpusSettings
) -> Iterator[Advice]:
    if findings.not_tried:
        yield Advice(
            finding=f"Not examined, because libraries are missing: {', '.join(findings.not_tried)}",
            setting='pip install "meristem-lm[clean]"',
            effect="examines them from then on",
        )
