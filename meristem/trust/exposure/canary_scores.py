"""Log-probabilities of canaries and candidates under a run, by the kind of language model it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.corpus.canaries.templates import CanaryText
from meristem.generation.head_selection import LM_HEADS, LMKind, lm_kind_for, lm_kinds, lm_kinds_for
from meristem.generation.score import score
from meristem.generation.token_scores import Floats

TEXTS_PER_CALL = 128
"""Texts scored between two updates of the progress."""

ScoreProgress = Callable[[int], None]
"""Called with the number of texts scored since the last call."""


def scoring_kind(loaded_run: LoadedRun, sources: Iterable[str]) -> LMKind:
    """The kind of language model that scores a text of these sources: one that was trained on them, exact ones first.

    `source` is a model trained on pairs, which scores a secret given the text before it. Raises where none can.
    """
    model, objectives = loaded_run.learner.model, loaded_run.learner.objectives
    trained_heads = {head for name in sources if name in objectives for head in objectives[name].heads}
    kinds = lm_kinds_for(model, "score")
    if not kinds and model.source_kinds == frozenset({"text"}):
        return "source"
    own_kinds = [kind for kind in kinds if LM_HEADS[kind] in trained_heads]
    if not kinds:
        raise MeristemError(f"{loaded_run.run.path} has no exposure to measure: {_reason(loaded_run)}")
    return own_kinds[0] if own_kinds else kinds[0]


def _reason(loaded_run: LoadedRun) -> str:
    """Why a run cannot score texts."""
    model = loaded_run.learner.model
    if lm_kinds(model) == ("source",) and model.source_kinds == frozenset({"image"}):
        return "a captioner predicts texts from images only, and canaries have none"
    try:
        lm_kind_for(model, "score")
    except MeristemError as error:
        return str(error)
    return f"it is a {type(model.backbone).__name__} without a language-model head"


def is_trained_on_pairs(loaded_run: LoadedRun, kind: LMKind) -> bool:
    """Whether the model predicts a target from a source text, and cannot score a text alone."""
    return kind == "source" and not lm_kinds_for(loaded_run.learner.model, "score")


def score_texts(
    loaded_run: LoadedRun,
    kind: LMKind,
    texts: Sequence[CanaryText],
    progress: ScoreProgress = lambda scored: None,
) -> Floats:
    """[texts] log-probabilities; of a model trained on pairs that of the secret given the prefix."""
    model, tokenizer = loaded_run.learner.model, loaded_run.tokenizer
    on_pairs = is_trained_on_pairs(loaded_run, kind)
    logprobs: list[float] = []
    for first in range(0, len(texts), TEXTS_PER_CALL):
        batch = texts[first : first + TEXTS_PER_CALL]
        sources = [text.prefix.strip() if on_pairs else text.text for text in batch]
        targets = [text.text[text.secret_start :].strip() for text in batch] if on_pairs else None
        scores = score(model, tokenizer, sources, text_b=targets, lm_kind=kind)
        logprobs += [item.logprob for item in scores]
        progress(len(batch))
    return np.array(logprobs)
