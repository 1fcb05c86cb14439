"""Abstention: answers below a probability are withheld, for a person to decide."""

from __future__ import annotations

from typing import Any

from meristem.config.errors import MeristemError
from meristem.interfaces.task import Task
from meristem.interfaces.task_signature import OutputKind

ABSTAIN = "abstain"
"""What stands in the place of an answer that is withheld."""
ANSWER_FIELDS: dict[OutputKind, tuple[str, ...]] = {
    "label": ("label",),
    "intent": ("intent",),
    "span": ("answer",),
    "choice": ("label", "choice"),
    "tags": ("entity_group", "entity"),
}
"""Kind of output → the fields that are withheld, for tasks whose answers have a probability of their own."""


def check_abstention(task: Task, min_probability: float | None) -> None:
    """Raise for a probability that is none, and for a task whose answers have none."""
    if min_probability is None:
        return
    if not 0 < min_probability <= 1:
        raise MeristemError(f"abstain below {min_probability:g}: give a probability above 0, up to 1")
    if task.parts.output.kind not in ANSWER_FIELDS:
        raise MeristemError(
            f"abstain: task {task.name} gives no single answer with a probability; classification, pair, tagging, "
            "span, choice and commands tasks can abstain"
        )


def withhold_uncertain(kind: OutputKind, output: Any, min_probability: float) -> Any:
    """The output with `abstain` for each answer whose probability is lower; the probability stays."""
    if isinstance(output, list):
        return [withhold_uncertain(kind, item, min_probability) for item in output]
    if output["score"] >= min_probability:
        return output
    withheld = {name: ABSTAIN for name in ANSWER_FIELDS[kind] if name in output}
    places = {name: None for name in ("start", "end") if kind == "span"}
    return {**output, **withheld, **places}
