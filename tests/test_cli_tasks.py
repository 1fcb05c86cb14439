"""Tasks as a person meets them on the command line: teaching one, asking it by word, by file and by pipe."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runner import COMMAND, Meristem

from meristem.api import load
from meristem.cli.prediction_input import CHUNK_SAMPLES
from meristem.cli.prediction_output import format_prediction, format_ranking
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.evaluation.prediction_requests import PredictionRequest, parse_task_input, predict_chunks
from meristem.interfaces.task_parts import OutputFormat
from meristem.interop.import_weights import checkpoint_state, write_run
from meristem.learning.build import build_learner
from meristem.tasks.components.span_metrics import SpanOutput
from meristem.tokenizers.train import train_tokenizer

pytestmark = pytest.mark.usefixtures("small_peak")
LINES = [f"Ada walked from the old harbour to garden {n}, and it rained." for n in range(40)]
LABELS = {"labels": ("bad", "good"), "problem_type": "single"}
TASKS: dict[str, dict[str, Any]] = {
    "classification": LABELS,
    "pair": LABELS,
    "tagging": {"labels": ("O", "B-person", "I-person", "B-place")},
    "span": {},
    "choice": {},
}


def train_task(out: Path, task: str, **data: Any) -> Path:
    """A run as fine-tuning leaves it, with weights that make answers differ."""
    settings = {"name": task, "backbone_mode": "bidirectional", "max_length": 48, **TASKS[task]}
    model = {"family": "bert", "layers": 1, "hidden_size": 32, "heads": 2, "max_length": 48}
    recipe = resolve_recipe(
        "run",
        {
            "task": settings,
            "data": {"train": "none.tsv", **data},
            "model": model,
            "tokenizer": {"kind": "wordpiece", "vocab_size": 400},
        },
    )
    words = train_tokenizer(recipe.tokenizer, LINES)
    learner = build_learner(recipe, words)
    generator = torch.Generator().manual_seed(3)
    for parameter in learner.model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    state = checkpoint_state(learner.model, dict(learner.model.named_parameters()))
    return write_run(out, recipe, words, {key: value.detach() for key, value in state.items()}, {}).path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each task."""
    return {task: train_task(tmp_path_factory.mktemp("runs") / task, task) for task in TASKS}


@pytest.fixture(scope="module")
def labels(runs: dict[str, Path]) -> Path:
    """A run that gives a label."""
    return runs["classification"]


def assert_same_predictions(actual: list[Any], expected: list[Any]) -> None:
    """Equal but for rounding, which follows from what is read together."""
    assert [{**prediction, "score": 0} for prediction in actual] == [
        {**prediction, "score": 0} for prediction in expected
    ]
    assert [prediction["score"] for prediction in actual] == pytest.approx(
        [prediction["score"] for prediction in expected], abs=1e-5
    )


# ------------------------------------------------------------ teaching


