"""Recipes by budget: which one to train in so many hours on a text, what it reads, and the loss to expect."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, read_recipe, resolve_recipe
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings
from meristem.data.text_units import HAN, KANA
from meristem.describe.describe_recipe import BYTES_PER_TOKEN, count_flops_and_parameters
from meristem.describe.loss_curve import ExpectedLoss, LossPoint, expected_loss

KINDS = {
    "encoder": "fills masks, embeds, classifies",
    "causal": "generates text",
    "encoder-decoder": "turns text into text",
}
BUDGETS = {"10m": 1 / 6, "1h": 1.0, "night": 8.0}
"""Suffix of a recipe → hours that it was made for."""
READ_SECONDS = 10.0
"""Time after which the size of a text is estimated no further."""
LANGUAGE_BYTES = 1_000_000
MANY_EPOCHS = 10
"""Passes over a text beyond which more text is advised: up to four are nearly as good as new text, most of the value of
repeating is gone by sixteen (Muennighoff et al. 2023)."""
_CJK = re.compile(f"[{HAN}{KANA}]")


@dataclass(frozen=True, kw_only=True)
class SourceSize:
    """The text that was given."""

    source: str
    megabytes: float
    complete: bool
    """False if only its beginning was read."""
    track: str
    """The track of the record table whose language it has."""

    @property
    def tokens(self) -> float:
        """Tokens of one pass, estimated."""
        return self.megabytes * 1e6 / BYTES_PER_TOKEN


@dataclass(frozen=True, kw_only=True)
class BudgetRecipe:
    """A recommended recipe."""

    kind: str
    purpose: str
    recipe: str
    parameters: int
    tokens: float
    """Tokens that it reads in the time, at the measured speed."""
    epochs: float | None
    """Passes over the text that was given."""
    flops: float
    expected: ExpectedLoss
    advice: str


def recipe_name(kind: str, hours: float) -> str:
    """The recipe whose budget is nearest, by ratio."""
    suffix = min(BUDGETS, key=lambda name: abs(math.log(hours / BUDGETS[name])))
    return f"{kind}-{suffix}"


def measure_source(source: str) -> SourceSize:
    """Size and language of a text; reading ends after some seconds."""
    reader = CorpusReader(CorpusSettings.model_validate({"source": source, "deduplicate": False, "processes": 1}))
    deadline, num_bytes, sampled, cjk_bytes, complete = time.monotonic() + READ_SECONDS, 0, 0, 0, True
    for document in reader:
        size = len(document.text.encode("utf-8", "surrogatepass"))
        num_bytes += size
        if sampled < LANGUAGE_BYTES:
            sampled, cjk_bytes = sampled + size, cjk_bytes + 3 * len(_CJK.findall(document.text))
        if time.monotonic() > deadline:
            complete = False
            break
    if not num_bytes:
        raise MeristemError(f"{source}: there is no text in it")
    track = "zhwiki" if cjk_bytes > 0.3 * sampled else "baby10m"
    return SourceSize(source=source, megabytes=num_bytes / 1e6, complete=complete, track=track)


def recommend(
    hours: float, flops_per_second: float, points: Sequence[LossPoint], source: SourceSize | None = None
) -> list[BudgetRecipe]:
    """One recipe of each kind for so many hours at this speed."""
    recommended = []
    for kind, purpose in KINDS.items():
        name = recipe_name(kind, hours)
        recipe = resolve_recipe(*read_recipe(name))
        assert isinstance(recipe, PretrainRecipe)  # as all recipes by budget
        flops_per_token, parameters = count_flops_and_parameters(recipe)
        flops = hours * 3600 * flops_per_second
        tokens = flops / flops_per_token
        epochs = None if source is None or not source.complete else tokens / source.tokens
        recommended.append(
            BudgetRecipe(
                kind=kind,
                purpose=purpose,
                recipe=name,
                parameters=parameters,
                tokens=tokens,
                epochs=epochs,
                flops=flops,
                expected=expected_loss(points, kind, "baby10m" if source is None else source.track, flops),
                advice=_advice(epochs),
            )
        )
    return recommended


def _advice(epochs: float | None) -> str:
    if epochs is None or epochs <= 1:
        return ""
    if epochs > MANY_EPOCHS:
        return (
            f"reads the text {epochs:.0f} times: more text, or less time; model.dropout=0.1 helps against overfitting"
        )
    return "reads the text more than once: dataset.shuffle_documents=true cuts it elsewhere each time"
