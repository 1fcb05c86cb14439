"""The whole of Meristem from Python: pretrain, load, describe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console

from meristem.checkpoint.revive import Revived, recipe_of, revive
from meristem.checkpoint.run import Run
from meristem.corpus.pictures import picture
from meristem.evaluation.answering import answer
from meristem.evaluation.asking import Given, asked
from meristem.evaluation.carried import tasks_of, the_task
from meristem.evaluation.evaluate import evaluate as evaluate_run
from meristem.evaluation.held_out import resting
from meristem.evaluation.prompted import evaluate_prompted
from meristem.generation.fill import Filled, fill
from meristem.generation.given import Prompt, given, together
from meristem.generation.sampling import SamplingSettings
from meristem.generation.score import Scored, score
from meristem.generation.way import Way, way_of, ways
from meristem.generation.write import write
from meristem.generation.written import Written
from meristem.interop import exporting, importing
from meristem.interop.exporting import Exported
from meristem.interop.importing import Imported
from meristem.interop.starting import run_for
from meristem.overrides import override, written_out
from meristem.recipe import Recipe, read, resolve
from meristem.settings import build
from meristem.store.letters import spelled
from meristem.task import Task
from meristem.training import describe as describing
from meristem.training import finetuning, pretraining
from meristem.training.ending import Ended

Overrides = Mapping[str, Any] | Sequence[str]


def recipe_for(recipe: str | Path, overrides: Overrides = (), source: str | None = None) -> Recipe:
    """A recipe by name or file, with a source and overrides put in."""
    name, mapping = read(recipe)
    if source is not None:
        mapping = {**mapping, "corpus": {**(mapping.get("corpus") or {}), "source": source}}
    return resolve(name, mapping, overrides)


def pretrain(
    recipe: str | Path = "bert-mini",
    overrides: Overrides = (),
    *,
    source: str | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    console: Console | None = None,
) -> Ended:
    """Train a recipe on text; running it again goes on where it stopped."""
    resolved = recipe_for(recipe, overrides, source)
    folder = Path(out) if out is not None else Path("runs") / resolved.name
    return pretraining.pretrain(resolved, folder, fresh=fresh, console=console or Console(stderr=True))


def task_recipe(recipe: str | Path | None = None, overrides: Overrides = ()) -> Recipe:
    """A recipe for a task: by name or file, else the one named like its task; the model is that of `from`.

    Settings of `model` in the recipe are for a start from scratch; those among the overrides always count.
    """
    told = override({}, overrides)
    name, mapping = read(recipe or (told.get("task") or {}).get("name") or "classification")
    mapping = written_out(mapping)
    if "train" in (told.get("data") or {}):  # whoever brings data is not judged on the built-in ones of the recipe
        data = mapping.get("data") or {}
        mapping["data"] = {key: value for key, value in data.items() if not str(value).startswith("builtin:")}
    start = {**(mapping.get("start") or {}), **(told.get("start") or {})}
    if start.get("path") in (None, "scratch"):
        return resolve(name, mapping, overrides)
    path = run_for(Path(start["path"]))  # published weights are imported where they were not yet
    before = recipe_of(Run.open(path))
    mapping["model"], mapping["tokenizer"] = (
        getattr(before, part).model_dump(mode="json") for part in ("model", "tokenizer")
    )
    found = resolve(name, mapping, overrides)
    return replace(found, start=found.start.model_copy(update={"path": str(path)}))


def finetune(
    recipe: str | Path | None = None,
    overrides: Overrides = (),
    *,
    out: str | Path | None = None,
    fresh: bool = False,
    console: Console | None = None,
) -> Ended:
    """Teach a model a task from labelled data; running it again goes on where it stopped."""
    resolved = task_recipe(recipe, overrides)
    folder = Path(out) if out is not None else Path("runs") / resolved.name
    return finetuning.finetune(resolved, folder, fresh=fresh, console=console or Console(stderr=True))


def describe(recipe: str | Path, overrides: Overrides = ()) -> describing.Description:
    """What a recipe is and what it costs here."""
    return describing.describe(recipe_for(recipe, overrides))


def import_folder(folder: str | Path, out: str | Path) -> Imported:
    """Published weights as a run: a folder that transformers saved, or AllenNLP's ELMo files."""
    return importing.import_folder(Path(folder), Path(out))


def export(run: str | Path, folder: str | Path, *, onnx: bool = False, architecture: str | None = None) -> Exported:
    """A run as a folder that transformers opens, or as ONNX graphs."""
    if onnx:
        from meristem.interop import graphs

        return graphs.export_run(Path(run), Path(folder))
    return exporting.export_run(Path(run), Path(folder), architecture=architecture)


def load(
    run: str | Path,
    *,
    which: Literal["latest", "best"] | None = None,
    step: int | None = None,
    device: str | None = None,
) -> Loaded:
    """A finished or half-finished run, ready for use."""
    revived = revive(Path(run), which=which, step=step)
    if device is not None:
        revived.learner.to(device)
    return Loaded(revived)


