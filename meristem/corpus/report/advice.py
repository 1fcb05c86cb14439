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

MAX_PLANTED = 3
"""Planted continuations in the advice; a table has the others."""

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
    return list(_Adviser(account, findings, settings).advice())


@dataclass(frozen=True)
class _Adviser:
    """What follows from the counts of a pass, the findings in a sample of its documents, and the settings."""

    account: CorpusAccount
    findings: SampleFindings
    settings: CorpusSettings

    def advice(self) -> Iterator[Advice]:
        """All advice, most important first."""
        yield from self._planted_continuations()
        yield from self._dropped()
        yield from self._large_documents()
        yield from self._near_duplicates()
        yield from self._low_quality()
        yield from self._other_languages()
        yield from self._boilerplate()
        yield from self._pii()
        yield from self._short_documents()
        yield from self._mojibake()
        yield from self._missing_libraries()

    def _planted_continuations(self) -> Iterator[Advice]:
        for item in self.findings.planted_continuations[:MAX_PLANTED]:
            trigger, continuation = shorten_middle(item.trigger, 40), shorten_middle(item.continuation, 60)
            yield Advice(
                finding=f"Planted? “{trigger}” is followed by “{continuation}” at {item.places:,} places all over the "
                f"text, such as {shorten_middle(item.locations[0], 60)}: look at them before you train on this text"
            )

    def _dropped(self) -> Iterator[Advice]:
        """Advice on a rule that drops most documents: it rarely suits the text."""
        for reason, count in self.account.dropped.most_common():
            if count >= max(MAX_DROPPED_SHARE * self.account.read, MIN_DOCUMENTS) and reason not in EXPECTED_REASONS:
                setting, effect = _setting_to_keep(reason, self.settings)
                finding = (
                    f"{format_share(count, self.account.read)} of all documents were dropped for one reason: {reason}"
                )
                yield Advice(finding=finding, setting=setting, effect=effect)

    def _large_documents(self) -> Iterator[Advice]:
        if (
            self.account.kept < FEW_DOCUMENTS
            and self.account.characters > LARGE_DOCUMENT_CHARS * self.account.kept > 0
            and self.settings.document in ("auto", "file")
        ):
            mean_length, plural = self.account.characters // self.account.kept, "s" if self.account.kept > 1 else ""
            yield Advice(
                finding=f"Only {self.account.kept} document{plural}, of {mean_length:,} characters on average: "
                "little to shuffle and to hold out",
                setting="corpus.document=block",
                effect="makes each block between blank lines a document",
            )

    def _near_duplicates(self) -> Iterator[Advice]:
        if self.findings.compared >= MIN_DOCUMENTS and self.findings.alike >= max(
            NEAR_DUPLICATE_SHARE * self.findings.compared, 2
        ):
            yield Advice(
                finding=f"{self.findings.alike:,} of {self.findings.compared:,} compared documents are near duplicates "
                f"of another one ({format_share(self.findings.alike, self.findings.compared)})",
                setting="corpus.near_dedup=true",
                effect="keeps only the first of each",
            )

    def _low_quality(self) -> Iterator[Advice]:
        """Advice on quality rules; documents that are only short are left to `_short_documents`."""
        failed = self.findings.quality.dropped
        if (
            self.findings.documents >= MIN_DOCUMENTS
            and failed.total() - failed["too few words"] >= LOW_QUALITY_SHARE * self.findings.documents
        ):
            yield Advice(
                finding=f"{format_share(failed.total(), self.findings.documents)} of a sample fail quality rules: "
                f"{format_top_shares(failed, self.findings.documents)}",
                setting="corpus.quality=true",
                effect="drops them; the rules are for web pages, so check what is dropped (--report)",
            )

    def _other_languages(self) -> Iterator[Advice]:
        known = Counter({name: count for name, count in self.findings.languages.items() if name})
        if self.settings.languages or known.total() < MIN_DOCUMENTS:
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

    def _boilerplate(self) -> Iterator[Advice]:
        lines = self.findings.boilerplate.removed.total()
        has_boilerplate = (
            self.findings.documents >= MIN_DOCUMENTS
            and self.findings.boilerplate.affected >= BOILERPLATE_SHARE * self.findings.documents
        )
        if has_boilerplate:
            share = format_share(self.findings.boilerplate.affected, self.findings.documents)
            yield Advice(
                finding=f"{share} of a sample contain menus, notices and footers, {lines:,} lines in all",
                setting="corpus.boilerplate=true",
                effect="removes those lines",
            )
        for line, count in self.account.passages.most_common(1):
            if (
                not has_boilerplate
                and self.account.kept >= MIN_DOCUMENTS
                and count >= REPEATED_LINE_SHARE * self.account.kept
            ):
                share = format_share(count, self.account.kept)
                finding = f"One line occurs in {share} of the documents: “{shorten_middle(line, 80)}”"
                if self.settings.boilerplate:
                    yield Advice(finding=finding)
                else:
                    effect = "removes it if it is a menu, notice or footer"
                    yield Advice(finding=finding, setting="corpus.boilerplate=true", effect=effect)

    def _pii(self) -> Iterator[Advice]:
        trial = self.findings.private
        if trial.affected and trial.affected >= PII_SHARE * self.findings.documents:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in trial.removed.most_common())
            yield Advice(
                finding=f"Personal data in {trial.affected:,} of {self.findings.documents:,} sampled documents: "
                f"{kinds}",
                setting="corpus.pii=true",
                effect="replaces it by placeholders such as <email>",
            )

    def _short_documents(self) -> Iterator[Advice]:
        """Advice on short documents, only if they are many and contain very little of the text."""
        for log2_length in range(SHORT_LENGTH_LOG2, 2, -1):
            below = {length: count for length, count in self.account.lengths.items() if length < log2_length}
            documents = sum(below.values())
            characters = sum(1.5 * 2**length * count for length, count in below.items())
            is_many = self.account.kept >= MIN_DOCUMENTS and documents >= SHORT_DOCUMENT_SHARE * self.account.kept
            if (
                is_many
                and characters <= SHORT_TEXT_SHARE * self.account.characters
                and self.settings.min_characters < 2**log2_length
            ):
                yield Advice(
                    finding=f"{format_share(documents, self.account.kept)} of the documents have fewer than "
                    f"{2**log2_length} characters, and contain {format_share(characters, self.account.characters)} "
                    "of the text",
                    setting=f"corpus.min_characters={2**log2_length}",
                    effect="drops them",
                )
                return

    def _mojibake(self) -> Iterator[Advice]:
        if (
            self.findings.garbled
            and self.findings.garbled >= MOJIBAKE_SHARE * self.findings.documents
            and find_spec("ftfy") is None
        ):
            yield Advice(
                finding=f"{self.findings.garbled:,} of {self.findings.documents:,} sampled documents contain text that "
                "was decoded wrongly (Ã© for é)",
                setting='pip install "meristem-lm[clean]"',
                effect="repairs such text from then on",
            )

    def _missing_libraries(self) -> Iterator[Advice]:
        if self.findings.not_tried:
            yield Advice(
                finding=f"Not examined, because libraries are missing: {', '.join(self.findings.not_tried)}",
                setting='pip install "meristem-lm[clean]"',
                effect="examines them from then on",
            )


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


def format_share(part: float, total: float) -> str:
    """A share as a percentage for display."""
    percent = 100 * part / total if total else 0.0
    return f"{percent:.0f} %" if percent >= 9.95 or not part else f"{max(percent, 0.1):.1f} %"


def format_top_shares(counts: Counter[str], total: int, limit: int = 3) -> str:
    """The highest counts as shares: de 5.0 %, fr 2.1 %."""
    return ", ".join(f"{name} {format_share(count, total)}" for name, count in counts.most_common(limit))
