"""The template engine of the reports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from meristem.drawing import html_page
from meristem.drawing.html_page import render_page, render_template

TEMPLATES = Path(html_page.__file__).with_name("templates")
HOSTILE = "</title><script>alert(1)</script>\"'&\u202e\x1b[31m\x00"
ESCAPED = "&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;\ufffd\ufffd[31m\ufffd"


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that renders a template of its own."""
    html_page._environment.cache_clear()
    monkeypatch.setattr(html_page, "FOLDER", tmp_path)
    (tmp_path / "templates").mkdir()

    def render(source: str, **values: object) -> str:
        (tmp_path / "templates" / "x.html").write_text(source, encoding="utf-8")
        html_page._environment.cache_clear()
        return str(render_template("x.html", **values))

    yield render
    html_page._environment.cache_clear()


@pytest.mark.parametrize(
    "source",
    [
        "{{ text }}",
        '<i title="{{ text }}">',
        "{{ [text] | join }}",
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(text) }}",
        "{% set x = text %}{{ x ~ '' }}",
        "{{ text | content }}",
    ],
)
def test_text_is_escaped_wherever_it_stands(template, source: str) -> None:
    assert ESCAPED in template(source, text=HOSTILE)


def test_what_a_template_rendered_is_inserted_as_it_is(template) -> None:
    svg = render_template_of(template, "<svg>{{ text }}</svg>", text="<b>")
    assert template("<p>{{ svg }}</p>", svg=svg) == "<p><svg>&lt;b&gt;</svg></p>"


def render_template_of(template, source: str, **values: object):
    template(source, **values)
    return render_template("x.html", **values)


def test_a_missing_value_is_an_error_and_not_an_empty_place(template) -> None:
    with pytest.raises(UndefinedError, match="absent"):
        template("{{ absent }}")


def test_a_page_is_a_plain_string() -> None:
    page = render_page("task_comparison.html", title=HOSTILE, report=Report(), headings=["<a>"], rows=[("<b>", "<c>")])
    assert type(page) is str and page.startswith("<!doctype html>\n") and page.endswith("</html>\n")
    assert f"<title>{ESCAPED}</title>" in page
    assert all(f"&lt;{letter}&gt;" in page and f"<{letter}>" not in page for letter in "abc")


class Report:
    """The fields of a comparison that its template names."""

    run = model = summary = method_description = HOSTILE


def test_no_template_switches_escaping_off() -> None:
    sources = {path.name: path.read_text("utf-8") for path in TEMPLATES.iterdir()}
    assert {"page.html", "task_report.html", "reward_report.html", "corpus_report.html"} <= sources.keys()
    for name, source in sources.items():
        assert not re.search(r"\|\s*safe\b", source) and "autoescape" not in source, name
        assert "<script" not in source and "javascript:" not in source, name
