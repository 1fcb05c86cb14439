"""READMEs of exported folders and the example programs in them: Jinja templates rendered to Markdown and Python."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render_readme(template: str, **values: Any) -> str:
    """A rendered template of the folder `templates`."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    """The template engine: plain text, in which a missing value is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
