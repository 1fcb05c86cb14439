"""Results are tables in a notebook and in pandas, and stay what they were: lists, dicts, dataclasses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from example_comparison import example_report

from meristem.drawing.attention_record import AttentionRecord, AttentionWeights
from meristem.generation.fill import FillCandidate, FilledMask
from meristem.generation.generated_text import GeneratedText
from meristem.generation.score import TextScore
from meristem.interop.export_folder import ExportResult
from meristem.interop.hub_upload import PushResult
from meristem.reinforce.best_of_n import RankedText
from meristem.reinforce.reward_base import RewardScore
from meristem.training.run_result import RunResult
from meristem.utils.result_tables import MAX_HTML_ROWS, EvaluationResult, ResultList, Tabular, heat_map

WRITTEN = GeneratedText(text="<b>", tokens=(1,), score=-1.5, finished="end")


def test_candidates_of_masks() -> None:
    candidates = [FillCandidate(token=word, probability=0.5, text=f"a {word}") for word in ("b", "c")]
    result_list = ResultList(
        [FilledMask(mask=0, candidates=tuple(candidates)), FilledMask(mask=1, candidates=tuple(candidates[:1]))]
    )
    table = result_list.to_pandas()
    assert list(table["mask"]) == [0, 0, 1] and list(table["token"]) == ["b", "c", "b"]
    assert result_list[0].to_pandas().shape == (2, 4)
    assert "<th>token</th>" in result_list._repr_html_() and result_list == list(result_list)


def test_texts_that_were_written_and_scored() -> None:
    result_list = ResultList([[WRITTEN, WRITTEN], [WRITTEN]])
    assert list(result_list.to_pandas()["sample"]) == [0, 0, 1]
    assert (
        "&lt;b&gt;" in result_list._repr_html_() and "<b>" not in result_list._repr_html_()
    )  # what a model writes is no markup
    scored = ResultList([TextScore(text="a b", logprob=-2.0, tokens=2, per_token=(("a", -1.0), ("b", -1.0)))])
    empty_fields = {"text_b": None, "forward": None, "backward": None}
    assert scored.to_pandas().to_dict("records") == [{"text": "a b", "logprob": -2.0, "tokens": 2, **empty_fields}]
    ranked = RankedText(output=WRITTEN, value=1.0, parts={"length": 0.5}, why={})
    assert ranked.records() == [{"text": "<b>", "value": 1.0, "length": 0.5}]


def test_predictions() -> None:
    labels = ResultList([{"label": "good", "score": 0.9}, {"label": "bad", "score": 0.8}])
    assert labels.to_pandas()["label"].tolist() == ["good", "bad"]
    entities = ResultList([[{"word": "Ada"}, {"word": "Bo"}], []])
    assert entities.to_pandas().to_dict("records") == [{"sample": 0, "word": "Ada"}, {"sample": 0, "word": "Bo"}]
    assert json.dumps(labels) == json.dumps(list(labels))
    assert "50 more rows" in ResultList([{"n": number} for number in range(MAX_HTML_ROWS + 50)])._repr_html_()
    assert ResultList([])._repr_html_() and ResultList([]).to_pandas().empty


def test_a_run_s_end_and_an_evaluation() -> None:
    run_result = RunResult(
        run=Path("runs/a"), step=1200, metrics={"loss": 2.5}, test={"loss": 2.25}, used={}, example_commands=[]
    )
    assert isinstance(run_result, Tabular) and repr(run_result) == "RunResult(runs/a, step 1,200: loss=2.5)"
    assert run_result.to_pandas().to_dict("records") == [{"metric": "loss", "validation": 2.5, "test": 2.25}]
    evaluation_result = EvaluationResult(
        {"metrics": {"accuracy": 0.5, "f1": 0.25}, "intervals": {"accuracy": (0.4, 0.6)}}
    )
    assert evaluation_result.to_pandas().set_index("metric").loc["accuracy"].tolist() == [0.5, 0.4, 0.6]
    assert (
        "accuracy" in evaluation_result._repr_html_()
        and json.loads(json.dumps(evaluation_result))["metrics"]["f1"] == 0.25
    )


def test_a_comparison() -> None:
    report = example_report()
    table = report.to_pandas()
    assert len(table) == len(report.rows()) and set(table["arm"]) == {
        result.arm for measure in report.measures for result in measure.arms
    }
    row = next(result for result in report.measures[0].arms if len(result.values) > 1)
    shown = table[(table["measure"] == report.measures[0].measure.name) & (table["arm"] == row.arm)].iloc[0]
    assert shown["mean"] == row.mean and shown["lowest"] == min(row.values.values())
    assert "<th>verdict</th>" in report._repr_html_() and repr(report) == f"ComparisonReport({report.summary()})"


def test_attention_is_a_heat_map_and_a_frame_of_tokens() -> None:
    weights = np.array([[[[1.0, 0.0], [0.25, 0.75]], [[1.0, 0.0], [0.75, 0.25]]]], np.float32)
    attention = AttentionWeights(queries=("a", "<b>"), keys=("a", "<b>"), weights=weights)
    record = AttentionRecord(text="a <b>", run="runs/a", kinds={"self": attention})
    frame = attention.to_pandas()
    assert frame.loc["<b>", "a"] == 0.5 and list(frame.columns) == ["a", "<b>"]
    assert attention.to_pandas(1, 2).loc["<b>", "a"] == 0.75
    html = record._repr_html_()
    assert "&lt;b&gt;" in html and "<b>" not in html and "rgba(31,122,82,0.50)" in html
    assert repr(record) == "AttentionRecord(runs/a, 'a <b>': self [1 layers, 2 heads])"


def test_rewards_and_what_was_published() -> None:
    scores = ResultList([RewardScore(value=1.0, why={"words": 3.0}), RewardScore(value=0.5, why={"words": 2.0})])
    assert scores.to_pandas().to_dict("list") == {"value": [1.0, 0.5], "words": [3.0, 2.0]}
    pushed = PushResult(
        name="me/novels", url="hub/me/novels", files={"a": 10}, card="# A\n---\n", private=False, dry_run=False
    )
    assert pushed.to_pandas().to_dict("records") == [{"file": "a", "bytes": 10}]
    assert repr(pushed) == "PushResult(hub/me/novels (public): 1 files, 0.0 MB)"
    exported = ExportResult(folder=Path("out"), architecture="BertModel", parameters=1_500_000)
    assert exported.records() == [{"folder": "out", "architecture": "BertModel", "parameters": 1_500_000}]


def test_a_long_matrix_is_cut() -> None:
    names = [f"n{number}" for number in range(MAX_HTML_ROWS + 5)]
    html = heat_map(names, names, [[0.0] * len(names)] * len(names))
    assert html.count("<td") == MAX_HTML_ROWS**2 and f"n{MAX_HTML_ROWS}<" not in html
    assert heat_map([], [], []).count("<td") == 0
