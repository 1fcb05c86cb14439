"""The Python interface: train (pretrain, finetune, reinforce), open a run (load), and move weights in and out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from rich.console import Console

from meristem.checkpoint.revive import Revived, revive
from meristem.console import TerminalConsole
from meristem.corpus import pictures
from meristem.drawing.attended import Attended
from meristem.errors import MeristemError
from meristem.evaluation.answering import answer
from meristem.evaluation.asking import Given, asked
from meristem.evaluation.carried import tasks_of, the_task
from meristem.evaluation.embedding import Layer, Pooling, embed, frame, states
from meristem.evaluation.evaluate import evaluate as evaluate_run
from meristem.evaluation.held_out import resting
from meristem.evaluation.looking import look
from meristem.evaluation.prompted import evaluate_prompted
from meristem.evaluation.token_vectors import Level, TokenVectors, token_vectors
from meristem.generation.detect import DetectedToken, detect
from meristem.generation.fill import Filled, fill
from meristem.generation.given import Picture, Prompt
from meristem.generation.sampling import SamplingSettings
from meristem.generation.score import Scored, score
from meristem.generation.way import Way, way_for
from meristem.generation.write import write
from meristem.generation.written import Written
from meristem.in_memory import Table, as_file, stored_data, stored_source
from meristem.interop import exporting, importing, starting
from meristem.interop.exporting import Exported
from meristem.interop.importing import Imported
from meristem.labelled.reading import stream
from meristem.labelled.settings import DataSettings
from meristem.recipe import read
from meristem.reinforce import ranking
from meristem.reinforce.named import Named, settings_of
from meristem.reinforce.ranking import Ranked
from meristem.reinforce.reward import Attempt
from meristem.resolving import Overrides, made_ready, recipe_for, task_recipe
from meristem.settings import build
from meristem.tables import Evaluation, Results
from meristem.task import Sample, Task
from meristem.training import describe as describing
from meristem.training import finetuning, pretraining, reinforcing
from meristem.training.ending import Ended
from meristem.training.rewarding import desk, rewarded


def pretrain(
    recipe: str | Path = "bert-mini",
    overrides: Overrides = (),
    *,
    source: str | Path | Table | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    console: Console | None = None,
) -> Ended:
    """Train a recipe on text; running it again goes on where it stopped.

    `recipe` is a recipe's name or YAML file, `overrides` its settings, {"train.minutes": 3} or ["train.minutes=3"].
    `source` is a file, folder, glob, builtin:NAME or hub:OWNER/NAME, or the texts themselves: a list of them, a list of
    mappings with a column `text`, or a DataFrame; these are kept in the run's folder, so that it can resume.
    """
    folder = Path(out) if out is not None else Path("runs") / read(recipe)[0]
    place, fresh = stored_source(source, folder, fresh=fresh)
    resolved = recipe_for(recipe, overrides, place)
    return pretraining.pretrain(resolved, folder, fresh=fresh, console=console or TerminalConsole(stderr=True))


def finetune(
    recipe: str | Path | None = None,
    overrides: Overrides = (),
    *,
    data: Table | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    console: Console | None = None,
) -> Ended:
    """Teach a model a task from labelled data; running it again goes on where it stopped.

    `recipe` is a task's name (classification, tagging, …) or a YAML file; {"from": "runs/bert-mini"} among the
    `overrides` begins from a run. `data` holds the splits, {"train": …, "validation": …, "test": …}, each a file, a
    list of mappings or a DataFrame, and perhaps which columns to read, {"text": "review", "label": "stars"}; or it is
    the training split alone. What is given in memory is kept in the run's folder, so that the run can resume.
    """
    folder = Path(out) if out is not None else Path("runs") / task_recipe(recipe, overrides).name
    overrides, fresh = stored_data(data, overrides, folder, fresh=fresh)
    resolved = task_recipe(recipe, overrides)
    return finetuning.finetune(resolved, folder, fresh=fresh, console=console or TerminalConsole(stderr=True))


def reinforce(
    recipe: str | Path,
    overrides: Overrides = (),
    *,
    data: Table | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    console: Console | None = None,
) -> Ended:
    """Improve a model that writes with rewards; its start and its judges are trained first where they are recipes.

    `data` are the prompts, given as `finetune` takes samples.
    """
    folder = Path(out) if out is not None else Path("runs") / read(recipe)[0]
    overrides, fresh = stored_data(data, overrides, folder, fresh=fresh)
    console = console or TerminalConsole(stderr=True)
    ready = made_ready(recipe, overrides, folder, console)
    return reinforcing.reinforce(
        ready.recipe, folder, rewards=ready.rewards, judge=ready.judge, fresh=fresh, console=console
    )


def describe(recipe: str | Path, overrides: Overrides = ()) -> describing.Description:
    """What a recipe is and what it costs here."""
    return describing.describe(recipe_for(recipe, overrides))


def import_folder(folder: str | Path, out: str | Path) -> Imported:
    """Published weights as a run: a folder that transformers saved, AllenNLP's ELMo files, or a name on the hub."""
    return importing.import_folder(starting.folder_of(folder), Path(out))


