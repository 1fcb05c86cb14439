"""Behaviour tests of one's own, after CheckList (Ribeiro et al. 2020): minimum functionality, invariance, direction.

A file of cases, .jsonl or .yaml (a list), each with the name of its test; here one of each kind:

    {"test": "negation", "text": "It is not good.", "expected": "0"}
    {"test": "names", "texts": ["Anna liked it.", "Omar liked it."]}
    {"test": "more praise", "texts": ["A good film.", "A very good film."], "label": "1", "direction": "rises"}

A text is what `meristem predict` takes: a text, or the fields of the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from meristem.config.errors import MeristemError
from meristem.evaluation.prediction_requests import parse_task_input
from meristem.evaluation.task_predictions import predict
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.learning.learner import Learner
from meristem.metrics.proportion_intervals import wilson_interval
from meristem.tasks.components.tag_predictions import TagPrediction
from meristem.trust.robustness.robustness_report import BehaviourResult, FailedCase
from meristem.trust.robustness.scored_answers import SINGLE_ANSWERS
from meristem.utils import untrusted_files

MAX_FAILED_CASES = 5
"""Failed cases shown per test."""
FIELDS = frozenset({"test", "text", "texts", "expected", "label", "direction", "tolerance"})
DIRECTIONS = ("rises", "falls")
ALL_LABELS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class BehaviourCase:
    """One case: one or two inputs, and what must hold of the answers."""

    test: str
    kind: str
    samples: tuple[Sample, ...]
    location: str
    expected: Any = None
    label: str = ""
    direction: str = ""
    tolerance: float = 0.0
    """How far the score may go the wrong way."""


def read_behaviour_tests(path: Path, task: Task) -> list[BehaviourCase]:
    """The cases of a file; raises for the first one that is wrong, with its place."""
    cases = [_parse_case(value, location, task) for value, location in _read_values(path)]
    if not cases:
        raise MeristemError(f"{path}: no test cases")
    kinds: dict[str, BehaviourCase] = {}
    for case in cases:
        first = kinds.setdefault(case.test, case)
        if first.kind != case.kind:
            raise MeristemError(
                f"{case.location}: test {case.test!r} is {case.kind} here and {first.kind} in {first.location}; "
                "give one of them another name"
            )
    return cases


def _read_values(path: Path) -> Iterator[tuple[Any, str]]:
    text = untrusted_files.read_text(path)
    if path.suffix in (".yaml", ".yml"):
        try:
            values = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise MeristemError(f"{path}: invalid YAML: {error}") from None
        if not isinstance(values, list):
            raise MeristemError(f"{path}: expected a list of cases")
        yield from ((value, f"{path}: case {number}") for number, value in enumerate(values, 1))
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield untrusted_files.parse_json_line(line), f"{path}:{number}"
            except ValueError as error:
                raise MeristemError(f"{path}:{number}: broken JSON ({error})") from None


def _parse_case(value: Any, location: str, task: Task) -> BehaviourCase:
    if not isinstance(value, Mapping) or not isinstance(value.get("test"), str):
        raise MeristemError(f'{location}: expected a mapping with the name of its test, {{"test": …, "text": …}}')
    if unknown := sorted(set(map(str, value)) - FIELDS):
        raise MeristemError(f"{location}: unknown field {unknown[0]!r}; there are {', '.join(sorted(FIELDS))}")
    texts = value.get("texts", (value["text"],) if "text" in value else ())
    kind = "direction" if "direction" in value else "minimum_functionality" if "expected" in value else "invariance"
    needed = 1 if kind == "minimum_functionality" else 2
    if not isinstance(texts, list | tuple) or len(texts) < needed or (kind != "invariance" and len(texts) != needed):
        wanted = '"text" and "expected"' if needed == 1 else '"texts" with two texts'
        raise MeristemError(f"{location}: a test of {kind.replace('_', ' ')} needs {wanted}")
    samples = tuple(parse_task_input(task, text, location) for text in texts)
    case = BehaviourCase(
        test=value["test"],
        kind=kind,
        samples=samples,
        location=location,
        expected=value.get("expected"),
        label=str(value.get("label", "")),
        direction=str(value.get("direction", "")),
        tolerance=_parse_tolerance(value.get("tolerance", 0.0), location),
    )
    _check_case(case, task)
    return case


def _parse_tolerance(value: Any, location: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise MeristemError(f"{location}: tolerance {value!r} is no number of at least 0")
    return float(value)


def _check_case(case: BehaviourCase, task: Task) -> None:
    """Raise for a direction or label that the task does not have."""
    labels, kind = task.parts.head.classes.labels, task.parts.output.kind
    if case.kind == "direction":
        if case.direction not in DIRECTIONS:
            raise MeristemError(f"{case.location}: direction {case.direction!r}; expected rises or falls")
        if kind not in ("label", "number"):
            raise MeristemError(f"{case.location}: task {task.name} has no score of a label that could rise or fall")
    wanted = case.label if case.kind == "direction" else case.expected
    if kind == "label" and case.kind != "invariance" and str(wanted) not in labels:
        raise MeristemError(f"{case.location}: the label {str(wanted)!r} is none of {', '.join(labels)}")


def run_behaviour_tests(learner: Learner, task: Task, cases: Sequence[BehaviourCase]) -> list[BehaviourResult]:
    """The failure rate of each test with examples, in the order of the file."""
    samples = [sample for case in cases for sample in case.samples]
    outputs = iter(predict(learner, samples, task=task).predictions) if samples else iter(())
    failed: dict[str, list[FailedCase]] = {}
    for case in cases:
        predictions = [next(outputs) for _ in case.samples]
        failures = failed.setdefault(case.test, [])
        if (failure := _failure(task, case, predictions)) is not None:
            failures.append(failure)
    return [_result(name, [case for case in cases if case.test == name], failed[name]) for name in failed]


def _result(name: str, cases: Sequence[BehaviourCase], failures: Sequence[FailedCase]) -> BehaviourResult:
    return BehaviourResult(
        name=name,
        kind=cases[0].kind,
        cases=len(cases),
        failures=len(failures),
        failure_interval=wilson_interval(len(failures) / len(cases), len(cases)),
        examples=failures[:MAX_FAILED_CASES],
    )


def _failure(task: Task, case: BehaviourCase, predictions: Sequence[Any]) -> FailedCase | None:
    """The case, if it fails."""
    if case.kind == "direction":
        before, after = (
            _score(task, prediction, sample, case.label)
            for prediction, sample in zip(predictions, case.samples, strict=True)
        )
        change = after - before if case.direction == "rises" else before - after
        holds = change > 0 if case.tolerance == 0 else change >= -case.tolerance
        expected, answer = f"score {case.direction}", f"{before:.4f} → {after:.4f}"
    else:
        answers = [
            _answer(task, prediction, sample) for prediction, sample in zip(predictions, case.samples, strict=True)
        ]
        if case.kind == "invariance":
            holds, expected = all(answer == answers[0] for answer in answers), "the same answer"
        else:
            wanted = case.expected if isinstance(case.expected, list) else str(case.expected)
            holds, expected = answers[0] == wanted, str(wanted)
        answer = " / ".join(map(str, answers))
    if holds:
        return None
    texts = [" | ".join(task.signature.texts(sample.inputs)) for sample in case.samples]
    return FailedCase(location=case.location, texts=texts, expected=expected, answer=answer)


def _answer(task: Task, prediction: Any, sample: Sample) -> Any:
    """The answer without its probability: a label, an answer text, the tags of the words."""
    if isinstance(prediction, TagPrediction):
        return list(prediction.tags)
    output, kind = task.format_output(prediction, sample), task.parts.output.kind
    if kind in SINGLE_ANSWERS:
        return str(output[SINGLE_ANSWERS[kind]])
    return sorted(str(item["label"]) for item in output) if isinstance(output, list) else f"{output['score']:.2f}"


def _score(task: Task, prediction: Any, sample: Sample, label: str) -> float:
    """The probability of a label, or the number of a regression."""
    scores = {item["label"]: item["score"] for item in task.format_top_outputs(prediction, sample, ALL_LABELS)}
    return float(scores[label]) if label in scores else float(next(iter(scores.values())))
