"""The studio in a real browser: a run watched from its first step, tried, attended, compared; and nothing that runs."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cli_runner import COMMAND

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)
HARM = "<img src=x onerror=window.__hacked=1>"
Look = Callable[..., Any]
TINY = ["builtin:microworld-en?size=60", "objective=mlm", "corpus.validation=0.1",
        "model.layers=2", "model.hidden_size=32", "model.heads=2", "model.max_length=32",
        "tokenizer.vocab_size=300", "train.batch_tokens=256", "train.log_every=2", "train.evaluate_tokens=256",
        "train.save_every=60", "train.threads=1"]  # fmt: skip


def test_a_run_is_watched_from_its_first_step(empty: Any, open_page: Look) -> None:
    """Over ten seconds, because a run is trained in a process of its own while the page is looked at."""
    page = open_page()
    page.goto(empty.url)
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    expect(page.locator(".command code").first).to_have_text("meristem pretrain")
    command = [*COMMAND, "pretrain", "bert-mini", *TINY, "train.steps=480", "--out", str(empty.folder / "first")]
    training = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        row = page.get_by_role("link", name=re.compile("first"))
        expect(row).to_be_visible(timeout=90_000)  # nobody reloaded the page
        row.click()
        expect(page.locator(".state")).to_contain_text("training")
        expect(page.locator(".plot path.curve").first).to_be_visible()
        before = page.locator(".progress").inner_text()
        expect(page.locator(".progress")).not_to_have_text(before)
        expect(page.locator(".state")).to_contain_text("finished", timeout=90_000)
        assert training.wait(timeout=60) == 0
    finally:
        training.kill()
    expect(page.locator(".progress")).to_contain_text("480 of 480")
    for title in ("Loss", "Learning rate", "Gradient norm", "Tokens per second", r"Model FLOPs", "Memory"):
        expect(page.locator("figcaption", has_text=re.compile(rf"^{title}(?!:)"))).to_be_visible()
    facts = page.locator(".facts")
    expect(facts).to_contain_text(re.compile(r"Loss, validation.*Parameters[\d,]+.*builtin:microworld-en", re.S))
    expect(facts).to_contain_text(re.compile(r"Training time\d+ s.*Tokens per second[\d,]+", re.S))
    loss = page.locator(".plot").first
    loss.locator("svg.chart").hover(position={"x": 200, "y": 100})
    expect(loss.locator(".readout")).to_have_text(re.compile(r"steps \d+ · training [\d.]+ · validation [\d.]+"))
    page.get_by_role("button", name="Show samples").click()
    expect(page.locator(".steps li").first).to_contain_text("step")
    page.get_by_role("link", name="Try it").click()
    page.get_by_label("Text").fill("The [MASK] walked.")
    page.get_by_role("button", name="Fill in").click()
    shares = page.locator(".bars .share").all_inner_texts() if page.locator(".bars .share").first.inner_text() else []
    numbers = [float(share.rstrip(" %")) for share in shares]
    assert len(numbers) == 6 and numbers == sorted(numbers, reverse=True) and 0 < sum(numbers) <= 100.5
    attended(page)


def attended(page: Any) -> None:
    """Two layers of two heads, reached by keys; one token pointed at."""
    page.get_by_role("link", name="Attention").click()
    heads = page.locator(".heads .map")
    expect(heads).to_have_count(4)
    heads.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="layer 2, head 2")).to_be_visible()
    page.locator(".tokens.from li").nth(2).hover()
    expect(page.locator(".large .readout")).to_have_text(re.compile(r"“.+” attends to “.+” [\d.]+ %"))
    assert page.locator(".strings path").count() > 0
    page.get_by_label("View").select_option("rollout")
    expect(page.get_by_role("heading", name="rollout")).to_be_visible()


def test_the_first_view_takes_less_than_a_second(served_studio: str, open_page: Look) -> None:
    page = open_page()
    durations = []
    for _ in range(3):
        start = time.perf_counter()
        page.goto(served_studio)
        page.locator(".runs li").first.wait_for()
        durations.append(time.perf_counter() - start)
    assert min(durations) < 1, durations


def test_a_text_is_written_token_by_token(served_studio: str, open_page: Look) -> None:
    page = open_page()
    page.goto(f"{served_studio}/#/playground/writer?do=generate")
    page.get_by_label("Prompt").fill(f"Ada {HARM}")
    page.get_by_label("Maximum tokens").fill("12")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator(".answer[aria-busy=false] .written")).to_contain_text(HARM)
    token = page.locator(".written .token").first
    token.hover()
    expect(page.locator(".answer .readout")).to_have_text(re.compile(r"“.+” had [\d.]+ % · most likely: .+ [\d.]+ % ·"))


def test_runs_are_compared(served_studio: str, open_page: Look) -> None:
    page = open_page()
    page.goto(served_studio)
    for name in ("writer", "writer-slow"):
        page.get_by_label(f"Select for comparison: {name}", exact=True).check()
    page.get_by_role("link", name="Compare 2 runs").click()
    expect(page.locator(".chart path.curve")).to_have_count(2)
    expect(page.locator(".chart .end")).to_have_text(["writer", "writer-slow"])
    dashes = page.locator(".chart path.curve").evaluate_all(
        "all => all.map(one => one.getAttribute('stroke-dasharray'))"
    )
    assert len(set(dashes)) == 2, "told apart without colour"
    best = page.locator("tr", has_text="Perplexity (validation)").locator("td")
    expect(best).to_have_text(["2.025", "★ 2.017"])
    expect(page.locator(".settings tbody tr")).to_have_text([re.compile("train.learning_rate.*0.001.*0.0001")])
    expect(page.locator(".chart .frame")).to_contain_text("60")
    page.get_by_label("Horizontal axis").select_option("tokens")
    expect(page.locator(".chart .frame")).to_contain_text("3,000")
    part_by_dragging(page)


def part_by_dragging(page: Any) -> None:
    """The middle of the axis by itself, and all of it again."""
    box = page.locator(".chart").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    page.mouse.up()
    expect(page.locator(".chart .frame")).not_to_contain_text("3,000")
    page.locator(".chart").press("Escape")
    expect(page.locator(".chart .frame")).to_contain_text("3,000")
    page.get_by_label("log y").check()
    expect(page.locator(".chart .frame")).to_contain_text("0.2")


def test_nothing_that_is_shown_ever_runs(served_studio: str, open_page: Look) -> None:
    page = open_page()
    name = quote(HARM, safe="")
    page.goto(served_studio)
    expect(page.locator(".runs li")).to_have_count(4)
    expect(page.locator(".runs")).to_contain_text(HARM)
    page.goto(f"{served_studio}/#/run/{name}")
    expect(page.locator("h1")).to_have_text(HARM)
    expect(page.locator("figcaption", has_text=HARM)).to_be_visible()
    page.get_by_text("Log", exact=True).click()
    expect(page.locator("pre").last).to_contain_text("<script>")
    page.goto(f"{served_studio}/#/compare?run={name}&run=labels")
    expect(page.locator(".chart .end").first).to_be_visible()
    page.goto(f"{served_studio}/#/playground/{name}")
    page.get_by_label("Text").fill(f"{HARM} [MASK] <script>window.__hacked=1</script>")
    page.get_by_role("button", name="Fill in").click()
    expect(page.locator(".bars li")).to_have_count(6)
    page.goto(f"{served_studio}/#/playground/labels")
    page.get_by_role("button", name="Classify").click()
    expect(page.locator(".bars")).to_contain_text(HARM)
    page.goto(f"{served_studio}/#/attention/{name}")
    expect(page.locator(".heads .map")).to_have_count(4)
    page.goto(f"{served_studio}/#/tasks")
    expect(page.locator(".reports")).to_contain_text(HARM)
    assert page.locator("main img").count() == 0, "a picture that nobody drew"


def test_a_report_is_shown_and_its_scripts_are_not_run(served_studio: str, browser: Any) -> None:
    """The browser says in its console that it blocked them, so that this page is asked by itself."""
    page = browser.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(f"{served_studio}/#/tasks/labels")
    frame = page.frame_locator("iframe.report")
    expect(frame.get_by_role("heading", name="Report")).to_be_visible()
    page.goto(f"{served_studio}/studio/report?name=labels")
    expect(page.get_by_role("heading", name="Report")).to_be_visible()
    assert page.evaluate("() => typeof window.__hacked") == "undefined" and dialogs == []
    page.close()


@pytest.mark.parametrize(
    "view", ["runs", "run/writer", "compare?run=writer&run=labels", "playground/writer", "attention/writer"]
)
def test_it_fits_a_phone(served_studio: str, open_page: Look, tmp_path: Path, view: str) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True)
    page.goto(f"{served_studio}/#/{view}")
    expect(page.locator(".runs li, .chart path.curve, .ask button").first).to_be_visible()
    page.screenshot(path=tmp_path / "phone.png")
    assert (tmp_path / "phone.png").stat().st_size > 10_000
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    if view.startswith("attention"):
        for number in (1, 3, 2):  # what is told must not push away what is pointed at
            page.locator(".tokens.from li").nth(number).hover()


def test_dark_and_in_chinese(served_studio: str, open_page: Look, tmp_path: Path) -> None:
    page = open_page(color_scheme="dark", locale="zh-CN")
    page.goto(served_studio)
    expect(page.get_by_role("heading", name="运行")).to_be_visible()
    assert _light(page) < 60
    page.screenshot(path=tmp_path / "dark.png")
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    page.get_by_role("button", name="System").click()
    expect(page.get_by_role("button", name="Light")).to_be_visible()
    assert _light(page) > 200
    page.reload()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    assert _light(page) > 200, "what was chosen is kept"


VIEWS = ["runs", "run/writer", "compare?run=writer&run=labels", "playground/writer", "attention/writer", "rewards",
         "tasks", "tasks/labels", "comparisons", "corpus", "nowhere", "playground/labels"]  # fmt: skip
KEYS = r"\b(?:metric|term|can|do|why|axis|fact|sort|kind|view|how|ago|theme|size)_[a-z]\w*|\{\w+\}"


@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
def test_no_screen_shows_a_key_or_another_language(served_studio: str, browser: Any, language: str) -> None:
    """On a phone, where nothing is wider than the screen. A report's scripts are blocked, which the console tells."""
    context = browser.new_context(locale=language, viewport={"width": 390, "height": 844}, color_scheme="dark")
    for view in VIEWS:
        page = context.new_page()
        page.goto(f"{served_studio}/#/{view}")
        expect(page.locator("main h1, main section").first).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        text = page.locator("body").inner_text()
        assert not re.findall(KEYS, text), (view, re.findall(KEYS, text))
        assert bool(re.search("[\u4e00-\u9fff]", text.replace("中文", ""))) == (language == "zh-CN"), view
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390, view
        page.close()
    context.close()


def _light(page: Any) -> float:
    """How light the paper is, from 0 to 255."""
    colour = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_keys_reach_everything(served_studio: str, open_page: Look) -> None:
    page = open_page()
    page.goto(served_studio)
    expect(page.locator(".runs li").first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(6):
        page.keyboard.press("Tab")  # search, state, kind, sorting, the box, then the run
    page.keyboard.press("Enter")
    expect(page.locator(".plot").first).to_be_visible()
    page.locator(".chart").first.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".readout").first).to_contain_text("steps")


def test_a_browser_asks_for_the_key(locked: tuple[str, str], open_page: Look, browser: Any) -> None:
    url, key = locked
    page = open_page(http_credentials={"username": "me", "password": key})
    page.goto(f"{url}/#/playground/writer?do=score")
    page.get_by_role("button", name="Score").click()
    expect(page.locator(".scored .token").first).to_be_visible()
    stranger = browser.new_context()
    assert stranger.request.get(url).status == 401
    stranger.close()
