"""Perturbed labelled samples: their texts changed by a perturbation, tags and answers still at their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from numpy.random import Generator

from meristem.config.errors import MeristemError
from meristem.interfaces.sample import Sample
from meristem.labelled.perturbation import Perturbation, TextUnit, Units, join_units, leading_space, split_units
from meristem.labelled.sample_type import SAMPLE_TYPES
from meristem.labelled.sample_types.words import WordsSample

TEXT_INPUTS: dict[str, tuple[str, ...]] = {
    "text": ("text",),
    "pair": ("text", "text_b"),
    "choice": ("text", "question"),
}
"""Sample type → its inputs that are texts and have no place of the gold in them."""
PERTURBED_TYPES = (*TEXT_INPUTS, "words", "command", "span")


def check_sample_type(sample_type: str, task_name: str) -> None:
    """Raise for samples that cannot be perturbed, since the gold is itself a text or depends on an image."""
    if sample_type not in PERTURBED_TYPES:
        raise MeristemError(
            f"task {task_name}: its samples cannot be perturbed; classification, pair, choice, tagging, commands and "
            "span tasks can"
        )


def obstacle(perturbation: Perturbation, sample_type: str) -> str:
    """Why samples of this type cannot be perturbed in this way; empty if they can."""
    if sample_type == "span" and not perturbation.keeps_order:
        return "the answer would not stand in the passage any more"
    return ""


def perturb_sample(
    sample: Sample, sample_type: str, perturbation: Perturbation, severity: float, rng: Generator
) -> Sample:
    """The sample with changed texts; the sample itself where nothing could be changed or nothing would be left."""
    if sample_type in TEXT_INPUTS:
        changed = {
            name: _perturb_text(str(sample.inputs[name]), perturbation, severity, rng)
            for name in TEXT_INPUTS[sample_type]
            if sample.inputs.get(name)
        }
        return _with_inputs(sample, changed)
    if sample_type == "span":
        return _perturb_passage(sample, perturbation, severity, rng)
    sample_class = SAMPLE_TYPES[sample_type]
    assert issubclass(sample_class, WordsSample)
    return _perturb_words(sample, sample_class, perturbation, severity, rng)


def _with_inputs(sample: Sample, changed: dict[str, Any]) -> Sample:
    """The sample with these inputs; itself where they are the same."""
    if all(sample.inputs[name] == value for name, value in changed.items()):
        return sample
    return replace(sample, inputs={**sample.inputs, **changed})


def _perturb_text(text: str, perturbation: Perturbation, severity: float, rng: Generator) -> str:
    """The changed text; the text itself where it has no words or would lose all."""
    units = split_units(text)
    if not units:
        return text
    changed = join_units(perturbation.perturb(units, severity, rng))
    return leading_space(text) + changed if changed.strip() else text


# ------------------------------------------------------------ words with tags


def _perturb_words(
    sample: Sample, sample_class: type[WordsSample], perturbation: Perturbation, severity: float, rng: Generator
) -> Sample:
    """The sample with changed words, each with the tag of the word it was."""
    tags = sample_class.gold_tags(sample)
    units = _word_units(sample, tags)
    changed = [unit for unit in perturbation.perturb(units, severity, rng) if unit.text.strip()]
    if not changed or _same_words(changed, units):
        return sample
    if any(unit.source is None for unit in changed):
        raise MeristemError(f"perturbation {type(perturbation).__name__} added words that have no tag")
    text, offsets = "", []
    for unit in changed:
        offsets.append((len(text), len(text) + len(unit.text)))
        text += unit.text + unit.space
    inputs = {"words": tuple(unit.text for unit in changed), "text": text, "offsets": tuple(offsets)}
    new_tags = tuple(tags[unit.source] for unit in changed if unit.source is not None)
    return sample_class.with_tags(_with_inputs(sample, inputs), new_tags)


def _word_units(sample: Sample, tags: Sequence[str]) -> list[TextUnit]:
    """The words with the white space behind them; the inside of an entity is joined to its beginning."""
    text, offsets = str(sample.inputs["text"]), sample.inputs["offsets"]
    starts = [*(start for start, _ in offsets[1:]), len(text)]
    return [
        TextUnit(
            text=word, space=text[stop:next_start], source=index, tag=tag, joined=index > 0 and tag.startswith("I-")
        )
        for index, (word, (_, stop), next_start, tag) in enumerate(
            zip(sample.inputs["words"], offsets, starts, tags, strict=True)
        )
    ]


def _same_words(changed: Units, units: Units) -> bool:
    return len(changed) == len(units) and all(
        new.text == old.text and new.space == old.space for new, old in zip(changed, units, strict=True)
    )


# ------------------------------------------------------------ questions about a passage


def _perturb_passage(sample: Sample, perturbation: Perturbation, severity: float, rng: Generator) -> Sample:
    """Question and passage changed; the answers are what now stands where they stood."""
    passage = str(sample.inputs["passage"])
    leading, units = leading_space(passage), split_units(passage)
    changed = perturbation.perturb(units, severity, rng) if units else []
    question = _perturb_text(str(sample.inputs["question"]), perturbation, severity, rng)
    if not changed:
        return _with_inputs(sample, {"question": question})
    locate = _answer_locator(units, changed, leading)
    answers = [locate(text, start) for text, start in sample.gold or ()]
    new_passage = leading + join_units(changed)
    if any(new_passage[start : start + len(text)] != text or not text for text, start in answers):
        return _with_inputs(sample, {"question": question})
    new = _with_inputs(sample, {"question": question, "passage": new_passage})
    return new if sample.gold is None else replace(new, gold=tuple(answers))


def _answer_locator(units: Units, changed: Units, leading: str) -> Callable[[str, int], tuple[str, int]]:
    """A function from an answer (text, start) to what stands at its words in the changed passage."""
    old_starts, position = [], len(leading)
    for unit in units:
        old_starts.append(position)
        position += len(unit.text + unit.space)
    new_spans: dict[int, tuple[int, int]] = {}
    position = len(leading)
    for unit in changed:
        if unit.source is not None:
            new_spans.setdefault(unit.source, (position, position + len(unit.text)))
        position += len(unit.text + unit.space)
    new_passage = leading + join_units(changed)

    def locate(text: str, start: int) -> tuple[str, int]:
        inside = [
            index
            for index, old_start in enumerate(old_starts)
            if old_start < start + len(text) and old_start + len(units[index].text) > start
        ]
        spans = [new_spans[index] for index in inside if index in new_spans]
        if not spans:
            return "", 0
        first, last = min(spans)[0], max(spans)[1]
        return new_passage[first:last], first

    return locate
