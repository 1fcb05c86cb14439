"""Results are tables in a notebook and in pandas, and stay what they were: lists, dicts, dataclasses."""

from __future__ import annotations

import json
from pathlib import Path

from meristem.generation.fill import FillCandidate, FilledMask
from meristem.generation.generated_text import GeneratedText
from meristem.generation.score import TextScore
from meristem.reinforce.best_of_n import RankedText
from meristem.training.run_result import RunResult
from meristem.utils.result_tables import MAX_HTML_ROWS, EvaluationResult, ResultList, Tabular

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
