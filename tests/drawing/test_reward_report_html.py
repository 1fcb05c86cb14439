"""Reward report as HTML: complete, without scripts or requests, and valid with missing parts."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from reward_report_examples import HOSTILE, example_report, moments, pair, parsed

from meristem.drawing.reward_report import (
    BeforeAfterMetric,
    BestOfResult,
    JudgeResult,
    RewardReport,
    RewardStepMetrics,
    ScoredText,
    to_dict,
)
from meristem.drawing.reward_report_html import render_reward_report
from meristem.metrics.reward_hacking import RewardHackingWarning
from meristem.metrics.win_rate import WinRate

NANS = re.compile(r"\b(nan|inf|None)\b")


def test_a_page_holds_every_fact() -> None:
    text = parsed(render_reward_report(example_report())).text
    for fact in (
        "grammar <run>", "from runs/gpt2-mini", "RLOO, 4 texts per prompt", "0.315 → 0.615",
        "an independent judge prefers the new texts (the new text wins 69 % of the time); 1 serious warning below",
        "Serious: length", "Texts became 2.3 times longer", "Check this: sameness",
        "40 won · 8 tied · 16 lost", "68.8 %", "93.8 %", "trained for", "< 0.001", "other model 另一个",
        "0.270 – 0.360", "0.570 – 0.660", "+0.300 better", "+9.30 worse", "of another model",
        "mean 0.315", "mean 0.615", "target 6",
        "one text of the trained model equals the best of about 2.8 of the start",
        "prompts: valid.txt", "meristem generate runs/x --prompt '春天'", "64 validation prompts",
    ):  # fmt: skip
        assert fact in text, fact


def test_twelve_pairs_side_by_side_and_the_winner_marked_in_words() -> None:
    text = render_reward_report(example_report())
    articles = re.findall(r'<article class="pair">.*?</article>', text, re.DOTALL)
    assert len(articles) == 12
    for number, article in enumerate(articles):
        article_text = parsed(article).text
        for fact in (f"prompt {number}: 春天来了", f"花开花开 {number}", f"مرحبا 🙂 {number}", "-1.12", "0.750",
                     "(truncated)", "bits a word", "山上的花都开了。", f"prompts.jsonl:{number}"):  # fmt: skip
            assert fact in article_text, fact
        winner = re.findall(r"<h3>(\w+) <b class=\"won\">✓ preferred</b>", article)
        assert winner == [["after"], ["before"], [], []][number % 4]
        assert ("rates both equally" in article_text) == (number % 4 == 2)


def test_every_curve_has_its_numbers() -> None:
    text = render_reward_report(example_report())
    titles = re.findall(r"<title>(.*?)</title>", text, re.DOTALL)
    assert "step 40\ntraining 0.14\nvalidation 0.14" in titles
    assert "step 40\ntraining 0.8\nvalidation 0.8\ntarget 6" in titles
    assert any(title.startswith("best of 4\nstart 0.625") for title in titles)
    assert any(title.startswith("before: 5 of 64 texts from") for title in titles)
    for name in ("total reward", "reward: part 0", "reward: part 1", "KL to the reference model, nats",
                 "KL coefficient", "entropy", "length, tokens", "distinct-2"):  # fmt: skip
        assert f"{name}" in parsed(text).text


def test_curves_go_where_the_numbers_are() -> None:
    train = tuple(RewardStepMetrics(step=step, reward=value) for step, value in ((0, 1.0), (50, 3.0), (100, 2.0)))
    text = render_reward_report(example_report(train=train, validation=()))
    (polyline_points,) = re.findall(r'<polyline class="curve train" points="([^"]*)"/>', text)
    (x0, y0), (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in polyline_points.split())
    assert x0 < x1 < x2 and x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y1 < y2 < y0 and (y0 - y2) == pytest.approx(y2 - y1, abs=0.2)  # up the page is more


# ------------------------------------------------------------ nothing of the data becomes markup


def hostile() -> RewardReport:
    scored_text = ScoredText(text=HOSTILE, reward=0.5, parts={HOSTILE: 1.0}, judge=1.0)
    comparison = pair(
        0,
        prompt=HOSTILE,
        before=scored_text,
        after=scored_text,
        opinion=HOSTILE,
        references=(HOSTILE,),
        location=HOSTILE,
    )
    return example_report(
        name=HOSTILE,
        model=HOSTILE,
        split=HOSTILE,
        settings={HOSTILE: HOSTILE},
        stopped=HOSTILE,
        sources=(HOSTILE,),
        commands=(HOSTILE,),
        recipe={HOSTILE: HOSTILE},
        pairs=(comparison,),
        train=(
            RewardStepMetrics(step=1, reward=1.0, parts={HOSTILE: 1.0}),
            RewardStepMetrics(step=2, reward=1.0, parts={HOSTILE: 2.0}),
        ),
        judges=(JudgeResult(name=HOSTILE, won=WinRate(wins=1, ties=1, losses=1)),),
        numbers=(BeforeAfterMetric(name=HOSTILE, before=1.0, after=2.0, meaning=HOSTILE),),
        warnings=(RewardHackingWarning(kind=HOSTILE, severity="serious", sentence=HOSTILE),),
    )


def test_hostile_strings_stay_strings() -> None:
    text = render_reward_report(hostile())
    tags = parsed(text)
    ordinary = parsed(render_reward_report(example_report()))
    assert {tag for tag, _ in tags.seen} <= {tag for tag, _ in ordinary.seen}
    assert "script" not in {tag for tag, _ in tags.seen} and "<script>alert(1)</script>" in tags.text
    known_attributes = {name for _, attributes in ordinary.seen for name in attributes}
    assert {name for _, attributes in tags.seen for name in attributes} <= known_attributes
    assert not any(name.startswith("on") for name in known_attributes)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)


@pytest.mark.parametrize("report", [example_report(), hostile()], ids=["ordinary", "hostile"])
def test_nothing_is_fetched(report: RewardReport) -> None:
    text = render_reward_report(report)
    tags = parsed(text)
    assert not [tag for tag, attributes in tags.seen if tag in ("img", "link", "iframe") or "src" in attributes]
    assert not [attributes for _, attributes in tags.seen if "href" in attributes]
    assert "url(" not in text and "@import" not in text
    policy = next(a["content"] for _, a in tags.seen if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'")


def test_light_dark_narrow_and_paper() -> None:
    text = render_reward_report(example_report())
    for fragment in ("prefers-color-scheme: dark", "max-width: 40rem", "@media print", "width=device-width"):
        assert fragment in text


# ------------------------------------------------------------ little, much, and numbers that are none


@pytest.mark.parametrize("changes", [
    {"validation": ()},
    {"train": (), "validation": ()},
    {"train": moments(1), "validation": ()},
    {"pairs": (pair(0),)},
    {"pairs": ()},
    {"warnings": ()},
    {"judges": (), "best_of": (), "numbers": ()},
    {"before": (), "after": (), "kl": None, "kl_target": None},
    {"before": (1.0,), "after": (1.0,)},
    {"before": (float("nan"), None, 1e300), "after": (float("inf"), -1e300)},
    {"best_of": (BestOfResult(count=1, start=0.0, trained=float("nan")),)},
    {"train": (RewardStepMetrics(step=1),
               RewardStepMetrics(step=2, reward=float("nan"), kl=float("inf"), parts={"a": None}))},
    {"train": tuple(RewardStepMetrics(step=step, reward=1e-12 * step, kl=1e12 * step) for step in range(3))},
    {"numbers": (BeforeAfterMetric(name="x", before=float("nan"), after=float("inf"), better="higher"),)},
], ids=str)  # fmt: skip
def test_a_page_without_nan_whatever_is_missing(changes: dict[str, Any]) -> None:
    text = render_reward_report(example_report(**changes))
    tags = parsed(text)
    assert not NANS.search(tags.text)
    for _, attributes in tags.seen:
        assert not any(NANS.search(value or "") for value in attributes.values())


def test_a_report_without_warnings_says_so() -> None:
    text = parsed(render_reward_report(example_report(warnings=()))).text
    assert "none changed beyond the threshold of a warning" in text and "Serious" not in text


def test_a_bare_report() -> None:
    text = parsed(render_reward_report(RewardReport(name="x", model="y"))).text
    assert "there is nothing to compare" in text and "Training curves" not in text


def test_five_hundred_steps_of_six_parts_stay_a_small_page() -> None:
    text = render_reward_report(example_report(train=moments(500, parts=6), validation=moments(500, parts=6, every=50)))
    assert len(text) < 300_000
    assert len(re.findall(r"<svg", text)) == 14  # total, six parts, five more, rewards, best of
    longest = max(len(points.split()) for points in re.findall(r'points="([^"]*)"', text))
    assert 100 < longest <= 160
    parsed(text)


def test_the_page_shows_what_the_file_holds() -> None:
    report = example_report()
    text, report_dict = parsed(render_reward_report(report)).text, to_dict(report)
    for row in report_dict["numbers"][:2]:
        assert f"{row['before']:.3g}" in text and f"{row['after']:.3g}" in text
    for row in report_dict["best_of"]:
        assert f"{row['start']:.3f}" in text


def test_better_appears_only_where_the_interval_excludes_zero() -> None:
    fields = {
        "name": "reward",
        "before": 0.3,
        "after": 0.4,
        "before_interval": (0.2, 0.4),
        "after_interval": (0.3, 0.5),
    }
    for interval, verdict in (((0.05, 0.15), " better"), ((-0.05, 0.25), ""), (None, "")):
        reward_report = render_reward_report(
            example_report(numbers=(BeforeAfterMetric(**fields, better="higher", change_interval=interval),))
        )
        assert f"+0.100{verdict}<" in reward_report
