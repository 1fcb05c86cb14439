"""Task report: complete, without scripts or requests, readable as HTML, JSON and in the terminal."""

from __future__ import annotations

import io
import json
import re
import tracemalloc
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from meristem.drawing.html_page import replace_control_chars, shorten_middle
from meristem.drawing.task_report import (
    TaskReport,
    hardest_labels,
    per_label_metrics,
    to_dict,
    to_json,
    top_confusions,
)
from meristem.drawing.task_report_html import render_task_report
from meristem.drawing.task_report_terminal import task_report_tables
from meristem.interfaces.task_evaluation import ConfusionMatrix, Mistake, TaskEvaluation

HOSTILE = '<script>alert(1)</script> "quoted" & \u202eturned\u202c \x1b[31mred\x1b[0m [bold]markup[/x] \x00'
CONFUSION = ConfusionMatrix.from_matrix(("正面", "负面", "<b>"), np.array([[50, 7, 0], [9, 30, 1], [0, 0, 3]]))


def example_report(**changes: Any) -> TaskReport:
    """A report with everything in it."""
    evaluation = TaskEvaluation(
        metrics={"f1_macro": 0.8123, "accuracy": 0.83, "squared": float("nan")},
        intervals={"accuracy": (0.76, 0.9), "f1_macro": (0.7, 0.88)},
        num_samples=100,
        signature="BLEU|tok:zh",
        confusion=changes.pop("confusion", CONFUSION),
        mistakes=(
            Mistake(location="data/测试.tsv:12", input_text=HOSTILE, gold="正面", prediction="<b>", confidence=0.987),
            Mistake(
                location="data/测试.tsv:14", input_text="很好" * 900, gold="正面", prediction="负面", confidence=0.5
            ),
        ),
    )
    fields: dict[str, Any] = {
        "name": "评论 <run>",
        "task": "classification",
        "model": "bert, 1.0 M parameters, from scratch",
        "split": "test",
        "result": evaluation,
        "metric": "accuracy",
        "split_sizes": {"train": 1200, "test": 100},
        "sources": ["train: `data/train.tsv`, 1,200 samples"],
        "baselines": {"always 正面 (the commonest)": {"accuracy": 0.57}},
        "notices": [f"data/test.tsv:3: {HOSTILE}"],
        "recipe": {"task": {"name": "classification", "labels": ["</pre><script>x</script>"]}},
        "commands": ["meristem predict runs/x '很好'"],
        "date": "2026-11-17 20:05",
        "curves": [
            *({"step": n, "kind": "train", "loss": 2 - n / 10, "rate": 0.1} for n in range(1, 9)),
            {"step": 4, "kind": "evaluation", "loss": 1.5, "accuracy": 0.6, "f1_macro": 0.5},
            {"step": 8, "kind": "evaluation", "loss": float("nan"), "accuracy": 0.7, "f1_macro": 0.6},
            {"step": 8, "kind": "test", "loss": 1.4},
        ],
    }
    return TaskReport(**{**fields, **changes})


