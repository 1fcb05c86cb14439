"""The report on a corpus as one HTML file that a person can act on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import yaml

from meristem.corpus.advice import share
from meristem.corpus.report import UNKNOWN, CorpusReport
from meristem.drawing.page import STYLE, escaped, framed, own

COLOURS = 6
"""Reasons with a colour of their own, the last for all the others."""

OPEN = 3
"""Reasons whose examples are shown at once."""

SOURCES, NAMES = 20, 15
SPLITS = ("train", "validation", "test")


def page(report: CorpusReport, *, date: str = "") -> str:
    """The whole file; `date` says when it was written."""
    parts = [
        *_head(report, date),
        *_whole(report),
        *_advice(report),
        *_lengths(report),
        *_languages(report),
        *_reasons(report),
        *_passages(report),
        *_taken(report),
        *_sources(report),
        *_files(report),
        *_settings(report),
    ]
    return framed(f"Corpus: {_named(report)}", parts, STYLE.with_name("corpus.css"), date=date)


def _named(report: CorpusReport) -> str:
    return ", ".join(report.settings.sources)


def _head(report: CorpusReport, date: str) -> Iterator[str]:
    account = report.account
    figures = [
        (f"{account.read:,}", "documents read"),
        (f"{account.kept:,}", f"kept, {share(account.kept, account.read)}"),
        (_large(account.characters), "characters kept"),
        (f"{account.characters // max(account.kept, 1):,}", "characters per document"),
    ]
    if (tokens := report.tokens) is not None:
        figures.append((_large(tokens.tokens), f"tokens, {100 * tokens.unknown_share:.3g} % unknown"))
    if account.bytes:
        figures.append((f"{_large(account.bytes)}B", "read from disk"))
    yield f'<h1>{own(_named(report), 300)}</h1>\n<p class="soft">What was read, and what became of it'
    yield f" · {escaped(date)}</p>" if date else "</p>"
    yield '<div class="figures">'
    yield "".join(f"<div><b>{number}</b><span>{told}</span></div>" for number, told in figures) + "</div>"


def _large(number: int) -> str:
    """1,234 → 1.2 k, 5,600,000 → 5.6 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} "


# ------------------------------------------------------------ what became of it


def _whole(report: CorpusReport) -> Iterator[str]:
    """One bar: everything that was read, kept or dropped by reason."""
    account = report.account
    if not account.read:
        return
    reasons = account.dropped.most_common()
    shown = reasons if len(reasons) <= COLOURS else reasons[: COLOURS - 1]
    rest = account.dropped.total() - sum(count for _, count in shown)
    parts = [("kept", "kept", account.kept)] if account.kept else []
    parts += [(f"r{place}", reason, count) for place, (reason, count) in enumerate(shown)]
    if rest:
        parts.append((f"r{COLOURS - 1}", f"{len(reasons) - len(shown)} other reasons", rest))
    yield '<h2>Read, kept and dropped</h2>\n<div class="whole" aria-hidden="true">'
    yield "".join(
        f'<i class="{colour}" style="width:{100 * count / account.read:.2f}%" title="{escaped(name)}"></i>'
        for colour, name, count in parts
    )
    yield '</div>\n<ul class="legend">'
    for colour, name, count in parts:
        yield (
            f'<li><i class="{colour}"></i>{own(name, 60)} <b>{count:,}</b> '
            f'<span class="soft">{share(count, account.read)}</span></li>'
        )
    yield "</ul>"


def _advice(report: CorpusReport) -> Iterator[str]:
    yield "<h2>What you could do</h2>"
    if not report.advice:
        yield "<p>Nothing stands out.</p>"
        return
    yield '<ul class="todo">'
    for one in report.advice:
        setting = f"<br><code>{escaped(one.setting)}</code>" if one.setting else ""
        yield f'<li>{own(one.finding)}{setting}<span class="soft">{escaped(one.effect)}</span></li>'
    yield "</ul>"


def _lengths(report: CorpusReport) -> Iterator[str]:
    bars, kept = report.lengths, report.account.kept
    if not bars:
        return
    most = max(bar.count for bar in bars)
    yield '<h2>Lengths of kept documents</h2>\n<div class="wide"><div class="columns">'
    for bar in bars:
        told = share(bar.count, kept) if bar.count >= 0.01 * kept else ""
        drawn = f'<i style="height:{84 * bar.count / most:.1f}%"></i>' if bar.count else ""
        yield (
            f'<div title="{bar.span} characters: {bar.count:,} documents"><span class="room">{told.replace(" ", "")}'
            f"{drawn}</span><b>{escaped(bar.label)}</b></div>"
        )
    yield '</div></div>\n<p class="soft">Each column holds documents from that many characters on, up to the next.</p>'


