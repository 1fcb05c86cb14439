"""Everything a report on a corpus tells, for the terminal, the page and programs alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from meristem import bounded
from meristem.corpus.account import Account
from meristem.corpus.advice import Advice, advice, share
from meristem.corpus.languages import KNOWN
from meristem.corpus.look import Looked, Trial
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.tokens import TokenCount

TAIL = 0.005
"""Documents, as a share, that the shortest and the longest lengths must hold to have a bar of their own."""

MANY_UNKNOWN = 0.05
"""Share of unknown tokens from which a person is advised."""

UNKNOWN, ANOTHER = "unknown", "another language: "


@dataclass(frozen=True)
class Bar:
    """Documents of like length."""

    label: str
    """Where they begin: 512, 1k, 64k."""
    span: str
    """In words: 512 to 1,023."""
    count: int


@dataclass(frozen=True, kw_only=True)
class CorpusReport:
    """What was read, what became of it, and what a look at a sample of it found."""

    account: Account
    looked: Looked
    settings: CorpusSettings
    tokens: TokenCount | None = None
    """What a tokenizer makes of the kept documents, where one was given."""

    @cached_property
    def advice(self) -> list[Advice]:
        """What a person could do."""
        found = advice(self.account, self.looked, self.settings)
        tokens = self.tokens
        if tokens is not None and tokens.unknown_share > MANY_UNKNOWN:
            what = f"{share(tokens.unknown, tokens.tokens)} of the tokens are unknown to {tokens.tokenizer}"
            effect = "trains a tokenizer for this text and copies the rows of tokens that both know"
            line = f"{what}: it was made for other text"
            found.insert(0, Advice(finding=line, setting="from.tokenizer=own", effect=effect))
        return found

    @property
    def languages(self) -> Counter[str]:
        """Documents by language: those it was asked of, the ones dropped for theirs among them, or else the sample."""
        found: Counter[str] = Counter()
        for name, count in (self.account.languages if self.asked_all else self.looked.languages).items():
            found[name or UNKNOWN] += count
        for reason, count in self.account.dropped.items():
            name = reason.removeprefix(ANOTHER)
            if name != reason:
                found[name if name in KNOWN else UNKNOWN] += count
        return found

    @property
    def asked_all(self) -> bool:
        """Whether the language of documents was asked for."""
        return any(self.account.languages) or self.settings.languages is not None

    @property
    def lengths(self) -> list[Bar]:
        """Kept documents by length, each bar twice as long as the one before; thin ends are drawn together."""
        counts = self.account.lengths
        if not counts:
            return []
        low, high = min(counts), max(counts)
        most = TAIL * counts.total()
        first, last = low, high
        while first < last and sum(counts[power] for power in range(low, first + 1)) < most:
            first += 1
        while last > first and sum(counts[power] for power in range(last, high + 1)) < most:
            last -= 1
        bars = []
        for power in range(first, last + 1):
            inside = range(low if power == first else power, (high if power == last else power) + 1)
            span = f"{2 ** inside[0]:,} to {2 ** (inside[-1] + 1) - 1:,}"
            label = f"<{_brief(power + 1)}" if inside[0] < power else _brief(power)
            bars.append(Bar(f"≥{label}" if inside[-1] > power else label, span, sum(counts[one] for one in inside)))
        return bars


def plain(report: CorpusReport) -> dict[str, Any]:
    """The same facts for programs: the account, what the sample holds, the advice, the settings."""
    return {
        **report.account.plain(),
        "sample": _counted(report.looked),
        "advice": [asdict(one) for one in report.advice],
        **({} if report.tokens is None else {"tokens": asdict(report.tokens)}),
        "settings": report.settings.model_dump(mode="json"),
    }


def as_json(report: CorpusReport) -> str:
    """`plain` in one line; characters that no encoding has are replaced."""
    return bounded.to_json(plain(report)).encode("utf-8", "replace").decode("utf-8")


def _counted(found: Looked | Trial) -> dict[str, Any]:
    """Fields by name, with counters as plain mappings, which `dataclasses.asdict` would count anew."""
    return {
        name: _counted(value) if isinstance(value, Trial) else dict(value) if isinstance(value, Counter) else value
        for name, value in vars(found).items()
    }


def _brief(power: int) -> str:
    """512, 1k, 64k, 1M for powers of two."""
    for step, unit in ((20, "M"), (10, "k")):
        if power >= step:
            return f"{2 ** (power - step)}{unit}"
    return str(2**power)
