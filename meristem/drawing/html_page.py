"""Report pages: Jinja templates rendered to self-contained HTML without scripts, all text escaped."""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

FOLDER = Path(__file__).parent
"""Stylesheets; the templates are in a folder of it."""
_CONTROL_CHARS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]")


def render_page(template: str, *, title: str, stylesheets: tuple[str, ...] = (), date: str = "", **values: Any) -> str:
    """A complete HTML file from a template, with the common and additional styles; its title ends with the date."""
    from markupsafe import Markup

    style = "".join((FOLDER / name).read_text(encoding="utf-8") for name in ("report.css", *stylesheets))
    # a plain string: Markup would escape whatever is added to it
    return str(render_template(template, title=title, date=date, style=Markup(style), **values))


def render_template(template: str, **values: Any) -> Markup:
    """A rendered template, which other templates insert as it is."""
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(values))  # escaped by the template


@cache
def _environment() -> Environment:
    """The template engine: everything is escaped but what a template itself says."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def escapable(value: Any) -> Any:
        return replace_control_chars(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    def content(text: str, max_chars: int = 600) -> Markup:
        """A text of the data or the model: shortened, with its own text direction."""
        return Markup('<bdi dir="auto">{}</bdi>').format(shorten_middle(text, max_chars))

    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=escapable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "content": content,
        "commas": lambda number: f"{number:,}",
        "fixed": lambda number, digits: f"{number:.{digits}f}",
        "general": lambda number: f"{number:g}",
        "yaml": lambda value: yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True),
    }
    return environment


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
