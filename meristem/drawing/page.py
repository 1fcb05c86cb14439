"""What every page of ours shares: one file that needs nothing else, no scripts, nothing fetched, every text escaped."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterable
from pathlib import Path

STYLE = Path(__file__).with_name("report.css")
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]")


CHARTS = STYLE.with_name("charts.css")
"""What a page with curves adds to the style."""


def framed(title: str, parts: Iterable[str], *styles: Path, date: str = "") -> str:
    """A whole file: the parts in their order, in our style and what a page adds to it; its title ends with the date."""
    title = f"{title}, {date}" if date else title
    style = "".join(path.read_text(encoding="utf-8") for path in (STYLE, *styles))
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{escaped(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
    )
    return head + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"


def written_now() -> str:
    """The date for a report, as year-month-day hour:minute."""
    return time.strftime("%Y-%m-%d %H:%M")


def visible(text: str) -> str:
    """A text without characters that would steer a terminal, turn a line around or break a file."""
    return _HIDDEN.sub("\ufffd", text)


def shortened(text: str, most: int) -> str:
    """A text in one line, its middle left out where it is long."""
    text = " ".join(visible(text).split())
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half].rstrip()} … {text[-half:].lstrip()}"


def escaped(text: str) -> str:
    """A text of ours as HTML."""
    return html.escape(visible(text))


def own(text: str, most: int = 600) -> str:
    """A text of the data or the model as HTML: in its own direction, shortened."""
    return f'<bdi dir="auto">{html.escape(shortened(text, most))}</bdi>'