def test_a_task_is_taught_and_what_is_promised_works(meristem: Meristem) -> None:
    lines = [f"a {'lovely' if n % 2 else 'dreadful'} day number {n}\t{'good' if n % 2 else 'bad'}" for n in range(40)]
    Path("days.tsv").write_text("\n".join(["sentence\tlabel", *lines]), encoding="utf-8")
    result = meristem(
        "finetune",
        "classification",
        "data.train=days.tsv",
        "model.layers=1",
        "model.hidden_size=32",
        "model.heads=2",
        "model.max_length=32",
        "tokenizer.vocab_size=300",
        "train.steps=4",
        "--out",
        "runs/days",
    )
    assert result.code == 0, result.err
    _, suggestion = result.err.split("Try it:\n  ")
    command = suggestion.splitlines()[0]
    assert command.startswith("meristem predict runs/days ")
    completed = subprocess.run(
        command.replace("meristem", f"{sys.executable} -m meristem", 1),
        shell=True,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "%" in completed.stdout and ("good" in completed.stdout or "bad" in completed.stdout)


def test_finetune_explains_itself_by_examples(meristem: Meristem) -> None:
    output = meristem("finetune", "--help").out
    assert "data.train=" in output and "from=" in output and "meristem predict" in output
    output = meristem("predict", "--help").out
    assert "--text-b" in output and "--passage" in output and "--choices" in output


# ------------------------------------------------------------ asking


def test_a_text_is_answered_in_words_and_in_json(meristem: Meristem, labels: Path) -> None:
    text = "the old harbour"
    (prediction,) = meristem("predict", labels, text, "--json").answers
    assert prediction == load(labels).predict(text)
    output = meristem("predict", labels, text).out
    assert prediction["label"] in output and f"{prediction['score']:.2%}" in output and text in output
    (ranked,) = meristem("predict", labels, text, "--top", 2, "--json").answers
    assert [candidate["label"] for candidate in ranked] != [candidate["label"] for candidate in ranked[::-1]]
    assert sum(candidate["score"] for candidate in ranked) == pytest.approx(1.0) and ranked[0] == prediction
    assert len(meristem("predict", labels, text, "--top", 2).out.splitlines()) == 2


def test_every_kind_of_file_gives_the_same_answers_in_order(meristem: Meristem, labels: Path) -> None:
    expected = load(labels).predict(LINES)
    assert len({json.dumps(prediction) for prediction in expected}) > 30
    Path("plain.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    Path("table.tsv").write_text("\n".join(["text\tlabel", *(f"{line}\tgood" for line in LINES)]), encoding="utf-8")
    Path("table.csv").write_text("\n".join(["text", *(f'"{line}"' for line in LINES)]), encoding="utf-8")
    Path("rows.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in LINES), encoding="utf-8")
    for name in ("plain.txt", "table.tsv", "table.csv", "rows.jsonl"):
        result = meristem("predict", labels, "--file", name, "--json")
        assert result.code == 0, name
        assert_same_predictions(result.answers, expected)
    for words in (), ("--file", "-"):
        assert_same_predictions(
            meristem("predict", labels, "--json", *words, pipe="\n".join(LINES).encode()).answers, expected
        )


def test_other_samples_get_a_page_of_their_own(meristem: Meristem, labels: Path) -> None:
    names = load(labels).loaded_run.recipe.task.labels
    rows = [f"{line}\t{names[number % len(names)]}" for number, line in enumerate(LINES)]
    Path("new.tsv").write_text("\n".join(["text\tlabel", *rows]), encoding="utf-8")
    result = meristem("evaluate", labels, "--data", "new.tsv", "--report", "new.html")
    assert result.code == 0 and "wrote new.html" in result.err
    page = Path("new.html").read_text(encoding="utf-8")
    assert "Confusion matrix" in page and "new.tsv" in page and f"{len(LINES)} data samples" in page
    meristem("evaluate", labels, "--data", "new.tsv", "--report", "new.json")
    facts = json.loads(Path("new.json").read_text(encoding="utf-8"))
    assert sum(map(sum, facts["confusion"]["counts"])) == len(LINES) and facts["mistakes"]
    for name, message in (("new.pdf", "ends in .html or .json"), ("nowhere/new.html", "folder nowhere does not exist")):
        result = meristem("evaluate", labels, "--data", "new.tsv", "--report", name)
        assert result.code and message in result.err


def test_the_columns_are_those_of_the_run(meristem: Meristem, tmp_path: Path) -> None:
    run = train_task(tmp_path / "run", "classification", text="body")
    Path("mail.csv").write_text("title,body\nshort,the old harbour\n", encoding="utf-8")
    assert meristem("predict", run, "--file", "mail.csv", "--json").answers == [load(run).predict("the old harbour")]


def test_conll_is_tagged_word_by_word(meristem: Meristem, runs: dict[str, Path]) -> None:
    Path("words.conll").write_text("Ada O\nwalked O\n\nold O\nharbour O\n", encoding="utf-8")
    result = meristem("predict", runs["tagging"], "--file", "words.conll", "--json")
    assert result.code == 0 and len(result.answers) == 2
    for text, answer in zip(("Ada walked", "old harbour"), result.answers, strict=True):
        assert all(text[tagged_word["start"] : tagged_word["end"]] == tagged_word["word"] for tagged_word in answer)


def test_parts_from_a_pipe_by_tabs_and_by_name(meristem: Meristem, runs: dict[str, Path]) -> None:
    question = {"question": "Who walked?", "passage": LINES[3]}
    expected = load(runs["span"]).predict(question)
    lines = [
        json.dumps(question),
        f"{question['question']}\t{question['passage']}",
        json.dumps({**question, "label": "ignored"}),
        json.dumps({"question": question["question"], "context": question["passage"]}),
    ]
    assert meristem("predict", runs["span"], "--json", pipe="\n".join(lines).encode()).answers == [expected] * 4
    words = ("predict", runs["span"], "--question", question["question"], "--passage", question["passage"])
    assert meristem(*words, "--json").answers == [expected]
    assert expected["answer"] in meristem(*words).out or "(no answer)" in meristem(*words).out
    choices = meristem("predict", runs["choice"], "--json", pipe=b"It rained.\ta boat\ta garden\tAda").answers
    asked_for = {"text": "It rained.", "choices": ["a boat", "a garden", "Ada"]}
    assert choices == [load(runs["choice"]).predict(asked_for)]


def test_a_pipe_is_answered_before_it_ends(labels: Path) -> None:
    """Someone may be typing, or a log growing."""
    child = subprocess.Popen(
        [*COMMAND, "predict", str(labels)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert child.stdin is not None and child.stdout is not None
    for line in LINES[:2]:
        child.stdin.write(line + "\n")
        child.stdin.flush()
        assert line in child.stdout.readline()
    child.stdin.close()
    assert child.wait(60) == 0
    child.stdout.close()


# ------------------------------------------------------------ what is wrong


def test_a_broken_line_is_named_and_the_rest_goes_on(meristem: Meristem, labels: Path) -> None:
    good = [LINES[0], LINES[1], LINES[2]]
    lines = [good[0].encode(), b"b\xe4d bytes", good[1].encode(), b"", b'{"question": "?"}', good[2].encode()]
    result = meristem("predict", labels, "--json", pipe=b"\n".join(lines))
    assert result.code == 1
    assert "line 2: not UTF-8" in result.err and "line 5: task classification needs text" in result.err
    assert "3 predictions, 2 failed" in result.err
    assert_same_predictions([answer for answer in result.answers if "error" not in answer], load(labels).predict(good))
    assert ["error" in answer for answer in result.answers] == [False, True, False, True, False]
    Path("rows.jsonl").write_text('{"text": "a"}\n{"text": \n{"text": "b"}\n', encoding="utf-8")
    result = meristem("predict", labels, "--file", "rows.jsonl")
    assert result.code == 1 and "rows.jsonl:2: broken JSON" in result.err and len(result.out.splitlines()) == 2


def test_many_wrong_lines_are_counted_and_not_all_named(meristem: Meristem, labels: Path) -> None:
    result = meristem("predict", labels, pipe=b'{"question": "?"}\n' * 700)
    assert result.code == 1 and result.out == ""
    assert result.err.count("needs text") == 20 and "0 predictions, 700 failed" in result.err


@pytest.mark.parametrize(
    ("task", "words", "message"),
    [
        ("span", ["Who?"], "task span"),
        ("span", ["--question", "Who?"], 'needs passage: meristem predict RUN --question "…" --passage "…"'),
        ("span", ["--passage", "It was Ada."], "needs question"),
        ("span", ["--question", "Who?", "--passage", "  "], "needs passage"),
        ("pair", ["one text"], 'needs text_b: meristem predict RUN "…" --text-b "…"'),
        ("choice", ["one text"], 'needs choices: meristem predict RUN "…" --choices "…" --choices "…"'),
        ("classification", ["a text", "--question", "Who?"], "takes no question"),
        ("classification", [" "], "needs text"),
        ("classification", ["a text", "--file", "x.txt"], "--file and text cannot be combined"),
        ("classification", ["--file", "absent.txt"], "absent.txt"),
    ],
)
def test_wrong_parts_are_told_with_the_right_ones(
    meristem: Meristem, runs: dict[str, Path], task: str, words: list[str], message: str
) -> None:
    result = meristem("predict", runs[task], *words)
    assert result.code in (1, 2) and message in result.err and result.out == ""


def test_a_run_without_a_task_says_what_it_can_do(meristem: Meristem, tmp_path: Path) -> None:
    model = {"family": "bert", "layers": 1, "hidden_size": 32, "heads": 2, "max_length": 48}
    recipe = resolve_recipe("run", {"model": model, "objective": [{"name": "mlm"}], "tokenizer": {"vocab_size": 400}})
    words = train_tokenizer(recipe.tokenizer, LINES)
    learner = build_learner(recipe, words)
    state = checkpoint_state(learner.model, dict(learner.model.named_parameters()))
    run = write_run(tmp_path / "run", recipe, words, {key: value.detach() for key, value in state.items()}, {}).path
    result = meristem("predict", run, "a text")
    assert result.code == 1
    assert "has no task to predict: it supports generate and fill and score" in result.err
    assert f"meristem finetune classification from={run}" in result.err
    assert load(run).tasks == {}


# ------------------------------------------------------------ from Python, and the parts of it


def test_python_takes_texts_lists_and_mappings(runs: dict[str, Path]) -> None:
    loaded = load(runs["pair"])
    pair = {"text": LINES[0], "text_b": LINES[1]}
    assert list(loaded.tasks) == ["pair"]
    assert_same_predictions(
        loaded.predict([pair, {"text": LINES[0], "text_pair": LINES[1]}]), [loaded.predict(pair)] * 2
    )
    assert loaded.predict([]) == []
    with pytest.raises(MeristemError, match="text 2: task pair needs text_b"):
        loaded.predict([pair, LINES[0]])
    with pytest.raises(MeristemError, match="has no task tagging; it has pair"):
        loaded.predict(pair, task="tagging")
    with pytest.raises(MeristemError, match="expected a text, or a mapping of fields; got int"):
        loaded.predict([3])  # type: ignore[list-item]


def test_chunks_are_answered_as_they_come_and_nothing_runs_ahead(labels: Path) -> None:
    """However long a stream is, only one chunk of it is held."""
    num_taken = 0

    def endless() -> Iterator[list[PredictionRequest]]:
        nonlocal num_taken
        while True:
            num_taken += 1
            yield [PredictionRequest(task_input=LINES[num_taken % 40], location=f"line {num_taken}")]

    loaded = load(labels)
    reply_chunks = predict_chunks(loaded.loaded_run.learner, loaded.task(), endless())
    for number in range(1, 4):
        (reply,) = next(reply_chunks)
        assert num_taken == number and reply.location == f"line {number}" and not reply.error
    assert CHUNK_SAMPLES <= 4096


def test_a_sample_that_cannot_be_answered_does_not_take_others_with_it(labels: Path) -> None:
    loaded = load(labels)
    task, broken = loaded.task(), LINES[5]
    before = task.encode_samples

    def pieces(samples: Any) -> Any:
        if any(sample.inputs["text"] == broken for sample in samples):
            raise MeristemError("it is damaged")
        return before(samples)

    task.encode_samples = pieces  # type: ignore[method-assign]
    chunk = [PredictionRequest(task_input=line, location=f"x:{n}") for n, line in enumerate(LINES)]
    (replies,) = predict_chunks(loaded.loaded_run.learner, task, [chunk])
    assert [reply.error for reply in replies if reply.error] == ["x:5: it is damaged"]
    assert [reply.location for reply in replies] == [f"x:{n}" for n in range(len(LINES))]
    assert all(reply.output is not None for n, reply in enumerate(replies) if n != 5)


def test_what_is_no_part_of_any_task_is_let_be(labels: Path) -> None:
    task = load(labels).task()
    sample = parse_task_input(task, {"text": "a", "id": 7, "note": None}, "f:3")
    assert (sample.inputs["text"], sample.location, sample.gold) == ("a", "f:3", None)
    with pytest.raises(MeristemError, match="f:3: task classification needs text"):
        parse_task_input(task, {"txt": "a"}, "f:3")


def output_format(kind: Any) -> OutputFormat:
    """An output format of a kind; the places of an answer are those of the passage."""

    class KindOutput(OutputFormat):
        located_in = SpanOutput.located_in if kind == "span" else OutputFormat.located_in

        def format(self, prediction: Any, sample: Any) -> Any:
            return prediction

    KindOutput.kind = kind
    return KindOutput()


@pytest.mark.parametrize(
    ("kind", "prediction", "inputs", "expected"),
    [
        ("label", {"label": "good", "score": 0.9}, {"text": "a  film"}, " 90.00%  good         a film"),
        (
            "labels",
            [{"label": "a", "score": 0.9}, {"label": "b", "score": 0.6}],
            {"text": "x"},
            "a 90.00%, b 60.00%  x",
        ),
        ("labels", [], {"text": "x"}, "(none)  x"),
        (
            "tags",
            [{"entity_group": "person", "score": 1.0, "word": "Ada", "start": 0, "end": 3}],
            {"text": "Ada ran."},
            "[Ada|person] ran.",
        ),
        ("tags", [{"entity": "NOUN", "score": 1.0, "word": "Ada", "start": 0, "end": 3}], {"text": "Ada"}, "Ada|NOUN"),
        (
            "span",
            {"answer": "Ada", "score": 0.5, "start": 7, "end": 10},
            {"question": "?", "passage": "It was\nAda."},
            " 50.00%  Ada\n         It was [Ada].",
        ),
        ("span", {"answer": "", "score": 0.5, "start": 0, "end": 0}, {"passage": "It was"}, " 50.00%  (no answer)"),
        ("choice", {"label": 1, "choice": "tea", "score": 0.7}, {"text": "x"}, " 70.00%  tea"),
        (
            "intent",
            {"intent": "go", "score": 0.5, "slots": [{"entity_group": "to", "start": 3, "end": 7}]},
            {"text": "go home"},
            " 50.00%  go               go [home|to]",
        ),
        ("text", {"translation_text": "Guten Tag"}, {"source": "x"}, "Guten Tag"),
        ("text", {"summary_text": ""}, {"source": "x"}, ""),
    ],
)
def test_answers_read_like_sentences(kind: Any, prediction: Any, inputs: dict[str, Any], expected: str) -> None:
    assert format_prediction(output_format(kind), prediction, inputs) == expected


def test_a_number_is_no_percentage_and_rankings_are_lists() -> None:
    similarity = {"label": "similarity", "score": 3.25}
    assert format_prediction(output_format("number"), similarity, {"text": "x"}) == "   3.250  x"
    ranking = [{"label": "a", "score": 0.75}, {"label": "b", "score": 0.25}]
    assert format_ranking(output_format("label"), ranking, {"text": "x"}) == " 75.00%  a\n 25.00%  b"
    spans = [{"answer": "x", "score": 0.75, "start": 0, "end": 1}, {"answer": "", "score": 0.2, "start": 0, "end": 0}]
    ranked_spans = " 75.00%  x\n         [x]\n 20.00%  (no answer)"
    assert format_ranking(output_format("span"), spans, {"passage": "x"}) == ranked_spans


# ------------------------------------------------------------ into a file, beside what was read


def test_a_table_keeps_its_columns_and_gets_the_answers(meristem: Meristem, labels: Path) -> None:
    rows = [["id", "sentence", "label"], ["7", LINES[0], "good"], ["8", 'a "quoted", line', "bad"]]
    with Path("in.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    expected = meristem("predict", labels, "--file", "in.csv", "--json").answers
    for name, delimiter in (("out.csv", ","), ("deep/out.tsv", "\t")):
        result = meristem("predict", labels, "--file", "in.csv", "--out", name)
        assert result.code == 0 and not result.out and f"wrote {name}" in result.err
        with Path(name).open(newline="", encoding="utf-8") as file:
            table_rows = list(csv.DictReader(file, delimiter=delimiter))
        assert [[row[column] for column in rows[0]] for row in table_rows] == rows[1:]
        assert [row["predicted_label"] for row in table_rows] == [prediction["label"] for prediction in expected]
        assert [float(row["predicted_score"]) for row in table_rows] == pytest.approx(
            [prediction["score"] for prediction in expected]
        )
    assert meristem("predict", labels, "--file", "in.csv", "--out", "out.xlsx").code == 2


def test_json_lines_keep_what_they_hold_and_say_what_is_wrong(meristem: Meristem, runs: dict[str, Path]) -> None:
    rows = [{"text": LINES[0], "n": 1, "more": {"a": [1]}}, {"n": 2}, {"text": LINES[1], "n": 3}]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = meristem("predict", runs["tagging"], "--file", "in.jsonl", "--out", "out.jsonl")
    assert result.code == 1 and "1 failed" in result.err
    output_rows = [json.loads(line) for line in Path("out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["n"] for row in output_rows] == [1, 2, 3] and output_rows[0]["more"] == {"a": [1]}
    assert (
        isinstance(output_rows[0]["predicted"], list)
        and "predicted" not in output_rows[1]
        and "in.jsonl:2" in output_rows[1]["error"]
    )


def test_lines_and_single_texts_go_into_a_file_too(meristem: Meristem, labels: Path) -> None:
    meristem("predict", labels, "--out", "piped.tsv", pipe="\n".join(LINES[:3]).encode())
    meristem("predict", labels, LINES[0], "--out", "one.tsv", "--top", "2")
    piped, single_text_lines = (
        Path(name).read_text(encoding="utf-8").splitlines() for name in ("piped.tsv", "one.tsv")
    )
    assert [line.split("\t")[0] for line in piped] == ["text", *LINES[:3]]
    assert single_text_lines[0].split("\t") == ["text", "predicted"] and len(single_text_lines) == 2
