"""What a person could do about a corpus: each piece of advice follows from a number and names the setting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from meristem.corpus.account import Account
from meristem.corpus.languages import KNOWN
from meristem.corpus.look import Looked
from meristem.corpus.settings import CorpusSettings
from meristem.drawing.page import shortened

FEW = 20
"""Documents below which a share says nothing."""

ALIKE, FAILING, FOREIGN, LITTERED, PASSAGE, PRIVATE, GARBLED = 0.02, 0.05, 0.03, 0.02, 0.03, 0.001, 0.002
"""The shares of documents from which on something is worth a word."""

SHORT, LITTLE, TINY = 0.2, 0.02, 7
"""Many documents that hold little of the text, and the binary logarithm up to which they are short."""

MOSTLY, LOST = 0.5, 0.3
"""The share of documents that a corpus's main language has, and that no single rule should drop."""

LARGE, HANDFUL = 200_000, 100
"""Characters of an average document that should have been several, and how few such documents there are."""


WANTED = ("duplicate", "near duplicate", "over the limit", "in the other half", "empty")
"""Reasons for which much may go without anything being wrong."""

RULES = {
    "too few words": "shortest_words",
    "too many words": "longest_words",
    "words too short": "shortest_mean",
    "words too long": "longest_mean",
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
"""Reasons that come from one rule of quality alone."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What was found, and the setting that changes it."""

    finding: str
    setting: str = ""
    effect: str = ""
    """What the setting does."""


def advice(account: Account, looked: Looked, settings: CorpusSettings) -> list[Advice]:
    """Everything worth doing, the most telling first; nothing where nothing stands out."""
    parts = (_lost, _large, _alike, _failing, _foreign, _littered, _private, _short, _garbled)
    return [one for part in parts for one in part(account, looked, settings)]


def share(part: float, whole: float) -> str:
    """A share as a person reads it."""
    percent = 100 * part / whole if whole else 0.0
    return f"{percent:.0f} %" if percent >= 9.95 or not part else f"{max(percent, 0.1):.1f} %"


def listed(counts: Counter[str], whole: int, most: int = 3) -> str:
    """The highest counts as shares: de 5.0 %, fr 2.1 %."""
    return ", ".join(f"{name} {share(count, whole)}" for name, count in counts.most_common(most))


def _lost(account: Account, looked: Looked, settings: CorpusSettings) -> Iterator[Advice]:
    """One rule that drops most of what is read rarely fits the text."""
    for reason, count in account.dropped.most_common():
        if count >= max(LOST * account.read, FEW) and reason not in WANTED:
            setting, effect = _kept_instead(reason, settings)
            finding = f"{share(count, account.read)} of all documents were dropped for one reason: {reason}"
            yield Advice(finding=finding, setting=setting, effect=effect)


def _kept_instead(reason: str, settings: CorpusSettings) -> tuple[str, str]:
    """The setting that keeps what was dropped for a reason, and what it does; nothing where there is none."""
    language = reason.removeprefix("another language: ")
    if language != reason and language in KNOWN:
        return f"corpus.languages=[{','.join([*(settings.languages or ()), language])}]", f"keeps {language} as well"
    if reason == "too short":
        return f"corpus.shortest={max(settings.shortest // 4, 1)}", "keeps shorter documents"
    if settings.quality and reason in RULES:
        return f"corpus.quality.{RULES[reason]}=null", "switches that rule off; or give it another limit"
    return ("corpus.quality=false", "keeps them") if settings.quality and language == reason else ("", "")


def _large(account: Account, looked: Looked, settings: CorpusSettings) -> Iterator[Advice]:
    if (
        account.kept < HANDFUL
        and account.characters > LARGE * account.kept > 0
        and settings.document in ("auto", "file")
    ):
        each, several = account.characters // account.kept, "s" if account.kept > 1 else ""
        yield Advice(
            finding=f"Only {account.kept} document{several}, of {each:,} characters on average: "
            "little to shuffle and to hold out",
            setting="corpus.document=block",
            effect="makes a document of each block between blank lines",
        )


def _alike(account: Account, looked: Looked, settings: CorpusSettings) -> Iterator[Advice]:
    if looked.compared >= FEW and looked.alike >= max(ALIKE * looked.compared, 2):
        yield Advice(
            finding=f"{looked.alike:,} of {looked.compared:,} documents compared nearly repeat another one "
            f"({share(looked.alike, looked.compared)})",
            setting="corpus.near=true",
            effect="keeps the first of each",
        )


def _failing(account: Account, looked: Looked, settings: CorpusSettings) -> Iterator[Advice]:
    """Documents that are merely short are no sign of a bad crawl, and `_short` speaks of them."""
    failed = looked.quality.dropped
    if looked.documents >= FEW and failed.total() - failed["too few words"] >= FAILING * looked.documents:
        yield Advice(
            finding=f"{share(failed.total(), looked.documents)} of a sample fail rules of quality: "
            f"{listed(failed, looked.documents)}",
            setting="corpus.quality=true",
            effect="drops them; the rules were made for web pages, so look at what goes (--report)",
        )


def _foreign(account: Account, looked: Looked, settings: CorpusSettings) -> Iterator[Advice]:
    known = Counter({name: count for name, count in looked.languages.items() if name})
    if settings.languages or known.total() < FEW:
        return
    ((main, count),) = known.most_common(1)
    others = known.total() - count
    if count >= MOSTLY * known.total() and others >= FOREIGN * known.total():
        del known[main]
        yield Advice(
            finding=f"{share(others, others + count)} of a sample are not in {main}: {listed(known, others + count)}",
            setting=f"corpus.languages=[{main}]",
            effect=f"keeps {main} alone",
        )


def _littered(account: Account, looked: Looked, settings: CorpusSettings) -> Iterator[Advice]:
    lines = looked.boilerplate.removed.total()
    littered = looked.documents >= FEW and looked.boilerplate.affected >= LITTERED * looked.documents
    if littered:
        yield Advice(
            finding=f"{share(looked.boilerplate.affected, looked.documents)} of a sample hold lines of menus, notices "
            f"and footers, {lines:,} in all",
            setting="corpus.boilerplate=true",
            effect="takes those lines out",
        )
    for line, count in account.passages.most_common(1):
        if not littered and account.kept >= FEW and count >= PASSAGE * account.kept:
            yield Advice(
                finding=f"One line stands in {share(count, account.kept)} of the documents: “{shortened(line, 80)}”",
                **(
                    {}
                    if settings.boilerplate
                    else {
                        "setting": "corpus.boilerplate=true",
                        "effect": "takes it out if it is a menu, notice or footer",
                    }
                ),
            )


def _private(account: Account, looked: Looked, settings: CorpusSettings) -> Iterator[Advice]:
    found = looked.private
    if found.affected and found.affected >= PRIVATE * looked.documents:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in found.removed.most_common())
        yield Advice(
            finding=f"Private strings in {found.affected:,} of {looked.documents:,} documents looked at: {kinds}",
            setting="corpus.private=true",
            effect="puts a mark such as <email> in their place",
        )


def _short(account: Account, looked: Looked, settings: CorpusSettings) -> Iterator[Advice]:
    """Short documents are advised against only where they are many and hold next to nothing."""
    for power in range(TINY, 2, -1):
        below = {length: count for length, count in account.lengths.items() if length < power}
        documents = sum(below.values())
        characters = sum(1.5 * 2**length * count for length, count in below.items())
        enough = account.kept >= FEW and documents >= SHORT * account.kept
        if enough and characters <= LITTLE * account.characters and settings.shortest < 2**power:
            yield Advice(
                finding=f"{share(documents, account.kept)} of the documents have fewer than {2**power} characters, "
                f"and hold {share(characters, account.characters)} of the text",
                setting=f"corpus.shortest={2**power}",
                effect="drops them",
            )
            return


def _garbled(account: Account, looked: Looked, settings: CorpusSettings) -> Iterator[Advice]:
    if looked.garbled and looked.garbled >= GARBLED * looked.documents and find_spec("ftfy") is None:
        yield Advice(
            finding=f"{looked.garbled:,} of {looked.documents:,} documents looked at hold text that was decoded "
            "wrongly (Ã© for é)",
            setting='pip install "meristem[clean]"',
            effect="mends such text from then on",
        )
