"""A comparison in the studio: listed, in the language and colours of the page, and readable on a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from example_comparison import example_report

expect = pytest.importorskip("playwright.sync_api").expect


@pytest.mark.parametrize(("locale", "better"), [("en-US", "better"), ("zh-CN", "更好")])
def test_a_comparison_in_the_studio(
    comparisons_studio: str, open_page: Callable[..., Any], locale: str, better: str
) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, locale=locale)
    page.goto(f"{comparisons_studio}/#/comparisons")
    expect(page.locator(".reports li")).to_have_count(1)
    page.locator(".reports a").click()
    frame = page.frame_locator("iframe.report")
    expect(frame.locator("tr.better .verdict").first.get_by_text(better, exact=True)).to_be_visible()
    expect(frame.locator(".switch")).to_be_hidden()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_the_page_by_itself_switches_its_language(open_page: Callable[..., Any], tmp_path: Path) -> None:
    example_report().write(tmp_path)
    page = open_page(viewport={"width": 390, "height": 844})
    page.goto((tmp_path / "report.html").as_uri())
    expect(page.get_by_role("heading", name="Few labels")).to_be_visible()
    page.locator(".switch").click()
    expect(page.get_by_role("heading", name="少量标注")).to_be_visible()
    expect(page.get_by_role("heading", name="Few labels")).to_be_hidden()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
