"""The runs that are served: each loaded once, with a name and what it can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from meristem.checkpoint.revive import Revived, revive
from meristem.errors import MeristemError, did_you_mean
from meristem.evaluation.carried import tasks_of
from meristem.evaluation.embedding import reads_text
from meristem.generation.way import Verb, Way, detects, way_for, ways, ways_for
from meristem.serving.errors import Refused
from meristem.task import Task

TASKS: dict[str, tuple[str, ...]] = {
    "classify": ("classification", "pair", "probe"),
    "tag": ("tagging", "commands"),
    "answer": ("span",),
    "choose": ("choice",),
    "translate": ("translation",),
    "summarise": ("summary",),
    "caption": ("caption",),
    "reply": ("dialogue",),
}
"""By route, the tasks that answer it."""


def revive_to_serve(path: Path, *, allow_nonfinite: bool, step: int | None = None) -> Revived:
    """A run whose answers mean something: weights that are not finite are refused unless they are allowed."""
    revived = revive(path, step=step)
    if not revived.finite and not allow_nonfinite:
        raise MeristemError(
            f"{path}: its weights are not finite numbers, so its answers would mean nothing; train it again with a "
            "lower train.rate, or start the server with --allow-nonfinite to serve it all the same"
        )
    return revived


class Served:
    """One run."""

    def __init__(self, name: str, revived: Revived) -> None:
        self.name, self.revived = name, revived
        self.learner, self.tokenizer, self.recipe = revived.learner, revived.tokenizer, revived.recipe
        self.model = revived.learner.model
        self.tasks: dict[str, Task] = tasks_of(revived)
        self.ways: tuple[Way, ...] = ways(self.model)

    def __str__(self) -> str:
        return self.name

    def way(self, verb: Verb) -> Way:
        """How its model answers a verb."""
        return way_for(self.model, verb)

    def task(self, verb: str) -> Task | None:
        """The task that answers a route."""
        return next((self.tasks[name] for name in TASKS.get(verb, ()) if name in self.tasks), None)

    @cached_property
    def can(self) -> tuple[str, ...]:
        """The routes it answers."""
        found = [verb for verb in TASKS if self.task(verb) is not None]
        sees = self.model.backbone.can
        text = self.model.backbone.text_tasks
        kinds = self.model.source_kinds
        captions = "image" in kinds or not kinds  # a run that was rewarded does not say what else it learned
        if "image" in sees and "source" in self.ways and captions and "caption" not in found:
            found.append("caption")
        if ways_for(self.model, "generate") and text:
            found.append("generate")
        if "causal" in self.ways or "dialogue" in self.tasks:
            found.append("chat")
        if ways_for(self.model, "fill"):
            found.append("fill")
        if ways_for(self.model, "score") or "source" in self.ways:  # a target given its source
            found.append("score")
        if detects(self.model):
            found.append("detect")
        if reads_text(self.model):
            found.append("embed")
        if "both_directions" not in sees:
            found.append("attention")
        return tuple(found)


class Hub:
    """All of them by name."""

    def __init__(self, runs: Mapping[str, Revived]) -> None:
        self.runs = {name: Served(name, revived) for name, revived in runs.items()}

    @classmethod
    def open(cls, paths: Iterable[Path], *, allow_nonfinite: bool = False) -> Hub:
        """Load runs; each is named after its folder."""
        found: dict[str, Revived] = {}
        for path in paths:
            name = path.expanduser().resolve().name
            if name in found:
                other = found[name].run.path
                raise MeristemError(f"{path} and {other} are both named {name}: rename one of the folders")
            found[name] = revive_to_serve(path.expanduser(), allow_nonfinite=allow_nonfinite)
        return cls(found)

    def named(self, name: str) -> Served:
        """A run by name."""
        if name not in self.runs:
            raise Refused(404, f"model {name!r} is not served here{did_you_mean(name, list(self.runs))}", param="model")
        return self.runs[name]

    def for_(self, verb: str, name: str | None) -> Served:
        """The run that a request means: the one it names, else the only one that can do what it asks for."""
        able = [run for run in self.runs.values() if verb in run.can]
        if name is not None:
            run = self.named(name)
            if run not in able:
                others = f"; {', '.join(one.name for one in able)} can" if able else ""
                raise Refused(422, f"model {name!r} cannot {verb}: it can {', '.join(run.can)}{others}", param="model")
            return run
        if not able:
            raise Refused(422, f"no run that is served here can {verb}; GET /runs tells what each can do")
        if len(able) > 1 and len(self.runs) > 1:
            raise Refused(422, f"several runs can {verb}: say which as model, one of "
                               f"{', '.join(one.name for one in able)}", param="model")  # fmt: skip
        return able[0]