class Loaded:
    """A model in use."""

    def __init__(self, revived: Revived) -> None:
        self.revived = revived
        self.model, self.tokenizer, self.recipe = revived.learner.model, revived.tokenizer, revived.recipe

    @property
    def way(self) -> Way:
        """The way it writes and scores; some models only read."""
        return way_of(self.model)

    def fill(self, text: str, *, top: int = 5) -> list[Filled]:
        """Ranked words for every [MASK]."""
        return fill(self.model, self.tokenizer, text, top=top)

    def generate(
        self,
        prompt: Prompt | Path | Sequence[Prompt | Path] = "",
        *,
        count: int = 1,
        on_text: Callable[[int, str], None] | None = None,
        **settings: Any,
    ) -> list[list[Written]]:
        """Texts that go on from each prompt; a masked model writes by filling masks over several rounds.

        An encoder-decoder turns each prompt into a text; a captioner's may be pictures: files, or arrays [P, P, 3].
        """
        several = [prompt] if isinstance(prompt, str | Path | np.ndarray) else list(prompt)
        prompts = [picture(one, self.recipe.store.picture) if isinstance(one, Path) else one for one in several]
        chosen = build(SamplingSettings, settings, "generate")
        assert isinstance(chosen, SamplingSettings)
        return write(self.model, self.tokenizer, prompts, chosen, count=count, on_text=on_text)

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """What it was taught with labels, by name: its task, or those whose heads came along with an import."""
        return tasks_of(self.revived)

    def task(self, name: str | None = None) -> Task:
        """Its task; a run without one says what it can do instead."""
        return the_task(self.tasks, self.revived, name)

    def predict(self, given: Given | Sequence[Given], *, task: str | None = None, top: int | None = None) -> Any:
        """The task's answers: for one text or for a list of them; a mapping names its parts (question, passage).

        With `top` each answer is the list of its likeliest ones.
        """
        found, one = self.task(task), isinstance(given, str | Mapping)
        several: Sequence[Given] = [given] if isinstance(given, str | Mapping) else list(given)
        samples = [asked(found, each, "" if one else f"text {n}") for n, each in enumerate(several, 1)]
        pairs = zip(answer(self.revived.learner, samples, task=found).answers, samples, strict=True)
        answers = [found.shown(*pair) if top is None else found.ranked(*pair, top) for pair in pairs]
        return answers[0] if one else answers

    def score(self, texts: str | Iterable[str]) -> list[Scored]:
        """Log-probabilities: exact for causal models, pseudo for masked ones."""
        return score(self.model, self.tokenizer, [texts] if isinstance(texts, str) else list(texts), way=self.way)

    def embed(self, texts: Sequence[str], *, pooling: Literal["mean", "first", "last"] = "mean") -> torch.Tensor:
        """One vector per text [texts, width]: the mean of its (encoder's) states, or its first or last."""
        rows = []
        with resting(self.model):
            for text in texts:
                hidden, _ = self._states(text)
                states = (hidden.last if hidden.source is None else hidden.source)[0]
                rows.append({"mean": states.mean(0), "first": states[0], "last": states[-1]}[pooling])
        return torch.stack(rows).clone()

    def attention(self, text: str) -> tuple[list[str], list[torch.Tensor]]:
        """The tokens of a text, and per layer (an encoder's, if any) where each looks [heads, queries, keys]."""
        with resting(self.model):
            hidden, tokens = self._states(text, want=("attention",))
        return tokens, [layer[0].clone() for layer in hidden.extra.get("encoder_attention", hidden.attention)]

    def _states(self, text: str, want: tuple[str, ...] = ()) -> tuple[Any, list[str]]:
        way, can = next(iter(ways(self.model)), None), self.model.backbone.can
        found = self.tokenizer.encode(text, special=True)
        ids = found.ids.tolist()
        if way == "source":
            inputs = together([given(self.model, self.tokenizer, text)], self.model.device)
            hidden = self.model.backbone(tokens=inputs[0], **inputs[2], want=want)
            return hidden, [self.tokenizer.token(i) for i in inputs[2]["source"][0].tolist()]
        start, end = self.tokenizer.start, self.tokenizer.end
        framed = (
            [start, *ids, end] if way != "causal" and start is not None and end is not None else (ids or [end or 0])
        )
        framed = framed if "characters" in can else framed[: self.recipe.model.length]
        reads: dict[str, Any] = {"tokens": torch.tensor([framed], device=self.model.device)}
        if way == "causal":
            reads["causal"] = True
        if "characters" in can:
            reads["characters"] = self._letters(text, framed, found.offsets)
        return self.model.backbone(**reads, want=want), [self.tokenizer.token(i) for i in framed]

    def _letters(self, text: str, framed: list[int], offsets: np.ndarray[Any, Any]) -> torch.Tensor:
        """How each token of a framed text is written, whether or not its word is in the vocabulary."""
        words = [text[first:last].encode("utf-8", "surrogatepass") for first, last in offsets.tolist()]
        edge = [b""] * ((len(framed) - len(words)) // 2)
        if len(words) + 2 * len(edge) < len(framed):  # an empty text without a frame is read as its end
            words = [b""]
        letters = spelled(np.array(framed), [*edge, *words, *edge], self.tokenizer)
        return torch.from_numpy(letters)[None].to(self.model.device)

    def evaluate(self, **options: Any) -> dict[str, Any]:
        """Loss, perplexity, bits per byte, accuracies, minimal pairs; of a task run, the task's numbers.

        With a `template` labelled samples are asked about in words, untrained: `words`, `shots` from `shot_data`,
        `calibrate` and the other settings of prompts.
        """
        if options.get("template") is not None:
            return evaluate_prompted(self.revived, **options)
        return evaluate_run(self.revived, console=Console(stderr=True), **options)
