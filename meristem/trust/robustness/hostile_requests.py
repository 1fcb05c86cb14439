"""Hostile requests: inputs that are no text of a task; each must be answered, or refused with a message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from meristem.evaluation.prediction_requests import PredictionRequest, TaskInput, predict_chunks
from meristem.interfaces.task import Task
from meristem.interfaces.task_signature import InputField
from meristem.learning.learner import Learner
from meristem.trust.robustness.robustness_report import HostileRequest

MAX_SHOWN_CHARACTERS = 160
LONG_NUMBER = re.compile(r"\d+\.\d{4,}(e-\d+)?")
TEXTS: Mapping[str, str] = {
    "empty": "",
    "only white space": " \t\n\u3000",
    "only control characters": "\x00\x07\x1b[2J\x7f",
    "only zero-width characters": "\u200b\u200d\ufeff\u2060",
    "half of a surrogate pair": "good \ud800 film",
    "a hundred thousand characters": "word " * 20_000,
    "one word of fifty thousand letters": "a" * 50_000,
    "mixed text directions": "\u202egood\u202c \u05d8\u05d5\u05d1 film \u0641\u064a\u0644\u0645 \u2067good\u2069",
    "a thousand combining marks": "a" + "\u0301" * 1_000,
    "special tokens": "[CLS] [SEP] [MASK] [PAD] <s> </s> <|endoftext|>",
    "markup and quotes": "<script>alert('x')</script> \"; DROP TABLE runs; --",
    "characters of no script": "\U0010ffff\ufffe\ue000",
}


def run_hostile_requests(learner: Learner, task: Task) -> list[HostileRequest]:
    """What the model does with each; failed stands for an error that is no message for the sender."""
    return [_run(learner, task, name, _request_of(task, text)) for name, text in TEXTS.items()]


def _run(learner: Learner, task: Task, name: str, request: TaskInput) -> HostileRequest:
    try:
        ((prediction,),) = predict_chunks(learner, task, [[PredictionRequest(task_input=request)]])
        if prediction.error or prediction.sample is None:
            return HostileRequest(name=name, outcome="refused", detail=prediction.error[:MAX_SHOWN_CHARACTERS])
        output = task.format_output(prediction.output, prediction.sample)
    except Exception as error:  # the report must say which input does this
        return HostileRequest(
            name=name, outcome="failed", detail=f"{type(error).__name__}: {error}"[:MAX_SHOWN_CHARACTERS]
        )
    return HostileRequest(name=name, outcome="answered", detail=_short(str(output)))


def _short(output: str) -> str:
    """An output with three decimals, cut off where it is long."""
    return LONG_NUMBER.sub(lambda match: f"{float(match[0]):.3f}", output)[:MAX_SHOWN_CHARACTERS]


def _request_of(task: Task, text: str) -> TaskInput:
    """The text in every required field of the task."""
    return {field.name: _value(field, text) for field in task.signature.inputs if field.required}


def _value(field: InputField, text: str) -> Any:
    return (text, text) if field.kind == "choices" else (text,) if field.is_list else text
