"""Prediction from the command line: answers as they are found, in order, and a word on what could not be answered."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from meristem.errors import MeristemError
from meristem.terminal import emit
from meristem.verbs.answers import ranking, readable
from meristem.verbs.asked import chunks
from meristem.verbs.predictions_file import PredictionsFile, record_of
from meristem.verbs.screen import print_json, say

if TYPE_CHECKING:
    from meristem.api import Loaded
    from meristem.evaluation.asking import Reply
    from meristem.task import Task

NAMED = 20
"""Wrong samples that are named; the others are only counted."""
EVERY = 5.0
"""Seconds after which it is said how far it is."""


@dataclass
class Account:
    """How far it is, and what went wrong."""

    answered: int = 0
    wrong: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)
    said: float = field(default_factory=time.monotonic)

    def add(self, reply: Reply) -> None:
        """One more; the first wrong ones are named at once."""
        if not reply.error:
            self.answered += 1
            return
        self.wrong.append(reply.error)
        if len(self.wrong) <= NAMED:
            say(reply.error)

    def progress(self) -> None:
        """A line now and then."""
        now = time.monotonic()
        if now - self.said >= EVERY:
            say(f"{self.answered:,} answered, {self.answered / (now - self.begun):,.0f} a second")
            self.said = now

    def end(self) -> None:
        """What was wrong makes the exit code."""
        if self.wrong:
            more = f", of which the first {NAMED} are named above" if len(self.wrong) > NAMED else ""
            say(f"{self.answered:,} answered, {len(self.wrong):,} could not be{more}")
            raise typer.Exit(1)


def predict(
    loaded: Loaded,
    parts: Mapping[str, Any],
    file: str | None,
    *,
    top: int | None,
    as_json: bool,
    out: Path | None = None,
) -> None:
    """Answer what was given in parts, or a file, or a pipe; on the output, or into a file beside what was asked."""
    from meristem.evaluation.asking import replies

    task, account = loaded.task(), Account()
    with nullcontext() if out is None else PredictionsFile(out) as written:
        for chunk in replies(loaded.revived.learner, task, chunks(task, loaded.recipe.data, parts, file)):
            for reply in chunk:
                if reply.error and parts:
                    raise MeristemError(reply.error)
                account.add(reply)
                if written is None:
                    _print(task, reply, top, as_json)
            if written is not None:
                written.write([record_of(reply.row, _shown(task, reply, top), reply.error) for reply in chunk])
            account.progress()
    if out is not None:
        say(f"wrote {out}")
    account.end()


def _shown(task: Task, reply: Reply, top: int | None) -> Any:
    """The answer as JSON shows it; none where there is none."""
    if reply.error or reply.sample is None:
        return None
    return task.shown(reply.answer, reply.sample) if top is None else task.ranked(reply.answer, reply.sample, top)


def _print(task: Task, reply: Reply, top: int | None, as_json: bool) -> None:
    if reply.error or reply.sample is None:
        if as_json:
            print_json({"error": reply.error})
        return
    shown = _shown(task, reply, top)
    if as_json:
        print_json(shown)
        return
    number = task.settings.model_dump().get("problem") == "regression"
    emit((readable if top is None else ranking)(shown, reply.sample.given, number=number), flush=True)
