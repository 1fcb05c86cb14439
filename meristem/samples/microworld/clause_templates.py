"""Clause templates: texts with slots for the roles of a fact, split once at their slots."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from meristem.samples.microworld.lexicon import WORDS_FOLDER
from meristem.utils import word_tables

TemplatePieces: TypeAlias = tuple[tuple[str, str], ...]  # literal text, then the slot after it ("" at the end)
SLOT_PATTERN = re.compile(r"([^{]*)(?:\{([^}]+)\})?")


@cache
def split_template(template: str) -> TemplatePieces:
    """A template split at its slots."""
    return tuple((literal, slot or "") for literal, slot in SLOT_PATTERN.findall(template) if literal or slot)


@dataclass(frozen=True)
class ClauseTemplates:
    """Templates of one kind of fact: all, those that begin with the subject, and the latter without it."""

    all_templates: tuple[TemplatePieces, ...]
    subject_first: tuple[TemplatePieces, ...]
    without_subject: tuple[TemplatePieces, ...]


def read_clauses(language: str) -> word_tables.Groups:
    """The clause templates of a language by kind of fact."""
    return word_tables.read_groups(WORDS_FOLDER / f"clauses-{language}.txt")


@cache
def load_clauses(language: str) -> dict[str, ClauseTemplates]:
    """The templates of every kind in a language, split once."""
    return {kind: _split_clauses(texts) for kind, texts in read_clauses(language).items()}


def _split_clauses(texts: tuple[str, ...]) -> ClauseTemplates:
    single_subject = re.compile(r"\{who\}(?! and |, )")  # with "{who} and {whom}" a second verb would be plural
    subject_first = [text for text in texts if single_subject.match(text) and not re.search(r", who| and ", text)]
    without_subject = [text.removeprefix("{who}").lstrip() for text in subject_first]
    return ClauseTemplates(
        tuple(map(split_template, texts)),
        tuple(map(split_template, subject_first)),
        tuple(map(split_template, without_subject)),
    )
