"""Settings of labelled data: files, format, column names, held-out share, subsampling."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field, field_validator

from meristem.config.conditions import SettingConditions, when
from meristem.config.name_choice import NameChoice
from meristem.config.registry import ComponentKind
from meristem.config.settings import Settings, expand_switch
from meristem.data.sources import format_names


def data_formats() -> tuple[str, ...]:
    """Formats of labelled data: those with columns, and those of several files or of a nested structure."""
    return ("auto", *format_names(text=False), "squad", "label_studio", "doccano", "parallel", "pictures")


class AugmentSettings(Settings):
    """Noise on training samples; which sample is changed and how is a function of (seed, epoch, sample)."""

    perturbations: tuple[Annotated[str, NameChoice("perturbation", ComponentKind.PERTURBATION.names)], ...] = ()
    """Names of perturbations, of which some are drawn per sample; all that leave labels as they are if empty."""
    share: float = Field(0.9, gt=0.0, le=1.0)
    """Share of the training samples that are perturbed, others in each epoch."""
    severity: float = Field(0.6, gt=0.0, le=1.0)
    """Largest share of the words of a sample that are changed; each sample has one drawn up to it."""
    max_perturbations: int = Field(4, ge=1, le=16)
    """Most perturbations of one sample, one after another; each sample has a number of them drawn up to it."""
    dictionary: str | None = None
    """File of word TAB translation lines for code switching; built-in words if not set."""


AugmentOption = Annotated[
    AugmentSettings | None, BeforeValidator(expand_switch, json_schema_input_type=AugmentSettings | bool | None)
]


class DataSettings(Settings):
    """Labelled data; columns are found by common names unless set here."""

    renamed: ClassVar[dict[str, str]] = {"picture": "image"}
    added: ClassVar[frozenset[str]] = frozenset({"augment"})

    needs: ClassVar[SettingConditions] = {
        "header": (when("format", "auto", "table", "csv", "tsv"),),
        "validation_target": (when("validation"), when("format", "auto", "parallel")),
        "test_target": (when("test"), when("format", "auto", "parallel")),
        "held_out": (when("validation", None),),
    }

    model_config = ConfigDict(coerce_numbers_to_str=True)  # data.text=6 is a column of a table without names

    train: str | tuple[str, ...] | None = None
    """A file (tsv, csv, jsonl, parquet, CoNLL, SQuAD's json; also .gz, .zst), builtin:NAME or hub:OWNER/NAME?split=…"""
    validation: str | tuple[str, ...] | None = None
    """The same for validation; part of the training data is held out if it is not set."""
    test: str | tuple[str, ...] | None = None
    """The same for the final test."""
    format: Annotated[str, NameChoice("format", data_formats)] = "auto"
    """Format of the files; detected from the file ending and the first lines if auto."""
    header: bool | None = None
    """Whether the first line of a table is a header; detected if not set. Without one, columns are named 1, 2, 3, …"""

    text: str | None = None
    """The column of the text, context or premise."""
    text_b: str | None = None
    """The column of the second text."""
    label: str | None = None
    """The column of the label, score, tags or correct choice."""
    target: str | None = None
    """The column of the target text; for parallel files the target file of the training data."""
    validation_target: str | None = None
    """Parallel files: the target file of the validation data."""
    test_target: str | None = None
    """Parallel files: the target file of the test data."""
    words: str | None = None
    """The column of the words; for CoNLL files its number, from 1."""
    question: str | None = None
    """The column of the question."""
    passage: str | None = None
    """The column of the passage that contains the answer."""
    answers: str | None = None
    """The column of the answers."""
    choices: tuple[str, ...] = ()
    """The columns of the choices, or the one column that holds them as a list."""
    turns: str | None = None
    """The column of a dialogue's turns."""
    intent: str | None = None
    """The column of a command's intent."""
    image: str | None = None
    """The column of the image path, relative to the data file."""

    skip_bad: bool = False
    """Skip invalid rows (no label, broken quotes or JSON) and report them; otherwise they are an error."""
    held_out: float = Field(0.1, ge=0.0, le=0.5)
    """Share of the training data held out for validation if data.validation is not set; 0 holds out none."""
    limit: int | None = Field(None, ge=1)
    """Maximum number of training samples, drawn with `seed`."""
    augment: AugmentOption = None
    """Train on noisy samples, as meristem robustness measures them: true, or its own settings; fine-tuning only."""
    seed: int = Field(0, ge=0)
    """Seed for holding out and drawing samples, independent of train.seed."""

    @field_validator("choices", mode="before")
    @classmethod
    def _one_choice_column(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value