def export(
    run: str | Path,
    folder: str | Path,
    *,
    onnx: bool = False,
    architecture: str | None = None,
    drop_crf: bool = False,
) -> Exported:
    """A run as a folder that transformers opens, or as ONNX graphs.

    `architecture` chooses the class, without the heads it has no place for; `drop_crf` leaves a tagger's CRF out.
    """
    if onnx:
        from meristem.interop import graphs

        return graphs.export_run(Path(run), Path(folder))
    return exporting.export_run(Path(run), Path(folder), architecture=architecture, drop_crf=drop_crf)


def reward(
    name: Named | Sequence[Named],
    *,
    text: str | Sequence[str],
    prompt: str = "",
    references: Sequence[str] = (),
    columns: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    console: Console | None = None,
    **settings: Any,
) -> Any:
    """What a reward thinks of a text, or of each of several, and why; what it must fit first is kept in a folder.

    Several rewards, or one with all its settings, are given as mappings: `{"name": "length", "target": 20}`.
    """
    told = {"name": name, **settings} if isinstance(name, str) and settings else name
    rewards = rewarded(settings_of(told), Path(folder) if folder else desk(), console or TerminalConsole(stderr=True))
    texts = [text] if isinstance(text, str) else list(text)
    attempts = [Attempt(prompt=prompt, text=one, references=tuple(references), columns=columns or {}) for one in texts]
    rewards.check(attempts)
    judged = rewards.judge(attempts).judgements()
    return judged[0] if isinstance(text, str) else judged


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
    """A run in use: fill, generate, score, embed, predict, evaluate, look."""

    def __init__(self, revived: Revived) -> None:
        self.revived = revived
        self.model, self.tokenizer, self.recipe = revived.learner.model, revived.tokenizer, revived.recipe

    def __repr__(self) -> str:
        parameters = sum(one.numel() for one in self.model.parameters())
        learned = ", ".join(part.name for source in self.recipe.sources() for part in source.objective)
        told = f"{self.recipe.model.family}, {parameters / 1e6:.1f} M parameters, step {self.revived.step:,}"
        return f"Loaded({self.revived.run.path}: {told}, trained for {learned})"

    @property
    def way(self) -> Way:
        """The way it generates text from a prompt."""
        return way_for(self.model, "generate")

    def fill(self, text: str, *, top: int = 5) -> list[Filled]:
        """Ranked words for every [MASK]."""
        return Results(fill(self.model, self.tokenizer, text, top=top))

    def generate(
        self,
        prompt: Prompt | Path | Sequence[Prompt | Path] = "",
        *,
        count: int = 1,
        max_tokens: int = 100,
        min_tokens: int = 0,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        greedy: bool = False,
        beams: int = 1,
        length_penalty: float = 1.0,
        early: bool = False,
        repetition_penalty: float = 1.0,
        no_repeat: int | None = None,
        stop: Sequence[str] = (),
        seed: int = 0,
        source: bool = False,
        on_text: Callable[[int, str], None] | None = None,
    ) -> list[list[Written]]:
        """For each prompt `count` texts that go on from it; a masked model writes by filling masks over several rounds.

        An encoder-decoder turns each prompt into a text; a captioner's may be pictures: files, or arrays [P, P, 3].
        A model that can go on from a text too reads it with its encoder where `source` is set.

        max_tokens, min_tokens: how many tokens a text may have, and must have before it ends.
        temperature: below 1 likely tokens become likelier, above 1 less so; greedy: always the likeliest.
        top_k, top_p: only the k likeliest tokens, or the fewest with this probability together, may be drawn.
        beams: beam search with so many; length_penalty: beams are ranked by log-probability / tokens ** this; early: it
            ends once no text would overtake the best if it ended now.
        repetition_penalty: above 1, tokens already used are less likely; no_repeat: no run of so many tokens twice.
        stop: strings at which a text ends; seed: the same seed writes the same text.
        on_text: called with the number of a text and what was just added to it.
        """
        settings = {name: value for name, value in locals().items() if name in SamplingSettings.model_fields}
        several = [prompt] if isinstance(prompt, str | Path | np.ndarray) else list(prompt)
        side = self.recipe.model.model_dump().get("picture", self.recipe.store.picture)
        prompts = [pictures.picture(one, side) if isinstance(one, Path) else one for one in several]
        chosen = build(SamplingSettings, {**settings, "stop": tuple(stop)}, "generate")
        assert isinstance(chosen, SamplingSettings)
        return Results(write(self.model, self.tokenizer, prompts, chosen, count=count, on_text=on_text, source=source))

    def best(
        self,
        prompt: str | Path | Sequence[str | Path] = "",
        *,
        rewards: Named | Sequence[Named],
        of: int = 8,
        keep: int = 1,
        references: Sequence[Any] = (),
        folder: str | Path | None = None,
        **settings: Any,
    ) -> list[list[Ranked]]:
        """For each prompt the best of several texts, as rewards have it; nothing is trained but what they must fit.

        `references` are those of the prompt, or, where there are several prompts, those of each; `settings` are
        `generate`'s.
        """
        one = isinstance(prompt, str | Path)
        prompts = [prompt] if isinstance(prompt, str | Path) else list(prompt)
        attempts = ranking.asked(prompts, [references] if one else references, seed=settings.get("seed", 0))
        made = rewarded(settings_of(rewards), Path(folder) if folder else desk(), TerminalConsole(stderr=True))

        def write(count: int) -> list[list[Written]]:
            return self.generate(prompts, count=count, **settings)

        return Results(ranking.best(write, attempts, made, of=of, keep=keep))

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """What it was taught with labels, by name: its task, or those whose heads came along with an import."""
        return tasks_of(self.revived)

    def task(self, name: str | None = None) -> Task:
        """Its task; a run without one says what it can do instead."""
        return the_task(self.tasks, self.revived, name)

    def predict(
        self, given: Given | Sequence[Given] | Table, *, task: str | None = None, top: int | None = None
    ) -> Any:
        """The task's answers: for one text or for a list of them; a mapping names its parts (question, passage).

        A DataFrame's columns are read like those of the run's own data. With `top` each answer is the list of its
        likeliest ones. Several answers are a list with `to_pandas()`.
        """
        if hasattr(given, "columns"):
            return self._predict_rows(given, task, top)
        found, one = self.task(task), isinstance(given, str | Mapping)
        several: Sequence[Given] = [given] if isinstance(given, str | Mapping) else list(given)
        samples = [asked(found, each, "" if one else f"text {n}") for n, each in enumerate(several, 1)]
        pairs = zip(answer(self.revived.learner, samples, task=found).answers, samples, strict=True)
        answers = [found.shown(*pair) if top is None else found.ranked(*pair, top) for pair in pairs]
        return answers[0] if one else Results(answers)

    def _predict_rows(self, table: Table, task: str | None, top: int | None) -> Results[Any]:
        found, data = self.task(task), self.recipe.data or DataSettings.model_validate({})
        with as_file(table) as path:
            samples = list(stream(str(path), data, found.shape))
        if wrong := [one for one in samples if isinstance(one, MeristemError)]:
            raise wrong[0]
        good = [one for one in samples if isinstance(one, Sample)]
        pairs = zip(answer(self.revived.learner, good, task=found).answers, good, strict=True)
        return Results(found.shown(*pair) if top is None else found.ranked(*pair, top) for pair in pairs)

    def score(
        self,
        texts: Prompt | Path | Iterable[Prompt | Path],
        text_b: str | Sequence[str] | None = None,
        order: Sequence[int] | None = None,
    ) -> list[Scored]:
        """Log-probabilities of texts, or of each `text_b` given its text (docs/using.md says how each family does it).

        With `text_b` an encoder-decoder takes the texts (a captioner pictures: files, or arrays [P, P, 3]) as sources
        and scores the targets; others score what follows, joined as it stands. Several `text_b` of one text are ranked,
        the best first. `order` is XLNet's order of factorisation: token numbers, the first predicted first.
        """
        one = isinstance(texts, str | Path | np.ndarray)
        several: list[Any] = [texts] if isinstance(texts, str | Path | np.ndarray) else list(texts)
        targets = [text_b] if isinstance(text_b, str) else None if text_b is None else list(text_b)
        if one and targets is not None:
            several *= len(targets)
        side = self.recipe.model.model_dump().get("picture", self.recipe.store.picture)
        read = [pictures.picture(each, side) if isinstance(each, Path) else each for each in several]
        scored = score(self.model, self.tokenizer, read, text_b=targets, order=order)
        return Results(sorted(scored, key=lambda each: -each.logprob) if one and targets is not None else scored)

    @overload
    def detect(self, text: str) -> list[DetectedToken]: ...

    @overload
    def detect(self, text: list[str]) -> list[list[DetectedToken]]: ...

    def detect(self, text: str | list[str]) -> list[DetectedToken] | list[list[DetectedToken]]:
        """Each token of a text with the probability that it was replaced, from a discriminator (ELECTRA)."""
        several = [text] if isinstance(text, str) else text
        found: Results[list[DetectedToken]] = Results(map(Results, detect(self.model, self.tokenizer, several)))
        return found[0] if isinstance(text, str) else found

    @overload
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        level: Literal["text"] = "text",
        layer: Layer = None,
        pooling: Pooling = "mean",
    ) -> torch.Tensor: ...

    @overload
    def embed(
        self, texts: str | Sequence[str], *, level: Literal["token", "word"], layer: Layer = None
    ) -> list[TokenVectors]: ...

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        level: Level = "text",
        layer: Layer = None,
        pooling: Pooling = "mean",
    ) -> torch.Tensor | list[TokenVectors]:
        """Vectors of texts: one per text [texts, width], or with `level` those of each text's tokens or words.

        `layer` is a number (0 the embeddings, −1 the last) or "mix": all layers by the weights that a task learned
        for them, or equally; the model's output unless given. `pooling` makes one vector of a text's states: their
        mean, the first or the last. Of an encoder-decoder the encoder is read.
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        framed = [frame(self.model, self.tokenizer, text) for text in several]
        if level == "text":
            return embed(self.model, framed, pooling, layer=layer)
        return token_vectors(self.model, self.tokenizer, several, framed, level=level, layer=layer)

    def truncated(self, text: str) -> int:
        """Tokens at the end of a text that the model has no room for, and that `embed` leaves out."""
        return frame(self.model, self.tokenizer, text).truncated

    def attention(self, text: str) -> tuple[list[str], list[torch.Tensor]]:
        """The tokens of a text, and per layer (an encoder's, if any) where each looks [heads, queries, keys]."""
        framed = frame(self.model, self.tokenizer, text)
        with resting(self.model):
            hidden = states(self.model, [framed], want=("attention",))
        tokens = self.tokenizer.pieces(framed.ids)
        return tokens, [layer[0].clone() for layer in hidden.extra.get("encoder_attention", hidden.attention)]

    def look(
        self,
        text: Given = "",
        *,
        target: str | None = None,
        picture: Path | Picture | None = None,
        order: Sequence[int] | None = None,
        before: str | None = None,
    ) -> Attended:
        """Where the run looks, every kind of attention it has, with tokens as a person reads them.

        A task run reads a text as its task does, or its parts by name; a captioner looks at a `picture`. `target` is
        what is written, found greedily unless given; `order` the factorisation of two streams, drawn unless given;
        `before` a text that a model with memory has just read.
        """
        size = self.recipe.model.model_dump().get("picture", self.recipe.store.picture)
        pixels = pictures.picture(picture, size) if isinstance(picture, Path) else picture
        own = (one for one in self.revived.learner.objectives.values() if isinstance(one, Task))
        told: dict[str, Any] = {"target": target, "picture": pixels, "order": order, "before": before}
        return look(self.model, self.tokenizer, text, run=self.revived.run.path.name, task=next(own, None), **told)

    def looks(self, texts: Iterable[Given]) -> Iterator[Attended]:
        """The same for many texts, one at a time: however many there are, one is held."""
        return (self.look(text) for text in texts)

    def evaluate(self, *, data: str | Path | Table | None = None, **options: Any) -> Evaluation:
        """Loss, perplexity, bits per byte, accuracies, minimal pairs; of a task run, the task's numbers.

        `data` is text or a labelled file, or a list of mappings or a DataFrame; the run's own test split unless given.
        With a `template` labelled samples are asked about in words, untrained: `words`, `shots` from `shot_data`,
        `calibrate` and the other settings of prompts. Metrics are under "metrics", and in `to_pandas()`.
        """
        with as_file(data) as path:
            if options.get("template") is not None:
                return Evaluation(evaluate_prompted(self.revived, data=path, **options))
            return Evaluation(evaluate_run(self.revived, console=TerminalConsole(stderr=True), data=path, **options))
