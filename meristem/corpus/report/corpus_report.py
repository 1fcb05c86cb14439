"""The contents of a corpus report, for the terminal, the HTML page and JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.clean.language_id import KNOWN_LANGUAGES
from meristem.corpus.report.advice import Advice, format_share, make_advice
from meristem.corpus.report.planted_continuations import PlantedContinuation
from meristem.corpus.report.sample_trial import SampleFindings, SettingTrial
from meristem.corpus.report.token_count import TokenCount
from meristem.corpus.settings import CorpusSettings
from meristem.utils import untrusted_files

MIN_TAIL_SHARE = 0.005
"""Minimum share of documents for the shortest and longest length bins to be shown separately."""

ADVICE_UNKNOWN_SHARE = 0.05
"""Share of unknown tokens from which advice is given."""

UNKNOWN_LANGUAGE, OTHER_LANGUAGE_PREFIX = "unknown", "another language: "


@dataclass(frozen=True)
class LengthBin:
    """Documents in a range of lengths."""

    label: str
    """Start of the range: 512, 1k, 64k."""
    range_label: str
    """The range: 512 to 1,023."""
    count: int


@dataclass(frozen=True, kw_only=True)
class CorpusReport:
    """The counts of a pass, and the findings from a sample of its documents."""

    account: CorpusAccount
    findings: SampleFindings
    settings: CorpusSettings
    tokens: TokenCount | None = None
    """Token counts of the kept documents, if a tokenizer was given."""

    @cached_property
    def advice(self) -> list[Advice]:
        """Advice for the user."""
        items = make_advice(self.account, self.findings, self.settings)
        tokens = self.tokens
        if tokens is not None and tokens.unknown_share > ADVICE_UNKNOWN_SHARE:
            problem = f"{format_share(tokens.unknown, tokens.tokens)} of the tokens are unknown to {tokens.tokenizer}"
            effect = "trains a tokenizer on this text and copies the rows of shared tokens"
            finding = f"{problem}: it was trained on other text"
            items.insert(0, Advice(finding=finding, setting="from.tokenizer=own", effect=effect))
        return items

    @property
    def languages(self) -> Counter[str]:
        """Documents by language: identified ones, including those dropped for their language, or else the sample's."""
        counts: Counter[str] = Counter()
        for name, count in (self.account.languages if self.has_all_languages else self.findings.languages).items():
            counts[name or UNKNOWN_LANGUAGE] += count
        for reason, count in self.account.dropped.items():
            name = reason.removeprefix(OTHER_LANGUAGE_PREFIX)
            if name != reason:
                counts[name if name in KNOWN_LANGUAGES else UNKNOWN_LANGUAGE] += count
        return counts

    @property
    def has_all_languages(self) -> bool:
        """Whether the language of all documents was identified."""
        return any(self.account.languages) or self.settings.languages is not None

    @property
    def lengths(self) -> list[LengthBin]:
        """Kept documents by length, each bin twice as long as the previous one; sparse bins at the ends are merged."""
        counts = self.account.lengths
        if not counts:
            return []
        low, high = min(counts), max(counts)
        min_count = MIN_TAIL_SHARE * counts.total()
        first, last = low, high
        while first < last and sum(counts[power] for power in range(low, first + 1)) < min_count:
            first += 1
        while last > first and sum(counts[power] for power in range(last, high + 1)) < min_count:
            last -= 1
        bars = []
        for power in range(first, last + 1):
            powers = range(low if power == first else power, (high if power == last else power) + 1)
            range_label = f"{2 ** powers[0]:,} to {2 ** (powers[-1] + 1) - 1:,}"
            label = f"<{_format_power(power + 1)}" if powers[0] < power else _format_power(power)
            label = f"≥{label}" if powers[-1] > power else label
            bars.append(LengthBin(label, range_label, sum(counts[log2_length] for log2_length in powers)))
        return bars


def report_to_dict(report: CorpusReport) -> dict[str, Any]:
    """The report as a dictionary: counts, findings of the sample, advice, settings."""
    return {
        **report.account.to_dict(),
        "sample": _counters_to_dict(report.findings),
        "advice": [asdict(item) for item in report.advice],
        **({} if report.tokens is None else {"tokens": asdict(report.tokens)}),
        "settings": report.settings.model_dump(mode="json"),
    }


def report_to_json(report: CorpusReport) -> str:
    """`report_to_dict` as one line of JSON; unencodable characters are replaced."""
    return untrusted_files.to_json(report_to_dict(report)).encode("utf-8", "replace").decode("utf-8")


def _counters_to_dict(findings: SampleFindings | SettingTrial) -> dict[str, Any]:
    """Fields by name, with counters as dictionaries; `dataclasses.asdict` would count their items again."""

    def plain(value: Any) -> Any:
        if isinstance(value, SettingTrial):
            return _counters_to_dict(value)
        if isinstance(value, list | tuple):
            return [asdict(item) if isinstance(item, PlantedContinuation) else item for item in value]
        return dict(value) if isinstance(value, Counter) else value

    return {name: plain(value) for name, value in vars(findings).items()}


def _format_power(power: int) -> str:
    """512, 1k, 64k, 1M for powers of two."""
    for step, unit in ((20, "M"), (10, "k")):
        if power >= step:
            return f"{2 ** (power - step)}{unit}"
    return str(2**power)
