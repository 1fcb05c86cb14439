"""The page of a comparison: both languages, charts, the front of quality against time."""

from __future__ import annotations

import re
from dataclasses import replace

from example_comparison import ARMS, example_report

from meristem.compare.next_steps import next_steps
from meristem.compare.report_page import pareto_front, summary_sentences
from meristem.compare.validity import CHINESE_CHECKS, Problem


def texts(page: str, language: str) -> list[str]:
    return re.findall(rf'<span class="{language}" lang="[^"]*">([^<]*)</span>', page)


def test_every_text_of_the_page_is_there_in_both_languages() -> None:
    page = example_report().to_html("zh")
    english, chinese = texts(page, "en"), texts(page, "zh")
    assert len(english) == len(chinese) > 25
    assert not any(re.search("[\u4e00-\u9fff]", text) for text in english if text != "中文")
    assert {"better", "worse", "Quality against time", "Few labels"} <= set(english)
    assert {"更好", "更差", "质量与时间", "少量标注"} <= set(chinese)
    assert '<input type="checkbox" id="chinese" checked>' in page and "<script" not in page
    assert "masked &lt;15 %&gt;" in page and "<15" not in page


def test_charts_and_rows() -> None:
    page = example_report().to_html()
    assert page.count("<svg") == 2 + 1 + 4  # two measures over minutes, labels, four curves
    assert page.count("rowgroup") == 3
    assert page.count('<tr class="better">') == 2 and page.count('<tr class="worse">') == 2
    assert "checked" not in page.partition("<main>")[0].partition("<body>")[2]


def test_the_summary_names_what_is_decided_by_arm() -> None:
    english, chinese = summary_sentences(example_report())
    assert (
        english
        == f"Against {ARMS[0]}: masked 40 % is better in reviews-100, reviews; gpt2 is worse in reviews-100, reviews."
    )
    assert chinese.startswith(f"与 {ARMS[0]} 相比：masked 40 % 的 reviews-100、reviews 更好；gpt2")


def test_what_to_do_next_follows_from_the_verdicts() -> None:
    english, chinese = zip(*next_steps(example_report()), strict=True)
    assert english[0].startswith("Take masked 40 %: better than masked <15 %> in some measures and worse in none.")
    assert chinese[0].startswith("选用 masked 40 %：") and "several times the budget" in english[-1]
    assert next_steps(example_report([Problem(check="diverged", arms=(), message="", remedy="")])) == []
    swapped = example_report(effects={"reviews": [0, -0.1, 0, -0.1]})
    assert [step for step, _ in next_steps(swapped)][:1] == [
        "masked 40 % is better in reviews-100 and worse in reviews: choose by the one that your use needs."
    ]
    same: dict[str, list[float]] = {name: [0, 0, 0, 0] for name in ("reviews-100", "reviews")}
    assert (
        "it does not matter which arm you take; masked <15 %> took the least"
        in next_steps(example_report(effects=same))[0][0]
    )
    alone = replace(example_report(), measures=[])
    assert next_steps(alone)[0][0].startswith("These arms share no measure: add labelled files")
    (first, _), *_ = next_steps(example_report(effects=same, seeds=2))
    assert first.startswith("2 seeds cannot decide anything: at least 3 can (--seeds 3")


def test_a_difference_that_a_few_more_seeds_would_decide() -> None:
    report = example_report(effects={"reviews-100": [0, 0.008, 0, 0], "reviews": [0, 0, 0, 0]}, seeds=3)
    needed = report.measures[1].arms[1].comparison
    assert needed is not None and needed.verdict == "cannot be told apart" and needed.seeds_needed is not None
    advice = [step for step, _ in next_steps(report) if "may differ" in step]
    assert advice and f"{needed.seeds_needed} seeds would show" in advice[0]
    assert f"add {(needed.seeds_needed - 3) * len(ARMS)} runs" in advice[0]


def test_problems_come_first() -> None:
    for check in CHINESE_CHECKS:
        problem = Problem(check=check, arms=(), message="loss 5", remedy="raise the budget")
        report = example_report([problem])
        assert report.summary().startswith(f"Not valid: {check}.")
        assert CHINESE_CHECKS[check][0] in report.to_html()


def test_the_front_of_quality_against_time() -> None:
    points = {"slow": (9.0, 0.9), "fast": (1.0, 0.5), "beaten": (5.0, 0.4), "middle": (5.0, 0.7), "late": (12.0, 0.9)}
    assert pareto_front(points) == ["fast", "middle", "slow"]
