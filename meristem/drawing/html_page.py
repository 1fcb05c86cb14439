"""HTML template of the reports: self-contained pages without scripts or external resources, all text escaped."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterable
from pathlib import Path

STYLESHEET = Path(__file__).with_name("report.css")
_CONTROL_CHARS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]")


CHART_STYLESHEET = STYLESHEET.with_name("charts.css")
"""Additional styles of pages with charts."""


def render_page(title: str, parts: Iterable[str], *styles: Path, date: str = "") -> str:
    """A complete HTML file: the parts in order, with the common and additional styles; its title ends with the date."""
    title = f"{title}, {date}" if date else title
    style = "".join(path.read_text(encoding="utf-8") for path in (STYLESHEET, *styles))
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{escape_html(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
    )
    return head + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"


def current_timestamp() -> str:
    """The date for a report, as year-month-day hour:minute."""
    return time.strftime("%Y-%m-%d %H:%M")


def replace_control_chars(text: str) -> str:
    """Replace characters that control terminals, reverse text direction or break files."""
    return _CONTROL_CHARS.sub("\ufffd", text)


def shorten_middle(text: str, max_chars: int) -> str:
    """A text on one line, with the middle left out where it is long."""
    text = " ".join(replace_control_chars(text).split())
    half = (max_chars - 3) // 2
    return text if len(text) <= max_chars else f"{text[:half].rstrip()} … {text[-half:].lstrip()}"


def escape_html(text: str) -> str:
    """Escape a trusted text."""
    return html.escape(replace_control_chars(text))


def escape_content(text: str, max_chars: int = 600) -> str:
    """Escape a text of the data or the model: shortened, with its own text direction."""
    return f'<bdi dir="auto">{html.escape(shorten_middle(text, max_chars))}</bdi>'
