"""Labels of axes, names of measures, a report on a phone, and the form of the attention view."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from meristem.drawing.task_report import TaskReport
from meristem.drawing.task_report_html import render_task_report as report_page
from meristem.interfaces.task_evaluation import TaskEvaluation

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=30_000)
Look = Callable[..., Any]
TICKS = [
    ([0, 0.0005, 0.001], False, ["0", "0.0005", "0.0010"]),
    ([0, 200, 400], False, ["0", "200", "400"]),
    ([1.5, 2, 2.5], False, ["1.5", "2.0", "2.5"]),
    ([0, 500_000, 1_000_000, 1_500_000], False, ["0", "0.5 M", "1.0 M", "1.5 M"]),
    ([0, 2e15, 4e15], False, ["0", "2 P", "4 P"]),
    ([-0.02, 0, 0.02], False, ["-0.02", "0", "0.02"]),
    ([0.1, 1, 10], True, ["0.1", "1", "10"]),
    ([0.0001, 0.0002], False, ["1e-4", "2e-4"]),
]
WITHOUT_SOURCE = {
    "clm.clm.top1": "clm.top1",
    "mlm+nsp.mlm": "mlm",
    "mlm+nsp.nsp.accuracy": "nsp.accuracy",
    "news.mlm": "news.mlm",
    "mlm.top1": "mlm.top1",
    "loss": "loss",
}
METRICS = {
    "clm.clm.top1": ("Next token (CLM): top-1 accuracy", "下一词元（CLM）：top-1 准确率"),
    "mlm+nsp.mlm": ("Loss: Masked tokens (MLM)", "损失：掩码词元（MLM）"),
    "layer_3_accuracy": ("Accuracy of layer 3", "第 3 层准确率"),
    "<b>strange</b>": ("<b>strange</b>", "<b>strange</b>"),
}


def test_labels_of_an_axis_share_decimals_and_unit(empty_studio: str, open_page: Look) -> None:
    page = open_page()
    page.goto(empty_studio)
    labels = page.evaluate(
        "async (all) => { const { tickLabels } = await import('/page/elements.js');"
        " return all.map(([values, log]) => tickLabels(values, log)); }",
        [[values, log] for values, log, _ in TICKS],
    )
    assert labels == [expected for _, _, expected in TICKS]


@pytest.mark.parametrize(("locale", "language"), [("en-US", 0), ("zh-CN", 1)])
def test_measures_of_a_mix_are_named_as_in_training(
    empty_studio: str, open_page: Look, locale: str, language: int
) -> None:
    page = open_page(locale=locale)
    page.goto(empty_studio)
    short, names = page.evaluate(
        "async ([sources, metrics]) => { const { metric, withoutSource } = await import('/page/names.js');"
        " return [sources.map(withoutSource), metrics.map(metric)]; }",
        [list(WITHOUT_SOURCE), list(METRICS)],
    )
    assert short == list(WITHOUT_SOURCE.values())
    assert names == [metric_names[language] for metric_names in METRICS.values()]


def test_a_report_keeps_one_line_per_row_on_a_phone(open_page: Look) -> None:
    evaluation = TaskEvaluation(
        metrics={"accuracy": 0.9375, "f1_macro": 0.9355},
        num_samples=400,
        intervals={"accuracy": (0.9125, 0.96), "f1_macro": (0.9104, 0.9586)},
    )
    baselines = {"always positive (the commonest)": {"accuracy": 0.325}}
    report = TaskReport(
        name="reviews",
        task="classification",
        model="bert",
        split="test",
        result=evaluation,
        metric="accuracy",
        split_sizes={"test": 400},
        baselines=baselines,
    )
    page = open_page(viewport={"width": 390, "height": 844})
    page.set_content(report_page(report))
    heights = page.locator(".numbers tr").evaluate_all("rows => rows.map((row) => row.getBoundingClientRect().height)")
    assert len(heights) == 3 and max(heights) < 2 * 22, heights
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390, "the table scrolls, not the page"


def png() -> dict[str, Any]:
    """A small picture, as a file that is chosen."""
    data = io.BytesIO()
    pytest.importorskip("PIL.Image").new("RGB", (16, 16), (200, 30, 30)).save(data, "PNG")
    return {"name": "red.png", "mimeType": "image/png", "buffer": data.getvalue()}


def test_attention_of_a_captioner_needs_a_picture(task_studio: str, open_page: Look) -> None:
    page = open_page()
    page.goto(f"{task_studio}/#/attention/captioner")
    picture = page.locator(".ask input[type=file]")
    expect(picture).to_have_attribute("required", "")
    expect(page.locator(".ask textarea")).to_have_count(0)
    picture.set_input_files(png())
    page.get_by_role("button", name="Show attention").click()
    expect(page.locator(".large canvas")).to_be_visible()


def test_attention_of_a_model_of_texts_and_pictures_takes_either(task_studio: str, open_page: Look) -> None:
    page = open_page()
    page.goto(f"{task_studio}/#/attention/reader")
    expect(page.locator(".large canvas")).to_be_visible()  # the example is asked at once
    expect(page.locator(".tokens.from")).to_contain_text("garden")
    picture = page.locator(".ask input[type=file]")
    assert picture.get_attribute("required") is None
    picture.set_input_files(png())
    with page.expect_request(lambda request: request.url.endswith("/attention")) as request_info:
        page.get_by_role("button", name="Show attention").click()
    assert set(request_info.value.post_data_json) == {"model", "image"}
    expect(page.locator(".tokens.from")).not_to_contain_text("garden")
    expect(page.locator(".wrong")).to_have_count(0)
