"""The corpus report as one self-contained HTML file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import yaml

from meristem.corpus.report.advice import format_share
from meristem.corpus.report.corpus_report import UNKNOWN_LANGUAGE, CorpusReport
from meristem.drawing.html_page import STYLESHEET, escape_content, escape_html, render_page

MAX_COLOURS = 6
"""Reasons with a colour of their own; the last colour is for all others."""

MAX_OPEN_REASONS = 3
"""Reasons whose examples are expanded at first."""

MAX_SOURCES, MAX_NAMES = 20, 15
SPLITS = ("train", "validation", "test")


def render_report(report: CorpusReport, *, date: str = "") -> str:
    """The HTML file as a string; `date` is when it was written."""
    parts = [
        *_render_head(report, date),
        *_render_totals(report),
        *_render_advice(report),
        *_render_lengths(report),
        *_render_languages(report),
        *_render_reasons(report),
        *_render_repeated_lines(report),
        *_render_changes(report),
        *_render_sources(report),
        *_render_files(report),
        *_render_settings(report),
    ]
    return render_page(f"Corpus: {_source_names(report)}", parts, STYLESHEET.with_name("corpus.css"), date=date)


def _source_names(report: CorpusReport) -> str:
    return ", ".join(report.settings.sources)


def _render_head(report: CorpusReport, date: str) -> Iterator[str]:
    account = report.account
    figures = [
        (f"{account.read:,}", "documents read"),
        (f"{account.kept:,}", f"kept, {format_share(account.kept, account.read)}"),
        (_format_large(account.characters), "characters kept"),
        (f"{account.characters // max(account.kept, 1):,}", "characters per document"),
    ]
    if (tokens := report.tokens) is not None:
        figures.append((_format_large(tokens.tokens), f"tokens, {100 * tokens.unknown_share:.3g} % unknown"))
    if account.bytes:
        figures.append((f"{_format_large(account.bytes)}B", "read from disk"))
    yield f'<h1>{escape_content(_source_names(report), 300)}</h1>\n<p class="soft">What was read, kept and dropped'
    yield f" · {escape_html(date)}</p>" if date else "</p>"
    yield '<div class="figures">'
    yield "".join(f"<div><b>{number}</b><span>{label}</span></div>" for number, label in figures) + "</div>"


def _format_large(number: int) -> str:
    """1,234 → 1.2 k, 5,600,000 → 5.6 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} "


# ------------------------------------------------------------ counts


def _render_totals(report: CorpusReport) -> Iterator[str]:
    """One bar of all documents: kept, and dropped by reason."""
    account = report.account
    if not account.read:
        return
    reasons = account.dropped.most_common()
    top_reasons = reasons if len(reasons) <= MAX_COLOURS else reasons[: MAX_COLOURS - 1]
    other_count = account.dropped.total() - sum(count for _, count in top_reasons)
    parts = [("kept", "kept", account.kept)] if account.kept else []
    parts += [(f"r{rank}", reason, count) for rank, (reason, count) in enumerate(top_reasons)]
    if other_count:
        parts.append((f"r{MAX_COLOURS - 1}", f"{len(reasons) - len(top_reasons)} other reasons", other_count))
    yield '<h2>Read, kept and dropped</h2>\n<div class="whole" aria-hidden="true">'
    yield "".join(
        f'<i class="{colour}" style="width:{100 * count / account.read:.2f}%" title="{escape_html(name)}"></i>'
        for colour, name, count in parts
    )
    yield '</div>\n<ul class="legend">'
    for colour, name, count in parts:
        yield (
            f'<li><i class="{colour}"></i>{escape_content(name, 60)} <b>{count:,}</b> '
            f'<span class="soft">{format_share(count, account.read)}</span></li>'
        )
    yield "</ul>"


def _render_advice(report: CorpusReport) -> Iterator[str]:
    yield "<h2>What you could do</h2>"
    if not report.advice:
        yield "<p>Nothing stands out.</p>"
        return
    yield '<ul class="todo">'
    for item in report.advice:
        setting = f"<br><code>{escape_html(item.setting)}</code>" if item.setting else ""
        yield f'<li>{escape_content(item.finding)}{setting}<span class="soft">{escape_html(item.effect)}</span></li>'
    yield "</ul>"


def _render_lengths(report: CorpusReport) -> Iterator[str]:
    bars, kept = report.lengths, report.account.kept
    if not bars:
        return
    max_count = max(bar.count for bar in bars)
    yield '<h2>Lengths of kept documents</h2>\n<div class="wide"><div class="columns">'
    for bar in bars:
        share_label = format_share(bar.count, kept) if bar.count >= 0.01 * kept else ""
        column_bar = f'<i style="height:{84 * bar.count / max_count:.1f}%"></i>' if bar.count else ""
        yield (
            f'<div title="{bar.range_label} characters: {bar.count:,} documents">'
            f'<span class="room">{share_label.replace(" ", "")}{column_bar}</span><b>{escape_html(bar.label)}</b></div>'
        )
    yield '</div></div>\n<p class="soft">Each column counts documents from that many characters to the next.</p>'