def _languages(report: CorpusReport) -> Iterator[str]:
    found = report.languages
    if any(name != UNKNOWN for name in found):
        of = "" if report.asked_all else f" of a sample of {report.looked.documents:,}"
        yield f"<h2>Languages{of}</h2>"
        yield from _counts(found, found.total())


def _counts(counts: Counter[str], whole: int, most: int = NAMES) -> Iterator[str]:
    """A table with a bar for each name, the many small ones together."""
    shown = counts.most_common(most)
    yield '<div class="wide"><table class="counts"><tbody>'
    top = max((count for _, count in shown), default=1)
    for name, count in shown:
        yield (
            f'<tr><td>{own(name, 200)}</td><td class="meter"><i style="width:{100 * count / top:.1f}%"></i></td>'
            f"<td>{count:,}</td><td>{share(count, whole)}</td></tr>"
        )
    if rest := counts.total() - sum(count for _, count in shown):
        yield (
            f'<tr><td class="soft">{len(counts) - len(shown):,} more</td><td class="meter"></td>'
            f"<td>{rest:,}</td><td>{share(rest, whole)}</td></tr>"
        )
    yield "</tbody></table></div>"


def _reasons(report: CorpusReport) -> Iterator[str]:
    account = report.account
    if account.dropped:
        yield "<h2>What was dropped, and why</h2>"
    for place, (reason, count) in enumerate(account.dropped.most_common()):
        told = (
            f"{own(reason, 120)} <span>{count:,} document{'s' if count > 1 else ''}, "
            f"{share(count, account.read)}</span>"
        )
        if reason not in account.examples:
            yield f'<p class="reason">{told}</p>'
            continue
        yield f'<details class="reason"{" open" if place < OPEN else ""}><summary>{told}</summary>'
        for where, text in account.examples[reason]:
            yield f'<blockquote>{own(text or "(nothing)")}<p class="place">{own(where, 200)}</p></blockquote>'
        yield "</details>"


def _passages(report: CorpusReport) -> Iterator[str]:
    found = report.account.passages
    if not found:
        return
    yield "<h2>Lines that stand in many documents</h2>"
    yield '<div class="wide"><table class="counts"><thead><tr><th scope="col">line</th><th scope="col">documents</th>'
    yield "<th></th></tr></thead><tbody>"
    for line, count in found.most_common():
        part = share(count, report.account.kept)
        yield f'<tr><td class="text">{own(line, 240)}</td><td>{count:,}</td><td>{part}</td></tr>'
    yield "</tbody></table></div>"


# ------------------------------------------------------------ what was mended, where it is from


def _taken(report: CorpusReport) -> Iterator[str]:
    """What steps took out or mended, and private strings that are still there."""
    account = report.account
    tables = [
        ("Taken out or replaced", account.removed),
        ("Changed by each step", account.repaired),
        ("Damaged: could not be decoded", account.damaged),
    ]
    private = report.looked.private
    if private.removed:
        tables.append((f"Private strings in {report.looked.documents:,} documents looked at", private.removed))
    yield from _beside(tables)


def _beside(tables: list[tuple[str, Counter[str]]]) -> Iterator[str]:
    yield '<div class="beside">'
    for title, counts in tables:
        if counts:
            yield f"<section><h2>{escaped(title)}</h2>"
            yield '<div class="wide"><table class="counts"><tbody>'
            for name, count in counts.most_common():
                yield f"<tr><td>{own(name, 120)}</td><td>{count:,}</td></tr>"
            yield "</tbody></table></div></section>"
    yield "</div>"


def _sources(report: CorpusReport) -> Iterator[str]:
    account = report.account
    if account.splits:
        yield "<h2>Splits</h2>"
        yield from _counts(Counter({name: account.splits[name] for name in SPLITS}), account.kept)
    if account.sources:
        yield f"<h2>Kept documents by file ({len(account.sources):,})</h2>"
        yield from _counts(account.sources, account.kept, SOURCES)


def _files(report: CorpusReport) -> Iterator[str]:
    account = report.account
    yield from _beside(
        [("Files that could not be read", account.rejected), ("Files skipped by ending", account.skipped)]
    )
    if account.warnings:
        lines = "".join(f"<li>{own(line)}</li>" for line in account.warnings)
        more = f"<li>and {account.unshown:,} more</li>" if account.unshown else ""
        yield f'<h2>Warnings</h2>\n<ul class="notices">{lines}{more}</ul>'


def _settings(report: CorpusReport) -> Iterator[str]:
    plain = report.settings.model_dump(mode="json")
    text = escaped(yaml.safe_dump({"corpus": plain}, sort_keys=False, allow_unicode=True))
    yield "<h2>Settings</h2>\n<details><summary>Every setting of this pass</summary>"
    yield f'<div class="wide"><pre>{text}</pre></div></details>'
