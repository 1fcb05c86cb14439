"""The list of many runs, addresses at which there is nothing, a server that goes away, and comparisons."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)
Look = Callable[..., Any]


def names(page: Any) -> list[str]:
    return [name.split("\n")[0] for name in page.locator(".runs .name").all_inner_texts()]


def test_120_runs_are_shown_a_page_at_a_time(sweep_studio: str, open_page: Look) -> None:
    page = open_page()
    page.goto(sweep_studio)
    rows = page.locator(".runs li")
    expect(rows).to_have_count(25)
    expect(page.get_by_role("status").first).to_have_text("1–25 of 120 runs")
    assert names(page)[0] == "sweep-000-rate-0", "the newest first"
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("status").first).to_have_text("26–50 of 120 runs")
    assert names(page)[0] == "sweep-025-rate-1" and "page=2" in page.url
    page.get_by_role("button", name="Page 5").click()
    expect(rows).to_have_count(20)
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    page.go_back()
    expect(page.get_by_role("status").first).to_have_text("26–50 of 120 runs")


def test_runs_are_searched_filtered_and_sorted(sweep_studio: str, open_page: Look) -> None:
    page = open_page()
    page.goto(sweep_studio)
    status_line = page.get_by_role("status").first
    page.get_by_label("Search").fill("bert rate-3")
    expect(status_line).to_have_text("1–10 of 10 matching, 120 in all")
    assert all(name.endswith("rate-3") for name in names(page))
    page.reload()
    expect(status_line).to_have_text("1–10 of 10 matching, 120 in all")
    page.get_by_label("Search").fill("")
    page.get_by_label("State").select_option("failed")
    expect(status_line).to_have_text("1–12 of 12 matching, 120 in all")
    page.get_by_label("Kind").select_option("tasks")
    expect(status_line).to_have_text("1–4 of 4 matching, 120 in all")
    page.get_by_label("State").select_option("")
    page.get_by_label("Sort by").select_option("measure")
    expect(page.locator(".runs .name").first).to_contain_text("sweep-118")
    expect(page.locator(".runs .measured").first).to_have_text("Accuracy validation0.118")
    page.get_by_label("Kind").select_option("objectives")
    expect(page.locator(".runs .measured").first).to_have_text("Loss validation4")
    page.get_by_label("Sort by").select_option("name")
    expect(page.locator(".runs .name").first).to_contain_text("sweep-000")
    page.get_by_label("Search").fill("nothing like this")
    expect(status_line).to_contain_text("No run matches.")
    page.get_by_role("button", name="Show all runs").click()
    expect(status_line).to_have_text("1–25 of 120 runs")


def test_what_is_selected_stays_selected_over_pages(sweep_studio: str, open_page: Look) -> None:
    page = open_page()
    page.goto(sweep_studio)
    page.get_by_label("Select for comparison: sweep-000-rate-0").check()
    page.get_by_role("button", name="Next").click()
    page.get_by_label("Select for comparison: sweep-027-rate-3").check()
    expect(page.get_by_role("link", name="Compare 2 runs")).to_be_visible()
    page.get_by_role("button", name="Clear selection").click()
    expect(page.get_by_role("link", name="Compare")).to_have_count(1)
    expect(page.get_by_label("Select for comparison: sweep-027-rate-3")).not_to_be_checked()


def test_comparison_begins_with_recent_runs_of_one_kind(sweep_studio: str, open_page: Look) -> None:
    page = open_page()
    page.goto(f"{sweep_studio}/#/compare")
    expect(page.locator(".chart path.curve")).to_have_count(4)
    selected_runs = page.locator(".ticks .tick", has=page.locator("input:checked"))
    expect(selected_runs).to_have_text([re.compile(f"sweep-{number:03d}") for number in (0, 2, 3, 5)])
    expect(page.locator(".chart .end")).to_have_text(["005-rate-1", "003-rate-3", "002-rate-2", "000-rate-0"])


def test_more_than_eight_runs_have_colours_and_dashes_of_their_own(sweep_studio: str, open_page: Look) -> None:
    page = open_page()
    run_query = "&".join(f"run=sweep-{4 * number:03d}-rate-0" for number in range(12))
    page.goto(f"{sweep_studio}/#/compare?{run_query}")
    curves = page.locator(".chart path.curve")
    expect(curves).to_have_count(12)
    line_styles = curves.evaluate_all(
        "all => all.map(one => [getComputedStyle(one).stroke, one.getAttribute('stroke-dasharray')])"
    )
    assert len({colour for colour, _ in line_styles}) == 12
    assert len({tuple(line_style) for line_style in line_styles}) == 12
    ends = page.locator(".chart .end")
    assert set(ends.all_text_contents()) == {f"{4 * number:03d}" for number in range(12)}, (
        "without what all begin and end with"
    )
    boxes = sorted(ends.nth(index).bounding_box()["y"] for index in range(12))
    assert all(later - sooner > 10 for sooner, later in itertools.pairwise(boxes)), "no label lies on another"
    head = page.locator("table.numbers th a").first
    expect(head).to_have_text("000")
    expect(head).to_have_attribute("title", "sweep-000-rate-0")


def test_axes_are_named_and_steps_are_whole(sweep_studio: str, open_page: Look) -> None:
    page = open_page()
    page.goto(f"{sweep_studio}/#/run/sweep-000-rate-0")
    loss, accuracy = (
        page.locator(".plot", has=page.locator("figcaption", has_text=name)) for name in ("Loss", "Accuracy")
    )
    expect(loss.locator(".axis-name")).to_have_text(["steps", "Loss"])
    expect(accuracy.locator(".axis-name")).to_have_text(["steps", "Accuracy"])
    marks = loss.locator(".mark-x").all_text_contents()
    assert marks == ["0", "1", "2", "3", "4"], "four steps have no halves"
    assert accuracy.locator(".mark-x").all_text_contents() == marks, "one range for all charts of a run"


def test_an_unknown_run_is_said_to_be_unknown(sweep_studio: str, browser: Any) -> None:
    """The browser says in its console that the server knows no such run, so that this page is asked by itself."""
    page = browser.new_page()
    for view in ("run", "playground", "attention"):
        page.goto(f"{sweep_studio}/#/{view}/sweep-00-rate-1")
        if view == "run":
            expect(page.get_by_role("heading", name="There is no run “sweep-00-rate-1”")).to_be_visible()
            expect(page.locator(".empty .plain a").first).to_be_visible()
    page.goto(f"{sweep_studio}/#/run/sweep-00-rate-1")
    page.locator(".empty .plain a").first.click()
    expect(page.locator(".facts")).to_be_visible()
    page.goto(f"{sweep_studio}/#/nowhere")
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    page.goto(f"{sweep_studio}/#/tasks/sweep-000-rate-0")
    expect(page.get_by_role("heading", name="has no report")).to_be_visible()
    page.close()


def test_a_server_that_goes_away_is_said_to_be_gone(sweep_studio: str, browser: Any) -> None:
    """The browser refuses the connections, as if the server had been stopped, and then lets them through again."""
    context = browser.new_context(locale="en-US")
    page = context.new_page()
    page.goto(f"{sweep_studio}/#/run/sweep-000-rate-0")
    expect(page.locator(".facts")).to_be_visible()
    banner = page.get_by_role("alert")
    expect(banner).to_be_hidden()
    context.set_offline(True)
    expect(banner).to_contain_text("The server does not respond.")
    expect(banner).to_contain_text("meristem studio")
    expect(page.locator(".facts")).to_be_visible()
    page.get_by_role("button", name="中文").click()
    expect(banner).to_contain_text("服务器没有响应。")
    expect(banner).not_to_contain_text("The server")
    context.set_offline(False)
    expect(banner).to_be_hidden()
    expect(page.locator(".facts")).to_be_visible()
    context.close()


def test_a_page_that_found_no_server_shows_itself_when_there_is_one(empty_studio: str, browser: Any) -> None:
    context = browser.new_context(locale="en-US")
    page = context.new_page()
    page.goto(empty_studio)
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    page.goto(f"{empty_studio}/#/tasks")
    expect(page.get_by_text("No report of this kind")).to_be_visible()
    context.set_offline(True)
    page.get_by_role("link", name="Playground").click()
    expect(page.get_by_role("alert")).to_be_visible()
    context.set_offline(False)
    page.get_by_role("button", name="Try now").click()
    expect(page.get_by_text("There is no run with weights yet.")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()
    context.close()