def _render_languages(report: CorpusReport) -> Iterator[str]:
    counts = report.languages
    if any(name != UNKNOWN_LANGUAGE for name in counts):
        scope = "" if report.has_all_languages else f" of a sample of {report.findings.documents:,}"
        yield f"<h2>Languages{scope}</h2>"
        yield from _render_counts(counts, counts.total())


def _render_counts(counts: Counter[str], total: int, limit: int = MAX_NAMES) -> Iterator[str]:
    """A table of counts with bars; small ones are combined."""
    top_counts = counts.most_common(limit)
    yield '<div class="wide"><table class="counts"><tbody>'
    max_count = max((count for _, count in top_counts), default=1)
    for name, count in top_counts:
        yield (
            f"<tr><td>{escape_content(name, 200)}</td>"
            f'<td class="meter"><i style="width:{100 * count / max_count:.1f}%"></i></td>'
            f"<td>{count:,}</td><td>{format_share(count, total)}</td></tr>"
        )
    if other_count := counts.total() - sum(count for _, count in top_counts):
        yield (
            f'<tr><td class="soft">{len(counts) - len(top_counts):,} more</td><td class="meter"></td>'
            f"<td>{other_count:,}</td><td>{format_share(other_count, total)}</td></tr>"
        )
    yield "</tbody></table></div>"


def _render_reasons(report: CorpusReport) -> Iterator[str]:
    account = report.account
    if account.dropped:
        yield "<h2>What was dropped, and why</h2>"
    for rank, (reason, count) in enumerate(account.dropped.most_common()):
        summary = (
            f"{escape_content(reason, 120)} <span>{count:,} document{'s' if count > 1 else ''}, "
            f"{format_share(count, account.read)}</span>"
        )
        if reason not in account.examples:
            yield f'<p class="reason">{summary}</p>'
            continue
        yield f'<details class="reason"{" open" if rank < MAX_OPEN_REASONS else ""}><summary>{summary}</summary>'
        for location, text in account.examples[reason]:
            yield (
                f"<blockquote>{escape_content(text or '(nothing)')}"
                f'<p class="place">{escape_content(location, 200)}</p></blockquote>'
            )
        yield "</details>"


def _render_repeated_lines(report: CorpusReport) -> Iterator[str]:
    line_counts = report.account.passages
    if not line_counts:
        return
    yield "<h2>Lines that occur in many documents</h2>"
    yield '<div class="wide"><table class="counts"><thead><tr><th scope="col">line</th><th scope="col">documents</th>'
    yield "<th></th></tr></thead><tbody>"
    for line, count in line_counts.most_common():
        share_label = format_share(count, report.account.kept)
        yield f'<tr><td class="text">{escape_content(line, 240)}</td><td>{count:,}</td><td>{share_label}</td></tr>'
    yield "</tbody></table></div>"


# ------------------------------------------------------------ changes and sources


def _render_changes(report: CorpusReport) -> Iterator[str]:
    """What steps removed or repaired, and personal data found in the sample."""
    account = report.account
    tables = [
        ("Removed or replaced", account.removed),
        ("Changed by each step", account.repaired),
        ("Damaged: could not be decoded", account.damaged),
    ]
    private = report.findings.private
    if private.removed:
        tables.append((f"Personal data in {report.findings.documents:,} sampled documents", private.removed))
    yield from _render_side_by_side(tables)


def _render_side_by_side(tables: list[tuple[str, Counter[str]]]) -> Iterator[str]:
    yield '<div class="beside">'
    for title, counts in tables:
        if counts:
            yield f"<section><h2>{escape_html(title)}</h2>"
            yield '<div class="wide"><table class="counts"><tbody>'
            for name, count in counts.most_common():
                yield f"<tr><td>{escape_content(name, 120)}</td><td>{count:,}</td></tr>"
            yield "</tbody></table></div></section>"
    yield "</div>"


def _render_sources(report: CorpusReport) -> Iterator[str]:
    account = report.account
    if account.splits:
        yield "<h2>Splits</h2>"
        yield from _render_counts(Counter({name: account.splits[name] for name in SPLITS}), account.kept)
    if account.sources:
        yield f"<h2>Kept documents by file ({len(account.sources):,})</h2>"
        yield from _render_counts(account.sources, account.kept, MAX_SOURCES)


def _render_files(report: CorpusReport) -> Iterator[str]:
    account = report.account
    yield from _render_side_by_side(
        [("Files that could not be read", account.rejected), ("Files skipped by extension", account.skipped)]
    )
    if account.warnings:
        lines = "".join(f"<li>{escape_content(line)}</li>" for line in account.warnings)
        more = f"<li>and {account.unshown:,} more</li>" if account.unshown else ""
        yield f'<h2>Warnings</h2>\n<ul class="notices">{lines}{more}</ul>'


def _render_settings(report: CorpusReport) -> Iterator[str]:
    settings_dict = report.settings.model_dump(mode="json")
    text = escape_html(yaml.safe_dump({"corpus": settings_dict}, sort_keys=False, allow_unicode=True))
    yield "<h2>Settings</h2>\n<details><summary>Every setting of this pass</summary>"
    yield f'<div class="wide"><pre>{text}</pre></div></details>'
