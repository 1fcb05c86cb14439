"""The corpus report as one self-contained HTML file."""

from __future__ import annotations

from collections import Counter

from meristem.corpus.report.advice import format_share
from meristem.corpus.report.corpus_report import UNKNOWN_LANGUAGE, CorpusReport
from meristem.drawing.html_page import render_page

MAX_COLOURS = 6
"""Reasons with a colour of their own; the last colour is for all others."""

MAX_OPEN_REASONS = 3
"""Reasons whose examples are expanded at first."""

SPLITS = ("train", "validation", "test")


def render_report(report: CorpusReport, *, date: str = "") -> str:
    """The HTML file as a string; `date` is when it was written."""
    source_names = ", ".join(report.settings.sources)
    return render_page(
        "corpus_report.html",
        title=f"Corpus: {source_names}",
        date=date,
        stylesheets=("corpus.css",),
        report=report,
        account=report.account,
        source_names=source_names,
        figures=_figures(report),
        parts=_kept_and_dropped(report),
        splits=Counter({name: report.account.splits[name] for name in SPLITS}),
        settings={"corpus": report.settings.model_dump(mode="json")},
        share=format_share,
        unknown_language=UNKNOWN_LANGUAGE,
        max_open_reasons=MAX_OPEN_REASONS,
    )


def _figures(report: CorpusReport) -> list[tuple[str, str]]:
    """The most important numbers and what they count."""
    account = report.account
    figures = [
        (f"{account.read:,}", "documents read"),
        (f"{account.kept:,}", f"kept, {format_share(account.kept, account.read)}"),
        (_format_large(account.characters), "characters kept"),
        (f"{account.characters // max(account.kept, 1):,}", "characters per document"),
    ]
    if (tokens := report.tokens) is not None:
        figures.append((_format_large(tokens.tokens), f"tokens, {100 * tokens.unknown_share:.3g} % unknown"))
    if account.planted:
        figures.append((f"{account.planted:,}", "canaries planted into train"))
    if account.bytes:
        figures.append((f"{_format_large(account.bytes)}B", "read from disk"))
    return figures


def _format_large(number: int) -> str:
    """1,234 → 1.2 k, 5,600,000 → 5.6 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} "


def _kept_and_dropped(report: CorpusReport) -> list[tuple[str, str, int]]:
    """(CSS class, name, count) of all documents: kept, and dropped by reason."""
    account = report.account
    reasons = account.dropped.most_common()
    top_reasons = reasons if len(reasons) <= MAX_COLOURS else reasons[: MAX_COLOURS - 1]
    other_count = account.dropped.total() - sum(count for _, count in top_reasons)
    parts = [("kept", "kept", account.kept)] if account.kept else []
    parts += [(f"r{rank}", reason, count) for rank, (reason, count) in enumerate(top_reasons)]
    if other_count:
        parts.append((f"r{MAX_COLOURS - 1}", f"{len(reasons) - len(top_reasons)} other reasons", other_count))
    return parts