class Tags(HTMLParser):
    """Whether every tag is closed in its turn, and what there is."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    tags.close()
    assert tags.open == []
    return tags


def printed(report: TaskReport, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="truecolor")
    for table in task_report_tables(report):
        console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


# ------------------------------------------------------------ the page


def test_a_page_holds_every_fact() -> None:
    text = parsed(render_task_report(example_report())).text
    for fact in (
        "0.8300",
        "0.7600 – 0.9000",
        "0.5700",
        "always 正面 (the commonest)",
        "BLEU|tok:zh",
        "100 test samples",
    ):
        assert fact in text
    for fact in ("data/测试.tsv:12", "98.7 %", "data/train.tsv", "meristem predict runs/x '很好'", "labels:"):
        assert fact in text
    assert "负面 predicted as 正面: 9 times, 22 % of its samples" in text


def test_the_title_names_the_run_and_the_date() -> None:
    text = render_task_report(example_report())
    assert "<title>评论 &lt;run&gt;: classification, 2026-11-17 20:05</title>" in text
    assert "from scratch · 2026-11-17 20:05</p>" in text
    assert "<title>评论 &lt;run&gt;: classification</title>" in render_task_report(example_report(date=""))
    assert to_dict(example_report())["date"] == "2026-11-17 20:05"


def test_mistakes_are_a_table() -> None:
    tags = parsed(render_task_report(example_report()))
    assert {"class": "mistakes"} in [attributes for tag, attributes in tags.seen if tag == "table"]
    table = render_task_report(example_report()).split('class="mistakes"')[1].split("</table>")[0]
    assert re.findall(r"<th[^>]*>([^<]*)</th>", table) == ["input", "gold", "predicted", "confidence"]
    assert [row.count("<td") for row in table.split("<tr>")[2:]] == [4, 4]


def test_curves_are_drawn_in_the_colours_of_the_page() -> None:
    text = render_task_report(example_report())
    assert "<img" not in text
    charts = re.findall(r"<figcaption><bdi[^>]*>(.*?)</bdi></figcaption><svg.*?</svg>", text, re.S)
    assert charts == ["loss", "accuracy", "f1_macro"]
    assert 'class="curve train"' in text and 'class="curve held"' in text and ">step</text>" in text
    assert "stroke: var(--mark)" in text and not re.search(r"<(?:polyline|circle)[^>]*(?:stroke|fill)=", text)
    for theme in (':root[data-theme="dark"]', ':root:not([data-theme="light"])'):
        assert theme in text
    assert "<svg" not in render_task_report(example_report(curves=[]))


def test_nothing_of_the_data_becomes_markup() -> None:
    tags = parsed(render_task_report(example_report()))
    assert "script" not in {tag for tag, _ in tags.seen}
    assert "<script>alert(1)</script>" in tags.text
    assert [tag for tag, _ in tags.seen if tag == "b"] == ["b"]  # the number at the top
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", render_task_report(example_report()))


def test_nothing_is_fetched() -> None:
    text = render_task_report(example_report())
    urls = [attributes[name] for _, attributes in parsed(text).seen for name in ("src", "href") if name in attributes]
    assert urls == []
    assert "url(" not in text and "@import" not in text
    policy = next(a["content"] for t, a in parsed(text).seen if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'")


def test_counts_are_there_without_colour() -> None:
    cells = re.findall(
        r"<td[^>]*>([^<]*)</td>", render_task_report(example_report()).split('class="matrix"')[1].split("</table>")[0]
    )
    assert cells == ["50", "7", "·", "9", "30", "1", "·", "·", "3"]


def test_light_dark_and_narrow() -> None:
    text = render_task_report(example_report())
    assert "prefers-color-scheme: dark" in text and "max-width: 32rem" in text and "width=device-width" in text


def test_many_labels_are_cut_to_the_hardest() -> None:
    counts = np.eye(60, dtype=np.int64) * 5
    counts[7, 8] = 4
    confusion = ConfusionMatrix.from_matrix(tuple(f"label {number}" for number in range(60)), counts)
    text = render_task_report(example_report(confusion=confusion))
    assert "The 50 of 60 labels with the most mistakes" in text
    assert 'class="matrix many"' in text
    hardest = hardest_labels(confusion, 2)
    assert hardest.labels == ("label 7", "label 8")
    assert hardest.matrix.tolist() == [[5, 4], [0, 5]]


def test_many_labels_take_no_table_of_all_by_all() -> None:
    names = [f"label {number}" for number in range(5_000)]  # such a table has 200 MB
    golds, answers = names[:900], [*names[1:900], names[0]]
    confusion = ConfusionMatrix.from_labels(names, golds, answers)
    report = example_report(confusion=confusion)
    tracemalloc.start()
    text, facts = render_task_report(report), to_dict(report)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 60 << 20
    assert "The 1,000 of 5,000 labels with the most missed samples" in text and len(text) < 1 << 20
    assert len(facts["labels"]) == 5_000 and len(facts["confusion"]["counts"]) == 1000
    assert facts["confusions"][0] == {"gold": "label 0", "prediction": "label 1", "count": 1, "share": 1.0}


def test_a_report_of_numbers_alone() -> None:
    evaluation = TaskEvaluation(
        metrics={"spearman": -0.1, "squared_error": 2.0},
        num_samples=3,
        mistakes=(Mistake(location="a.tsv:1", input_text="x", gold="1", prediction="4.0", confidence=3.0),),
    )
    report = example_report(
        result=evaluation, metric="spearman", baselines={}, notices=[], curves=[], recipe={}, commands=[]
    )
    text = parsed(render_task_report(report)).text
    assert "Largest errors" in text and "off by" in text and "3" in text
    assert "Confusion matrix" not in text and "Notes on the data" not in text


# ------------------------------------------------------------ the same for programs


def test_json_holds_the_same_facts() -> None:
    payload = json.loads(to_json(example_report()))
    assert payload["metrics"] == {"f1_macro": 0.8123, "accuracy": 0.83, "squared": None}
    assert payload["intervals"]["accuracy"] == [0.76, 0.9]
    assert payload["confusion"] == {"labels": ["正面", "负面", "<b>"], "counts": [[50, 7, 0], [9, 30, 1], [0, 0, 3]]}
    assert payload["mistakes"][0]["input_text"] == HOSTILE
    assert payload["confusions"][0] == {"gold": "负面", "prediction": "正面", "count": 9, "share": 0.225}
    assert payload["samples"] == {"train": 1200, "test": 100}
    assert set(payload) == set(to_dict(example_report()))


def test_half_a_character_does_not_stop_a_report() -> None:
    evaluation = TaskEvaluation(
        metrics={"accuracy": 0.0},
        num_samples=1,
        mistakes=(Mistake(location="a:1", input_text="half \ud83d", gold="a", prediction="b", confidence=1.0),),
    )
    report = example_report(result=evaluation)
    json.loads(to_json(report))
    render_task_report(report).encode("utf-8")


def test_labels_by_themselves_are_scikit_learns() -> None:
    from sklearn.metrics import precision_recall_fscore_support

    pairs = [(g, s) for g in range(3) for s in range(3) for _ in range(int(CONFUSION.matrix[g, s]))]
    theirs = precision_recall_fscore_support([g for g, _ in pairs], [s for _, s in pairs])
    ours = per_label_metrics(CONFUSION)
    for index, name in enumerate(("precision", "recall", "f1", "samples")):
        assert [getattr(label_metrics, name) for label_metrics in ours] == pytest.approx(theirs[index].tolist())


def test_confusions_are_the_largest_counts() -> None:
    confusions = top_confusions(CONFUSION, 2)
    assert [(confusion.gold, confusion.prediction, confusion.count) for confusion in confusions] == [
        ("负面", "正面", 9),
        ("正面", "负面", 7),
    ]
    assert top_confusions(ConfusionMatrix.from_matrix(("a", "b"), np.diag([3, 4])), 5) == []


# ------------------------------------------------------------ the terminal


@pytest.mark.parametrize("width", [60, 120])
def test_tables_in_a_terminal(width: int) -> None:
    text = printed(example_report(), width)
    for fact in ("0.8300", "classification on 100 test samples", "正面", "Most confident mistakes", "98.7 %"):
        assert fact in text
    assert max(len(re.sub("\x1b\\[[0-9;]*m", "", line)) for line in text.splitlines()) <= width


def test_data_do_not_steer_a_terminal() -> None:
    text = printed(example_report(), 160)
    assert "\x1b[31mred" not in text and "\x00" not in text and "\u202e" not in text
    assert "[bold]markup[/x]" in text


def test_a_matrix_that_is_too_wide_leaves_the_list() -> None:
    names = tuple(f"l{number}" for number in range(30))
    counts = np.eye(30, dtype=np.int64) * 3
    counts[3, 4] = 2
    text = printed(example_report(confusion=ConfusionMatrix.from_matrix(names, counts)), 100)
    assert "rows: gold labels" not in text and "Most frequent confusions" in text


def test_columns_are_numbered_where_their_names_do_not_fit() -> None:
    names = tuple(f"a long label {number}" for number in range(6))
    text = printed(example_report(confusion=ConfusionMatrix.from_matrix(names, np.eye(6, dtype=np.int64) * 1234)), 80)
    plain_text = re.sub("\x1b\\[[0-9;]*m", "", text)
    assert re.search(r"6 +a long label 5 .* 1,234", plain_text)
    assert re.search(r"^ +1 +2 +3 +4 +5 +6 *$", plain_text, re.MULTILINE)


def test_long_texts_lose_their_middle() -> None:
    shortened = shorten_middle("begin " + "x " * 500 + "end", 40)
    assert len(shortened) <= 40 and shortened.startswith("begin") and shortened.endswith("end") and "…" in shortened
    assert replace_control_chars("a\tb\nc\u200dd") == "a\tb\nc\u200dd"  # joined emoji stay whole
