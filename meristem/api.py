"""The whole of Meristem from Python: pretrain, load, describe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console

from meristem.checkpoint.revive import Revived, revive
from meristem.evaluation.evaluate import evaluate as evaluate_run
from meristem.evaluation.held_out import resting
from meristem.generation.fill import Filled, fill
from meristem.generation.sampling import SamplingSettings
from meristem.generation.score import Scored, score
from meristem.generation.unmask import unmask
from meristem.generation.way import way_of
from meristem.generation.write import write
from meristem.generation.written import Written
from meristem.recipe import Recipe, read, resolve
from meristem.settings import build
from meristem.training import describe as describing
from meristem.training import pretraining
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


def describe(recipe: str | Path, overrides: Overrides = ()) -> describing.Description:
    """What a recipe is and what it costs here."""
    return describing.describe(recipe_for(recipe, overrides))


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
        self.way = way_of(self.model)

    def fill(self, text: str, *, top: int = 5) -> list[Filled]:
        """Ranked words for every [MASK]."""
        return fill(self.model, self.tokenizer, text, top=top)

    def generate(
        self,
        prompt: str | Sequence[str] = "",
        *,
        count: int = 1,
        on_text: Callable[[int, str], None] | None = None,
        **settings: Any,
    ) -> list[list[Written]]:
        """Texts that go on from each prompt; a masked model writes by filling masks over several rounds."""
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        chosen = build(SamplingSettings, settings, "generate")
        assert isinstance(chosen, SamplingSettings)
        if self.way == "causal":
            return write(self.model, self.tokenizer, prompts, chosen, count=count, on_text=on_text)
        return unmask(self.model, self.tokenizer, prompts, chosen, count=count, on_text=on_text)

    def score(self, texts: str | Iterable[str]) -> list[Scored]:
        """Log-probabilities: exact for causal models, pseudo for masked ones."""
        return score(self.model, self.tokenizer, [texts] if isinstance(texts, str) else list(texts), way=self.way)

    def embed(self, texts: Sequence[str], *, pooling: Literal["mean", "first", "last"] = "mean") -> torch.Tensor:
        """One vector per text [texts, width]: the mean of its states, or its first or last."""
        rows = []
        with resting(self.model):
            for text in texts:
                states = self._states(text)[0].last[0]
                rows.append({"mean": states.mean(0), "first": states[0], "last": states[-1]}[pooling])
        return torch.stack(rows).clone()

    def attention(self, text: str) -> tuple[list[str], list[torch.Tensor]]:
        """The tokens of a text, and per layer where each looks [heads, queries, keys]."""
        with resting(self.model):
            hidden, tokens = self._states(text, want=("attention",))
        return tokens, [layer[0].clone() for layer in hidden.attention]

    def _states(self, text: str, want: tuple[str, ...] = ()) -> tuple[Any, list[str]]:
        ids = self.tokenizer.encode(text, special=True).ids.tolist()
        start, end = self.tokenizer.start, self.tokenizer.end
        framed = (
            [start, *ids, end]
            if self.way != "causal" and start is not None and end is not None
            else (ids or [end or 0])
        )
        framed = framed[: self.recipe.model.length]
        tokens = torch.tensor([framed], device=self.model.device)
        ways = {"causal": True} if self.way == "causal" else {}
        return self.model.backbone(tokens=tokens, want=want, **ways), [self.tokenizer.token(i) for i in framed]

    def evaluate(self, **options: Any) -> dict[str, Any]:
        """Loss, perplexity, bits per byte, accuracies, minimal pairs."""
        return evaluate_run(self.revived, console=Console(stderr=True), **options)
