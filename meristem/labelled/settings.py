"""Where labelled data are, and what their columns are called."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, field_validator

from meristem.dependences import Dependences, when
from meristem.settings import Settings


class DataSettings(Settings):
    """Files of samples; columns are found by their usual names where these settings do not name them."""

    needs: ClassVar[Dependences] = {
        "header": (when("format", "auto", "table"),),
        "validation_target": (when("validation"), when("format", "auto", "parallel")),
        "test_target": (when("test"), when("format", "auto", "parallel")),
        "held_out": (when("validation", None),),
    }

    model_config = ConfigDict(coerce_numbers_to_str=True)  # data.text=6 is a column of a table without names

    train: str | tuple[str, ...] | None = None
    """A file (tsv, csv, jsonl, parquet, CoNLL, SQuAD's json; also .gz, .zst), builtin:NAME or hub:OWNER/NAME?split=…"""
    validation: str | tuple[str, ...] | None = None
    """The same for validation; a share of the training data is held out where there is none."""
    test: str | tuple[str, ...] | None = None
    """The same for the one test at the end."""
    format: Literal["auto", "table", "conll", "squad", "parallel", "pictures"] = "auto"
    """How files are written; told from their ending and their first lines unless set."""
    header: bool | None = None
    """Whether a table's first line names its columns; found out unless set. Without one they are called 1, 2, 3, …"""

    text: str | None = None
    """The column of the text, context or premise."""
    text_b: str | None = None
    """The column of the second text."""
    label: str | None = None
    """The column of the label, score, tags or right choice."""
    target: str | None = None
    """The column of the text to be written; for parallel files the other side's file of the training data."""
    validation_target: str | None = None
    """Parallel files: the other side of the validation data."""
    test_target: str | None = None
    """Parallel files: the other side of the test data."""
    words: str | None = None
    """The column of the words, in CoNLL files its number from 1."""
    question: str | None = None
    """The column of the question."""
    passage: str | None = None
    """The column of the passage an answer is taken from."""
    answers: str | None = None
    """The column of the answers."""
    choices: tuple[str, ...] = ()
    """The columns of the choices, or the one that holds a list of them."""
    turns: str | None = None
    """The column of a dialogue's turns."""
    intent: str | None = None
    """The column of a command's intent."""
    picture: str | None = None
    """The column of the picture's path, relative to its file."""

    skip_bad: bool = False
    """Leave out rows that cannot be used (no label, broken quotes or JSON) and say which; else they are an error."""
    held_out: float = Field(0.1, ge=0.0, le=0.5)
    """Share of the training data that is held out where no validation data are given; 0 holds nothing out."""
    limit: int | None = Field(None, ge=1)
    """At most so many training samples, drawn with `seed`."""
    seed: int = Field(0, ge=0)
    """Which samples are held out and which are drawn follows from it, not from train.seed."""

    @field_validator("choices", mode="before")
    @classmethod
    def _one_choice_column(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value
